"""How much anybody may ask of a server: the numbers, and the books that are kept on them.

Knows neither gRPC nor clocks: who calls is a string, and time is a number that it is given. What happens to a call
above a limit is decided in `limiting` and `update_service`.
"""

import contextlib
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated, Final, Literal

import msgspec

SMALLEST_COST_BYTES: Final = 16 * 1024
"""A message of an upload counts as so many bytes at least: a million tiny ones cost more than a few large ones."""

BURST_SECONDS: Final = 2.0
"""Who was quiet for so long may use two seconds' worth at once."""

Kind = Literal["call", "watch", "download", "upload"]

_MOST_REMEMBERED: Final = 10_000
_ALWAYS_FITTING: Final = 8
_SAY_AGAIN_SECONDS: Final = 10.0
_Rate = Annotated[float, msgspec.Meta(gt=0)]
_Count = Annotated[int, msgspec.Meta(ge=1)]


class LimitsConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The [limits] table of server.toml. Nothing in it changes what the federation computes.

    "Each" is the name in a caller's certificate. Without TLS it is the name in the request, which anybody may make up,
    and calls, watches and downloads at once are limited for each connection, by streams_per_connection.
    docs/limits.md says what happens above a limit.

    Attributes:
        calls_per_second: of each, streams included; two seconds' worth may come at once.
        calls_at_once, watches_at_once, downloads_at_once, uploads_at_once: of each.
        all_calls_at_once, all_watches_at_once, all_downloads_at_once, all_uploads_at_once: of everybody together.
        upload_bytes_per_second: of each; above it the server reads more slowly. A message counts 16 KiB at least.
        min_bytes_per_second: an upload that is slower ends, and goes on later from where it was; a download that is
            read more slowly goes on, but counts no longer for everybody together.
        silence_seconds: how long a sender may say nothing or a reader read nothing, and be too slow at first.
        request_seconds: by when a request that is no upload must have arrived.
        spool_uploads_of_each, spool_uploads: how many unfinished uploads are kept on disk, each of 4 d bytes.
        spool_bytes: how much all of them may be together; eight have room in any case. Each of those that come at the
            same time takes some memory too.
        spool_keep_seconds: how long one is kept that does not go on.
        connections: of everybody together; more are closed at once. Never so many that the store lacks file handles.
        handshake_seconds: by when a new connection must have said who it is.
        idle_connection_seconds: a connection without any call is closed after so long.
        streams_per_connection: calls at once in one connection; a client's others wait.
        metadata_bytes: of one call; larger metadata are refused.
    """

    calls_per_second: _Rate = 500.0
    calls_at_once: _Count = 32
    watches_at_once: _Count = 8
    downloads_at_once: _Count = 4
    uploads_at_once: _Count = 2
    all_calls_at_once: _Count = 512
    all_watches_at_once: _Count = 4096
    all_downloads_at_once: _Count = 64
    all_uploads_at_once: _Count = 64
    upload_bytes_per_second: _Rate = 128.0 * 2**20
    min_bytes_per_second: _Rate = 16384.0
    silence_seconds: _Rate = 30.0
    request_seconds: _Rate = 20.0
    spool_uploads_of_each: _Count = 2
    spool_uploads: _Count = 64
    spool_bytes: _Count = 256 * 2**20
    spool_keep_seconds: _Rate = 600.0
    connections: _Count = 4096
    handshake_seconds: _Rate = 5.0
    idle_connection_seconds: _Rate = 300.0
    streams_per_connection: _Count = 128
    metadata_bytes: Annotated[int, msgspec.Meta(ge=1024, le=2**20)] = 8192

    def spool_quota(self, upload_bytes: int) -> int:
        """Returns how many bytes all unfinished uploads of this size may reserve together.

        >>> LimitsConfig().spool_quota(4 * 10**6) // (4 * 10**6), LimitsConfig().spool_quota(4 * 10**8) // (4 * 10**8)
        (64, 8)
        """
        fitting = max(_ALWAYS_FITTING, self.spool_bytes // upload_bytes)
        return min(self.spool_uploads, fitting) * upload_bytes

    def of_each(self, kind: Kind) -> int:
        """Returns how many calls of a kind one caller may have open."""
        match kind:
            case "call":
                return self.calls_at_once
            case "watch":
                return self.watches_at_once
            case "download":
                return self.downloads_at_once
            case "upload":
                return self.uploads_at_once

    def of_all(self, kind: Kind) -> int:
        """Returns how many calls of a kind may be open altogether."""
        match kind:
            case "call":
                return self.all_calls_at_once
            case "watch":
                return self.all_watches_at_once
            case "download":
                return self.all_downloads_at_once
            case "upload":
                return self.all_uploads_at_once

    def patience(self, moved_bytes: int, largest_message_bytes: int) -> float:
        """Returns how many seconds a transfer may have kept the server waiting after so many bytes.

        Enough for one message of the largest size at the slowest rate: a message is seen only when all of it is there.
        """
        return self.silence_seconds + (moved_bytes + largest_message_bytes) / self.min_bytes_per_second


@dataclass(slots=True)
class Bucket:
    """What is left of an allowance that fills up steadily. It may be overdrawn once; then one waits.

    Attributes:
        rate: units per second.
        left: units; negative when it is overdrawn.
        at: when `left` was right.
    """

    rate: float
    left: float
    at: float

    def take(self, units: float, now: float) -> None:
        """Takes units whether they are there or not."""
        self.left = min(self.left + (now - self.at) * self.rate, BURST_SECONDS * self.rate) - units
        self.at = now

    def wait(self, now: float) -> float:
        """Returns in how many seconds it is no longer overdrawn; 0 when it is not."""
        return max(0.0, -(self.left + (now - self.at) * self.rate) / self.rate)


@dataclass(slots=True)
class _Account:
    calls: Bucket
    bytes: Bucket
    open: dict[Kind, int] = field(default_factory=dict)
    said_at: float = -math.inf

    def is_idle(self, now: float) -> bool:
        return not any(self.open.values()) and self.calls.at + BURST_SECONDS < now and self.bytes.wait(now) == 0


class Place:
    """One of the places that all calls of a kind share."""

    def __init__(self, taken: dict[Kind, int], kind: Kind) -> None:
        self._taken = taken
        self._kind = kind
        self._is_held = True
        taken[kind] = taken.get(kind, 0) + 1

    def leave_to_others(self) -> None:
        """Counts no longer for all; the caller's own count goes on."""
        if self._is_held:
            self._is_held = False
            self._taken[self._kind] -= 1


