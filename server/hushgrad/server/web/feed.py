"""Live pictures for everybody who looks: taken at most once a second, and only while somebody does.

One picture is taken and encoded for all. Between two looks nothing runs.
"""

import asyncio
import collections
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import asdict, dataclass
from typing import Any, Final

import msgspec
from hushgrad.server.overview import Overview, Totals
from hushgrad.server.web.history import History, Place

PERIOD_SECONDS: Final = 1.0
MOST_FOLLOWERS: Final = 32

_RATE_SECONDS: Final = 15.0


class FullError(Exception):
    """As many are looking as may look at once."""


@dataclass(frozen=True, slots=True)
class Rates:
    """Per second, over the last `seconds`."""

    seconds: float
    accepted: float
    duplicates: float
    versions: float
    received_bytes: float
    sent_bytes: float


class Feed:
    """Takes pictures for followers, for scripts that ask once, and for scrapes. Belongs to one event loop.

    Args:
        take: takes a picture of the federation, wherever that lives.
        history: the curves behind it.
        clock: seconds that never run backwards.
    """

    def __init__(
        self, take: Callable[[], Awaitable[Overview]], history: History, clock: Callable[[], float] | None = None
    ) -> None:
        self._take = take
        self._history = history
        self._clock = clock or asyncio.get_running_loop().time
        self._guard = asyncio.Lock()
        self._newest: tuple[float, Overview, bytes] | None = None
        self._totals: collections.deque[Totals] = collections.deque()
        self._followers = 0
        self._closed = asyncio.Event()

    @property
    def followers(self) -> int:
        """How many follow now."""
        return self._followers

    def close(self) -> None:
        """Lets every follower go, with a last picture that is newer than any before."""
        self._newest = None
        self._closed.set()

    async def picture(self) -> tuple[Overview, bytes]:
        """Returns a picture not older than a second, and {"overview": ..., "rates": ...} as JSON without its end brace.

        Whoever asks while one is being taken gets that one.
        """
        async with self._guard:
            now = self._clock()
            if self._newest is None or now - self._newest[0] >= 0.9 * PERIOD_SECONDS:
                overview = await self._take()
                rates = asdict(self._rates(overview.totals))
                encoded = msgspec.json.encode({"overview": overview, "rates": rates})[:-1]
                self._newest = now, overview, encoded
            _, overview, encoded = self._newest
            return overview, encoded

    async def once(self) -> bytes:
        """Returns the picture as one JSON object, without curves."""
        return (await self.picture())[1] + b"}"

    async def curves(self) -> bytes:
        """Returns the curves as one JSON object."""
        self._history.refresh()
        return msgspec.json.encode(self._history.news(Place()))

    async def follow(self) -> AsyncGenerator[bytes, None]:
        """Yields one JSON object a second, until the feed is closed.

        Each has `overview` and `rates`, and `curves` where there is news; see `History.news`. The last one is of the
        moment at which the feed was closed.

        Raises:
            FullError: if too many follow already.
        """
        if self._followers >= MOST_FOLLOWERS:
            raise FullError(f"{MOST_FOLLOWERS} are looking already")
        self._followers += 1
        place = Place()
        try:
            while True:
                is_last = self._closed.is_set()
                _, encoded = await self.picture()
                self._history.refresh()
                news = self._history.news(place)
                yield encoded + (b',"curves":' + msgspec.json.encode(news) if news else b"") + b"}"
                if is_last:
                    return
                await self._pause()
        finally:
            self._followers -= 1

    async def _pause(self) -> None:
        try:
            async with asyncio.timeout(PERIOD_SECONDS):
                await self._closed.wait()
        except TimeoutError:
            pass

    def _rates(self, totals: Totals) -> Rates:
        """Compares with the oldest picture of the last seconds; the first one with the start of the server."""
        seen = self._totals
        while seen and totals.seconds - seen[0].seconds > _RATE_SECONDS:
            seen.popleft()
        before = seen[0] if seen else None
        seen.append(totals)
        seconds = totals.seconds - before.seconds if before else totals.seconds

        def rate(name: str) -> float:
            since: Any = getattr(before, name) if before else 0
            return float((getattr(totals, name) - since) / seconds) if seconds > 0 else 0.0

        return Rates(
            seconds,
            rate("accepted"),
            rate("duplicates"),
            rate("versions"),
            rate("received_bytes"),
            rate("sent_bytes"),
        )
