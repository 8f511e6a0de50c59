"""Large bytes fields of messages, without the copies that a protobuf library makes of them.

What is built here is a message like any other, and what is read here may have been built by any library: fields of a
protobuf message may stand in any order, and a bytes field is its tag, its length and its bytes. Only the last step is
done by hand; whatever is not understood here is left to the library.
"""

from typing import Final, NamedTuple

from google.protobuf.message import Message
from hushgrad.v1 import updates_pb2

_VARINT: Final = 0
_FIXED32: Final = 5
_BYTES: Final = 2
_CHUNK: Final = updates_pb2.UploadUpdateRequest.CHUNK_FIELD_NUMBER
_OFFSET: Final = updates_pb2.UploadChunk.OFFSET_FIELD_NUMBER
_DATA: Final = updates_pb2.UploadChunk.DATA_FIELD_NUMBER
_CRC32C: Final = updates_pb2.UploadChunk.CRC32C_FIELD_NUMBER


class Chunk(NamedTuple):
    """An UploadChunk whose data still lies in the message that brought it."""

    offset: int
    data: memoryview
    crc32c: int


def with_bytes(message: Message, field: int, data: bytes | memoryview) -> bytes:
    """Serializes a message and one bytes field more: one copy of the data in place of three.

    Args:
        message: all other fields; this one must not be set.
        field: the field's number.
        data: its bytes.

    >>> whole = updates_pb2.UploadChunk(offset=7, data=b"abc")
    >>> updates_pb2.UploadChunk.FromString(with_bytes(updates_pb2.UploadChunk(offset=7), 2, b"abc")) == whole
    True
    """
    return b"".join((message.SerializeToString(), _head(field, len(data)), data))


def upload_chunk(offset: int, data: bytes | memoryview, crc32c: int) -> bytes:
    """Serializes an UploadUpdateRequest that holds a chunk, with one copy of its data."""
    head = updates_pb2.UploadChunk(offset=offset, crc32c=crc32c).SerializeToString() + _head(_DATA, len(data))
    return b"".join((_head(_CHUNK, len(head) + len(data)), head, data))


def read_upload(message: bytes) -> Chunk | updates_pb2.UploadUpdateRequest:
    """Reads an UploadUpdateRequest: a chunk without copying its data, anything else as the library does.

    Raises:
        google.protobuf.message.DecodeError: if it is none.
    """
    return _chunk(message) or updates_pb2.UploadUpdateRequest.FromString(message)


def chunk_of(message: updates_pb2.UploadUpdateRequest) -> Chunk:
    """Returns the chunk of a message that the library has read."""
    return Chunk(message.chunk.offset, memoryview(message.chunk.data), message.chunk.crc32c)


def _head(field: int, size: int) -> bytes:
    """Returns tag and length of a bytes field."""
    return _varint(field << 3 | _BYTES) + _varint(size)


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def _chunk(message: bytes) -> Chunk | None:
    """Reads a message that holds a chunk and nothing else, each field once; None for whatever else it is."""
    try:
        tag, at = _read_varint(message, 0)
        size, at = _read_varint(message, at)
        if tag != _CHUNK << 3 | _BYTES or at + size != len(message):
            return None
        found: dict[int, int] = {}
        data: memoryview | None = None
        while at < len(message):
            tag, at = _read_varint(message, at)
            field, kind = tag >> 3, tag & 7
            if field in found or (field == _DATA and data is not None):
                return None
            if (field, kind) == (_OFFSET, _VARINT):
                found[field], at = _read_varint(message, at)
            elif (field, kind) == (_CRC32C, _FIXED32):
                found[field], at = int.from_bytes(message[at : at + 4], "little"), at + 4
            elif (field, kind) == (_DATA, _BYTES):
                size, at = _read_varint(message, at)
                data, at = memoryview(message)[at : at + size], at + size
            else:
                return None
    except IndexError:
        return None
    if at != len(message) or data is None:
        return None
    return Chunk(found.get(_OFFSET, 0), data, found.get(_CRC32C, 0))


def _read_varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while shift < 63:
        byte = message[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value, at
        shift += 7
    raise IndexError("a number of more than 63 bits")
