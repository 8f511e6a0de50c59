"""The listener: a socket, a thread with an event loop of its own, and how many may connect.

Contains what uvicorn leaves open: connections are counted from the moment they are accepted, and those that do not
shake hands or ask for anything are closed. Files that strangers hold open are files that the store may need.
"""

import asyncio
import contextlib
import logging
import socket
import ssl
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Final, TypeVar

import uvicorn
from hushgrad.server import config as config_module
from hushgrad.server.config import ServerConfig
from hushgrad.server.database import Database
from hushgrad.server.denylist import DenyList
from hushgrad.server.errors import InputError
from hushgrad.server.overview import Overview
from hushgrad.server.web import application, door
from hushgrad.server.web.application import RenderMetrics
from hushgrad.server.web.door import CERTIFICATE, CertificateDoor, Door, OpenDoor
from hushgrad.server.web.feed import Feed
from hushgrad.server.web.history import History
from uvicorn.protocols.http.h11_impl import H11Protocol

MOST_CONNECTIONS: Final = 96

_HANDSHAKE_SECONDS: Final = 5.0
_FIRST_REQUEST_SECONDS: Final = 2.0
_UNHEARD_SECONDS: Final = 30.0
_TAKE_SECONDS: Final = 5.0
_STOP_SECONDS: Final = 3.0

T = TypeVar("T")


class Listener:
    """Where the page is served.

    Args:
        config: with `web_listen`.
        federation: name of the federation.
        take: takes a picture; called on the loop that makes the listener.
        open_database: opens the store to be read; called in the listener's thread.
        metrics: what `/metrics` answers; None: there are none.
        log: told where it listens, and of files that cannot be used.

    Raises:
        InputError: if the address or a certificate cannot be used. Nothing listens then.
    """

    def __init__(
        self,
        config: ServerConfig,
        federation: str,
        take: Callable[[], Overview],
        open_database: Callable[[], Database],
        metrics: RenderMetrics | None,
        log: Any,
    ) -> None:
        self._log = log
        self._take = take
        self._history = History(open_database)
        self._metrics = metrics
        self._owner = asyncio.get_running_loop()
        self._tls = config.tls
        self._context: ssl.SSLContext | None = None
        host, _ = config_module.split_address(config.web_listen)
        if config_module.is_loopback(host):
            self._door: Door = OpenDoor(host)
        elif config.tls is not None:
            self._context = door.context(config.tls)
            denied = DenyList(Path(config.tls.denied), self._trouble) if config.tls.denied else None
            self._door = CertificateDoor(federation, denied)
        else:
            self._door = OpenDoor(None)
        self._socket = bind(config.web_listen)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="page", daemon=True)
        host, port = self._socket.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        self.url = f"{'https' if self._context else 'http'}://{shown}:{port}/"

    def start(self) -> None:
        """Begins to serve."""
        self._thread.start()
        self._log.info("listening_for_web", url=self.url)

    async def stop(self) -> None:
        """Lets everybody go and ends the thread."""
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._stop.set)
        await asyncio.to_thread(self._thread.join, _STOP_SECONDS)

    # In the thread

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except Exception as error:
            # The federation goes on; whoever looks sees that the page is gone, and people find why in the log.
            self._log.error("page_failed", why=repr(error))

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        feed = Feed(self._picture, self._history)
        logging.getLogger("uvicorn").setLevel(logging.CRITICAL)
        server = uvicorn.Server(
            uvicorn.Config(
                application.application(feed, self._door, self._metrics),
                http=_Protocol,
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_keep_alive=30,
                timeout_graceful_shutdown=1,
            )
        )
        beside = [asyncio.create_task(server.serve(sockets=[])), asyncio.create_task(self._accept(server))]
        if self._context is not None and self._tls is not None:
            beside.append(asyncio.create_task(door.follow_files(self._context, self._tls, self._trouble)))
        await self._stop.wait()
        feed.close()
        server.should_exit = True
        for task in beside[1:]:
            task.cancel()
        await asyncio.gather(*beside, return_exceptions=True)
        self._socket.close()

    async def _picture(self) -> Overview:
        async def taken() -> Overview:
            return self._take()

        return await elsewhere(self._owner, taken(), _TAKE_SECONDS)

    async def _accept(self, server: uvicorn.Server) -> None:
        loop = asyncio.get_running_loop()
        room = asyncio.Semaphore(MOST_CONNECTIONS)
        arriving: set[asyncio.Task[None]] = set()
        self._socket.setblocking(False)
        while True:
            await room.acquire()
            try:
                connection, _ = await loop.sock_accept(self._socket)
            except OSError:
                room.release()
                await asyncio.sleep(0.1)
                continue
            # A telephone that left the network says nothing; its place is free again after this.
            if hasattr(socket, "TCP_USER_TIMEOUT"):
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(1000 * _UNHEARD_SECONDS))
            task = asyncio.create_task(self._take_in(server, connection, room.release))
            arriving.add(task)
            task.add_done_callback(arriving.discard)

    async def _take_in(self, server: uvicorn.Server, connection: socket.socket, release: Callable[[], None]) -> None:
        loop = asyncio.get_running_loop()
        protocol = _Protocol(server.config, server.server_state, {})
        secure: dict[str, Any] = {}
        if self._context is not None:
            secure = {"ssl": self._context, "ssl_handshake_timeout": _HANDSHAKE_SECONDS}
        try:
            await loop.connect_accepted_socket(lambda: protocol, connection, **secure)
        except (OSError, ssl.SSLError):
            connection.close()
            release()
            return
        protocol.on_lost(release)
        loop.call_later(_FIRST_REQUEST_SECONDS, protocol.expect_request)

    def _trouble(self, why: str) -> None:
        self._log.error("tls_files_not_taken", why=why)


class _Protocol(H11Protocol):
    """HTTP/1.1 that passes the connection's certificate on, and says when it is over."""

    _release: Callable[[], None] | None = None
    _is_lost = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        secure = transport.get_extra_info("ssl_object")
        if secure is not None:
            self.app_state = {**self.app_state, CERTIFICATE: secure.getpeercert(binary_form=True)}
        super().connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._is_lost = True
        self._let_go()

    def on_lost(self, release: Callable[[], None]) -> None:
        """Calls back once, when the connection is over."""
        self._release = release
        if self._is_lost:
            self._let_go()

    def expect_request(self) -> None:
        """Ends a connection that has asked for nothing yet."""
        if not self._is_lost and self.cycle is None:
            self.transport.abort()

    def _let_go(self) -> None:
        release, self._release = self._release, None
        if release is not None:
            release()


async def elsewhere(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T], seconds: float) -> T:
    """Runs work on another thread's loop and waits for what it returns, at most so long."""
    async with asyncio.timeout(seconds):
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, loop))


def bind(address: str) -> socket.socket:
    """Returns a listening socket.

    Raises:
        InputError: if the address cannot be used.
    """
    host, port = config_module.split_address(address)
    try:
        family, _, _, _, where = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)[0]
        found = socket.socket(family, socket.SOCK_STREAM)
    except OSError as error:
        raise InputError(f"web_listen = {address} is no address of this machine: {error.strerror}") from error
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind(where)
        found.listen(64)
    except OSError as error:
        found.close()
        raise InputError(
            f"cannot listen on web_listen = {address}: {error.strerror}; another program uses the port, or the address "
            "is not this machine's"
        ) from error
    return found
