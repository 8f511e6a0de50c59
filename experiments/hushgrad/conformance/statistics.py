"""What chance allows: tests of noise and sampling, each with a stated false-alarm rate. Arrays in, numbers out.

ALARM is the chance of each test to accuse somebody who keeps the promise. Where a law is exact (chi-square, the
correlation of normals) its quantiles are used; where a mean of many terms is close to normal, the quantile of the
normal law is taken at ALARM / 10, so that what the approximation leaves out (a skewness or excess below 6 / n) is paid
for.
"""

import itertools
import math
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
from scipy import stats

ALARM: Final = 1e-7
"""Chance of a false alarm of each statistical check."""

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Bounds:
    """A value, and the interval in which chance leaves it but for once in 1 / ALARM."""

    value: float
    low: float
    high: float

    @property
    def inside(self) -> bool:
        """Says whether the value is in the interval."""
        return self.low <= self.value <= self.high


def normal_quantile(tests: int = 1) -> float:
    """Returns z such that |N(0, 1)| exceeds it with probability ALARM / 10 / tests."""
    return float(stats.norm.isf(ALARM / 20 / tests))


def deviation(noise: Floats, declared: float) -> Bounds:
    """Returns the root mean square of noise of mean zero, relative to the declared deviation.

    Args:
        noise: any shape, n independent normals.
        declared: their standard deviation.

    The sum of squares over declared^2 is chi-square with n degrees of freedom. The grid's own law, rounded to
    integers, has a variance within 1e-10 of it at the widths used here.
    """
    n = noise.size
    low, high = stats.chi2.ppf([ALARM / 2, 1 - ALARM / 2], n)
    found = float(np.sqrt(np.mean(np.square(noise)))) / declared
    return Bounds(found, math.sqrt(low / n), math.sqrt(high / n))


def shape(noise: Floats, declared: float) -> Bounds:
    """Returns the largest distance between the empirical law and the normal one.

    By the inequality of Dvoretzky, Kiefer, Wolfowitz and Massart it exceeds sqrt(ln(2 / ALARM) / 2n) with probability
    at most ALARM.
    """
    values = np.sort(noise.ravel()) / declared
    n = len(values)
    law = stats.norm.cdf(values)
    steps = np.arange(n + 1) / n
    distance = max(float(np.max(steps[1:] - law)), float(np.max(law - steps[:-1])))
    return Bounds(distance, 0.0, math.sqrt(math.log(2 / ALARM) / (2 * n)))


def between_coordinates(noise: Floats) -> Bounds:
    """Returns the largest correlation between two coordinates of noise of shape (rounds, coordinates).

    For independent normals r sqrt((n - 2) / (1 - r^2)) has Student's law with n - 2 degrees of freedom; the union bound
    covers all pairs.
    """
    n, width = noise.shape
    pairs = list(itertools.combinations(range(width), 2))
    constant = float(noise.std(axis=0).min()) == 0
    matrix = np.ones((width, width)) if constant else np.asarray(np.corrcoef(noise, rowvar=False))
    found = max((float(abs(matrix[i, j])) for i, j in pairs), default=0.0)
    t = float(stats.t.isf(ALARM / 2 / len(pairs), n - 2))
    return Bounds(found, 0.0, t / math.sqrt(n - 2 + t * t))


def between_updates(values: Floats, lags: int = 8) -> Bounds:
    """Returns the largest correlation between a round and one of the `lags` following rounds.

    Args:
        values: shape (rounds, coordinates), independent, of mean zero and any one variance.

    The mean of n products of independent values of variance v is close to normal with deviation v / sqrt(n).
    """
    v = float(np.mean(np.square(values)))
    if v == 0:
        return Bounds(1.0, 0.0, 0.0)
    worst, room = 0.0, math.inf
    for lag in range(1, lags + 1):
        products = values[lag:] * values[:-lag]
        limit = normal_quantile(lags) / math.sqrt(products.size)
        found = abs(float(products.mean())) / v
        if room == math.inf or found / limit > worst / room:
            worst, room = found, limit
    return Bounds(worst, 0.0, room)


def mean(values: Floats, variance: float, expected: float) -> Bounds:
    """Returns the mean of n independent values of known variance, and where it must lie."""
    room = normal_quantile() * math.sqrt(variance / values.size)
    return Bounds(float(values.mean()), expected - room, expected + room)


def variance(values: Floats, expected: float, excess: float) -> Bounds:
    """Returns the mean square deviation from the mean of n independent values, and where it must lie.

    Args:
        values: shape (n,).
        expected: their variance.
        excess: their excess kurtosis; the estimate has relative variance (2 + excess) / n.
    """
    room = normal_quantile() * math.sqrt((2 + excess) / values.size)
    return Bounds(float(values.var()), expected * max(0.0, 1 - room), expected * (1 + room))


def largest(values: Floats, limit: float, deviation: float) -> Bounds:
    """Returns the largest absolute value of n values that are at most `limit` before normal noise is added."""
    z = float(stats.norm.isf(ALARM / 2 / values.size))
    return Bounds(float(np.abs(values).max()), 0.0, limit + z * deviation)


def low_bits(values: npt.NDArray[np.int64], bits: int) -> Bounds:
    """Returns the chi-square statistic of the lowest bits of integers, which must be uniform.

    A normal law that is s grid steps wide, reduced modulo 2^bits, differs from the uniform one by less than
    2 exp(-2 (pi s / 2^bits)^2): nothing, at the widths used here.
    """
    cells = 1 << bits
    counts = np.bincount(np.bitwise_and(values.ravel(), cells - 1), minlength=cells)
    expected = values.size / cells
    return Bounds(float(np.square(counts - expected).sum() / expected), 0.0, float(stats.chi2.isf(ALARM, cells - 1)))


def repeats(noise: npt.NDArray[np.int64]) -> int:
    """Returns how many rows of shape (rounds, coordinates) equal an earlier row."""
    return len(noise) - len(np.unique(noise, axis=0))
