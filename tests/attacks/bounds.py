"""From scores of many runs to a lower bound on epsilon. Arrays in, numbers out; where scores come from is unknown here.

Two neighbouring data sets were run many times each, every run gave one score. A run is guessed to be of the second data
set when its score exceeds a threshold, which is chosen on other runs than those that are counted. With alpha the chance
of a false guess on the first data set and beta that of a missed one on the second, (epsilon, delta)-differential
privacy demands, for this test and for its complement,

    1 - beta <= e^epsilon alpha + delta   and   1 - alpha <= e^epsilon beta + delta.

Counting gives upper limits of alpha and beta by Clopper and Pearson, each with probability 1 - ALARM / 2, so both hold
together with 1 - ALARM. Two bounds follow from limits like these.

- `of_any`: the largest epsilon for which one of the two lines is broken at the claim's delta. It assumes nothing about
  what was run.
- `of_family`: the epsilon at the claim's delta of the claimed mechanism with as much noise as the limits allow. A claim
  says more than one point: the accountant has a whole curve delta(epsilon), and the limits must respect it everywhere.
  The largest noise multiplier whose curve they respect is an upper limit of the real one if the mechanism is the
  claimed one with another noise multiplier, and only then the number is a bound for other mechanisms. But when it is
  above the claim, the claimed curve itself is refuted, whatever was run.

Reference:
    Nasr et al., "Tight Auditing of Differentially Private Machine Learning", USENIX Security 2023, for the second;
    Jagielski, Ullman and Oprea, "Auditing Differentially Private Machine Learning", NeurIPS 2020, for the first.
"""

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from hushgrad.accountant import claims
from hushgrad.accountant.claims import Adjacency, RoundGroup, Sampling
from scipy import stats

ALARM: Final = 1e-6
"""Chance that a bound exceeds the truth."""

CALIBRATION_SHARE: Final = 0.25
"""Runs that choose the threshold and are not counted."""

_THRESHOLDS: Final = 400
_LEAST_NOISE, _MOST_NOISE = 0.05, 100.0
_LOSSES: Final = np.arange(0.0, 16.0, 0.02)

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Limits:
    """What holds of one test's two errors with probability 1 - ALARM: alpha and beta are at most so large."""

    alpha: float
    beta: float


