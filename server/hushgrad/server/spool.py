"""Uploads on their way: bytes that arrive in pieces are kept in files, within quotas, until they are whole.

Knows no update rule: what an upload means is decided when all of it is there. Nothing here survives a restart, because
the tail of a file may be torn by a crash; the sender begins again.
"""

from dataclasses import dataclass
from pathlib import Path


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
    """

    key: tuple[str, bytes]
    path: Path
    total_bytes: int
    received_bytes: int = 0
    stream: int = 0
    is_complete: bool = False
    touched_at: float = 0.0
    open_streams: int = 0


class Spool:
    """The uploads in one folder.

    Args:
        folder: where they lie.
        quota_bytes: for all together, counted as if they were whole.
        of_each: how many one participant may have.
        keep_seconds: how long one is kept that does not go on.
    """

    def __init__(self, folder: Path, quota_bytes: int, *, of_each: int, keep_seconds: float) -> None:
        self._folder = folder
        self._quota_bytes = quota_bytes
        self._of_each = of_each
        self._keep_seconds = keep_seconds
        self._uploads: dict[tuple[str, bytes], Upload] = {}

    @property
    def bytes_on_disk(self) -> int:
        """How many bytes have arrived of all uploads that are known. May be asked on any thread."""
        return sum(upload.received_bytes for upload in list(self._uploads.values()))

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
        with open(upload.path, "r+b") as file:
            file.truncate(offset)
        upload.stream += 1
        upload.touched_at = now
        return upload

    def append(self, upload: Upload, data: bytes, now: float) -> None:
        """Adds a piece behind what has arrived."""
        with open(upload.path, "ab") as file:
            file.write(data)
        upload.received_bytes += len(data)
        upload.touched_at = now

    def read(self, upload: Upload) -> bytes:
        """Returns what has arrived. Slow for large uploads: call it off the event loop."""
        return upload.path.read_bytes()

    def discard(self, upload: Upload) -> None:
        """Forgets an upload."""
        self._uploads.pop(upload.key, None)
        upload.path.unlink(missing_ok=True)

    def _make_room(self, participant: str, total_bytes: int, now: float) -> bool:
        resting = sorted(
            (upload for upload in self._uploads.values() if not upload.open_streams and not upload.is_complete),
            key=lambda upload: upload.touched_at,
        )
        for upload in list(resting):
            if upload.touched_at + self._keep_seconds < now:
                self.discard(upload)
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
