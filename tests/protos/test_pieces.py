"""Messages that are built and read by hand are those of the protobuf library, in both directions."""

import random

import pytest
from google.protobuf.message import DecodeError
from hushgrad.v1 import models_pb2, updates_pb2
from hushgrad.wire import pieces
from hushgrad.wire.pieces import Chunk


def library(offset: int, data: bytes, crc32c: int) -> bytes:
    chunk = updates_pb2.UploadChunk(offset=offset, data=data, crc32c=crc32c)
    return updates_pb2.UploadUpdateRequest(chunk=chunk).SerializeToString()


CHUNKS = [(0, b"a", 0), (5, b"abc", 2**32 - 1), (2**40, bytes(200), 17), (2**20, bytes(2**20), 1), (0, b"", 9)]


@pytest.mark.parametrize(("offset", "data", "crc32c"), CHUNKS)
def test_any_library_reads_what_is_built_here(offset: int, data: bytes, crc32c: int) -> None:
    for content in (data, memoryview(data)):
        found = updates_pb2.UploadUpdateRequest.FromString(pieces.upload_chunk(offset, content, crc32c))
        assert found.WhichOneof("part") == "chunk"
        assert (found.chunk.offset, found.chunk.data, found.chunk.crc32c) == (offset, data, crc32c)


@pytest.mark.parametrize(("offset", "data", "crc32c"), CHUNKS)
def test_a_chunk_of_any_library_is_read_here(offset: int, data: bytes, crc32c: int) -> None:
    found = pieces.read_upload(library(offset, data, crc32c))
    if not isinstance(found, Chunk):
        found = pieces.chunk_of(found)
    assert (found.offset, bytes(found.data), found.crc32c) == (offset, data, crc32c)


def test_the_data_of_a_chunk_is_not_copied() -> None:
    message = library(1, bytes(range(256)), 2)
    found = pieces.read_upload(message)
    assert isinstance(found, Chunk)
    assert found.data.obj is message


def test_fields_in_another_order_are_read_as_well() -> None:
    inner = b"\x1d\x07\x00\x00\x00" + b"\x12\x03abc" + b"\x08\x05"
    found = pieces.read_upload(b"\x12" + bytes([len(inner)]) + inner)
    assert isinstance(found, Chunk)
    assert (found.offset, bytes(found.data), found.crc32c) == (5, b"abc", 7)


def test_what_is_not_a_plain_chunk_is_left_to_the_library() -> None:
    start = updates_pb2.UploadUpdateRequest(start=updates_pb2.UploadStart(header=b"h", digest=b"d"))
    assert pieces.read_upload(start.SerializeToString()) == start
    twice = library(1, b"abc", 2) + library(4, b"def", 3)
    found = pieces.read_upload(twice)
    assert isinstance(found, updates_pb2.UploadUpdateRequest)
    assert found == updates_pb2.UploadUpdateRequest.FromString(twice)


def test_damaged_messages_are_read_as_the_library_reads_them() -> None:
    # 3,000 messages, each with one byte changed or cut off: both readers agree on what it says, or that it says none.
    generator = random.Random(5)
    message = library(300, bytes(range(100)), 12345)
    for _ in range(3000):
        damaged = bytearray(message)
        if generator.random() < 0.3:
            del damaged[generator.randrange(len(damaged)) :]
        else:
            damaged[generator.choice((generator.randrange(12), generator.randrange(len(damaged))))] ^= 1 << (
                generator.randrange(8)
            )
        try:
            expected = updates_pb2.UploadUpdateRequest.FromString(bytes(damaged))
        except DecodeError:
            with pytest.raises(DecodeError):
                pieces.read_upload(bytes(damaged))
            continue
        found = pieces.read_upload(bytes(damaged))
        if isinstance(found, Chunk):
            chunk = expected.chunk
            assert (found.offset, bytes(found.data), found.crc32c) == (chunk.offset, chunk.data, chunk.crc32c)
        else:
            assert found == expected


def test_a_bytes_field_may_be_added_to_any_message() -> None:
    whole = models_pb2.GetModelResponse(version=3, total_bytes=9, offset=1, data=bytes(300), crc32c=4, sha256=b"s")
    head = models_pb2.GetModelResponse(version=3, total_bytes=9, offset=1, crc32c=4, sha256=b"s")
    field = models_pb2.GetModelResponse.DATA_FIELD_NUMBER
    assert models_pb2.GetModelResponse.FromString(pieces.with_bytes(head, field, bytes(300))) == whole
