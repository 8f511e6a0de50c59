"""The file of a ledger: who may open it, its tables, and how it is made. What rows mean is known in `rows`.

SQLite has no page checksums and takes an empty file for an empty database, so identity is checked here at every
opening. Rows of the ledger are covered by their hash chain; those of the outbox each have a checksum, and each belongs
to a row of the ledger.
"""

import contextlib
import fcntl
import hashlib
import os
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hushgrad.client import outbox
from hushgrad.client.errors import LedgerError
from hushgrad.client.outbox import Entry
from hushgrad.client.rows import Row

LEDGER_NAME = "ledger.sqlite"
LOCK_NAME = "lock"
PAYLOAD_FOLDER = "payloads"

APPLICATION_ID = 0x48474C31  # "HGL1"
SCHEMA_VERSION = 2
"""1: identity and outbox without checksums. 2: with them."""

_OWN_TABLES = (
    """CREATE TABLE identity (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    ledger_id BLOB NOT NULL CHECK (length(ledger_id) = 16),
    secret BLOB NOT NULL CHECK (length(secret) = 32),
    checksum INTEGER NOT NULL
) STRICT""",
    """CREATE TABLE outbox (
    sequence INTEGER PRIMARY KEY REFERENCES ledger (sequence),
    terms_digest BLOB NOT NULL,
    round INTEGER NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('sealed', 'accepted', 'final')),
    reason TEXT NOT NULL,
    included_in INTEGER NOT NULL,
    server_epoch INTEGER NOT NULL,
    held INTEGER NOT NULL CHECK (held IN (0, 1)),
    checksum INTEGER NOT NULL,
    payload BLOB,
    UNIQUE (terms_digest, round)
) STRICT""",
)
"""What this layout changed; the ledger itself is as it always was."""

_REFUSE = "SELECT raise(ABORT, 'ledger rows {}')"
_SCHEMA = (
    *_OWN_TABLES,
    """CREATE TABLE ledger (
    sequence INTEGER PRIMARY KEY,
    kind TEXT NOT NULL,
    terms_digest BLOB,
    round INTEGER,
    body BLOB NOT NULL,
    digest BLOB NOT NULL,
    head BLOB NOT NULL
) STRICT""",
    "CREATE UNIQUE INDEX one_schedule_per_federation ON ledger (terms_digest) WHERE kind = 'commit'",
    "CREATE UNIQUE INDEX no_round_twice ON ledger (terms_digest, round) WHERE kind IN ('update', 'skipped')",
    "CREATE UNIQUE INDEX void_once ON ledger (terms_digest, round) WHERE kind = 'void'",
    f"CREATE TRIGGER rows_never_change BEFORE UPDATE ON ledger BEGIN {_REFUSE.format('never change')}; END",
    f"CREATE TRIGGER rows_never_go BEFORE DELETE ON ledger BEGIN {_REFUSE.format('are never deleted')}; END",
)

MAX_SEQUENCE = 2**63 - 1
"""The largest number that SQLite gives to a row."""

_ROW_COLUMNS = "sequence, kind, terms_digest, round, body, digest, head"
_ENTRY_COLUMNS = "sequence, terms_digest, round, state, reason, included_in, server_epoch, held"
"""What an entry's checksum covers; its payload is covered by the digest in the ledger."""


def said(error: Exception) -> str:
    """Returns what an error of SQLite says, in one line; it may quote the whole schema."""
    return " ".join(str(error).split())[:200]


