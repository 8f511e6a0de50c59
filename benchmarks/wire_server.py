"""hushgrad-server with all that is not the wire left out: no receipts, no checkpoints, no SHA-256, no statistics.

The real command with the real services, admission and arithmetic: it decodes, checks the CRC, the header and the range
of every element, adds, and publishes. What makes it durable and suspicious is replaced here and nowhere else, so that
a benchmark can tell what that costs.

Usage: python -m benchmarks.wire_server [--hash] VERB ..., as hushgrad-server; --hash keeps SHA-256.
"""

import asyncio
import sys
from collections.abc import Iterable
from typing import Any

from benchmarks import short_hash

_INLINE_BYTES = 2**20


def _leave_out() -> None:
    from hushgrad.server import app, content, store
    from hushgrad.server.federation import Frozen
    from hushgrad.server.records import Record

    class MemoryStore(store.Store):
        """Answers at once and keeps nothing; versions are computed off the loop when they are large."""

        def write(self, records: Iterable[Record]) -> asyncio.Future[None]:
            return self._done(None)

        def barrier(self) -> asyncio.Future[None]:
            return self._done(None)

        def checkpoint(self, frozen: Frozen) -> asyncio.Future[Any]:
            if frozen.aggregate.array.nbytes > _INLINE_BYTES:
                return self._loop.run_in_executor(None, frozen.aggregate.publish)
            return self._done(frozen.aggregate.publish())

        def _done(self, result: Any) -> asyncio.Future[Any]:
            future: asyncio.Future[Any] = self._loop.create_future()
            future.set_result(result)
            return future

    app.Store = MemoryStore  # type: ignore[attr-defined]
    app.ContentCheck = lambda *_arguments: None  # type: ignore[assignment,attr-defined]
    content.measure = lambda _payload: None  # type: ignore[assignment,return-value]


if __name__ == "__main__":
    if "--hash" in sys.argv:
        sys.argv.remove("--hash")
    else:
        short_hash.install()
    _leave_out()
    from hushgrad.server.__main__ import main

    main()
