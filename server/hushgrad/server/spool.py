"""Uploads on their way: bytes that arrive in pieces are kept, within quotas, until they are whole.

An upload that comes quickly is received into one of a few buffers in memory. All others are kept in files, also one
that turns out to be slow, so that slow senders hold no memory. Knows no update rule: what an upload means is decided
when all of it is there. Nothing here survives a restart, because the tail of a file may be torn by a crash; the sender
begins again.
"""

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hushgrad.server.staging import Staging

SLOW_BYTES_PER_SECOND: Final = 32 * 2**20
"""A sender that is slower gives its buffer to one that waits; a disk takes as much."""

_MOST_WAITING: Final = 8
_WAITS: Final = 4
_WAIT_SECONDS: Final = 0.25


@dataclass(slots=True, eq=False)
class Upload:
    """One upload that is known.

    Attributes:
        key: (participant, digest).
        total_bytes: size of the payload.
        received_bytes: how many have arrived.
        stream: number of the stream that may write; a newer stream of the same upload takes over.
        is_complete: whether it is being checked; no stream may write any more.
        touched_at: when the last piece came.
        open_streams: how many streams are at it; while there are any it is not dropped to make room.
        buffer: where the bytes are; None: in the file.
        buffered_at: since when.
    """

    key: tuple[str, bytes]
    path: Path
    total_bytes: int
    received_bytes: int = 0
    stream: int = 0
    is_complete: bool = False
    touched_at: float = 0.0
    open_streams: int = 0
    buffer: memoryview | None = None
    buffered_at: float = 0.0


