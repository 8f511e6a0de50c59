"""A pipe between client and server that can end the client at the first byte of an update.

Plain gRPC carries bytes fields as they are, and every update's header begins with the eight bytes HGUPDATE. When they
come by, the order is carried out before anything is passed on.
"""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

MARK: Final = b"HGUPDATE"


class Proxy:
    """Passes bytes on, from a free port of 127.0.0.1 to another one.

    Attributes:
        on_update: called once, with the bytes that had arrived, when the first bytes of an update come by. They
            and their connection are dropped.
    """

    def __init__(self, target: tuple[str, int]) -> None:
        self._target = target
        self.on_update: Callable[[bytes], None] | None = None
        self._guard = threading.Lock()

    @contextmanager
    def serving(self) -> Iterator[str]:
        """Serves; yields the address."""
        with socket.create_server(("127.0.0.1", 0)) as listener:
            threading.Thread(target=self._accept, args=(listener,), daemon=True).start()
            try:
                yield f"127.0.0.1:{listener.getsockname()[1]}"
            finally:
                with suppress(OSError):  # wakes the thread in accept
                    listener.shutdown(socket.SHUT_RDWR)

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(self._target)
            except OSError:
                client.close()
                continue
            for source, sink, watched in ((client, server, True), (server, client, False)):
                threading.Thread(target=self._pass_on, args=(source, sink, watched), daemon=True).start()

    def _pass_on(self, source: socket.socket, sink: socket.socket, watched: bool) -> None:
        tail = b""
        with suppress(OSError):
            while data := source.recv(65536):
                if watched and MARK in tail + data:
                    with self._guard:
                        order, self.on_update = self.on_update, None
                    if order is not None:
                        order((tail + data)[(tail + data).index(MARK) :])
                        break
                tail = data[-len(MARK) + 1 :]
                sink.sendall(data)
        for end in (source, sink):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
