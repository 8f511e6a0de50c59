"""Cryptographic random bits for one round: what noise and masks are drawn from.

Nothing else in the client makes random numbers. What is drawn from the bits is unknown here.
"""

import os
from typing import Final, Literal

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR
from hushgrad.client.errors import ClientError

Lane = Literal["noise", "mask"]

KEY_BYTES: Final = 32

DIRECT_BYTES: Final = 4096
"""A stream's first bytes come straight from the operating system, which is cheaper than setting up a cipher."""

MAX_LANE_BYTES: Final = 2**40
"""Far below the 2^131 bytes between the lanes; a round of 10^7 parameters takes 2^28. At this length AES-CTR is told
from random bits with advantage below 2^-57; at 2^28 bytes, below 2^-81."""

_FIRST_COUNTER: Final[dict[Lane, bytes]] = {"noise": bytes(16), "mask": b"\x80" + bytes(15)}

_ZEROS: Final = memoryview(bytes(2**18))
"""What the cipher is given to yield its bits; made once."""

_forks = 0


def _count_fork() -> None:
    global _forks
    _forks += 1


os.register_at_fork(after_in_child=_count_fork)


class StreamError(ClientError, RuntimeError):
    """A stream was used in a way that could repeat random bits, which would cancel noise."""


class RandomStream:
    """Random bits for one round: AES-256 in counter mode under a key that is drawn for this stream and never stored.

    Noise and masks have lanes of their own: the counters of "noise" begin at 0, those of "mask" at 2^127. The first
    4096 bytes of a stream without a given key are read from the operating system directly.

    Make a new one for every round. Not for use by several threads at once.

    Args:
        key: 32 bytes, for known-answer tests and simulations without privacy only; None draws a fresh key.

    Raises:
        StreamError: from every method, in a child process that inherited the stream, and at the end of a lane.
        ValueError: if the key does not have 32 bytes.
    """

    __slots__ = ("_ciphers", "_direct", "_forks", "_left", "injected")

    def __init__(self, key: bytes | None = None) -> None:
        self.injected: Final = key is not None
        """Whether the key was given from outside: such noise protects nobody."""
        self._ciphers: dict[Lane, CipherContext] = {}
        self._direct = 0 if self.injected else DIRECT_BYTES
        self._forks = _forks
        self._left: dict[Lane, int] = {"noise": MAX_LANE_BYTES, "mask": MAX_LANE_BYTES}
        if key is not None:
            self._open(key)

    def __reduce__(self) -> str | tuple[object, ...]:
        raise StreamError("a RandomStream must not be copied or sent: both copies would give the same noise")

    def take(self, lane: Lane, count: int) -> bytes:
        """Returns the next `count` random bytes of a lane."""
        if self._forks != _forks:
            raise StreamError("this RandomStream belongs to the parent process; make a new one after a fork")
        if count > self._left[lane]:
            raise StreamError(
                f"lane {lane!r} has {self._left[lane]} of {MAX_LANE_BYTES} bytes left, {count} were asked for; "
                "make a new RandomStream"
            )
        self._left[lane] -= count
        if count <= self._direct:
            self._direct -= count
            return os.urandom(count)
        if not self._ciphers:
            self._open(os.urandom(KEY_BYTES))
        zeros = _ZEROS[:count] if count <= len(_ZEROS) else bytes(count)
        return self._ciphers[lane].update(zeros)

    def uint64(self, lane: Lane, count: int) -> npt.NDArray[np.uint64]:
        """Returns `count` uniform 64-bit integers, read-only, shape (count,)."""
        return np.frombuffer(self.take(lane, 8 * count), "<u8")

    def uint16(self, lane: Lane, count: int) -> npt.NDArray[np.uint16]:
        """Returns `count` uniform 16-bit integers, read-only, shape (count,)."""
        return np.frombuffer(self.take(lane, 2 * count), "<u2")

    def _open(self, key: bytes) -> None:
        if len(key) != KEY_BYTES:
            raise ValueError(f"a stream's key must be {KEY_BYTES} bytes, found {len(key)}")
        for lane, counter in _FIRST_COUNTER.items():
            self._ciphers[lane] = Cipher(AES(key), CTR(counter)).encryptor()
