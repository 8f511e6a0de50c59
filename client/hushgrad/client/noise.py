"""Integer noise: the discrete Gaussian, from tables that are exact to 2^-64 and more.

The discrete Gaussian of scale s gives the integer n a probability proportional to exp(-n^2 / 2 s^2). A table for s =
2^16 would have over a million entries, so n is drawn as b X + Y from two much narrower ones, where

    b = 2^ceil(log2(s) / 2),    s_Y = 1.7 b,    s_X = sqrt(s^2 - s_Y^2) / b.

How far one coordinate is from the ideal, in total variation (TV):

- The convolution, with X and Y ideal. P(n) is proportional to sum_x exp(-x^2 / 2 s_X^2 - (n - b x)^2 / 2 s_Y^2).
  Completing the square gives exp(-n^2 / 2 s^2) F(n), where F(n) sums a Gaussian of variance w^2 = s_X^2 s_Y^2 / s^2
  = 1.7^2 (1 - s_Y^2 / s^2) over a shifted copy of the integers. By Poisson summation F is a constant times 1 + h(n)
  with |h| <= H = 2 sum_{k>=1} exp(-2 pi^2 k^2 w^2), so TV <= H / (1 - H). As b < 2 sqrt(s), s_Y^2 / s^2 < 11.56 / s,
  and H < 4e-25 for s >= 2^12, H < 6e-24 for s >= 2^8. (`convolution_bound` computes it.)
- The tails. Each table ends at R = ceil(9.3 s_t). The discrete tail sum_{|j|>R} exp(-j^2 / 2 s_t^2) is at most the
  continuous one beyond 9.3 s_t, and the whole sum at least s_t sqrt(2 pi): at most P(|Z| > 9.3) < 1.5e-20 for each
  table, 3e-20 for both.
- The rounding. Weights are rounded to the nearest multiple of 2^-(64+m), at most 2^m of them, and what then lacks from
  or exceeds 1 is put on the largest: TV <= 2^m 2^-(64+m) / 2 = 2^-65 for each table, and below 2^-63 = 1.1e-19 for
  both with room for the fixed-point arithmetic (2^-160).

Together below 2e-19. The draw itself adds nothing: m random bits pick a cell of an alias table and one comparison of 64
more picks one of the cell's two values, so that every value has exactly its rounded weight.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

import numpy as np
import numpy.typing as npt
from hushgrad.client import fast
from hushgrad.client.errors import InputError
from hushgrad.client.stream import RandomStream
from hushgrad.wire.grid import INT32_MAX

MIN_SCALE: Final = 2.0**8
"""Below it the bound of the convolution, and with it of the whole, would grow; the terms' grid has s >= 2^16."""

MAX_SCALE: Final = 2.0**22
"""Above it a table would need more than 2^16 cells."""

TOTAL_VARIATION: Final = 2e-19
"""Bound of the total variation between one drawn coordinate and the discrete Gaussian."""

CUT: Final = Fraction(93, 10)
"""Where a table ends, in standard deviations."""

_MAX_CELL_BITS: Final = 16
_FIXED_BITS: Final = 192
_WORD: Final = 2**64
_BLOCK: Final = 8192
"""Draws made together: their temporaries and the tables fit into the second-level cache."""


class ScaleError(InputError, ValueError):
    """Noise of this scale cannot be drawn within the promised bound."""


@dataclass(frozen=True, slots=True)
class AliasTable:
    """A distribution over -radius .. radius with probabilities that are multiples of 2^-(64+m).

    Cell i of the 2^m cells gives own[i] when 64 random bits are below threshold[i], else other[i].

    Attributes:
        threshold: uint64, shape (2^m,). A cell that always gives own[i] has other[i] = own[i].
        own: int32, shape (2^m,).
        other: int32, shape (2^m,).
    """

    threshold: npt.NDArray[np.uint64]
    own: npt.NDArray[np.int32]
    other: npt.NDArray[np.int32]

    @property
    def cell_bits(self) -> int:
        """m."""
        return len(self.threshold).bit_length() - 1

    def weights(self) -> dict[int, int]:
        """Returns what the table gives, exactly: value to probability times 2^(64+m)."""
        weights: dict[int, int] = {}
        for threshold, own, other in zip(self.threshold.tolist(), self.own.tolist(), self.other.tolist(), strict=True):
            weights[own] = weights.get(own, 0) + threshold
            weights[other] = weights.get(other, 0) + _WORD - threshold
        return weights


