"""The file of a ledger: who may open it, its tables, and how it is made. What rows mean is known in `rows`.

SQLite has no page checksums and takes an empty file for an empty database, so identity is checked here at every opening
and content by the hash chain.
"""

import fcntl
import os
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hushgrad.client import outbox
from hushgrad.client.errors import LedgerError
from hushgrad.client.outbox import Entry
from hushgrad.client.rows import Row

LEDGER_NAME = "ledger.sqlite"
LOCK_NAME = "lock"
PAYLOAD_FOLDER = "payloads"

APPLICATION_ID = 0x48474C31  # "HGL1"
SCHEMA_VERSION = 1

_SCHEMA = """
CREATE TABLE identity (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    ledger_id BLOB NOT NULL CHECK (length(ledger_id) = 16),
    secret BLOB NOT NULL CHECK (length(secret) = 32)
) STRICT;
CREATE TABLE ledger (
    sequence INTEGER PRIMARY KEY,
    kind TEXT NOT NULL,
    terms_digest BLOB,
    round INTEGER,
    body BLOB NOT NULL,
    digest BLOB NOT NULL,
    head BLOB NOT NULL
) STRICT;
CREATE UNIQUE INDEX one_schedule_per_federation ON ledger (terms_digest) WHERE kind = 'commit';
CREATE UNIQUE INDEX no_round_twice ON ledger (terms_digest, round) WHERE kind IN ('update', 'skipped');
CREATE UNIQUE INDEX void_once ON ledger (terms_digest, round) WHERE kind = 'void';
CREATE TRIGGER rows_never_change BEFORE UPDATE ON ledger BEGIN SELECT raise(ABORT, 'ledger rows never change'); END;
CREATE TRIGGER rows_never_go BEFORE DELETE ON ledger BEGIN SELECT raise(ABORT, 'ledger rows are never deleted'); END;
CREATE TABLE outbox (
    sequence INTEGER PRIMARY KEY REFERENCES ledger (sequence),
    terms_digest BLOB NOT NULL,
    round INTEGER NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('sealed', 'accepted', 'final')),
    reason TEXT NOT NULL DEFAULT '',
    included_in INTEGER NOT NULL DEFAULT 0,
    server_epoch INTEGER NOT NULL DEFAULT 0,
    held INTEGER NOT NULL DEFAULT 1 CHECK (held IN (0, 1)),
    payload BLOB,
    UNIQUE (terms_digest, round)
) STRICT;
"""

_ROW_COLUMNS = "sequence, kind, terms_digest, round, body, digest, head"


@dataclass(frozen=True, slots=True)
class Lock:
    """An exclusive hold on a state folder, for the life of the process or until it is released."""

    descriptor: int

    def release(self) -> None:
        """Lets others open the ledger."""
        os.close(self.descriptor)


