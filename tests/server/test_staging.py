"""Buffers for uploads: few, shared in order, taken from the slow, and never lost."""

import asyncio
import hashlib
from pathlib import Path

from hushgrad.server.spool import Spool, Upload
from hushgrad.server.staging import Staging

SIZE = 100


def name(at: int) -> bytes:
    return bytes([at]) * 32


def spool(folder: Path, staging: Staging) -> Spool:
    return Spool(folder, 10 * SIZE, of_each=2, keep_seconds=60.0, staging=staging)


def opened(room: Spool, who: str, now: float = 0.0) -> Upload:
    upload = room.open(who, name(1), SIZE, 0, now)
    assert upload is not None
    upload.open_streams = 1
    return upload


def test_buffers_go_to_whoever_waits_longest_and_there_are_never_more() -> None:
    async def scenario() -> None:
        staging = Staging(SIZE, buffers=2)
        first, second = await staging.take(), await staging.take()
        assert first is not None
        assert second is not None
        third, fourth = (asyncio.ensure_future(staging.take(5)) for _ in range(2))
        await asyncio.sleep(0)
        assert staging.waiting == 2
        assert staging.take_free() is None
        staging.give_back(second)
        assert (await third) is second
        assert not fourth.done()
        staging.give_back(first)
        assert (await fourth) is first
        assert staging.waiting == 0

    asyncio.run(scenario())


def test_who_gives_up_or_goes_away_takes_no_buffer_along() -> None:
    async def scenario() -> None:
        staging = Staging(SIZE, buffers=1)
        buffer = await staging.take()
        assert await staging.take(0.01) is None
        gone = asyncio.ensure_future(staging.take(5))
        await asyncio.sleep(0)
        staging.give_back(buffer)  # it is theirs now
        gone.cancel()
        await asyncio.gather(gone, return_exceptions=True)
        if not gone.cancelled():
            staging.give_back(gone.result())
        assert staging.take_free() is buffer

    asyncio.run(scenario())


def test_an_upload_in_memory_reads_the_same_as_one_in_a_file(tmp_path: Path) -> None:
    content = hashlib.shake_128(b"x").digest(SIZE)

    async def scenario() -> None:
        staging = Staging(SIZE, buffers=1)
        room = spool(tmp_path, staging)
        quick, other = opened(room, "one"), opened(room, "two")
        await room.stage(quick, lambda: 0.0)
        assert quick.buffer is not None
        for upload in (quick, other):
            for start in range(0, SIZE, 30):
                room.append(upload, content[start : start + 30], 0.0)
        assert room.bytes_on_disk == SIZE
        quick.is_complete = other.is_complete = True
        assert bytes(await room.whole(quick, lambda: 0.0)) == content
        waiting = asyncio.ensure_future(room.whole(other, lambda: 0.0))
        await asyncio.sleep(0.05)
        assert not waiting.done()  # one buffer only
        room.give_back(room.discard(quick))
        assert bytes(await waiting) == content
        room.give_back(room.discard(other))
        assert list(tmp_path.iterdir()) == []
        assert staging.take_free() is not None

    asyncio.run(scenario())


def test_a_slow_sender_gives_its_buffer_to_one_that_waits_and_loses_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        staging = Staging(SIZE, buffers=1)
        room = spool(tmp_path, staging)
        slow = opened(room, "one")
        await room.stage(slow, lambda: 0.0)
        room.append(slow, b"abc", 0.0)
        quick = opened(room, "two", 5.0)
        await room.stage(quick, lambda: 5.0)
        assert quick.buffer is not None
        assert slow.buffer is None
        room.append(slow, b"def", 5.0)
        assert slow.path.read_bytes() == b"abcdef"

    asyncio.run(scenario())


def test_what_a_broken_stream_brought_moves_to_a_file_and_frees_its_buffer(tmp_path: Path) -> None:
    async def scenario() -> None:
        staging = Staging(SIZE, buffers=1)
        room = spool(tmp_path, staging)
        upload = opened(room, "one")
        await room.stage(upload, lambda: 0.0)
        room.append(upload, b"abcdef", 0.0)
        upload.open_streams = 0
        room.rest(upload)
        assert room.received_bytes("one", name(1)) == 6
        again = room.open("one", name(1), SIZE, 4, 1.0)
        assert again is upload
        room.append(again, b"xy", 1.0)
        assert upload.path.read_bytes() == b"abcdxy"
        assert staging.take_free() is not None

    asyncio.run(scenario())


def test_an_upload_that_cannot_move_to_its_file_begins_again(tmp_path: Path) -> None:
    async def scenario() -> None:
        staging = Staging(SIZE, buffers=1)
        room = spool(tmp_path, staging)
        upload = opened(room, "one")
        await room.stage(upload, lambda: 0.0)
        room.append(upload, b"abc", 0.0)
        upload.path.unlink()
        upload.path.mkdir()
        stream = upload.stream
        upload.open_streams = 0
        try:
            room.rest(upload)
        finally:
            upload.path.rmdir()
        assert upload.stream > stream
        assert room.find("one", name(1)) is None
        assert staging.take_free() is not None

    asyncio.run(scenario())
