"""HTTP/2 by hand, for what no gRPC library would send: half a request, a lie about a length, nothing at all."""

import contextlib
import socket
import struct
import time
from collections.abc import Iterable

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, GOAWAY, CONTINUATION = 0, 1, 3, 4, 7, 9
END_STREAM, END_HEADERS = 1, 4


def frame(kind: int, flags: int, stream: int, body: bytes = b"") -> bytes:
    """Returns one frame."""
    return struct.pack(">I", len(body))[1:] + struct.pack(">BBI", kind, flags, stream) + body


def field(name: str, value: str) -> bytes:
    """Returns one header field as HPACK writes it without any table."""
    return b"\0" + _text(name) + _text(value)


def _text(value: str) -> bytes:
    data = value.encode()
    if len(data) < 127:
        return bytes([len(data)]) + data
    rest, length = len(data) - 127, b"\x7f"
    while rest >= 128:
        length += bytes([rest % 128 + 128])
        rest //= 128
    return length + bytes([rest]) + data


def call_headers(method: str, stream: int = 1, metadata: Iterable[tuple[str, str]] = ()) -> bytes:
    """Returns the frames that begin a gRPC call."""
    fields = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", method),
        (":authority", "localhost"),
        ("te", "trailers"),
        ("content-type", "application/grpc"),
        *metadata,
    ]
    block = b"".join(field(name, value) for name, value in fields)
    pieces = [block[at : at + 16_000] for at in range(0, len(block), 16_000)]
    frames = b""
    for place, piece in enumerate(pieces):
        kind, flags = (HEADERS if place == 0 else CONTINUATION), (END_HEADERS if place == len(pieces) - 1 else 0)
        frames += frame(kind, flags, stream, piece)
    return frames


def message_start(length: int, compressed: int = 0) -> bytes:
    """Returns the five bytes before a gRPC message."""
    return struct.pack(">BI", compressed, length)


class Connection:
    """One socket to a server."""

    def __init__(self, address: str, *, greet: bool = True) -> None:
        host, port = address.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout=5)
        if greet:
            self.send(PREFACE + frame(SETTINGS, 0, 0) + frame(SETTINGS, 1, 0))

    def send(self, data: bytes) -> bool:
        """Sends; says whether the connection still took it."""
        try:
            self.socket.sendall(data)
        except OSError:
            return False
        return True

    def begin(self, method: str, stream: int = 1, metadata: Iterable[tuple[str, str]] = ()) -> bool:
        """Begins a call."""
        return self.send(call_headers(method, stream, metadata))

    def read(self, seconds: float) -> tuple[bytes, bool]:
        """Returns what comes within so many seconds, and whether the other side has closed."""
        received, deadline = b"", time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            self.socket.settimeout(left)
            try:
                data = self.socket.recv(65536)
            except TimeoutError:
                break
            except OSError:
                return received, True
            if not data:
                return received, True
            received += data
        return received, False

    def frames(self, seconds: float) -> list[tuple[int, int, int, bytes]]:
        """Returns (kind, flags, stream, body) of the frames that come within so many seconds."""
        data, _ = self.read(seconds)
        found = []
        while len(data) >= 9:
            length = struct.unpack(">I", b"\0" + data[:3])[0]
            kind, flags, stream = struct.unpack(">BBI", data[3:9])
            found.append((kind, flags, stream, data[9 : 9 + length]))
            data = data[9 + length :]
        return found

    def close(self) -> None:
        """Closes."""
        with contextlib.suppress(OSError):
            self.socket.close()