def lock(folder: Path) -> Lock:
    """Takes the lock of a state folder.

    Raises:
        LedgerError: if another process holds it. Nothing has been read then.
    """
    descriptor = os.open(folder / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise LedgerError(
            f"the ledger in {folder} is in use by another process; two processes on one ledger would spend its budget "
            "twice: stop the other one, or give this one its own state folder and data"
        ) from None
    return Lock(descriptor)


def create(folder: Path, ledger_id: bytes, secret: bytes, first_row: Row) -> None:
    """Makes a ledger file with its first row; all of it or nothing.

    Raises:
        LedgerError: if there is one already.
    """
    path = folder / LEDGER_NAME
    if path.exists():
        raise LedgerError(
            f"there is a ledger at {path} already; a ledger is never overwritten: use it, or another folder"
        )
    temporary = folder / f"{LEDGER_NAME}.new"
    for leftover in folder.glob(f"{LEDGER_NAME}.new*"):
        leftover.unlink()
    connection = sqlite3.connect(temporary, isolation_level=None)
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.executescript(f"BEGIN IMMEDIATE; {_SCHEMA}")
        connection.execute("INSERT INTO identity VALUES (1, ?, ?)", (ledger_id, secret))
        insert_row(connection, first_row)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        connection.execute("COMMIT")
    finally:
        connection.close()
    temporary.chmod(0o600)
    descriptor = os.open(temporary, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    temporary.rename(path)
    outbox.sync_folder(folder)


def check_file(folder: Path) -> Path:
    """Returns the path of the ledger in a state folder, if there is one that is not empty.

    Raises:
        LedgerError: if it is missing or empty.
    """
    path = folder / LEDGER_NAME
    if not path.is_file():
        raise LedgerError(
            f"there is no ledger at {path}. One is never made by itself, because what an earlier one has spent would "
            "be forgotten: restore it, or run `hushgrad-client ledger init` if this data was never used before"
        )
    if path.stat().st_size == 0:
        raise LedgerError(
            f"the ledger at {path} is empty; it was cut off or never was one: restore it from where it was"
        )
    return path


def connect(folder: Path, *, read_only: bool) -> sqlite3.Connection:
    """Opens a ledger file after checking that it is one.

    Raises:
        LedgerError: if it is missing, empty, or something else.
    """
    path = check_file(folder)
    mode = "ro" if read_only else "rw"
    try:
        connection = sqlite3.connect(
            f"{path.resolve().as_uri()}?mode={mode}",
            uri=True,
            isolation_level=None,
            check_same_thread=False,
            timeout=10,
        )
        try:
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA foreign_keys = ON")
            (application,) = connection.execute("PRAGMA application_id").fetchone()
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            if application != APPLICATION_ID:
                raise LedgerError(
                    f"{path} is not a hushgrad ledger; expected application id {APPLICATION_ID:#x}, found "
                    f"{application:#x}: name the right state folder"
                )
            if version != SCHEMA_VERSION:
                raise LedgerError(
                    f"{path} has layout {version}, this program knows {SCHEMA_VERSION}; update the older one"
                )
        except BaseException:
            connection.close()
            raise
    except sqlite3.Error as error:
        raise LedgerError(
            f"{path} cannot be read as a ledger ({error}); name the right state folder, or restore it"
        ) from None
    return connection


def insert_row(connection: sqlite3.Connection, row: Row) -> None:
    """Appends one row."""
    connection.execute(
        f"INSERT INTO ledger ({_ROW_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?)",
        (row.sequence, row.kind, row.terms_digest, row.round, row.body, row.digest, row.head),
    )


def identity(connection: sqlite3.Connection) -> tuple[bytes, bytes]:
    """Returns the 16 bytes that identify the ledger, and the 32 secret ones that key its data's fingerprint."""
    found = connection.execute("SELECT ledger_id, secret FROM identity").fetchone()
    if found is None:
        raise LedgerError("the ledger has lost its identity; restore it from where it was")
    return bytes(found[0]), bytes(found[1])


def rows(connection: sqlite3.Connection) -> Iterator[Row]:
    """Yields all rows by sequence number."""
    for values in connection.execute(f"SELECT {_ROW_COLUMNS} FROM ledger ORDER BY sequence"):
        yield Row(*values)


def entries(connection: sqlite3.Connection, terms_digest: bytes | None = None) -> list[tuple[bytes, Entry]]:
    """Returns (terms digest, entry) of one federation's or all outbox entries, oldest first."""
    query = (
        "SELECT o.terms_digest, o.round, l.digest, o.state, o.reason, o.included_in, o.server_epoch, o.held "
        "FROM outbox o JOIN ledger l USING (sequence) WHERE ?1 IS NULL OR o.terms_digest = ?1 ORDER BY o.sequence"
    )
    return [
        (digest, Entry(round_, update, state, reason, included_in, epoch, bool(held)))
        for digest, round_, update, state, reason, included_in, epoch, held in connection.execute(
            query, (terms_digest,)
        )
    ]


def payload(connection: sqlite3.Connection, folder: Path, sequence: int, digest: bytes) -> bytes | None:
    """Returns the held payload of an update row as it lies there, unchecked; None where there is none to read."""
    found = connection.execute("SELECT payload FROM outbox WHERE sequence = ? AND held = 1", (sequence,)).fetchone()
    if found is None:
        return None
    if found[0] is not None:
        return bytes(found[0])
    try:
        return outbox.payload_path(folder / PAYLOAD_FOLDER, digest).read_bytes()
    except OSError:
        return None
