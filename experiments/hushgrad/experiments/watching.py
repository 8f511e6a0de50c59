"""Watches a federation from outside: asks its server for its status again and again, and says what has changed.

The answers are the server's own; what is added is how fast versions and updates come, from the difference of answers.
Drawing is done in `watch_view`.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import grpc
from hushgrad.experiments.errors import InputError
from hushgrad.server import asking
from hushgrad.server.errors import UnreachableError
from hushgrad.server.plain_status import plain_status
from hushgrad.v1 import status_pb2, status_pb2_grpc

ASK_SECONDS: Final = 5.0
RATE_SECONDS: Final = 10.0
"""A rate is of the last so many seconds."""

_PASSING = ("uptime_seconds",)
"""What changes by itself."""


@dataclass(frozen=True, slots=True)
class Access:
    """How the server is reached: all three files, or none for plain text on this machine."""

    address: str
    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None


@dataclass(frozen=True, slots=True)
class Seen:
    """What is known at one moment.

    Attributes:
        status: the server's last answer, as plain values.
        versions_per_second, updates_per_second: of the last seconds; None while they cannot be told.
        silent_seconds: since the last answer, where the server has stopped answering; None while it answers.
        why: why it does not; empty while it does.
        restarts: how often it was found to have started anew while it was watched.
    """

    status: dict[str, Any]
    versions_per_second: float | None = None
    updates_per_second: float | None = None
    silent_seconds: float | None = None
    why: str = ""
    restarts: int = 0

    @property
    def has_ended(self) -> bool:
        """Whether the final version is published: nothing will change any more."""
        return bool(self.status["phase"] == "ended")

    def told(self) -> dict[str, Any]:
        """Returns plain values, for JSON."""
        return {
            **self.status,
            "versions_per_second": self.versions_per_second,
            "updates_per_second": self.updates_per_second,
            "reachable": self.silent_seconds is None,
            "restarts": self.restarts,
        }

    def what_counts(self) -> dict[str, Any]:
        """Returns what makes one moment differ from another: everything but what changes by itself."""
        status = {key: value for key, value in self.status.items() if key not in _PASSING}
        return {**status, "reachable": self.silent_seconds is None, "restarts": self.restarts}


class Rates:
    """How fast versions and updates come, from answers of one run of the server."""

    def __init__(self) -> None:
        self._answers: deque[tuple[float, int, int]] = deque()

    def after(self, status: dict[str, Any], now: float) -> tuple[float | None, float | None]:
        """Takes an answer and returns versions and updates a second; None before there are two of them."""
        updates = sum(one["updates_accepted"] for one in status["participants"])
        self._answers.append((now, status["newest_version"], updates))
        while len(self._answers) > 2 and self._answers[0][0] < now - RATE_SECONDS:
            self._answers.popleft()
        then, version, accepted = self._answers[0]
        if now <= then or status["newest_version"] < version or updates < accepted:
            return None, None
        return (status["newest_version"] - version) / (now - then), (updates - accepted) / (now - then)


def ask(access: Access) -> dict[str, Any]:
    """Returns the status of the federation.

    Raises:
        InputError: if the server does not let this certificate ask.
        UnreachableError: if no server answers.
    """
    with asking.channel(access.address, ca=access.ca, certificate=access.certificate, key=access.key) as channel:
        try:
            answer = status_pb2_grpc.StatusServiceStub(channel).GetStatus(
                status_pb2.GetStatusRequest(), timeout=ASK_SECONDS
            )
        except grpc.RpcError as error:
            if error.code() in (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED):
                raise InputError(error.details()) from error
            hint = (
                "if it speaks TLS, give --tls-ca, --tls-certificate and --tls-key"
                if access.ca is None
                else "or one of the two certificates is not of the other's authority, or has expired"
            )
            raise UnreachableError(f"no server answers at {access.address} ({error.code().name}); {hint}") from error
    return plain_status(answer)


def follow(
    access: Access,
    *,
    every_seconds: float,
    ask: Callable[[Access], dict[str, Any]] = ask,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[Seen]:
    """Yields what is seen, about every so many seconds, until the federation has ended. That moment is the last one.

    A server that stops answering after it has answered once is asked on, as long as it takes.

    Raises:
        InputError: as `ask`.
        UnreachableError: if no server answers the first time.
    """
    seen: Seen | None = None
    rates, heard = Rates(), 0.0
    while True:
        began = clock()
        try:
            status = ask(access)
        except UnreachableError as error:
            if seen is None:
                raise
            seen = Seen(seen.status, None, None, began - heard, str(error), seen.restarts)
        else:
            restarts = 0 if seen is None else seen.restarts
            if seen is not None and status["uptime_seconds"] < seen.status["uptime_seconds"]:
                restarts += 1
                rates = Rates()
            heard = clock()
            seen = Seen(status, *rates.after(status, heard), restarts=restarts)
        yield seen
        if seen.has_ended:
            return
        sleep(max(0.0, every_seconds - (clock() - began)))