class Spool:
    """The uploads in one folder.

    Args:
        folder: where they lie.
        quota_bytes: for all together, counted as if they were whole.
        of_each: how many one participant may have.
        keep_seconds: how long one is kept that does not go on.
        staging: the buffers; None: there are none.
    """

    def __init__(
        self,
        folder: Path,
        quota_bytes: int,
        *,
        of_each: int,
        keep_seconds: float,
        staging: Staging | None = None,
    ) -> None:
        self._staging = staging
        self._folder = folder
        self._quota_bytes = quota_bytes
        self._of_each = of_each
        self._keep_seconds = keep_seconds
        self._uploads: dict[tuple[str, bytes], Upload] = {}

    @property
    def bytes_on_disk(self) -> int:
        """How many bytes of uploads lie in files. May be asked on any thread."""
        return sum(upload.received_bytes for upload in list(self._uploads.values()) if upload.buffer is None)

    def find(self, participant: str, digest: bytes) -> Upload | None:
        """Returns an upload; None when it is not known."""
        return self._uploads.get((participant, digest))

    def received_bytes(self, participant: str, digest: bytes) -> int:
        """Returns how many bytes of an upload have arrived; 0 when it is not known."""
        upload = self.find(participant, digest)
        return 0 if upload is None else upload.received_bytes

    def open(self, participant: str, digest: bytes, total_bytes: int, offset: int, now: float) -> Upload | None:
        """Opens or resumes an upload at an offset; None when that is not possible now (gap, quota, being checked).

        Raises:
            OSError: if its file cannot be written; nothing was opened.
        """
        key = (participant, digest)
        upload = self._uploads.get(key)
        if upload is None:
            if not self._make_room(participant, total_bytes, now):
                return None
            upload = Upload(key, self._folder / f"{participant}-{digest.hex()}", total_bytes)
            upload.path.write_bytes(b"")
            self._uploads[key] = upload
        if upload.is_complete or offset > upload.received_bytes:
            return None
        upload.received_bytes = offset
        if upload.buffer is None:
            with open(upload.path, "r+b") as file:
                file.truncate(offset)
        upload.stream += 1
        upload.touched_at = now
        return upload

    def append(self, upload: Upload, data: bytes | memoryview, now: float) -> None:
        """Adds a piece behind what has arrived.

        Raises:
            OSError: if it cannot be written.
        """
        if upload.buffer is not None:
            upload.buffer[upload.received_bytes : upload.received_bytes + len(data)] = data
        else:
            with open(upload.path, "ab", buffering=0) as file:
                _write(file.write, data)
        upload.received_bytes += len(data)
        upload.touched_at = now

    async def stage(self, upload: Upload, time: Callable[[], float]) -> None:
        """Gives an upload that begins a buffer, if there is one soon. Else it goes to its file."""
        staging = self._staging
        if staging is None or upload.buffer is not None or upload.received_bytes:
            return
        buffer = staging.take_free()
        for _ in range(_WAITS if staging.waiting < _MOST_WAITING else 0):
            if buffer is None:
                self._evict(time())
                buffer = await staging.take(_WAIT_SECONDS)
        if buffer is None:
            return
        if upload.buffer is not None or upload.received_bytes or upload.is_complete or self.find(*upload.key) is None:
            staging.give_back(buffer)
        else:
            upload.buffer, upload.buffered_at = buffer[: upload.total_bytes], time()

    async def whole(self, upload: Upload, time: Callable[[], float]) -> memoryview:
        """Returns all bytes of an upload that has arrived, in memory; in a buffer, as soon as one is free.

        Raises:
            OSError: if they cannot be read.
        """
        while upload.buffer is None:
            buffer: memoryview | None = None
            if self._staging is None:
                buffer = memoryview(bytearray(upload.total_bytes))
            else:
                self._evict(time())
                buffer = await self._staging.take(_WAIT_SECONDS)
            if buffer is not None:
                upload.buffer = buffer[: upload.total_bytes]
                await asyncio.to_thread(_read_into, upload.path, upload.buffer)
        return upload.buffer

    def rest(self, upload: Upload) -> None:
        """Notes that a stream has ended. What it brought stays until somebody goes on."""
        if upload.open_streams == 0 and not upload.is_complete:
            self._spill(upload)

    def discard(self, upload: Upload) -> memoryview | None:
        """Forgets an upload. Returns its buffer, to be given back when nobody reads it any more."""
        self._uploads.pop(upload.key, None)
        with contextlib.suppress(OSError):  # what is left is removed at the next start
            upload.path.unlink(missing_ok=True)
        buffer, upload.buffer = upload.buffer, None
        return buffer

    def give_back(self, buffer: memoryview | None) -> None:
        """Takes a buffer back that `discard` has returned; None: there is none."""
        if self._staging is not None and buffer is not None:
            self._staging.give_back(buffer)

    def _evict(self, now: float) -> None:
        """Takes their buffers from those who are slow."""
        for upload in list(self._uploads.values()):
            seconds = now - upload.buffered_at
            is_slow = seconds > _WAIT_SECONDS and upload.received_bytes < seconds * SLOW_BYTES_PER_SECOND
            if upload.buffer is not None and not upload.is_complete and is_slow:
                self._spill(upload)

    def _spill(self, upload: Upload) -> None:
        """Moves what has arrived from a buffer to the file; drops the upload when that is not possible."""
        if upload.buffer is None:
            return
        try:
            with open(upload.path, "wb", buffering=0) as file:
                _write(file.write, upload.buffer[: upload.received_bytes])
        except OSError:
            upload.stream += 1  # whoever brings more is told to begin again
            self.give_back(self.discard(upload))
        else:
            buffer, upload.buffer = upload.buffer, None
            self.give_back(buffer)

    def _make_room(self, participant: str, total_bytes: int, now: float) -> bool:
        resting = sorted(
            (upload for upload in self._uploads.values() if not upload.open_streams and not upload.is_complete),
            key=lambda upload: upload.touched_at,
        )
        for upload in list(resting):
            if upload.touched_at + self._keep_seconds < now:
                self.give_back(self.discard(upload))
                resting.remove(upload)
        own = [upload for upload in resting if upload.key[0] == participant]
        while sum(key[0] == participant for key in self._uploads) >= self._of_each:
            if not own:
                return False
            resting.remove(own[0])
            self.discard(own.pop(0))
        # Whoever has rested longest gives way: an upload that goes on is never dropped for one that begins.
        while self._reserved_bytes() + total_bytes > self._quota_bytes:
            if not resting:
                return False
            self.discard(resting.pop(0))
        return True

    def _reserved_bytes(self) -> int:
        return sum(upload.total_bytes for upload in self._uploads.values())


def _write(write: Callable[[memoryview], int | None], data: bytes | memoryview) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[write(rest) or 0 :]


def _read_into(path: Path, buffer: memoryview) -> None:
    with open(path, "rb", buffering=0) as file:
        read = 0
        while read < len(buffer):
            got = file.readinto(buffer[read:])
            if not got:
                raise OSError(f"{path.name} has become shorter")
            read += got
