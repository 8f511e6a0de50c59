"""The layout of the server's database: its tables, the checksums of their rows, and how an older one becomes this one.

SQLite has no checksums. Here every row has one, which is compared whenever the row is read; `sums` holds the exclusive
or of each table's, so that a row that is missing, or came back from the past, is found too; and the schema must be,
letter for letter, the one below. What rows mean is known in `rows`.
"""

import contextlib
import hashlib
import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from hushgrad.server.errors import InputError, StoreError

APPLICATION_ID: Final = int.from_bytes(b"HGsv", "big")
VERSION: Final = 3
"""1: rows without checksums. 2: with them. 3: also what operators ordered, scores, when versions were published, and
receipts and versions of long ago, many in a row."""

CHECKED: Final = {
    "meta": "key, value",
    "participants": "name, body",
    "receipts": "participant, round, digest, sequence, previous_head, head, disposition, reason, included_in",
    "versions": "version, previous, sha256, file, model IS NOT NULL, published_at",
    "arrays": "name, version, count, sha256, file",
    "acts": "number, at, who, verb, detail",
    "scores": "evaluator, version, accuracy, averaged_accuracy, examples, reported_at",
    "past_receipts": "participant, block, accepted, rounds_received, first_sequence, last_sequence, first_version, "
    "last_version, sha256",
    "past_versions": "block, sha256",
}
"""What each table's checksums cover. Models, arrays and what is packed are covered by their SHA-256."""

_EARLIER: Final = {
    "meta": "key, value",
    "participants": "name, body",
    "receipts": "participant, round, digest, sequence, previous_head, head, disposition, reason, included_in",
    "versions": "version, previous, sha256, file, model IS NOT NULL",
    "arrays": "name, version, count, sha256, file",
}
"""The same of layout 2; layout 1 had these tables without checksums."""

_TABLES: Final = (
    "CREATE TABLE meta (key TEXT PRIMARY KEY, value, checksum INTEGER NOT NULL) WITHOUT ROWID",
    "CREATE TABLE participants (name TEXT PRIMARY KEY, body TEXT NOT NULL, checksum INTEGER NOT NULL) WITHOUT ROWID",
    """CREATE TABLE receipts (
    participant TEXT NOT NULL,
    round INTEGER NOT NULL,
    digest BLOB,
    sequence INTEGER,
    previous_head BLOB NOT NULL,
    head BLOB NOT NULL,
    disposition TEXT NOT NULL,
    reason TEXT NOT NULL,
    included_in INTEGER,
    checksum INTEGER NOT NULL,
    PRIMARY KEY (participant, round)
) WITHOUT ROWID""",
    "CREATE INDEX receipts_by_row ON receipts (participant, sequence)",
    "CREATE INDEX receipts_by_version ON receipts (included_in)",
    """CREATE TABLE versions (
    version INTEGER PRIMARY KEY,
    previous INTEGER NOT NULL,
    sha256 BLOB NOT NULL,
    file TEXT,
    published_at REAL,
    checksum INTEGER NOT NULL,
    model BLOB
)""",
    """CREATE TABLE arrays (
    name TEXT PRIMARY KEY,
    version INTEGER NOT NULL,
    count INTEGER NOT NULL,
    sha256 BLOB NOT NULL,
    file TEXT,
    checksum INTEGER NOT NULL,
    data BLOB
) WITHOUT ROWID""",
    """CREATE TABLE acts (
    number INTEGER PRIMARY KEY,
    at REAL NOT NULL,
    who TEXT NOT NULL,
    verb TEXT NOT NULL,
    detail TEXT NOT NULL,
    checksum INTEGER NOT NULL
)""",
    """CREATE TABLE scores (
    evaluator TEXT NOT NULL,
    version INTEGER NOT NULL,
    accuracy REAL NOT NULL,
    averaged_accuracy REAL,
    examples INTEGER NOT NULL,
    reported_at REAL NOT NULL,
    checksum INTEGER NOT NULL,
    PRIMARY KEY (evaluator, version)
) WITHOUT ROWID""",
    """CREATE TABLE past_receipts (
    participant TEXT NOT NULL,
    block INTEGER NOT NULL,
    accepted INTEGER NOT NULL,
    rounds_received INTEGER NOT NULL,
    first_sequence INTEGER NOT NULL,
    last_sequence INTEGER NOT NULL,
    first_version INTEGER NOT NULL,
    last_version INTEGER NOT NULL,
    sha256 BLOB NOT NULL,
    checksum INTEGER NOT NULL,
    packed BLOB NOT NULL,
    UNIQUE (participant, block)
)""",
    """CREATE TABLE past_versions (
    block INTEGER PRIMARY KEY,
    sha256 BLOB NOT NULL,
    checksum INTEGER NOT NULL,
    packed BLOB NOT NULL
)""",
    "CREATE TABLE sums (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID",
)