def checksum(*fields: object) -> int:
    """Returns the checksum of a row, below 2**62."""
    # ascii() says type and value, and says the same in every version of Python.
    return int.from_bytes(hashlib.blake2b(ascii(fields).encode(), digest_size=8).digest(), "big") >> 2


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
        connection.execute("BEGIN IMMEDIATE")
        for statement in _SCHEMA:
            connection.execute(statement)
        connection.execute("INSERT INTO identity VALUES (1, ?, ?, ?)", (ledger_id, secret, checksum(ledger_id, secret)))
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
    """Opens a ledger file after checking that it is one, and that it is whole.

    One of an older layout is brought to the present one: on disk, or only in memory when it is opened to be read.

    Raises:
        LedgerError: if it is missing, empty, something else, damaged, or of a newer layout.
    """
    path = check_file(folder)
    mode = ("ro&immutable=1" if _rests_unwritable(folder) else "ro") if read_only else "rw"
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
            if not 1 <= version <= SCHEMA_VERSION:
                raise LedgerError(
                    f"{path} has layout {version}, this program knows layouts 1 to {SCHEMA_VERSION}: a newer program "
                    "wrote it; nothing was changed, go on with that program"
                )
            if version < SCHEMA_VERSION:
                if read_only:
                    connection = _copied_into_memory(connection)
                _upgrade(connection, path)
            _check_schema(connection, path)
            _check_structure(connection, path)
        except BaseException:
            connection.close()
            raise
    except (sqlite3.Error, UnicodeError) as error:
        raise LedgerError(
            f"{path} cannot be read as a ledger ({said(error)}); name the right state folder, or restore it"
        ) from None
    return connection


def _rests_unwritable(folder: Path) -> bool:
    """Says whether a ledger lies where we may write nothing, and nobody has it open.

    SQLite reads a file in WAL mode only beside a file that it shares with writers, and would make one. Where it cannot,
    a ledger that nobody writes to is read as one that cannot change.
    """
    beside = [folder / f"{LEDGER_NAME}{suffix}" for suffix in ("-wal", "-shm")]
    return not os.access(folder, os.W_OK) and not any(path.exists() for path in beside)


def check_outbox(connection: sqlite3.Connection) -> None:
    """Checks every row of the outbox, and that there is one for each sealed update and no other.

    Raises:
        LedgerError: at the first thing that is wrong.
    """
    entries(connection)
    query = (
        "SELECT l.sequence, o.sequence FROM ledger l LEFT JOIN outbox o USING (sequence) WHERE l.kind = 'update' AND "
        "(o.sequence IS NULL OR o.round IS NOT l.round OR o.terms_digest IS NOT l.terms_digest) "
        "UNION ALL SELECT sequence, sequence FROM outbox "
        "WHERE sequence NOT IN (SELECT sequence FROM ledger WHERE kind = 'update')"
    )
    for sequence, entry_ in connection.execute(query):
        what = "has lost the entry of this row" if entry_ is None else "has an entry of another update in its place"
        raise LedgerError(f"ledger row {sequence}: the outbox {what}; restore the ledger from where it was")


def _check_schema(connection: sqlite3.Connection, path: Path) -> None:
    found = {sql for (sql,) in connection.execute("SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL")}
    if found != set(_SCHEMA):
        raise LedgerError(f"{path} is damaged: its schema is not that of layout {SCHEMA_VERSION}; restore it")


def _check_structure(connection: sqlite3.Connection, path: Path) -> None:
    (found,) = connection.execute("PRAGMA integrity_check(ledger)").fetchone()
    if found != "ok":
        raise LedgerError(f"{path} is damaged: {' '.join(found.split())}; restore it from where it was")


def _copied_into_memory(connection: sqlite3.Connection) -> sqlite3.Connection:
    with contextlib.closing(connection):
        copy = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        connection.backup(copy)
    return copy


