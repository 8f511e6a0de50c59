"""Whether two updates carry the same noise: what they differ by is then far smaller than two noises are apart."""

import itertools
from typing import Final

import numpy as np
import numpy.typing as npt
from scipy import stats

ALARM: Final = 1e-9
"""Chance that updates with independent noise are accused, whatever their number."""


def repeated(updates: npt.NDArray[np.int64], scale: float) -> list[tuple[int, int]]:
    """Returns the pairs of updates whose noise is the same, or the same with another sign.

    Args:
        updates: shape (n, d), in grid steps, whatever their sums are.
        scale: s, the standard deviation of the noise.

    For independent noise the squared distance over 2 s^2 is chi-square with d degrees of freedom, shifted away from
    zero by the sums: at least as large as an unshifted one.
    """
    pairs = list(itertools.combinations(range(len(updates)), 2))
    limit = stats.chi2.ppf(ALARM / (2 * len(pairs)), updates.shape[1])
    values = updates / (scale * np.sqrt(2))
    return [
        (i, j)
        for i, j in pairs
        if min(np.square(values[i] - values[j]).sum(), np.square(values[i] + values[j]).sum()) < limit
    ]
