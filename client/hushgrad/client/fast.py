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
    """

    mixture: Callable[..., None]


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
    compiled: Any = numba.njit(_mixture, nogil=True)
    signature = np.zeros(2, np.uint64), np.zeros(2, np.uint16), np.zeros(2, np.uint64), np.zeros(4, np.int32)
    compiled(*signature, np.uint16(0), np.uint16(0), 1, np.zeros(1, np.int64))
    return Kernels(mixture=compiled)


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