def _triggers() -> list[str]:
    # SQLite has no exclusive or; for numbers that are not negative this is it.
    add = "value = (value | {0}.checksum) - (value & {0}.checksum)"
    found = []
    for table in CHECKED:
        for event, rows in (("INSERT", ("new",)), ("UPDATE OF checksum", ("old", "new")), ("DELETE", ("old",))):
            steps = " ".join(f"UPDATE sums SET {add.format(row)} WHERE name = '{table}';" for row in rows)
            name = f"{table}_{event.split()[0].lower()}"
            found.append(f"CREATE TRIGGER {name} AFTER {event} ON {table} BEGIN {steps} END")
    return found


SCHEMA: Final = (*_TABLES, *_triggers())

_WITHOUT_MODELS: Final = tuple(f"({table})" for table in CHECKED if table not in ("versions", "arrays"))
_LARGEST_CHECKED_WHOLE: Final = 2**29
"""Bytes of a database above which only the tables that hold no models are looked over at start: reading them all would
take longer than a restart may."""


def checksum(table: str, *fields: Any) -> int:
    """Returns the checksum of a row, below 2**62.

    >>> checksum("meta", "server_epoch", 1) == checksum("meta", "server_epoch", 2)
    False
    """
    # ascii() says type and value, and says the same in every version of Python.
    digest = hashlib.blake2b(ascii((table, *fields)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 2


def said(error: Exception) -> str:
    """Returns what an error of SQLite says, in one line; it may quote the whole schema."""
    return " ".join(str(error).split())[:200]


def verified(table: str, row: Sequence[Any]) -> Sequence[Any]:
    """Returns the fields of a row that was read with its checksum as the last one.

    Raises:
        StoreError: if the checksum does not fit.
    """
    fields = row[:-1]
    if checksum(table, *fields) != row[-1]:
        raise StoreError(
            f"a row of {table} in the server's database is damaged: {_name(fields)} does not have its checksum; "
            "restore the state from a backup"
        )
    return fields


def connect(path: Path, *, read_only: bool) -> sqlite3.Connection:
    """Opens a database and brings it to this layout: on disk, or, to be read only, in memory.

    Raises:
        InputError: if it is not a database of this program, or of a newer one. Nothing was changed.
        StoreError: if it is damaged.
    """
    connection = _open(path)
    try:
        (application_id,) = connection.execute("PRAGMA application_id").fetchone()
        if application_id != APPLICATION_ID:
            raise InputError(f"{path} is another program's database; give the folder of a hushgrad server")
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version > VERSION:
            raise InputError(
                f"{path} has layout {version}, this program knows layouts 1 to {VERSION}: a newer program wrote it; "
                "nothing was changed, go on with that program"
            )
        if version < 1:
            raise InputError(f"{path} has layout {version}, which does not exist; restore it from a backup")
        if version < VERSION:
            if read_only:
                connection = _copied_into_memory(connection)
            _upgrade(connection, path, version)
        _check_schema(connection, path)
        if read_only:
            connection.execute("PRAGMA query_only = ON")
    except BaseException:
        connection.close()
        raise
    return connection


def create(path: Path) -> sqlite3.Connection:
    """Makes an empty database, with the sums of no rows."""
    connection = _open(path)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {VERSION}")
    connection.execute("BEGIN")
    _make(connection)
    connection.execute("COMMIT")
    return connection


def check(connection: sqlite3.Connection, path: Path, *, whole: bool) -> None:
    """Looks everything over: SQLite's structures, the checksum of every row, and that no row is missing.

    Args:
        whole: also the structures that hold models, however many there are.

    Raises:
        StoreError: at the first thing that is wrong.
    """
    is_first = not connection.in_transaction
    if is_first:
        connection.execute("BEGIN")  # others may write meanwhile
    try:
        _check_structure(connection, path, whole=whole)
        _check_rows(connection, path)
    finally:
        if is_first:
            connection.execute("ROLLBACK")


def _check_rows(connection: sqlite3.Connection, path: Path, checked: Mapping[str, str] = CHECKED) -> None:
    sums = dict(connection.execute("SELECT name, value FROM sums"))
    for table, columns in checked.items():
        total = 0
        for row in connection.execute(f"SELECT {columns}, checksum FROM {table}"):
            verified(table, row)
            total ^= row[-1]
        if total != sums.get(table):
            raise StoreError(
                f"{path} is damaged: {table} does not hold the rows that were written last; restore the state from a "
                "backup"
            )


def _check_structure(connection: sqlite3.Connection, path: Path, *, whole: bool) -> None:
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    (size,) = connection.execute("PRAGMA page_size").fetchone()
    tables = ("",) if whole or pages * size <= _LARGEST_CHECKED_WHOLE else _WITHOUT_MODELS
    for table in tables:
        (found,) = connection.execute(f"PRAGMA integrity_check{table}").fetchone()
        if found != "ok":
            raise StoreError(f"{path} is damaged: {' '.join(found.split())}; restore the state from a backup")


def _open(path: Path | str) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=10.0, isolation_level=None, check_same_thread=False)
    connection.create_function("row_checksum", -1, checksum, deterministic=True)
    connection.execute("PRAGMA synchronous = FULL")
    return connection


def _copied_into_memory(connection: sqlite3.Connection) -> sqlite3.Connection:
    with contextlib.closing(connection):
        copy = _open(":memory:")
        connection.backup(copy)
    return copy


def _make(connection: sqlite3.Connection) -> None:
    for statement in SCHEMA:
        connection.execute(statement)
    connection.executemany("INSERT INTO sums VALUES (?, 0)", [(table,) for table in CHECKED])


def _upgrade(connection: sqlite3.Connection, path: Path, version: int) -> None:
    """Brings an older layout to this one, in one transaction: rows without checksums get those of what they say now."""
    _check_structure(connection, path, whole=True)
    connection.execute("BEGIN IMMEDIATE")
    try:
        if version > 1:
            _check_rows(connection, path, _EARLIER)
        rest = "SELECT type, name FROM sqlite_schema WHERE type IN ('index', 'trigger') AND sql IS NOT NULL"
        for kind, name in connection.execute(rest).fetchall():
            connection.execute(f"DROP {kind} {name}")
        connection.execute("DROP TABLE IF EXISTS sums")
        for table in _EARLIER:
            connection.execute(f"ALTER TABLE {table} RENAME TO old_{table}")
        _make(connection)
        for table, columns in _EARLIER.items():
            stored = {"versions": "version, previous, sha256, file, model", "arrays": f"{columns}, data"}.get(
                table, columns
            )
            covered = CHECKED[table].replace("published_at", "NULL")  # nobody knows when that was
            connection.execute(
                f"INSERT INTO {table} ({stored}, checksum) "
                f"SELECT {stored}, row_checksum('{table}', {covered}) FROM old_{table}"
            )
            connection.execute(f"DROP TABLE old_{table}")
        connection.execute(f"PRAGMA user_version = {VERSION}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _check_schema(connection: sqlite3.Connection, path: Path) -> None:
    found = {sql for (sql,) in connection.execute("SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL")}
    if found != set(SCHEMA):
        raise StoreError(f"{path} is damaged: its schema is not that of layout {VERSION}; restore it from a backup")


def _name(fields: Sequence[Any]) -> str:
    names = [str(field) for field in fields[:2] if isinstance(field, str | int)]
    return " ".join(names)[:100] or "it"
