"""A thin cable in front of a server: so many bytes a second towards the client, and it can be cut."""

import contextlib
import socket
import threading
import time

_PIECE = 4096
_BUFFER = 16 * 1024


class SlowLink:
    """Forwards TCP connections. Small buffers at both ends, so that what the server has sent has nearly arrived.

    Attributes:
        address: where it listens.
        received: bytes that it has handed to clients.
        opened: connections so far.
    """

    def __init__(self, upstream: str, *, bytes_per_second: float) -> None:
        self.upstream = upstream
        self.received = 0
        self.opened = 0
        self._pace = bytes_per_second
        self._guard = threading.Lock()
        self._free_at = time.monotonic()
        self._pairs: set[socket.socket] = set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Breaks all connections at once, with what is on its way lost."""
        for one in list(self._pairs):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Takes no more connections, and breaks those there are."""
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                host, _, port = self.upstream.rpartition(":")
                server = socket.socket()
                server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)
                client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER)
                try:
                    server.connect((host, int(port)))
                except OSError:
                    client.close()
                    continue
                self.opened += 1
                self._pairs |= {client, server}
                threading.Thread(target=self._forward, args=(client, server, False), daemon=True).start()
                threading.Thread(target=self._forward, args=(server, client, True), daemon=True).start()

    def _forward(self, source: socket.socket, target: socket.socket, is_paced: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(_PIECE):
                if is_paced:
                    with self._guard:
                        self._free_at = max(time.monotonic(), self._free_at) + len(data) / self._pace
                        wait = self._free_at - time.monotonic()
                        self.received += len(data)
                    time.sleep(max(0.0, wait))
                target.sendall(data)
        for one in (source, target):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
            self._pairs.discard(one)
