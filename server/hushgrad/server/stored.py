"""Bytes and arrays that lie in files and are read a part at a time: none of them is ever in memory as a whole.

Knows neither what they mean nor where they lie; `folder` and `publication` do.
"""

import hashlib
import os
import weakref
from pathlib import Path
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

PART_BYTES: Final = 2**20
"""So many bytes are read at a time where all of them are wanted."""


class Content(Protocol):
    """What bytes and the classes below have in common."""

    def __len__(self) -> int:
        """Returns the number of bytes."""
        ...

    def __getitem__(self, part: slice, /) -> bytes:
        """Returns some of them."""
        ...


class StoredBytes:
    """The bytes of an immutable file. It stays readable when the file is removed, as long as this object lives.

    Raises:
        OSError: if it cannot be opened, or when a part cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._close = weakref.finalize(self, os.close, self._descriptor)
        self._size = os.fstat(self._descriptor).st_size
        self.path: Final = path

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, part: slice) -> bytes:
        start, stop, _ = part.indices(self._size)
        found = os.pread(self._descriptor, stop - start, start)
        while len(found) < stop - start:
            more = os.pread(self._descriptor, stop - start - len(found), start + len(found))
            if not more:
                raise OSError(f"{self.path} has become shorter")
            found += more
        return found


class StoredSums:
    """An array of float64 in a file, shape (d,). Its parts are arrays in memory."""

    def __init__(self, content: StoredBytes) -> None:
        self._content = content
        self.size: Final = len(content) // 8

    def __getitem__(self, part: slice) -> npt.NDArray[np.float64]:
        start, stop, _ = part.indices(self.size)
        return np.frombuffer(self._content[8 * start : 8 * stop], "<f8")


Sums = npt.NDArray[np.float64] | StoredSums


class Mean:
    """The running average as little-endian float32, 4 d bytes: computed from its sum a part at a time."""

    def __init__(self, sums: Sums, count: int) -> None:
        self._sums = sums
        self._count = count

    def __len__(self) -> int:
        return 4 * self._sums.size

    def __getitem__(self, part: slice) -> bytes:
        start, stop, _ = part.indices(len(self))
        first = start // 4
        mean = (self._sums[first : -(-stop // 4)] / self._count).astype("<f4").tobytes()
        return mean[start - 4 * first : stop - 4 * first]


class Half:
    """An array of float32 as little-endian float16, 2 d bytes: rounded to nearest, ties to even, a part at a time."""

    def __init__(self, content: Content) -> None:
        self._content = content

    def __len__(self) -> int:
        return len(self._content) // 2

    def __getitem__(self, part: slice) -> bytes:
        start, stop, _ = part.indices(len(self))
        first = start // 2
        whole = np.frombuffer(self._content[4 * first : 4 * -(-stop // 2)], "<f4")
        with np.errstate(over="ignore"):  # the contract says what becomes of elements that are too large
            return whole.astype("<f2").tobytes()[start - 2 * first : stop - 2 * first]


def sha256(content: Content) -> bytes:
    """Returns the SHA-256 of all bytes, 32 bytes. Slow for large ones: call it off the event loop."""
    state = hashlib.sha256()
    for start in range(0, len(content), PART_BYTES):
        state.update(content[start : start + PART_BYTES])
    return state.digest()
