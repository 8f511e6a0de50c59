"""The page as an ASGI application: a document with its style and script, for whoever knows the secret in its address.

Knows neither sockets nor ledgers. Everything is read-only; a request for another host's name, or without the secret,
gets nothing.
"""

import json
import secrets
from collections.abc import Callable
from importlib import resources
from typing import Final

from hushgrad.client.errors import LedgerError
from hushgrad.client.page import keeper, parts, rows_part
from hushgrad.client.page.keeper import Keeper
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'self'; frame-ancestors 'none'"
)
_HEADERS: Final = (
    (b"content-security-policy", _POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)
_FILES: Final = {
    "page.css": "text/css; charset=utf-8",
    "page.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}
_BEHIND_A_BREAK: Final = 3
"""Where the chain is broken, the page shows the break with so many rows behind it."""

_NAMES: Final = ("127.0.0.1", "localhost", "[::1]")


def application(kept: Keeper, secret: str, port: int) -> ASGIApp:
    """Returns the application.

    Args:
        kept: the picture of the ledger.
        secret: the first part of every path.
        port: where it is served; a request must name it, and this machine.
    """

    def document(request: Request) -> Response:
        to = request.query_params.get("to", "")
        if to and not (to.isascii() and to.isdecimal() and len(to) <= 18):
            return PlainTextResponse("?to= must be the number of a row\n", 400)
        picture = kept.picture()
        now = kept.now()
        return Response(
            parts.page(picture, keeper.told(picture, now), _rows(kept, picture, int(to) if to else None), now),
            media_type="text/html",
        )

    def status(request: Request) -> Response:
        del request
        picture = kept.picture()
        answer = keeper.told(picture, kept.now())
        if answer is None:
            broken = picture.broken
            answer = {"broken": {"row": broken.row if broken else None, "why": broken.why if broken else ""}}
        return Response(json.dumps(answer, allow_nan=False), media_type="application/json")

    routes = [Route("/", document), Route("/status.json", status)]
    routes += [Route(f"/{name}", _file(name, kind)) for name, kind in _FILES.items()]
    return _Guard(Starlette(routes=routes), secret, port)


def _rows(kept: Keeper, picture: keeper.Picture, to: int | None) -> rows_part.Shown:
    broken = picture.broken.row if picture.broken else None
    if to is None and broken is not None:
        to = broken + _BEHIND_A_BREAK
    # Where not even the number of rows could be told, what was asked for is tried.
    count = picture.standing.rows if picture.standing else max(to or 0, rows_part.ROWS_SHOWN)
    last = count if to is None else max(1, min(to, count))
    first = max(1, last - rows_part.ROWS_SHOWN + 1)
    newest = picture.standing is not None and last >= count
    try:
        return rows_part.Shown(kept.some_rows(max(1, first - 1), last), first, last, newest)
    except LedgerError as error:
        return rows_part.Shown((), first, last, newest, str(error))


class _Guard:
    """Stands before the application: lets in who names this machine and knows the secret, and adds our headers."""

    def __init__(self, inner: ASGIApp, secret: str, port: int) -> None:
        self._inner = inner
        self._secret = secret.encode()
        self._hosts = {f"{name}:{port}" for name in _NAMES}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message["headers"], *_HEADERS]}
            await send(message)

        hosts = [value.decode("latin-1") for name, value in scope["headers"] if name == b"host"]
        found, _, rest = scope["path"].removeprefix("/").partition("/")
        if len(hosts) != 1 or hosts[0].lower() not in self._hosts:
            app: ASGIApp = PlainTextResponse("this page is for this machine, at the address that was printed\n", 403)
        elif not secrets.compare_digest(found.encode("utf-8", "surrogateescape"), self._secret):
            # The same answer whether there is such a path or not.
            app = PlainTextResponse("open the whole address that hushgrad-client page has printed\n", 404)
        elif scope["method"] not in ("GET", "HEAD"):
            app = PlainTextResponse("this page only shows\n", 405, {"allow": "GET, HEAD"})
        else:
            app = self._inner
            scope = {**scope, "path": f"/{rest}", "raw_path": None, "root_path": ""}
        await app(scope, receive, send_with_headers)


def _file(name: str, content_type: str) -> Callable[[Request], Response]:
    content = resources.files(__package__).joinpath("files", name).read_bytes()

    def answer(request: Request) -> Response:
        del request
        return Response(content, headers={"content-type": content_type})

    return answer