@dataclass(frozen=True, slots=True)
class Claimed:
    """What the accountant says of a run.

    Attributes:
        epsilon, delta: the claim.
        adjacency, sampling: of it.
        groups: the rounds as charged; none: nothing but the claim is known, and `of_family` cannot be used.
    """

    epsilon: float
    delta: float
    adjacency: Adjacency
    sampling: Sampling
    groups: tuple[RoundGroup, ...]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What an audit found.

    Attributes:
        runs: counted runs of each data set.
        any, any_cap: `of_any`, and what it would be if no guess had been wrong.
        family, family_cap: the same of `of_family`; NaN where it cannot be used.
    """

    claimed: float
    runs: int
    any: float
    any_cap: float
    family: float
    family_cap: float

    @property
    def broken(self) -> bool:
        """Says whether either bound is above the claim."""
        return self.any > self.claimed or self.family > self.claimed


def judge(first: Floats, second: Floats, claimed: Claimed, *, in_family: bool = True) -> Verdict:
    """Returns both bounds.

    Args:
        first, second: shape (n,), scores of runs of either data set, in the order in which they were made.
        claimed: what the runs should keep.
        in_family: whether to compute the second bound, which takes a second or two.
    """
    n = min(len(first), len(second))
    cut = int(CALIBRATION_SHARE * n)
    calibration, counted = (first[:cut], second[:cut]), (first[cut:n], second[cut:n])
    delta = claimed.delta

    def by_any(limits: Limits) -> float:
        return of_any(limits, delta)

    best = counted_at(threshold(*calibration, n - cut, by_any), *counted)
    none_wrong = limits_of(0, 0, n - cut)
    family = family_cap = math.nan
    if claimed.groups and in_family:
        balanced = counted_at(threshold(*calibration, n - cut, _normal_distance), *counted)
        family, family_cap = of_family(balanced, claimed), of_family(none_wrong, claimed)
    return Verdict(claimed.epsilon, n - cut, by_any(best), by_any(none_wrong), family, family_cap)


def limits_of(false: int, missed: int, runs: int) -> Limits:
    """Returns the limits that counts of wrong guesses among so many runs of each data set allow."""
    return Limits(*(float(_upper(count, runs)) for count in (false, missed)))


def threshold(first: Floats, second: Floats, runs: int, value: Callable[[Limits], float]) -> float:
    """Returns the threshold that would be worth most if `runs` more runs went as these did."""
    candidates = np.quantile(np.concatenate([first, second]), np.linspace(0, 1, _THRESHOLDS))
    candidates = np.unique(np.concatenate([candidates, np.nextafter(candidates, -np.inf)]))
    false = np.array([np.mean(first > at) for at in candidates]) * runs
    missed = np.array([np.mean(second <= at) for at in candidates]) * runs
    worth = [value(Limits(*pair)) for pair in zip(_upper(false, runs), _upper(missed, runs), strict=True)]
    return float(candidates[int(np.argmax(worth))])


def counted_at(at: float, first: Floats, second: Floats) -> Limits:
    """Returns the limits of the test with this threshold."""
    return limits_of(int(np.sum(first > at)), int(np.sum(second <= at)), len(first))


def of_any(limits: Limits, delta: float) -> float:
    """Returns the largest epsilon >= 0 at which the limits break (epsilon, delta)-differential privacy."""
    found = 0.0
    for error, other in ((limits.alpha, limits.beta), (limits.beta, limits.alpha)):
        if 1 - other - delta > error:
            found = max(found, math.log((1 - other - delta) / error))
    return found


def of_family(limits: Limits, claimed: Claimed) -> float:
    """Returns the epsilon of the claimed mechanism with the most noise that the limits allow; see the module."""
    low = high = 1.0  # factors of the noise multiplier, to become: respected, refuted
    while not refuted(limits, claimed, high):
        low, high = high, 1.6 * high
        if high > _MOST_NOISE:
            return 0.0
    while low == high or refuted(limits, claimed, low):
        low, high = low / 1.6, low
        if low < _LEAST_NOISE:
            return math.inf
    while high / low > 1.004:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if refuted(limits, claimed, middle) else (middle, high)
    return curve(claimed, low).epsilon(claimed.delta)


def refuted(limits: Limits, claimed: Claimed, factor: float) -> bool:
    """Says whether the limits break the curve of the claimed mechanism with `factor` times its noise."""
    composed = curve(claimed, factor).distribution.distributions
    allowed = np.max([_deltas(pmf) for pld in composed for pmf in (pld._pmf_remove, pld._pmf_add)], axis=0)
    for error, other in ((limits.alpha, limits.beta), (limits.beta, limits.alpha)):
        if np.any(1 - other > np.exp(_LOSSES) * error + allowed):
            return True
    return False


def _deltas(pmf: Any) -> Floats:
    """Returns delta at _LOSSES of a distribution of losses: the sum of p(l) (1 - e^(epsilon - l)) over l > epsilon.

    What the library computes one epsilon after the other, in a second.
    """
    losses = (pmf._lower_loss + np.arange(len(pmf._probs))) * pmf._discretization
    zero = np.zeros(1)
    beyond, weighted = (
        np.concatenate([np.cumsum(values[::-1])[::-1], zero]) for values in (pmf._probs, pmf._probs * np.exp(-losses))
    )
    first = np.searchsorted(losses, _LOSSES, side="right")
    return pmf._infinity_mass + np.maximum(beyond[first] - np.exp(_LOSSES) * weighted[first], 0.0)


@functools.lru_cache(maxsize=256)
def curve(claimed: Claimed, factor: float) -> claims.Curve:
    """Returns the curve of the claimed rounds with `factor` times their noise."""
    groups = [
        RoundGroup(group.sampling_probability, factor * group.noise_multiplier, group.rounds)
        for group in claimed.groups
    ]
    return claims.privacy_curve(groups, sampling=claimed.sampling, adjacency=claimed.adjacency, quick=True)


def _normal_distance(limits: Limits) -> float:
    """Returns how far apart two normal laws of variance 1 are that a test with these errors tells apart."""
    return float(-stats.norm.ppf(min(limits.alpha, 1 - 1e-12)) - stats.norm.ppf(min(limits.beta, 1 - 1e-12)))


def _upper(count: npt.ArrayLike, runs: int) -> Floats:
    """Returns the upper limit of Clopper and Pearson, one-sided, at ALARM / 2; 1 where everything was wrong."""
    count = np.asarray(count, np.float64)
    upper = stats.beta.isf(ALARM / 2, np.minimum(count + 1, runs), np.maximum(runs - count, 1e-9))
    return np.where(count >= runs, 1.0, upper)
