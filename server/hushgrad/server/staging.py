"""Memory for updates that are being received, checked and added: a few buffers, used again and again.

So many large updates are in memory at a time, however many arrive. Knows neither streams nor files.
"""

import asyncio
from collections import deque
from typing import Final

import numpy as np

BUFFERS: Final = 2
"""Two keep two cores busy: one update is checked and added while another one arrives."""


class Staging:
    """Buffers of one size, made when they are first needed. Not for other threads than the event loop's.

    Args:
        size_bytes: of each.
        buffers: how many.
    """

    def __init__(self, size_bytes: int, *, buffers: int = BUFFERS) -> None:
        self._size_bytes = size_bytes
        self._unmade = buffers
        self._free: list[memoryview] = []
        self._waiting: deque[asyncio.Future[memoryview]] = deque()

    @property
    def waiting(self) -> int:
        """How many wait for a buffer."""
        return len(self._waiting)

    def take_free(self) -> memoryview | None:
        """Returns a buffer with whatever is in it; None when all are in use or waited for."""
        if self._free:
            return self._free.pop()
        if self._unmade == 0:
            return None
        self._unmade -= 1
        return np.empty(self._size_bytes, np.uint8).data

    async def take(self, seconds: float | None = None) -> memoryview | None:
        """Waits for a buffer, first come, first served; None when there is none within so many seconds."""
        buffer = self.take_free()
        if buffer is not None:
            return buffer
        turn: asyncio.Future[memoryview] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            async with asyncio.timeout(seconds):
                return await turn
        except TimeoutError:
            return self._given_up(turn, None)
        except BaseException:
            self.give_back(self._given_up(turn, None))
            raise

    def _given_up(self, turn: "asyncio.Future[memoryview]", otherwise: memoryview | None) -> memoryview | None:
        if turn in self._waiting:
            self._waiting.remove(turn)
        # It may have come in the very moment in which the wait ended.
        return turn.result() if turn.done() and not turn.cancelled() else otherwise

    def give_back(self, buffer: memoryview | None) -> None:
        """Takes a buffer back, for whoever waits longest; None: there is none."""
        if buffer is None:
            return
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(buffer)
                return
        self._free.append(buffer)
