"""Attacks on the digits of noise, with the wrong samplers that they break. None of these samplers is in the product.

Noise in floating point leaks by its last digits: a sum x + n with n near -x keeps digits that no x' + n' can have. And
noise by Box and Muller's method from 53 random bits leaks by its rare large values: a pair's radius is
sqrt(-2 ln(k 2^-53)) for an integer k, and for small k the attainable radii are further apart than the grid is fine.

In formulas: s the standard deviation of the noise in grid steps, k the integer behind a radius.

Reference:
    Mironov, "On Significance of the Least Significant Bits for Differential Privacy", CCS 2012; Holohan and Braghin,
    "Secure Random Sampling in Differential Privacy", ESORICS 2021.
"""

import math
from fractions import Fraction

import numpy as np
import numpy.typing as npt
from hushgrad.client import noise

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


def impossible(released: npt.NDArray[np.floating], true_value: float) -> npt.NDArray[np.bool_]:
    """Says which releases cannot be `true_value` plus noise, added in the releases' own precision."""
    value = released.dtype.type(true_value)
    guess = released - value
    tries = (guess, np.nextafter(guess, -np.inf, dtype=guess.dtype), np.nextafter(guess, np.inf, dtype=guess.dtype))
    return ~np.any([value + noise_ == released for noise_ in tries], axis=0)


def float_release(
    generator: np.random.Generator, true_value: float, count: int, precision: type[np.floating]
) -> npt.NDArray[np.floating]:
    """The wrong way: standard normal noise drawn and added in floating point, shape (count,)."""
    return precision(true_value) + generator.standard_normal(count, dtype=precision)


def box_muller(generator: np.random.Generator, scale: float, count: int, *, bits: int, below: float = 1.0) -> Integers:
    """The wrong way on a grid: pairs from `bits` random bits each, rounded to integers, shape (count, 2).

    Args:
        generator: makes the bits.
        scale: s.
        count: how many pairs.
        bits: 53 or 24, what double and single precision hold.
        below: draw the radius from its share so far out only: k <= below * 2^bits. All that is left out is smaller.
    """
    k = generator.integers(1, int(below * 2**bits), count, endpoint=True)
    radius = scale * np.sqrt(-2 * (np.log(k) - bits * math.log(2)))
    angle = 2 * math.pi * generator.random(count)
    return np.rint(np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)).astype(np.int64)


def radius_impossible(pairs: Integers, mean: Integers, scale: float, *, bits: int) -> npt.NDArray[np.bool_]:
    """Says which pairs cannot be `mean` plus such noise: no integer k gives a radius that rounds to theirs.

    Args:
        pairs: shape (n, 2), in grid steps.
        mean: shape (2,), what the sums would be.
        scale, bits: of `box_muller`.
    """
    away = np.abs(pairs - mean).astype(np.float64)
    near, far = (np.square(np.maximum(away + half, 0)).sum(axis=1) / (2 * scale**2) for half in (-0.5, 0.5))
    # A little wider than exact, so that rounding errors of the square root and the logarithm accuse nobody.
    highest = np.floor(np.exp(bits * math.log(2) - near) * (1 + 1e-9))
    lowest = np.ceil(np.maximum(np.exp(bits * math.log(2) - far) * (1 - 1e-9), 0.5))
    return highest < lowest


class ExactLaw:
    """The law of the product's own noise, read off its tables: P(b X + Y = n) is a sum over few x.

    Args:
        tables: as the client builds them.
    """

    def __init__(self, tables: noise.GaussianTables) -> None:
        self.scale, self.stride = tables.scale, tables.stride
        self._x, self._y = (_probabilities(table) for table in (tables.x, tables.y))

    def log_probability(self, values: Integers) -> Floats:
        """Returns ln P(n) for integers n of any shape; -inf where no draw gives n."""
        x_last, y_last = len(self._x) // 2, len(self._y) // 2
        reach = -(-y_last // self.stride) + 1
        x = np.floor_divide(values, self.stride)[..., np.newaxis] + np.arange(-reach, reach + 2)
        y = values[..., np.newaxis] - self.stride * x
        inside = (abs(x) <= x_last) & (abs(y) <= y_last)
        terms = np.where(inside, self._x[np.where(inside, x, 0) + x_last] * self._y[np.where(inside, y, 0) + y_last], 0)
        with np.errstate(divide="ignore"):
            return np.log(terms.sum(axis=-1))

    def ideal(self, values: Integers) -> Floats:
        """Returns ln of the discrete Gaussian's probabilities."""
        return -np.square(values / self.scale) / 2 - math.log(self.scale * math.sqrt(2 * math.pi))

    def far_pairs(self, generator: np.random.Generator, count: int, below: float) -> Integers:
        """Draws pairs of which the ideal radius is as rare as `below`, by rejection, shape (count, 2) or a little less.

        Proposals are rounded normals of that radius; each is kept with the probability that the tables give it,
        relative to the proposal's law.
        """
        radius = self.scale * np.sqrt(-2 * np.log(below * (1 - generator.random(count))))
        angle = 2 * math.pi * generator.random(count)
        found = np.rint(np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)).astype(np.int64)
        ratio = (self.log_probability(found) - self.ideal(found)).sum(axis=1)
        return found[np.log(generator.random(count)) < ratio - 1e-3]


def _probabilities(table: noise.AliasTable) -> Floats:
    """Returns P of -last .. last; each float is within 2^-52 of the exact fraction."""
    weights, one = table.weights(), 2 ** (64 + table.cell_bits)
    last = max(abs(value) for value, weight in weights.items() if weight)
    return np.array([float(Fraction(weights.get(value, 0), one)) for value in range(-last, last + 1)])
