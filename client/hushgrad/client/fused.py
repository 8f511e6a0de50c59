"""A whole Poisson round of logistic regression in one compiled call: the same bits as numpy in a quarter of the time.

Which records take part and what noise is added are integers, made from the same random bits by the same rules. The sum
of clipped gradients is a float that is rounded to the grid, and the compiled sum adds in another order. So it comes
with a bound, and where a coordinate is closer to the middle of two grid steps than that, the call gives up and numpy
makes the sum: what is released never depends on who computed it, and what is proven of the numpy way holds for both.

The bound. Let u = 2^-53, X = ||(x, 1)||, and reach >= ||(w, b)||. In either way, in any order of summation,

- a score is off by at most (f + 3) u X reach, and a residual R by a quarter of that and 16 u |R|;
- without penalty a clipped record's length is min(|R| X, C), which changes by no more than |R| X does, and by (f + 32)
  u C for the norm's own rounding;
- with a penalty of omega = r C (r <= 2, else nothing is fused) a norm N >= C has |R| X <= N + omega <= (1 + r) N, so N
  changes by at most (1 + 2 r) X per unit of R, and with both parts of it a record's vector by at most 1 + (1 + 2 r)^2
  times X and what R does; N^2 itself is off by at most 13 (3 f + 34) u N^2, the vector by 200 (f + 16) u C for that;
- summing n vectors of length <= 5 C (C without penalty) adds (n + 400) u times that for each.

Twice the sum of these, for two ways, is below what `_sums` adds up for every record.
"""

import math
import os
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from hushgrad.client import fast

WORTH: Final = 30_000
"""Rounds of one process before anything is compiled: that takes a second or two, which as many rounds earn."""

MAX_PARAMETERS: Final = 8192
"""Wider models are no faster this way, and draw their noise in several blocks."""

GAVE_UP: Final = -1
"""The call changed nothing that counts; numpy makes the round from the same bits."""

_rounds = 0
_compiled: Any = None
_tried = False


def kernel() -> Any:
    """Counts a round, and returns the compiled round where it is worth having, else None.

    HUSHGRAD_FAST=1 has it from the first round, 0 never; else it comes after `WORTH` rounds.
    """
    global _rounds, _compiled, _tried
    _rounds += 1
    if _tried or (_rounds < WORTH and os.environ.get("HUSHGRAD_FAST") != "1"):
        return _compiled
    _tried = True
    if fast.available():
        _compiled = _compile()
    return _compiled


def _compile() -> Any:
    try:
        import numba
    except Exception:  # a numba that does not fit this numpy is as good as none
        return None
    # Sums may be reordered, for the bound holds in any order; NaN and infinity keep their meaning.
    sums = numba.njit(_sums, nogil=True, fastmath={"reassoc", "contract", "nsz"})
    return numba.njit(_round_with(sums, numba.njit(_choose, nogil=True)), nogil=True)


def _choose(
    words: npt.NDArray[np.uint64], thresholds: npt.NDArray[np.uint64], rows: int, chosen: npt.NDArray[np.int64]
) -> int:
    """As `sampling.poisson` with these words; how many were chosen, or GAVE_UP when the words do not reach the end."""
    length, end, count = len(thresholds), -1, 0
    for word in words:
        low, high = 0, length
        while low < high:
            middle = (low + high) >> 1
            if word < thresholds[middle]:
                high = middle
            else:
                low = middle + 1
        end += min(low + 1, length)
        if end >= rows:
            return count
        if low < length:
            chosen[count] = end
            count += 1
        if end == rows - 1:
            return count
    return GAVE_UP


def _sums(
    features: npt.NDArray[np.floating],
    labels: npt.NDArray[np.int64],
    parameters: npt.NDArray[np.float64],
    clip_norm: float,
    l2: float,
    omega: float,
    chosen: npt.NDArray[np.int64],
    total: npt.NDArray[np.float64],
) -> float:
    """As `linear.clipped_sum` of the chosen records; how far it may be from that in any coordinate, or GAVE_UP."""
    f, n = features.shape[1], len(chosen)
    squares: float = 0.0
    for j in range(f):
        squares += parameters[j] * parameters[j]
    reach = (math.sqrt(squares) + abs(parameters[f])) * 1.001
    slack = 2.0**-52 * (3 * f + 34)
    by_reach, by_clip = f + 4.0, 8.0 * (f + 128) + 4.0 * n
    if l2 > 0.0:
        ratio = omega / clip_norm
        by_reach, by_clip = (f + 4.0) * (1.0 + 2.0 * ratio * (1.0 + ratio)), 512.0 * (f + 64) + 32.0 * n
    bound, factors = 0.0, 0.0
    total[:] = 0.0
    for i in chosen:
        product, length = 0.0, 1.0
        for j in range(f):
            x = np.float64(features[i, j])
            product += x * parameters[j]
            length += x * x
        sign = 2.0 * labels[i] - 1.0
        margin = sign * (product + parameters[f])
        small = math.exp(-abs(margin))
        residual = -sign * (1.0 if margin < 0.0 else small) / (1.0 + small)
        square = residual * residual * length
        if l2 > 0.0:
            square += omega * omega
            norm = math.sqrt(max(square + 2.0 * l2 * residual * product, 0.0) + slack * square)
        else:
            norm = math.sqrt(square) * (1.0 + slack)
        if not norm <= 1e300:  # nor is NaN
            return GAVE_UP
        factor = 1.0 if norm <= clip_norm else clip_norm / norm
        factors += factor
        coefficient = factor * residual
        for j in range(f):
            total[j] += coefficient * np.float64(features[i, j])
        total[f] += coefficient
        bound += by_reach * length * reach + by_clip * clip_norm
    if l2 > 0.0:
        for j in range(f):
            total[j] += factors * l2 * parameters[j]
    return bound * 2.0**-53


def _round_with(sums: Any, choose: Any) -> Any:
    def one_round(
        words: npt.NDArray[np.uint64],
        thresholds: npt.NDArray[np.uint64],
        features: npt.NDArray[np.floating],
        labels: npt.NDArray[np.int64],
        parameters: npt.NDArray[np.float64],
        clip_norm: float,
        l2: float,
        omega: float,
        per_step: float,
        noise_words: npt.NDArray[np.uint64],
        noise_cells: npt.NDArray[np.uint16],
        threshold: npt.NDArray[np.uint64],
        pairs: npt.NDArray[np.int32],
        first_mask: np.uint16,
        second_mask: np.uint16,
        offset: int,
        out: npt.NDArray[np.int32],
    ) -> int:
        """Writes the update U into `out`, shape (d,), and returns how many records took part; or GAVE_UP."""
        d = len(out)
        chosen = np.empty(len(words), np.int64)
        total = np.empty(d, np.float64)
        count = choose(words, thresholds, len(features), chosen)
        if count < 0:
            return GAVE_UP
        bound = sums(features, labels, parameters, clip_norm, l2, omega, chosen[:count], total) * per_step
        if not bound >= 0.0:
            return GAVE_UP
        for i in range(d):
            steps = total[i] * per_step
            if abs(steps - math.floor(steps) - 0.5) <= bound:
                return GAVE_UP
            first = int(noise_cells[i] & first_mask)
            second = int(noise_cells[d + i] & second_mask) + offset
            noise = np.int64(pairs[2 * first + (noise_words[i] >= threshold[first])]) + np.int64(
                pairs[2 * second + (noise_words[d + i] >= threshold[second])]
            )
            out[i] = np.int32(min(max(np.rint(steps) + np.float64(noise), -2147483647.0), 2147483647.0))
        return count

    return one_round