def _upgrade(connection: sqlite3.Connection, path: Path) -> None:
    """Brings layout 1 to this one, in one transaction: its rows get the checksums of what they say now."""
    _check_structure(connection, path)
    connection.execute("BEGIN IMMEDIATE")
    try:
        for table in ("identity", "outbox"):
            connection.execute(f"ALTER TABLE {table} RENAME TO old_{table}")
        for statement in _OWN_TABLES:
            connection.execute(statement)
        for one, ledger_id, secret in connection.execute("SELECT one, ledger_id, secret FROM old_identity").fetchall():
            connection.execute(
                "INSERT INTO identity VALUES (?, ?, ?, ?)", (one, ledger_id, secret, checksum(ledger_id, secret))
            )
        connection.create_function("row_checksum", -1, checksum, deterministic=True)
        connection.execute(
            f"INSERT INTO outbox ({_ENTRY_COLUMNS}, payload, checksum) "
            f"SELECT {_ENTRY_COLUMNS}, payload, row_checksum({_ENTRY_COLUMNS}) FROM old_outbox"
        )
        for table in ("identity", "outbox"):
            connection.execute(f"DROP TABLE old_{table}")
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def insert_row(connection: sqlite3.Connection, row: Row) -> None:
    """Appends one row."""
    connection.execute(
        f"INSERT INTO ledger ({_ROW_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?)",
        (row.sequence, row.kind, row.terms_digest, row.round, row.body, row.digest, row.head),
    )


def identity(connection: sqlite3.Connection) -> tuple[bytes, bytes]:
    """Returns the 16 bytes that identify the ledger, and the 32 secret ones that key its data's fingerprint."""
    found = connection.execute("SELECT ledger_id, secret, checksum FROM identity").fetchone()
    if found is None or checksum(*found[:2]) != found[2]:
        raise LedgerError("the ledger has lost its identity, or it is damaged; restore it from where it was")
    return found[0], found[1]


def rows(connection: sqlite3.Connection, first: int = 1, last: int = MAX_SEQUENCE) -> Iterator[Row]:
    """Yields all rows by sequence number, or those from `first` to `last`."""
    # A row below number 1 is never written; it must be seen where it was forged.
    lowest = -MAX_SEQUENCE if first == 1 else first
    for values in connection.execute(
        f"SELECT {_ROW_COLUMNS} FROM ledger WHERE sequence BETWEEN ? AND ? ORDER BY sequence", (lowest, last)
    ):
        yield Row(*values)


def commit_rows(connection: sqlite3.Connection) -> Iterator[Row]:
    """Yields the rows that commit a schedule, oldest first."""
    for values in connection.execute(f"SELECT {_ROW_COLUMNS} FROM ledger WHERE kind = 'commit' ORDER BY sequence"):
        yield Row(*values)


def newest(connection: sqlite3.Connection) -> tuple[int, bytes]:
    """Returns number and head of the newest row; (0, b"") if there is none."""
    found = connection.execute("SELECT sequence, head FROM ledger ORDER BY sequence DESC LIMIT 1").fetchone()
    return (0, b"") if found is None else (found[0], found[1])


def sealed_rounds(connection: sqlite3.Connection, terms_digest: bytes) -> tuple[int, ...]:
    """Returns the rounds of a federation's updates, in the order in which they were sealed."""
    query = "SELECT round FROM ledger WHERE terms_digest = ? AND kind = 'update' ORDER BY sequence"
    return tuple(round_ for (round_,) in connection.execute(query, (terms_digest,)))


def last_updates(connection: sqlite3.Connection, terms_digest: bytes, number: int) -> frozenset[int]:
    """Returns the numbers of the rows of a federation's last updates."""
    query = "SELECT sequence FROM ledger WHERE terms_digest = ? AND kind = 'update' ORDER BY sequence DESC LIMIT ?"
    return frozenset(sequence for (sequence,) in connection.execute(query, (terms_digest, number)))


def noted_rounds(connection: sqlite3.Connection, terms_digest: bytes) -> dict[str, tuple[int, int]]:
    """Returns, for "skipped" and "void" where a federation has such rows, their number and the largest round."""
    query = (
        "SELECT kind, count(*), max(round) FROM ledger WHERE terms_digest = ? AND kind IN ('skipped', 'void') "
        "GROUP BY kind"
    )
    return {kind: (count, largest) for kind, count, largest in connection.execute(query, (terms_digest,))}


