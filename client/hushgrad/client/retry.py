"""Waiting before the next try, and saying so. The only place where waits between tries are computed."""

import secrets
import threading
from collections.abc import Callable

import structlog

FIRST_SECONDS = 0.2
LARGEST_SECONDS = 5.0
_SPEAK_EVERY_SECONDS = 3.0


class Backoff:
    """Waits that double from 0.2 s to 5 s, each shortened at random by up to half, so that many clients spread out.

    Args:
        chance: returns uniform numbers in [0, 1). It has nothing to do with noise; any generator would do, but this
            package imports none that could be taken for one that does.
    """

    def __init__(self, chance: Callable[[], float] = lambda: secrets.randbelow(2**53) / 2**53) -> None:
        self._chance = chance
        self._seconds = FIRST_SECONDS

    def next(self, hint_seconds: float = 0.0) -> float:
        """Returns the next wait in seconds; at least the hint that the other side gave."""
        wait = self._seconds * (1 - self._chance() / 2)
        self._seconds = min(2 * self._seconds, LARGEST_SECONDS)
        return max(wait, hint_seconds)

    def reset(self) -> None:
        """Begins again with the shortest wait; called after every answer."""
        self._seconds = FIRST_SECONDS


class Outage:
    """Makes a server that does not answer visible: one line at once, then one every few seconds, and one at the end.

    Args:
        address: of the server.
        clock: seconds that never run backwards.
    """

    def __init__(self, address: str, clock: Callable[[], float]) -> None:
        self._address = address
        self._clock = clock
        self._guard = threading.Lock()
        self._since: float | None = None
        self._spoken = 0.0

    def failed(self, why: str) -> None:
        """A call got no answer."""
        now = self._clock()
        with self._guard:
            if self._since is None:
                self._since = now
            elif now - self._spoken < _SPEAK_EVERY_SECONDS:
                return
            self._spoken = now
            seconds = round(now - self._since, 1)
        structlog.get_logger().warning("waiting_for_server", address=self._address, seconds=seconds, why=why)

    def answered(self) -> None:
        """A call got an answer."""
        if self._since is None:
            return
        with self._guard:
            since, self._since = self._since, None
        if since is not None:
            seconds = round(self._clock() - since, 1)
            structlog.get_logger().info("server_answers_again", address=self._address, seconds=seconds)
