"""Serves the page on loopback until somebody asks it to stop: the socket, the secret, and the web server's settings."""

import asyncio
import logging
import secrets
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

import uvicorn
from hushgrad.client.errors import InputError
from hushgrad.client.page.application import application
from hushgrad.client.page.keeper import Keeper

HOST: Final = "127.0.0.1"

_STOP_SECONDS: Final = 3.0


def serve(folder: Path, port: int, *, announce: Callable[[str], None], stopping: threading.Event) -> None:
    """Serves the page of a ledger until `stopping` is set.

    Args:
        folder: the state folder of the ledger.
        port: where; 0 takes a free one.
        announce: told the address once it can be opened.
        stopping: set when it shall end.

    Raises:
        InputError: if the port cannot be used.
    """
    listening = _bind(port)
    port = listening.getsockname()[1]
    secret = secrets.token_urlsafe(24)
    kept = Keeper(folder)
    logging.getLogger("uvicorn").setLevel(logging.CRITICAL)
    server = uvicorn.Server(
        uvicorn.Config(
            application(kept, secret, port),
            http="h11",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,  # its lines would hold the secret
            server_header=False,
            proxy_headers=False,
            limit_concurrency=64,
            timeout_keep_alive=30,
            timeout_graceful_shutdown=1,
        )
    )
    # In a thread of its own, signals are left to whoever started us.
    thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[listening])), name="page", daemon=True)
    thread.start()
    announce(f"http://{HOST}:{port}/{secret}/")
    while thread.is_alive() and not stopping.wait(0.2):
        pass
    server.should_exit = True
    thread.join(_STOP_SECONDS)
    kept.stop()
    listening.close()


def _bind(port: int) -> socket.socket:
    found = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind((HOST, port))
        found.listen(64)
    except OSError as error:
        found.close()
        raise InputError(
            f"cannot listen on {HOST}:{port}: {error.strerror}; name another --port, or none for a free one"
        ) from None
    return found
