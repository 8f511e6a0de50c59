"""Uploads on their way: bytes that arrive in pieces are kept in files, within a quota, until they are whole.

Knows no update rule: what an upload means is decided when all of it is there. Nothing here survives a restart, because
the tail of a file may be torn by a crash; the sender begins again.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path

MAX_FILES_PER_PARTICIPANT = 2


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
    """

    key: tuple[str, bytes]
    path: Path
    total_bytes: int
    received_bytes: int = 0
    stream: int = 0
    is_complete: bool = False
    touched_at: float = 0.0


class Spool:
    """The uploads in one folder. Each participant has at most two, all together at most `quota_bytes`."""

    def __init__(self, folder: Path, quota_bytes: int) -> None:
        self._folder = folder
        self._quota_bytes = quota_bytes
        self._uploads: dict[tuple[str, bytes], Upload] = {}

    def received_bytes(self, participant: str, digest: bytes) -> int:
        """Returns how many bytes of an upload have arrived; 0 when it is not known."""
        upload = self._uploads.get((participant, digest))
        return 0 if upload is None else upload.received_bytes

    def open(self, participant: str, digest: bytes, total_bytes: int, offset: int, now: float) -> Upload | None:
        """Opens or resumes an upload at an offset; None when that is not possible now (gap, quota, being checked)."""
        key = (participant, digest)
        upload = self._uploads.get(key)
        if upload is None:
            if not self._make_room(participant, total_bytes):
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

    def read(self, upload: Upload, header: bytes) -> tuple[bytes, bytes]:
        """Returns (payload, SHA-256(header || payload)). Slow for large uploads: call it off the event loop."""
        payload = upload.path.read_bytes()
        state = hashlib.sha256(header)
        state.update(payload)
        return payload, state.digest()

    def discard(self, upload: Upload) -> None:
        """Forgets an upload."""
        self._uploads.pop(upload.key, None)
        upload.path.unlink(missing_ok=True)

    def _make_room(self, participant: str, total_bytes: int) -> bool:
        own = [upload for upload in self._uploads.values() if upload.key[0] == participant and not upload.is_complete]
        own.sort(key=lambda upload: upload.touched_at)
        while len(own) >= MAX_FILES_PER_PARTICIPANT:
            self.discard(own.pop(0))
        return sum(upload.total_bytes for upload in self._uploads.values()) + total_bytes <= self._quota_bytes
