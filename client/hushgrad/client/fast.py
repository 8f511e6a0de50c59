"""Compiled versions of what is drawn from random bits: the same numbers, bit for bit, in less time.

They are used where numba is installed (extra `fast`) and enough is drawn to be worth loading it; HUSHGRAD_FAST=0 keeps
them out. Nothing here knows where bits come from or what the numbers are for.
"""

import functools
import importlib.util
import os
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

WORTH: Final = 2**14
"""Fewer draws than these never load numba: that takes half a second, once."""


class Kernels(NamedTuple):
    """What is compiled.

    Attributes:
        mixture: from words, uint64, and cells, uint16, both of shape (2 n,), the tables of two distributions behind
            each other (thresholds, uint64; pairs of own and other value, int32), both cell masks and the second
            table's offset: the n sums of one draw each, into int64, shape (n,).
        release: the same from the bits, a total, float64, shape (n,), and what it is multiplied by to be in grid steps:
            those steps to nearest plus the draws, saturated, into int32, shape (n,).
    """

    mixture: Callable[..., None]
    release: Callable[..., None]


def available() -> bool:
    """Says whether compiled versions can be used in this process."""
    return os.environ.get("HUSHGRAD_FAST", "1") != "0" and importlib.util.find_spec("numba") is not None


@functools.cache
def kernels() -> Kernels | None:
    """Returns the compiled versions, or None where there is no numba, or it does not work here."""
    if not available():
        return None
    try:
        import numba
    except Exception:  # a numba that does not fit this numpy is as good as none
        return None
    mixture: Any = numba.njit(_mixture, nogil=True)
    release: Any = numba.njit(_release_with(mixture), nogil=True)
    # Tried once, in the types of a round, so that whatever does not work fails here and a round never waits.
    bits = np.frombuffer(bytes(16), "<u8"), np.frombuffer(bytes(4), "<u2")
    tables = np.zeros(2, np.uint64), np.zeros(4, np.int32), np.uint16(0), np.uint16(0), 1
    mixture(*bits, *tables, np.zeros(1, np.int64))
    release(*bits, *tables, np.zeros(1), 1.0, np.zeros(1, np.int32))
    return Kernels(mixture=mixture, release=release)


def _mixture(
    words: npt.NDArray[np.uint64],
    cells: npt.NDArray[np.uint16],
    threshold: npt.NDArray[np.uint64],
    pairs: npt.NDArray[np.int32],
    first_mask: np.uint16,
    second_mask: np.uint16,
    offset: int,
    out: npt.NDArray[np.int64],
) -> None:
    n = len(out)
    for i in range(n):
        first = int(cells[i] & first_mask)
        second = int(cells[n + i] & second_mask) + offset
        out[i] = np.int64(pairs[2 * first + (words[i] >= threshold[first])]) + np.int64(
            pairs[2 * second + (words[n + i] >= threshold[second])]
        )


def _release_with(mixture: Any) -> Any:
    def release(
        words: npt.NDArray[np.uint64],
        cells: npt.NDArray[np.uint16],
        threshold: npt.NDArray[np.uint64],
        pairs: npt.NDArray[np.int32],
        first_mask: np.uint16,
        second_mask: np.uint16,
        offset: int,
        total: npt.NDArray[np.float64],
        per_step: float,
        out: npt.NDArray[np.int32],
    ) -> None:
        drawn = np.empty(len(out), np.int64)
        mixture(words, cells, threshold, pairs, first_mask, second_mask, offset, drawn)
        for i in range(len(out)):
            value = np.rint(total[i] * per_step) + np.float64(drawn[i])
            out[i] = np.int32(min(max(value, -2147483647.0), 2147483647.0))

    return release
