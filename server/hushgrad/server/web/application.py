"""The page as an ASGI application: its files, its live events, and the same for scripts. Everything is read-only.

Knows neither sockets nor threads. Every request is held to the door before anything else; every answer carries headers
that let a browser load nothing from elsewhere and run nothing that is not in a file of ours.
"""

import hashlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from importlib import resources
from typing import Final

from hushgrad.server.overview import Overview
from hushgrad.server.web.door import CERTIFICATE, Door
from hushgrad.server.web.feed import Feed, FullError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

RenderMetrics = Callable[[Overview], tuple[bytes, str]]
"""From a picture to (body, content type)."""

_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS: Final = (
    ("content-security-policy", _POLICY),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-resource-policy", "same-origin"),
    ("cross-origin-opener-policy", "same-origin"),
)
_FILES: Final = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
    "/uplot/uPlot.iife.min.js": ("uplot/uPlot.iife.min.js", "text/javascript; charset=utf-8"),
    "/uplot/uPlot.min.css": ("uplot/uPlot.min.css", "text/css; charset=utf-8"),
}
_JSON: Final = "application/json"


def application(feed: Feed, door: Door, metrics: RenderMetrics | None = None) -> ASGIApp:
    """Returns the application.

    Args:
        feed: what there is to see.
        door: who may see it.
        metrics: what `/metrics` answers; None: there are none.
    """

    async def events(request: Request) -> Response:
        stream = _events(feed, lambda: _refusal(door, request))
        try:
            first = await anext(stream)
        except FullError as error:
            return PlainTextResponse(f"{error}; close another page\n", 503, {"retry-after": "5"})
        headers = {"x-accel-buffering": "no"}
        return StreamingResponse(_after(first, stream), media_type="text/event-stream", headers=headers)

    async def overview(request: Request) -> Response:
        del request
        return Response(await feed.once(), media_type=_JSON)

    async def curves(request: Request) -> Response:
        del request
        return Response(await feed.curves(), media_type=_JSON)

    async def prometheus(request: Request) -> Response:
        del request
        if metrics is None:
            return PlainTextResponse("no metrics here\n", 404)
        body, content_type = metrics((await feed.picture())[0])
        return Response(body, headers={"content-type": content_type})

    async def healthz(request: Request) -> Response:
        del request
        failed = (await feed.picture())[0].store.failed
        return PlainTextResponse("the store has failed\n" if failed else "serving\n", 503 if failed else 200)

    routes = [Route(path, _file(*found)) for path, found in _FILES.items()]
    routes += [
        Route("/events", events),
        Route("/api/overview", overview),
        Route("/api/curves", curves),
        Route("/metrics", prometheus),
        Route("/healthz", healthz),
    ]
    inner = Starlette(routes=routes)
    inner.router.redirect_slashes = False
    return _Guard(inner, door)


class _Guard:
    """Stands before the application: who is not let in gets nothing, and every answer gets our headers."""

    def __init__(self, inner: ASGIApp, door: Door) -> None:
        self._inner = inner
        self._door = door

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = [(name.encode(), value.encode()) for name, value in _HEADERS]
                if not any(name == b"cache-control" for name, _ in message["headers"]):
                    own.append((b"cache-control", b"no-store"))
                message = {**message, "headers": [*message["headers"], *own]}
            await send(message)

        why = _refusal(self._door, Request(scope))
        app = PlainTextResponse(f"{why}\n", 403) if why else self._inner
        await app(scope, receive, send_with_headers)


def _refusal(door: Door, request: Request) -> str:
    return door.refusal(getattr(request.state, CERTIFICATE, None), request.headers.get("host", ""))


def _file(name: str, content_type: str) -> Callable[[Request], Awaitable[Response]]:
    content = resources.files(__package__).joinpath("page", name).read_bytes()
    tag = f'"{hashlib.sha256(content).hexdigest()[:16]}"'
    headers = {"content-type": content_type, "etag": tag, "cache-control": "no-cache"}

    async def answer(request: Request) -> Response:
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        return Response(content, headers=headers)

    return answer


async def _events(feed: Feed, refusal: Callable[[], str]) -> AsyncGenerator[bytes, None]:
    """Yields server-sent events, until the feed ends or who follows may look no longer."""
    stream = feed.follow()
    try:
        async for picture in stream:
            if refusal():
                return
            yield b"data: " + picture + b"\n\n"
    finally:
        await stream.aclose()


async def _after(first: bytes, stream: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    try:
        # A browser that loses us tries again after so many milliseconds.
        yield b"retry: 1000\n\n" + first
        async for event in stream:
            yield event
    finally:
        await stream.aclose()
