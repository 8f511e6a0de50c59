"""Looks a write-ahead log over before SQLite does: SQLite takes a damaged frame for the torn end of a log, and drops it
and everything behind it without a word, though it may have been answered and published.

A crash tears at most the last transaction, because each is synced before the next one is begun. So the log is damaged,
not torn, when whole transactions follow a bad frame, or when the index beside it, which is written after the sync,
counts more frames than are good. The format: https://www.sqlite.org/fileformat2.html#the_write_ahead_log.
"""

import struct
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
from hushgrad.server.errors import StoreError

_HEADER_BYTES: Final = 32
_FRAME_BYTES: Final = 24
_MAGIC: Final = {0x377F0682: "<u4", 0x377F0683: ">u4"}
"""By the order of bytes of the words that checksums are taken over."""
_MASK: Final = 2**32 - 1


def check(database: Path) -> None:
    """Refuses a log that has lost what was durable. Changes nothing; without a log it does nothing.

    Raises:
        StoreError: if it is damaged.
    """
    path = database.with_name(database.name + "-wal")
    try:
        log = path.read_bytes()
    except FileNotFoundError:
        return
    header = log[:_HEADER_BYTES]
    if len(log) <= _HEADER_BYTES + _FRAME_BYTES or not any(header):
        return
    magic, _, page_size = struct.unpack_from(">III", header)
    order = _MAGIC.get(magic)
    if order is None or not _is_header(header, order) or page_size < 512:
        raise _damaged(path, "its header does not have its checksum")
    size = _FRAME_BYTES + page_size
    count = (len(log) - _HEADER_BYTES) // size
    frames = np.frombuffer(log, np.uint8, count * size, _HEADER_BYTES).reshape(count, size)
    salts = header[16:24]
    good = _good_frames(frames, order, header)
    committed = max((at + 1 for at in range(good) if _commits(frames[at])), default=0)
    counted = _frames_in_index(database, salts)
    if counted > committed:
        raise _damaged(path, f"{counted} frames were written and {committed} are good")
    whole = sum(_commits(frame) and _is_of(frame, salts) for frame in frames[good:])
    if whole > 1:
        raise _damaged(path, f"frame {good + 1} does not have its checksum, and whole transactions follow it")


def _damaged(path: Path, what: str) -> StoreError:
    return StoreError(f"{path} is damaged: {what}; restore the state from a backup")


def _is_header(header: bytes, order: str) -> bool:
    sums = _weigh(np.frombuffer(header, np.uint8, 24)[None], order)[0]
    return struct.unpack_from(">II", header, 24) == tuple(int(each) for each in sums)


def _good_frames(frames: npt.NDArray[np.uint8], order: str, header: bytes) -> int:
    """Returns how many frames from the first on are of this log and have the checksum that goes on from the last."""
    # Page number, size, and the page; the salts and the checksum between them are left out.
    covered = np.concatenate([frames[:, :8], frames[:, _FRAME_BYTES:]], axis=1)
    sums = _weigh(covered, order)
    step = _power(covered.shape[1] // 8)
    zero, one = struct.unpack_from(">II", header, 24)
    for at, frame in enumerate(frames):
        zero, one = (
            (step[0] * zero + step[1] * one + int(sums[at, 0])) & _MASK,
            (step[1] * zero + step[2] * one + int(sums[at, 1])) & _MASK,
        )
        if frame[8:16].tobytes() != header[16:24] or struct.unpack_from(">II", frame[16:24]) != (zero, one):
            return at
    return len(frames)


def _weigh(data: npt.NDArray[np.uint8], order: str) -> npt.NDArray[np.uint32]:
    """Returns what each row adds to the checksum (s0, s1), which a pair of words (a, b) changes so: s0 += a + s1, then
    s1 += b + s0. That is linear: from zero, n pairs give the sum of M**(n-1-i) (a_i, a_i + b_i), M = ((1, 1), (1, 2)).
    """
    words = np.ascontiguousarray(data).view(order).astype(np.uint32)
    a, b = words[:, 0::2], words[:, 0::2] + words[:, 1::2]
    powers = np.array([_power(n) for n in range(a.shape[1] - 1, -1, -1)], np.uint64).astype(np.uint32)
    zero = (a * powers[:, 0] + b * powers[:, 1]).sum(axis=1, dtype=np.uint32)
    one = (a * powers[:, 1] + b * powers[:, 2]).sum(axis=1, dtype=np.uint32)
    return np.stack([zero, one], axis=1)


_POWERS: Final[list[tuple[int, int, int]]] = [(1, 0, 1)]


def _power(n: int) -> tuple[int, int, int]:
    """Returns M**n modulo 2**32, as its upper left, off-diagonal and lower right entries: M is symmetric."""
    while len(_POWERS) <= n:
        p, q, r = _POWERS[-1]
        _POWERS.append(((p + q) & _MASK, (q + r) & _MASK, (q + 2 * r) & _MASK))
    return _POWERS[n]


def _commits(frame: npt.NDArray[np.uint8]) -> bool:
    return bool(frame[4:8].any())


def _is_of(frame: npt.NDArray[np.uint8], salts: bytes) -> bool:
    """Whether a frame was written to this log, not to the one before in the same file; one bit of it may be wrong."""
    differing = int.from_bytes(frame[8:16].tobytes(), "big") ^ int.from_bytes(salts, "big")
    return differing.bit_count() <= 1


def _frames_in_index(database: Path, salts: bytes) -> int:
    """Returns how many frames the index beside the log counts; 0 when it is missing or of another log."""
    try:
        with open(database.with_name(database.name + "-shm"), "rb") as file:
            index = file.read(96)
    except FileNotFoundError:
        return 0
    if len(index) < 96 or index[:48] != index[48:] or not index[12] or index[32:40] != salts:
        return 0
    return int(struct.unpack_from("=I", index, 16)[0])
