"""One thread that writes: jobs in the order in which they come, many per commit, each answered once it is durable.

Fail-stop: after the first error nothing is written or answered any more.
"""

import asyncio
import contextlib
import queue
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

from hushgrad.server import publication
from hushgrad.server.aggregation import Published
from hushgrad.server.counting import Counters
from hushgrad.server.database import Database
from hushgrad.server.errors import StoreError
from hushgrad.server.federation import Frozen
from hushgrad.server.records import Record

MAX_BATCH = 256
_BUSY_BATCH = 8
_GATHER_SECONDS = 0.003
"""So long a commit waits for more after one that held many: a commit costs as much as the rows of ten updates."""
T = TypeVar("T")
_Job = tuple[Callable[[Database], Any] | None, "asyncio.Future[Any]"]


class Store:
    """The store thread and its queue. All methods but the thread's own are called on the event loop's thread.

    Invariant: a future is resolved only after the commit that holds its job, and jobs commit in the order of the calls.
    """

    def __init__(
        self,
        database: Database,
        *,
        keep_last: int,
        keep_every: int = 0,
        on_failure: Callable[[StoreError], None],
        counters: Counters | None = None,
    ) -> None:
        """Starts the thread.

        Args:
            database: used by the thread alone from now on.
            keep_last, keep_every: which versions stay available; see `Database.checkpoint`.
            on_failure: called once, on the event loop, with the first error.
            counters: hears how long commits and checkpoints take, from the thread.
        """
        self._database = database
        self._keep_last = keep_last
        self._keep_every = keep_every
        self._on_failure = on_failure
        self._counters = counters or Counters()
        self._loop = asyncio.get_running_loop()
        self._queue: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._failure: StoreError | None = None
        self._obsolete: list[Path] = []
        self._is_busy = False
        self._thread = threading.Thread(target=self._run, name="store", daemon=True)
        self._thread.start()

    def write(self, records: Iterable[Record]) -> asyncio.Future[None]:
        """Makes records durable. Without any it waits until everything queued before is durable."""
        records = tuple(records)
        if not records:
            return self.barrier()
        return self.do(lambda database: database.write(records))

    @property
    def waiting(self) -> int:
        """How many jobs are queued and not begun."""
        return self._queue.qsize()

    def barrier(self) -> asyncio.Future[None]:
        """Waits until everything queued before is durable."""
        return self._put(None)

    def do(self, job: Callable[[Database], T]) -> asyncio.Future[T]:
        """Runs a job inside a transaction; the future resolves with its result after the commit."""
        return self._put(job)

    def checkpoint(self, frozen: Frozen) -> asyncio.Future[Published]:
        """Publishes what was frozen into a checkpoint, behind everything queued before."""

        def job(database: Database) -> Published:
            began = time.perf_counter()
            published = publication.publish(frozen.aggregate, database.arrays)
            self._obsolete += database.checkpoint(
                published,
                frozen.previous,
                frozen.folded,
                frozen.participants,
                self._keep_last,
                time.time(),
                self._keep_every,
            )
            self._counters.checkpoints.observe(time.perf_counter() - began)
            return published

        return self._put(job)

    def close(self) -> None:
        """Finishes what is queued and ends the thread."""
        self._queue.put(None)
        self._thread.join()
        self._database.close()

    def _put(self, job: Callable[[Database], Any] | None) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = self._loop.create_future()
        if self._failure is not None:
            future.set_exception(self._failure)
            # Nobody may be waiting for it; the failure was reported by on_failure.
            future.exception()
        else:
            self._queue.put((job, future))
        return future

    def _run(self) -> None:
        is_open = True
        while is_open:
            batch, is_open = self._next_batch()
            try:
                results = self._commit(batch)
            except Exception as error:
                self._tell(self._fail, StoreError(f"the store failed, stopping: {error}"), batch)
                return
            if batch:
                self._tell(_resolve, batch, results)

    def _next_batch(self) -> tuple[list[_Job], bool]:
        batch: list[_Job] = []
        item = self._queue.get()
        if self._is_busy:
            time.sleep(_GATHER_SECONDS)
        while item is not None:
            batch.append(item)
            if len(batch) == MAX_BATCH:
                return batch, True
            try:
                item = self._queue.get_nowait()
            except queue.Empty:
                return batch, True
        return batch, False

    def _commit(self, batch: list[_Job]) -> list[Any]:
        if all(job is None for job, _ in batch):
            return [None] * len(batch)
        database, began = self._database, time.perf_counter()
        database.begin()
        try:
            results = [None if job is None else job(database) for job, _ in batch]
            database.commit()
        except BaseException:
            with contextlib.suppress(Exception):
                database.rollback()
            raise
        self._counters.commits.observe(time.perf_counter() - began)
        self._counters.commit_jobs += len(batch)
        self._is_busy = len(batch) >= _BUSY_BATCH
        obsolete, self._obsolete = self._obsolete, []
        for path in obsolete:
            path.unlink(missing_ok=True)
        return results

    def _tell(self, callback: Callable[..., None], *args: Any) -> None:
        # The loop may be closed already when the process is ending anyway.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(callback, *args)

    def _fail(self, error: StoreError, batch: list[_Job]) -> None:
        self._failure = error
        self._counters.store_failed = True
        while True:
            try:
                item = self._queue.get_nowait()
            except queue.Empty:
                break
            if item is not None:
                batch.append(item)
        self._on_failure(error)
        for _, future in batch:
            if not future.done():
                future.set_exception(error)
                future.exception()


def _resolve(batch: list[_Job], results: list[Any]) -> None:
    for (_, future), result in zip(batch, results, strict=True):
        if not future.done():
            future.set_result(result)
