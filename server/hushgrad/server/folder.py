"""The folder of a server's state: what lies where, the lock that one process holds for life, and durable files.

Knows no rows and no protocol.
"""

import fcntl
import hashlib
import os
from pathlib import Path

from hushgrad.server import stored
from hushgrad.server.errors import InputError, StoreError
from hushgrad.server.stored import StoredBytes

DATABASE_NAME = "server.sqlite"


class StateFolder:
    """Paths below one state folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.database = root / DATABASE_NAME
        self.arrays = root / "arrays"
        self.spool = root / "spool"
        self.sealed = root / "sealed"
        self._lock: int | None = None

    def make(self) -> None:
        """Makes the folder and its sub-folders.

        Raises:
            InputError: if that is not possible.
        """
        try:
            for folder in (self.root, self.arrays, self.spool, self.sealed):
                folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"state folder {self.root} cannot be made: {error.strerror}") from error

    def lock(self) -> None:
        """Locks the folder until the process ends.

        Raises:
            InputError: if another process has it.
        """
        try:
            descriptor = os.open(self.root / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise InputError(f"state folder {self.root} cannot be locked: {error.strerror}") from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            raise InputError(
                f"state folder {self.root} is in use by another server; stop that one, or give this one another state"
            ) from None
        self._lock = descriptor

    def unlock(self) -> None:
        """Gives the lock back; the end of the process does the same."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def sync_directory(folder: Path) -> None:
    """Makes names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_file(path: Path) -> None:
    """Makes the content of a file durable."""
    with open(path, "rb") as file:
        os.fsync(file.fileno())


def write_durably(path: Path, data: bytes | memoryview) -> None:
    """Writes a new file so that after a crash it is there in whole or not at all: write, fsync, rename, fsync."""
    temporary = path.with_name(path.name + ".new")
    with open(temporary, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    temporary.rename(path)
    sync_directory(path.parent)


def read_verified(path: Path, sha256: bytes) -> bytes:
    """Reads a file whose digest is known.

    Raises:
        StoreError: if it cannot be read or has other content.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror}") from error
    return verified(data, sha256, str(path))


def open_verified(path: Path, sha256: bytes) -> StoredBytes:
    """Opens a file whose digest is known, and reads all of it once, a part at a time.

    Raises:
        StoreError: if it cannot be read or has other content.
    """
    try:
        content = StoredBytes(path)
        _compare(stored.sha256(content), sha256, str(path))
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror}") from error
    return content


def verified(data: bytes, sha256: bytes, what: str) -> bytes:
    """Returns the data if its digest is right; SQLite has no checksums of its own.

    Raises:
        StoreError: if it is not.
    """
    _compare(hashlib.sha256(data).digest(), sha256, what)
    return data


def _compare(found: bytes, sha256: bytes, what: str) -> None:
    if found != sha256:
        raise StoreError(
            f"{what} is damaged: expected SHA-256 {sha256.hex()}, found {found.hex()}; restore the state from a backup"
        )
