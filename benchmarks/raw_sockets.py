"""An echo over a plain TCP socket: what the kernel alone takes for the same bytes.

Usage as a server: python -m benchmarks.raw_sockets HOST:PORT
"""

import socket
import struct
import sys
import threading


def serve(address: str) -> None:
    """Echoes: eight bytes with a length, then so many bytes, back when all of them are there."""
    host, _, port = address.rpartition(":")
    with socket.create_server((host, int(port))) as listener:
        while True:
            connection, _ = listener.accept()
            threading.Thread(target=_echo, args=(connection,), daemon=True).start()


def _echo(connection: socket.socket) -> None:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    buffer = bytearray()
    with connection:
        while length := connection.recv(8, socket.MSG_WAITALL):
            (size,) = struct.unpack("<Q", length)
            if len(buffer) < size:
                buffer = bytearray(size)
            view = memoryview(buffer)[:size]
            _receive(connection, view)
            connection.sendall(view)


def _receive(connection: socket.socket, view: memoryview) -> None:
    got = 0
    while got < len(view):
        arrived = connection.recv_into(view[got:])
        if not arrived:
            raise ConnectionError("the other side has gone")
        got += arrived


class RawEchoes:
    """Clients of one such server, each with a connection of its own, served by a thread of its own."""

    def __init__(self, address: str, size: int, clients: int) -> None:
        host, _, port = address.rpartition(":")
        self._sockets = [socket.create_connection((host, int(port))) for _ in range(clients)]
        for one in self._sockets:
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._message = struct.pack("<Q", size) + bytes(size)
        self._back = memoryview(bytearray(size))

    def __call__(self) -> None:
        """One client after the other sends the bytes and waits until they are back."""
        for one in self._sockets:
            one.sendall(self._message)
            _receive(one, self._back)

    def close(self) -> None:
        """Ends the connections."""
        for one in self._sockets:
            one.close()


if __name__ == "__main__":
    serve(sys.argv[1])