class GaussianTables:
    """Draws from the discrete Gaussian of one scale.

    Building takes some 10 ms at s = 2^16 and 0.2 s at s = 2^22; a draw some 20 ns, or 20 us for a few.

    Args:
        scale: s = sigma * C / G, the standard deviation in grid steps, 2^8 to 2^22.

    Raises:
        ScaleError: if the scale is out of that range.
    """

    __slots__ = ("_mask", "_offset", "_pairs", "_threshold", "scale", "stride", "x", "y")

    def __init__(self, scale: float) -> None:
        self.scale: Final = scale
        b, x_variance, y_variance = split(scale)
        self.stride: Final = b
        """b."""
        self.x: Final = alias_table(rounded_weights(x_variance))
        self.y: Final = alias_table(rounded_weights(y_variance))
        # One pair of tables behind each other, X scaled by b beforehand: one draw of 2n indices serves both.
        self._mask: Final = (np.uint16(len(self.x.threshold) - 1), np.uint16(len(self.y.threshold) - 1))
        self._offset: Final = len(self.x.threshold)
        self._threshold: Final = np.concatenate([self.x.threshold, self.y.threshold])
        own, other = np.concatenate([b * self.x.own, self.y.own]), np.concatenate([b * self.x.other, self.y.other])
        # Both values of a cell beside each other: what is not below the threshold takes the second.
        self._pairs: Final = np.stack([own, other], axis=1).ravel()

    def draw(self, stream: RandomStream, count: int) -> npt.NDArray[np.int64]:
        """Returns `count` independent draws, shape (count,), from the noise lane: 20 bytes each.

        Every draw is within 2e-19, in total variation, of the discrete Gaussian of scale s.
        """
        if count <= _BLOCK:
            return self.look_up(*self.bits(stream, count))
        compiled = fast.kernels() if count >= fast.WORTH else None
        noise = np.empty(count, np.int64)
        for start in range(0, count, _BLOCK):
            part = noise[start : start + _BLOCK]
            if compiled is None:
                part[:] = self.look_up(*self.bits(stream, len(part)))
                continue
            compiled.mixture(*self.bits(stream, len(part)), *self.tables, part)
        return noise

    def released(self, stream: RandomStream, total: npt.NDArray[np.float64], per_step: float) -> npt.NDArray[np.int32]:
        """Returns total * per_step to nearest plus as many draws, each within +-(2^31 - 1), shape (count,).

        Args:
            stream: its noise lane is used, as by `draw`.
            total: shape (count,); a NaN gives any number.
            per_step: a power of two.
        """
        count = len(total)
        compiled = fast.kernels() if count >= fast.WORTH else None
        if compiled is None:
            return saturated(total * per_step, self.draw(stream, count))
        update = np.empty(count, np.int32)
        for start in range(0, count, _BLOCK):
            part = slice(start, min(start + _BLOCK, count))
            bits = self.bits(stream, part.stop - start)
            compiled.release(*bits, *self.tables, total[part], per_step, update[part])
        return update

    @staticmethod
    def bits(stream: RandomStream, count: int) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint16]]:
        """Returns the random bits of `count` draws, 8192 at most: words and cells, both of shape (2 count,)."""
        return stream.uint64("noise", 2 * count), stream.uint16("noise", 2 * count)

    @property
    def tables(self) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.int32], np.uint16, np.uint16, int]:
        """What compiled code needs of the tables, in the order of `fast.Kernels.mixture`."""
        return self._threshold, self._pairs, *self._mask, self._offset

    def look_up(self, words: npt.NDArray[np.uint64], bits: npt.NDArray[np.uint16]) -> npt.NDArray[np.int64]:
        """Returns the draws that those bits give, shape (count,)."""
        count = len(words) // 2
        cells = bits.astype(np.intp)
        cells[:count] &= self._mask[0]
        cells[count:] &= self._mask[1]
        cells[count:] += self._offset
        second = words >= self._threshold.take(cells, mode="wrap")  # no cell is out of range: "wrap" alone is fastest
        cells += cells
        cells += second
        values = self._pairs.take(cells, mode="wrap")
        return np.add(values[:count], values[count:], dtype=np.int64)


