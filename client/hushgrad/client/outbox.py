"""Sealed updates on their way: what became of each, and the files of those too large for a row.

An entry moves sealed -> accepted (-> sealed again when the server forgot it) or sealed -> final. Its bytes stay until
the server's retention watermark covers them.
"""

import hashlib
import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

State = Literal["sealed", "accepted", "final"]

INLINE_PAYLOAD_BYTES = 2**20
"""Payloads above this size are files; SQLite would write them twice."""

_SUFFIX = ".payload"


@dataclass(frozen=True, slots=True)
class Entry:
    """What the outbox knows of one sealed update.

    Attributes:
        round: its round.
        digest: its digest, 32 bytes.
        state: "sealed": no final answer yet; "accepted": the server has its receipt; "final": never sent again.
        reason: with "final", the answer or fate that made it so.
        included_in: with "accepted", the first version whose checkpoint holds it.
        server_epoch: with "accepted", the epoch of the server that said so.
        held: the bytes have not been dropped.
    """

    round: int
    digest: bytes
    state: State
    reason: str = ""
    included_in: int = 0
    server_epoch: int = 0
    held: bool = True


@dataclass(frozen=True, slots=True)
class SealedUpdate:
    """The bytes of one sealed update. Only a ledger makes these: nothing else can be sent.

    Attributes:
        round: its round.
        header: 192 bytes.
        payload: the elements.
        digest: SHA-256(header || payload), checked when it was read.
    """

    round: int
    header: bytes
    payload: bytes
    digest: bytes


@dataclass(frozen=True, slots=True)
class Accepted:
    """The server answered ACCEPTED, or DUPLICATE of it. The latest word counts."""

    round: int
    included_in: int
    server_epoch: int


@dataclass(frozen=True, slots=True)
class Refused:
    """The server will never take it (INVALID, STALE). The bytes are dropped; the round stays spent."""

    round: int
    reason: str


@dataclass(frozen=True, slots=True)
class Reopened:
    """The server asked for it again: it counts as not yet answered."""

    round: int


@dataclass(frozen=True, slots=True)
class Forgotten:
    """The retention watermark covers it: the bytes are dropped."""

    round: int


Mark = Accepted | Refused | Reopened | Forgotten


def marked(entry: Entry, mark: Mark) -> Entry:
    """Returns an entry as it is after a mark. What is final stays as it is, and so does what is not covered yet."""
    if entry.state == "final":
        return entry
    match mark:
        case Accepted(included_in=included_in, server_epoch=epoch):
            return replace(entry, state="accepted", included_in=included_in, server_epoch=epoch)
        case Reopened():
            return replace(entry, state="sealed", included_in=0, server_epoch=0)
        case Refused(reason=reason):
            return replace(entry, state="final", reason=reason, held=False)
        case Forgotten():
            return replace(entry, held=False) if entry.state == "accepted" else entry


def payload_path(folder: Path, digest: bytes) -> Path:
    """Returns where the payload of an update with this digest lies."""
    return folder / f"{digest.hex()}{_SUFFIX}"


def write_payload(folder: Path, digest: bytes, payload: bytes) -> Path:
    """Writes a payload so that it survives a power cut from the moment this returns: file, then its folder."""
    folder.mkdir(exist_ok=True)
    path = payload_path(folder, digest)
    temporary = path.with_suffix(".tmp")
    with temporary.open("wb") as file:
        file.write(payload)
        file.flush()
        os.fsync(file.fileno())
    temporary.rename(path)
    sync_folder(folder)
    sync_folder(folder.parent)
    return path


def sync_folder(folder: Path) -> None:
    """Makes the names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove_orphans(folder: Path, digests: Iterable[bytes]) -> None:
    """Deletes payload files that no row names: a seal that did not finish released nothing and is drawn anew."""
    if not folder.is_dir():
        return
    named = {payload_path(folder, digest) for digest in digests}
    for path in (*folder.glob(f"*{_SUFFIX}"), *folder.glob("*.tmp")):
        if path not in named:
            path.unlink(missing_ok=True)


def file_digest(header: bytes, path: Path) -> bytes | None:
    """Returns SHA-256(header || bytes of the file); None when the file cannot be read."""
    state = hashlib.sha256(header)
    try:
        with path.open("rb") as file:
            while block := file.read(2**20):
                state.update(block)
    except OSError:
        return None
    return state.digest()
