"""One thread that adds updates to a large model and copies it, in the order in which it is told.

The order is that of the event loop's decisions, so an array that is frozen holds exactly what was decided before.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final

from hushgrad.server.errors import StoreError

SMALLEST_PARAMETERS: Final = 2**18
"""Adding fewer takes less than handing the work over, or not much more."""


class Folding:
    """The thread. Its methods are called on the event loop's thread.

    Args:
        on_failure: called once, on the event loop, when a job failed: the model is not to be trusted then.
    """

    def __init__(self, on_failure: Callable[[StoreError], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._on_failure = on_failure
        self._thread = ThreadPoolExecutor(1, "folding")

    def in_order(self, job: Callable[[], None]) -> "Future[None]":
        """Runs a job after those given before; see `aggregation.InOrder`."""
        future = self._thread.submit(job)
        future.add_done_callback(self._look)
        return future

    def _look(self, future: "Future[None]") -> None:
        error = future.exception()
        if error is not None:
            failure = StoreError(f"an update could not be added, stopping: {error}")
            self._loop.call_soon_threadsafe(self._on_failure, failure)

    async def done(self) -> None:
        """Returns when all jobs given so far have run."""
        await asyncio.wrap_future(self._thread.submit(_nothing))

    def close(self) -> None:
        """Runs what is left and ends the thread."""
        self._thread.shutdown()


def _nothing() -> None:
    pass