def saturated(steps: npt.NDArray[np.float64], drawn: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
    """Returns the steps to nearest plus what was drawn, each within +-(2^31 - 1), shape (count,)."""
    update = np.rint(steps)
    # Integers in float64: exact below 2^53, and what is beyond saturates. Five times as fast as in int64.
    update += drawn
    np.maximum(update, -INT32_MAX, out=update)
    np.minimum(update, INT32_MAX, out=update)
    return update.astype(np.int32)


def split(scale: float) -> tuple[int, Fraction, Fraction]:
    """Returns b and the exact variances of X and Y for the scale s.

    Raises:
        ScaleError: unless 2^8 <= s <= 2^22.

    >>> split(65536.0)[0]
    256
    """
    if not MIN_SCALE <= scale <= MAX_SCALE:
        raise ScaleError(
            f"the noise must be 2^8 to 2^22 grid steps wide, found {scale:.6g} = noise_multiplier * clip_norm / "
            "2^grid_exponent; change the grid exponent"
        )
    exponent = 0
    while 4**exponent < scale:
        exponent += 1
    b = 2**exponent
    y_variance = Fraction(17, 10) ** 2 * b**2
    return b, (Fraction(scale) ** 2 - y_variance) / b**2, y_variance


def convolution_bound(scale: float) -> float:
    """Returns an upper bound of the total variation between b X + Y, X and Y ideal, and the ideal of scale s.

    >>> convolution_bound(2.0**16) < 4e-25
    True
    """
    b, _, y_variance = split(scale)
    width = float(y_variance / b**2 * (1 - y_variance / Fraction(scale) ** 2))
    h = 2 * math.exp(-2 * math.pi**2 * width) * 1.0001  # later terms of the sum are below exp(-150) of the first
    return h / (1 - h)


def radius(variance: Fraction) -> int:
    """Returns ceil(9.3 * sqrt(variance)), exactly."""
    return math.isqrt(math.ceil(CUT**2 * variance) - 1) + 1


def rounded_weights(variance: Fraction) -> list[int]:
    """Returns the weights of 0 .. radius of a discrete Gaussian, as integers.

    Weight j is that of j and of -j. In units of 2^-(64+m), 2^m the number of cells, all together (both signs)
    add up to 1 exactly, and each is within 1/2 of the ideal of the cut distribution, but that of 0, which makes up for
    the rest.
    """
    last = radius(variance)
    cell_bits = (2 * last).bit_length()
    if cell_bits > _MAX_CELL_BITS:
        raise ScaleError(f"a table of {2 * last + 1} entries exceeds 2^{_MAX_CELL_BITS} cells")
    # exp(-j^2 / 2V) in fixed point: each factor is the one before times exp(-1 / V).
    factor = _exp_of_minus(1 / (2 * variance))
    ratio = _exp_of_minus(1 / variance)
    powers = [1 << _FIXED_BITS]
    for _ in range(last):
        powers.append(powers[-1] * factor >> _FIXED_BITS)
        factor = factor * ratio >> _FIXED_BITS
    total = powers[0] + 2 * sum(powers[1:])
    shift = 64 + cell_bits
    weights = [((power << shift + 1) + total) // (2 * total) for power in powers]
    weights[0] += (1 << shift) - weights[0] - 2 * sum(weights[1:])
    return weights


def _exp_of_minus(x: Fraction) -> int:
    """Returns exp(-x) * 2^192 for 0 < x < 1, within a few units: the alternating series, term by term."""
    term, total, k = 1 << _FIXED_BITS, 0, 0
    while term:
        total += term if k % 2 == 0 else -term
        k += 1
        term = term * x.numerator // (x.denominator * k)
    return total


def alias_table(weights: list[int]) -> AliasTable:
    """Returns the alias table of a symmetric distribution, exactly.

    Args:
        weights: of 0 .. radius, as `rounded_weights` makes them.

    Reference:
        Vose, "A linear algorithm for generating random numbers with a given distribution", 1991; here in integers.
    """
    last = len(weights) - 1
    cells = 1 << (2 * last).bit_length()
    left = [weights[abs(value)] for value in range(-last, last + 1)] + [0] * (cells - 2 * last - 1)
    if sum(left) != cells * _WORD:
        raise ValueError(f"weights must add up to 2^64 times {cells} cells, found {sum(left)}")
    own = np.arange(-last, cells - last, dtype=np.int32)
    other, threshold = own.copy(), np.zeros(cells, np.uint64)
    small = [cell for cell in range(cells) if left[cell] < _WORD]
    large = [cell for cell in range(cells) if left[cell] >= _WORD]
    while small:
        cell, donor = small.pop(), large[-1]
        threshold[cell] = left[cell]
        other[cell] = own[donor]
        left[donor] -= _WORD - left[cell]
        if left[donor] < _WORD:
            small.append(large.pop())
    # What remains is full: exactly 2^64, which no uint64 holds, so own and other stay equal and 0 will do.
    return AliasTable(threshold=threshold, own=own, other=other)
