"""Calls an ASGI application without a socket, and reads as much of the answer as a test wants."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Answer:
    """What came back. `chunks` fills while the answer goes on."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    chunks: list[bytes] = field(default_factory=list)
    is_complete: bool = False

    @property
    def body(self) -> bytes:
        """Everything so far."""
        return b"".join(self.chunks)

    def json(self) -> Any:
        """The body, read as JSON."""
        return json.loads(self.body)

    def events(self) -> list[Any]:
        """The server-sent events so far, read as JSON."""
        lines = self.body.decode().splitlines()
        return [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: ")]


async def call(app: Any, path: str, **options: Any) -> Answer:
    """Makes one request and returns the whole answer; options as for `opened`."""
    async with opened(app, path, **options) as answer:
        async with asyncio.timeout(10):
            while not answer.is_complete:
                await asyncio.sleep(0.001)
        return answer


@asynccontextmanager
async def opened(
    app: Any,
    path: str,
    *,
    method: str = "GET",
    host: str = "localhost:7480",
    headers: dict[str, str] | None = None,
    state: dict[str, Any] | None = None,
) -> AsyncIterator[Answer]:
    """Makes one request and yields the answer while it comes; the caller goes away at the end of the block."""
    gone, answer = asyncio.Event(), Answer()
    path, _, query = path.partition("?")
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "headers": [
            (name.lower().encode(), value.encode()) for name, value in {"host": host, **(headers or {})}.items()
        ],
        "scheme": "http",
        "http_version": "1.1",
        "root_path": "",
        "state": dict(state or {}),
    }
    asked = False

    async def receive() -> dict[str, Any]:
        nonlocal asked
        if asked:
            await gone.wait()
            return {"type": "http.disconnect"}
        asked = True
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            answer.status = message["status"]
            answer.headers = {name.decode(): value.decode() for name, value in message["headers"]}
        else:
            answer.chunks.append(message.get("body", b""))
            answer.is_complete = not message.get("more_body", False)

    task = asyncio.create_task(app(scope, receive, send))
    try:
        yield answer
    finally:
        gone.set()
        async with asyncio.timeout(10):
            await task