class Limiter:
    """The books on everybody who calls. Callers that are quiet and have nothing open are forgotten."""

    def __init__(self, config: LimitsConfig) -> None:
        self.config: Final = config
        self._accounts: dict[str, _Account] = {}
        self._open: dict[Kind, int] = {}
        self._sweep_at = -math.inf

    def call(self, who: str, now: float) -> float:
        """Counts one call; returns for how many seconds the caller should be quiet, 0 when it is within its rate.

        Calls above the rate are not counted: whoever keeps asking is served at the rate, neither more nor less.
        """
        bucket = self._account(who, now).calls
        bucket.take(0, now)
        if bucket.left < 1:
            return max((1 - bucket.left) / bucket.rate, 1e-3)
        bucket.left -= 1
        return 0.0

    def may_say(self, who: str, now: float) -> bool:
        """Says whether a log may tell that somebody was told to wait: once in ten seconds."""
        account = self._account(who, now)
        if now < account.said_at + _SAY_AGAIN_SECONDS:
            return False
        account.said_at = now
        return True

    def received(self, who: str, size: int, now: float) -> float:
        """Counts one message of an upload; returns how many seconds to wait before the next one is read."""
        bucket = self._account(who, now).bytes
        bucket.take(max(size, SMALLEST_COST_BYTES), now)
        return bucket.wait(now)

    def is_free(self, who: str | None, kind: Kind, now: float) -> bool:
        """Says whether one more call of a kind may be open; None: of somebody who has no certificate."""
        return not self.is_full(kind) and (who is None or not self.is_full_of(who, kind, now))

    def is_full(self, kind: Kind) -> bool:
        """Says whether as many calls of a kind are open as may be altogether."""
        return self._open.get(kind, 0) >= self.config.of_all(kind)

    def is_full_of(self, who: str, kind: Kind, now: float) -> bool:
        """Says whether somebody has as many calls of a kind open as anybody may."""
        return self._account(who, now).open.get(kind, 0) >= self.config.of_each(kind)

    @contextlib.contextmanager
    def opened(self, who: str | None, kind: Kind, now: float) -> Iterator["Place"]:
        """Counts a call as open while the context lasts."""
        own = {} if who is None else self._account(who, now).open
        own[kind] = own.get(kind, 0) + 1
        place = Place(self._open, kind)
        try:
            yield place
        finally:
            own[kind] -= 1
            place.leave_to_others()

    def _account(self, who: str, now: float) -> _Account:
        account = self._accounts.get(who)
        if account is not None:
            return account
        if len(self._accounts) >= _MOST_REMEMBERED and now >= self._sweep_at:
            self._sweep_at = now + BURST_SECONDS
            self._accounts = {name: one for name, one in self._accounts.items() if not one.is_idle(now)}
        if len(self._accounts) >= _MOST_REMEMBERED:
            # So many names at once are made up, which only a server without TLS allows: they share what is left.
            who = ""
        calls, size = self.config.calls_per_second, self.config.upload_bytes_per_second
        fresh = _Account(Bucket(calls, max(1.0, BURST_SECONDS * calls), now), Bucket(size, BURST_SECONDS * size, now))
        return self._accounts.setdefault(who, fresh)


def retry_after_milliseconds(seconds: float) -> int:
    """Returns what BUSY should say, 1 to 60,000.

    >>> retry_after_milliseconds(0.2504)
    251
    """
    return min(max(1, math.ceil(1000 * seconds)), 60_000)