def outbox_tally(connection: sqlite3.Connection, terms_digest: bytes) -> list[tuple[str, str, bool, int, int]]:
    """Returns (state, reason, held, how many, lowest round) for each kind of a federation's outbox entries."""
    query = (
        "SELECT state, reason, held, count(*), min(round) FROM outbox WHERE terms_digest = ? "
        "GROUP BY state, reason, held"
    )
    return [
        (state, reason, bool(held), *more) for state, reason, held, *more in connection.execute(query, (terms_digest,))
    ]


def body(connection: sqlite3.Connection, sequence: int) -> bytes:
    """Returns the body of a row."""
    (found,) = connection.execute("SELECT body FROM ledger WHERE sequence = ?", (sequence,)).fetchone()
    return bytes(found)


def entries(connection: sqlite3.Connection, terms_digest: bytes | None = None) -> list[tuple[bytes, Entry]]:
    """Returns (terms digest, entry) of one federation's or all outbox entries, oldest first.

    Raises:
        LedgerError: if one of them is damaged.
    """
    return [
        (found[1], _entry(found))
        for found in connection.execute(
            f"{_GET_ENTRIES} WHERE ?1 IS NULL OR o.terms_digest = ?1 ORDER BY o.sequence", (terms_digest,)
        )
    ]


def entries_of_rows(connection: sqlite3.Connection, first: int, last: int) -> dict[int, Entry]:
    """Returns the outbox entries of the ledger rows `first` to `last`, by number of the row.

    Raises:
        LedgerError: if one of them is damaged.
    """
    query = f"{_GET_ENTRIES} WHERE o.sequence BETWEEN ? AND ?"
    return {found[0]: _entry(found) for found in connection.execute(query, (first, last))}


def entry(connection: sqlite3.Connection, terms_digest: bytes, round_: int) -> tuple[int, Entry] | None:
    """Returns (sequence number, entry) of a sealed round; None if nothing was sealed.

    Raises:
        LedgerError: if it is damaged.
    """
    found = connection.execute(
        f"{_GET_ENTRIES} WHERE o.terms_digest = ? AND o.round = ?", (terms_digest, round_)
    ).fetchone()
    return None if found is None else (found[0], _entry(found))


def insert_entry(
    connection: sqlite3.Connection, sequence: int, terms_digest: bytes, new: Entry, payload_: bytes | None
) -> None:
    """Adds the entry of a round that is being sealed; its payload, unless that is a file."""
    fields = _fields(sequence, terms_digest, new)
    connection.execute(
        f"INSERT INTO outbox ({_ENTRY_COLUMNS}, checksum, payload) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (*fields, checksum(*fields), payload_),
    )


def change_entry(connection: sqlite3.Connection, sequence: int, terms_digest: bytes, new: Entry) -> None:
    """Writes an entry as it is now; drops its payload when it is not held any more."""
    fields = _fields(sequence, terms_digest, new)
    _, _, _, state, reason, included_in, epoch, held = fields
    connection.execute(
        "UPDATE outbox SET state = ?, reason = ?, included_in = ?, server_epoch = ?, held = ?, checksum = ?"
        f"{'' if held else ', payload = NULL'} WHERE sequence = ?",
        (state, reason, included_in, epoch, held, checksum(*fields), sequence),
    )


_GET_ENTRIES = (
    f"SELECT {', '.join(f'o.{column}' for column in _ENTRY_COLUMNS.split(', '))}, o.checksum, l.digest "
    "FROM outbox o JOIN ledger l USING (sequence)"
)


def _fields(sequence: int, terms_digest: bytes, of: Entry) -> tuple[Any, ...]:
    return (sequence, terms_digest, of.round, of.state, of.reason, of.included_in, of.server_epoch, int(of.held))


def _entry(found: tuple[Any, ...]) -> Entry:
    *fields, sum_, digest = found
    sequence, _, round_, state, reason, included_in, epoch, held = fields
    if checksum(*fields) != sum_:
        raise LedgerError(
            f"the outbox entry of ledger row {sequence} is damaged: it does not have its checksum; restore the ledger"
        )
    return Entry(round_, digest, state, reason, included_in, epoch, bool(held))


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
