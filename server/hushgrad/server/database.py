"""The server's SQLite database: what is read from and written to it in one transaction.

Knows no threads, no event loop and no protocol rule. Small arrays live in rows, large ones in immutable files; both are
verified by SHA-256 when read, and every row by its checksum, see `layout`.
"""

import contextlib
import dataclasses
import hashlib
import heapq
import os
import sqlite3
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from hushgrad.server import folder as folder_module
from hushgrad.server import layout, rows
from hushgrad.server import past as past_module
from hushgrad.server.aggregation import Placed, Published
from hushgrad.server.errors import InputError, StoreError
from hushgrad.server.folder import StateFolder
from hushgrad.server.past import Past, StoredVersion
from hushgrad.server.records import (
    Disposition,
    History,
    ParticipantRecord,
    Receipt,
    Record,
    Score,
    Snapshot,
    owes_a_report,
    remembered_from,
)
from hushgrad.server.stored import Content, StoredBytes, StoredSums
from hushgrad.wire import grid
from hushgrad.wire import terms as wire_terms
from hushgrad.wire.terms import Terms

LARGEST_ROW_BYTES = 256 * 1024
"""Arrays above this are files: SQLite writes a large row several times, a file once."""


class Database:
    """One connection to the database of a state folder. Used by one thread at a time."""

    def __init__(self, folder: StateFolder, connection: sqlite3.Connection) -> None:
        self._folder = folder
        self._connection = connection
        self._past = Past(connection)
        self._unsynced: set[Path] = set()
        self._terms: Terms | None = None
        self._dropped_below = 1

    @classmethod
    def open(cls, folder: StateFolder, *, read_only: bool = False) -> Self:
        """Opens the database.

        One of an older layout is brought to the present one: on disk, or only in memory when it is opened to be read.

        Raises:
            InputError: if it is missing, empty, or not one that this program knows.
            StoreError: if it is damaged.
        """
        path = folder.database
        try:
            size = path.stat().st_size
        except OSError as error:
            raise InputError(
                f"no server state in {folder.root} ({error.strerror}); for a new federation make it with "
                "`hushgrad-server init`, if it was lost put a backup back with `hushgrad-server restore`"
            ) from error
        if size == 0:
            raise InputError(f"{path} is empty; restore it from a backup, or make a new state in another folder")
        try:
            connection = layout.connect(path, read_only=read_only)
        except (sqlite3.Error, UnicodeError) as error:
            raise InputError(f"{path} cannot be opened as a server's database: {layout.said(error)}") from error
        return cls(folder, connection)

    @classmethod
    def at(cls, folder: StateFolder, path: Path, *, read_only: bool = False) -> Self:
        """Opens a database file under another name, beside the files of a folder."""
        return cls(folder, layout.connect(path, read_only=read_only))

    @property
    def arrays(self) -> Path:
        """The folder in which large arrays lie."""
        return self._folder.arrays

    def close(self) -> None:
        """Closes the connection."""
        self._connection.close()

    # Transactions

    def begin(self) -> None:
        """Begins a transaction; takes the write lock at once."""
        self._connection.execute("BEGIN IMMEDIATE")

    def begin_reading(self) -> None:
        """Begins a transaction in which all reads see one state; close() ends it."""
        self._connection.execute("BEGIN")

    def commit(self) -> None:
        """Makes the transaction durable."""
        self._connection.execute("COMMIT")

    def rollback(self) -> None:
        """Undoes the transaction, as far as the disk still allows it."""
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")

    # Copies

    def copy_into(self, path: Path) -> None:
        """Copies the database as it stands at one moment into a new file, without a write-ahead log beside it."""
        target = sqlite3.connect(path)
        try:
            self._connection.backup(target)
            target.execute("PRAGMA journal_mode = DELETE")
        finally:
            target.close()

    def use_write_ahead_log(self) -> None:
        """Makes a copy a database that a server can run on."""
        self._connection.execute("PRAGMA journal_mode = WAL")

    def check(self, *, whole: bool = False) -> None:
        """Looks everything over but models and arrays, which are verified when they are read.

        Args:
            whole: however long it takes.

        Raises:
            StoreError: if something is damaged or missing.
        """
        with self._reading():
            layout.check(self._connection, self._folder.database, whole=whole)
            if whole:
                self._past.check()

    def raise_epoch(self, epoch: int, *, first_session: int) -> None:
        """Makes this the state of a new epoch, in which every participant has to join again and say what it holds.

        Args:
            first_session: larger than every session given before.
        """
        self._connection.execute(rows.PUT_META, ("server_epoch", epoch))
        for record in self._participants():
            session = max(record.session, first_session)
            must_report = record.must_report or owes_a_report(record)
            self.write([dataclasses.replace(record, session=session, joins=(), must_report=must_report)])

    # Writing, inside a transaction

    def write(self, records: Iterable[Record]) -> None:
        """Writes receipts and participants."""
        for record in records:
            if isinstance(record, Receipt):
                # A receipt that is still open reads as INCLUDED without a version.
                disposition = record.disposition or Disposition.INCLUDED
                self._connection.execute(
                    rows.PUT_RECEIPT,
                    (
                        record.participant,
                        record.round,
                        record.digest,
                        record.sequence,
                        record.previous_head,
                        record.head,
                        disposition.value,
                        record.reason,
                    ),
                )
            elif isinstance(record, ParticipantRecord):
                self._connection.execute(rows.PUT_PARTICIPANT, (record.name, rows.participant_to_json(record)))
            else:
                (number,) = self._connection.execute("SELECT IFNULL(MAX(number), 0) + 1 FROM acts").fetchone()
                self._connection.execute(rows.PUT_ACT, rows.act_to_row(number, record))

    def write_score(self, score: Score) -> None:
        """Writes an evaluator's score of a version, in the place of an earlier one of the same version."""
        self._connection.execute(
            rows.PUT_SCORE,
            (
                score.evaluator,
                score.version,
                float(score.accuracy),
                None if score.averaged_accuracy is None else float(score.averaged_accuracy),
                score.examples,
                float(score.reported_at),
            ),
        )

    def write_sealed(self, participant: str, round_: int, header: bytes, payload: bytes | memoryview) -> None:
        """Writes the sealed bytes of an update; they become durable with the next checkpoint, not before."""
        path = self._folder.sealed / participant / f"{round_}.update"
        path.parent.mkdir(exist_ok=True)
        with open(path, "wb") as file:
            file.write(header)
            file.write(payload)
        self._unsynced.add(path)

    def checkpoint(
        self,
        published: Published,
        previous: int,
        folded: Iterable[tuple[str, int]],
        participants: Iterable[ParticipantRecord],
        keep_last: int,
        published_at: float | None = None,
        keep_every: int = 0,
    ) -> list[Path]:
        """Writes one checkpoint; returns the files to remove after the commit.

        Args:
            keep_last: so many of the newest versions stay available; 0: all do. Version 0 always stays.
            published_at: the time, seconds since 1970.
            keep_every: of the older ones the first from each multiple of this number on stays; 0: none does.
        """
        self._sync_sealed()
        version = published.version
        obsolete = [
            self._folder.arrays / file for (file,) in self._connection.execute("SELECT file FROM arrays") if file
        ]
        self._put_arrays(published)
        model, file = self._place(f"model-{version}", published.model, published.sha256)
        self._connection.execute(rows.PUT_VERSION, (version, previous, published.sha256, file, model, published_at))
        self._connection.executemany(rows.INCLUDE, [(version, participant, round_) for participant, round_ in folded])
        self.write(participants)
        oldest = self._oldest_of(keep_last)
        obsolete += self._drop_versions(oldest, keep_every)
        terms = self._terms = self._terms or stored_terms(self)
        first = remembered_from(version, window=terms.window, publish_every=terms.publish_every)
        self._past.pack(version, first, oldest)
        return obsolete

    def _put_arrays(self, published: Published) -> None:
        files, sums = published.files, published.average_sum
        array = published.array.astype("<i8", copy=False).tobytes() if files is None else files.array
        self._put_array("array", published.version, 1, array)
        if sums is not None:
            placed = None if files is None else files.average_sum
            data = placed or sums[:].astype("<f8", copy=False).tobytes()
            self._put_array("average_sum", published.version, published.average_count, data)

    def _put_array(self, name: str, version: int, count: int, content: bytes | Placed) -> None:
        row: bytes | None = None
        file: str | None
        if isinstance(content, Placed):
            file, sha256 = content
        else:
            sha256 = hashlib.sha256(content).digest()
            row, file = self._place(f"{name}-{version}", content, sha256)
        self._connection.execute(rows.PUT_ARRAY, (name, version, count, sha256, file, row))

    def _place(self, name: str, data: Content, sha256: bytes) -> tuple[bytes | None, str | None]:
        if isinstance(data, StoredBytes):
            return None, data.path.name
        if len(data) <= LARGEST_ROW_BYTES:
            return data[:], None
        file = f"{name}-{sha256.hex()[:16]}"
        folder_module.write_durably(self._folder.arrays / file, data[:])
        return None, file

    def _oldest_of(self, keep_last: int) -> int:
        """Returns the version from which on all stay."""
        if keep_last == 0:
            return 0
        oldest = self._connection.execute(
            "SELECT version FROM versions ORDER BY version DESC LIMIT 1 OFFSET ?", (keep_last - 1,)
        ).fetchone()
        return 0 if oldest is None else int(oldest[0])

    def _drop_versions(self, oldest: int, keep_every: int) -> list[Path]:
        # A new process looks at all that are kept, because its settings may be others.
        found = self._connection.execute(
            f"{rows.GET_VERSIONS} WHERE version >= ? AND version < ?", (self._dropped_below, oldest)
        ).fetchall()
        self._dropped_below = max(self._dropped_below, oldest)
        files = []
        for row in found:
            one = past_module.stored_version(row)
            if not one.is_kept or (keep_every and one.version // keep_every > one.previous // keep_every):
                continue
            # Not an UPDATE: after that SQLite would keep the pages of the models, nearly empty, for ever.
            self._connection.execute(rows.DROP_VERSION, (one.version,))
            self._connection.execute(
                rows.PUT_VERSION, (one.version, one.previous, one.sha256, None, None, one.published_at)
            )
            if row[3]:
                files.append(self._folder.arrays / row[3])
        return files

    def _sync_sealed(self) -> None:
        for path in self._unsynced:
            with open(path, "rb") as file:
                os.fsync(file.fileno())
        for folder in {path.parent for path in self._unsynced}:
            folder_module.sync_directory(folder)
        if self._unsynced:
            folder_module.sync_directory(self._folder.sealed)
        self._unsynced.clear()

    def first_start(self, wall_seconds: float) -> float:
        """Returns when a server first started on this state, in wall-clock seconds; notes it if this is the first."""
        row = self._one("SELECT key, value, checksum FROM meta WHERE key = 'first_start'")
        if row is not None:
            return float(layout.verified("meta", row)[1])
        self._connection.execute(rows.PUT_META, ("first_start", wall_seconds))
        return wall_seconds

    # Reading

    def terms_bytes(self) -> bytes:
        """Returns the terms, byte for byte as they were made.

        Raises:
            StoreError: if they are missing or damaged.
        """
        terms = bytes(self._meta("terms"))
        return folder_module.verified(terms, bytes(self._meta("terms_digest")), f"the terms in {self._folder.database}")

    def server_epoch(self) -> int:
        """Returns how often this state was restored from a backup, plus 1."""
        return int(self._meta("server_epoch"))

    def _meta(self, key: str) -> Any:
        row = self._one("SELECT key, value, checksum FROM meta WHERE key = ?", key)
        if row is None:
            raise StoreError(f"{self._folder.database} lacks its {key}; restore it from a backup")
        return layout.verified("meta", row)[1]

    def snapshot(self, terms: Terms) -> Snapshot:
        """Reads what a server begins with, after it has looked everything over.

        Raises:
            StoreError: if something is missing or damaged.
        """
        self.check()
        checkpoint = self._array("array", "<i8")
        if checkpoint is None:
            raise StoreError(f"{self._folder.database} lacks its checkpoint; restore it from a backup")
        array, version, _ = checkpoint
        average = self._array("average_sum", "<f8", may_stay_stored=True)
        first = remembered_from(version, window=terms.window, publish_every=terms.publish_every)
        found = self._rows(
            f"{rows.GET_RECEIPTS} WHERE round >= ? "
            "OR (digest IS NOT NULL AND included_in IS NULL AND disposition != ?)",
            first,
            Disposition.INVALID.value,
        )
        return Snapshot(
            version=version,
            array=array,
            average_sum=None if average is None else average[0],
            average_count=0 if average is None else average[2],
            participants=tuple(self._participants()),
            receipts=tuple(rows.opened(rows.receipt_from_row(row)) for row in found),
            histories=self._histories(first),
            acts=tuple(rows.act_from_row(row) for row in self._rows(rows.GET_ACTS)),
        )

    def _participants(self) -> list[ParticipantRecord]:
        return [rows.participant_from_row(row) for row in self._rows(rows.GET_PARTICIPANTS)]

    def _array(self, name: str, dtype: str, *, may_stay_stored: bool = False) -> tuple[Any, int, int] | None:
        row = self._one(rows.GET_ARRAY, name)
        if row is None:
            return None
        *checked, data = row
        _, version, count, sha256, file = layout.verified("arrays", checked)
        if may_stay_stored and file is not None:
            return StoredSums(folder_module.open_verified(self._folder.arrays / file, sha256)), version, count
        return np.frombuffer(self._read(name, data, file, sha256), dtype), version, count

    def _read(self, name: str, data: bytes | None, file: str | None, sha256: bytes) -> bytes:
        if file is not None:
            return folder_module.read_verified(self._folder.arrays / file, sha256)
        return folder_module.verified(data or b"", sha256, f"{name} in {self._folder.database}")

    def _histories(self, first: int) -> dict[str, History]:
        found = self._rows(
            """
            SELECT participant, SUM(disposition = 'INCLUDED'), SUM(disposition = 'INVALID'),
                SUM(disposition IN ('SKIPPED', 'VOID', 'LOST')),
                MAX(CASE WHEN digest IS NOT NULL THEN round + 1 ELSE 0 END),
                IFNULL(MAX(sequence), 0),
                IFNULL(MAX(CASE WHEN round < ? THEN sequence END), 0),
                SUM(disposition = 'LOST'), SUM(disposition = 'INCLUDED' AND reason != '')
            FROM receipts GROUP BY participant
            """,
            first,
        )
        with self._reading():
            packed = self._past.totals()
        histories = {}
        for name, accepted, invalid, without, received, sequence, forgotten, lost, flagged in list(found):
            histories[name] = History(accepted, invalid, without, received, sequence, b"", forgotten, lost, flagged)
        for name, (accepted, received, sequence) in packed.items():
            one = histories.get(name, History())
            histories[name] = dataclasses.replace(
                one,
                accepted=one.accepted + accepted,
                rounds_received=max(one.rounds_received, received),
                sequence=max(one.sequence, sequence),
                forgotten_sequence=max(one.forgotten_sequence, sequence),
            )
        for name, one in histories.items():
            latest = self.find_row(name, one.sequence)
            histories[name] = dataclasses.replace(one, head=b"" if latest is None else latest.head)
        return histories

    def find(self, participant: str, round_: int) -> Receipt | None:
        """See `Archive.find`."""
        row = self._one(f"{rows.GET_RECEIPTS} WHERE participant = ? AND round = ?", participant, round_)
        if row is not None:
            return rows.receipt_from_row(row)
        with self._reading():
            return self._past.find(participant, round_)

    def find_row(self, participant: str, sequence: int) -> Receipt | None:
        """See `Archive.find_row`."""
        row = self._one(f"{rows.GET_RECEIPTS} WHERE participant = ? AND sequence = ?", participant, sequence)
        if row is not None:
            return rows.receipt_from_row(row)
        with self._reading():
            return self._past.find_row(participant, sequence)

    def receipts(self) -> Iterator[Receipt]:
        """Yields all receipts, ordered by participant, then round."""
        found = map(rows.receipt_from_row, self._rows(f"{rows.GET_RECEIPTS} ORDER BY participant, round"))
        with self._reading():
            yield from heapq.merge(found, self._past.receipts(), key=lambda one: (one.participant, one.round))

    def updates_included(self) -> int:
        """Returns how many updates the published versions hold."""
        (in_rows,) = self._one("SELECT COUNT(*) FROM receipts WHERE included_in IS NOT NULL")
        with self._reading():
            return int(in_rows) + sum(accepted for accepted, _, _ in self._past.totals().values())

    def versions(self) -> list[StoredVersion]:
        """Returns all published versions in order."""
        by_version = {
            one.version: one
            for one in map(past_module.stored_version, self._rows(f"{rows.GET_VERSIONS} ORDER BY version"))
        }
        with self._reading():
            by_version.update((one.version, one) for one in self._past.versions() if one.version not in by_version)
        return [by_version[version] for version in sorted(by_version)]

    def kept(self, after: int, most: int) -> list[StoredVersion]:
        """Returns in order the first versions beyond `after` whose models are kept, `most` at most."""
        found = self._rows(
            f"{rows.GET_VERSIONS} WHERE version > ? AND (file IS NOT NULL OR model IS NOT NULL) "
            "ORDER BY version LIMIT ?",
            after,
            most,
        )
        return [past_module.stored_version(row) for row in found]

    def version(self, version: int) -> StoredVersion | None:
        """Returns a published version, if it is one."""
        row = self._one(f"{rows.GET_VERSIONS} WHERE version = ?", version)
        if row is not None:
            return past_module.stored_version(row)
        with self._reading():
            return self._past.version(version)

    def model(self, version: int) -> tuple[bytes, bytes] | None:
        """Returns (float32 bytes, SHA-256) of a published version; None when it is not kept.

        Raises:
            StoreError: if it is damaged.
        """
        found = self.content(version)
        return None if found is None else (found[0][:], found[1])

    def content(self, version: int) -> tuple[Content, bytes] | None:
        """Returns the same, of a large version a view of its file, which has been verified; it outlives the file.

        Raises:
            StoreError: if it is damaged.
        """
        row = self._one(f"{rows.GET_VERSIONS} WHERE version = ?", version)
        if row is None or not past_module.stored_version(row).is_kept:
            return None
        _, _, sha256, file, is_inline, *_ = row
        if file is not None:
            return folder_module.open_verified(self._folder.arrays / file, sha256), sha256
        found = self._one("SELECT model FROM versions WHERE version = ?", version) if is_inline else None
        return self._read(f"version {version}", found[0] if found else None, None, sha256), sha256

    def manifest(self, version: int) -> tuple[int, list[Receipt]] | None:
        """Returns (previous version, receipts that this version adds); None when it is not published."""
        one = self.version(version)
        if one is None:
            return None
        found = self._rows(f"{rows.GET_RECEIPTS} WHERE included_in = ?", version)
        receipts = [rows.receipt_from_row(row) for row in found]
        with self._reading():
            receipts += self._past.receipts_of(version)
        # What is packed just now is seen twice.
        by_key = {(receipt.participant, receipt.round): receipt for receipt in receipts}
        return one.previous, [by_key[key] for key in sorted(by_key)]

    def publications(self, after: int, most: int) -> list[tuple[int, float | None]]:
        """Returns at most `most` (version, seconds since 1970) beyond `after`, evenly spread, the newest among them.

        The time is None where an earlier layout did not note it.
        """
        (newest,) = self._one("SELECT MAX(version) FROM versions")
        step = max(1, -(-(newest - after) // most))
        wanted = set(range(newest, after, -step))
        found = {}
        with self._reading():
            for target in sorted(wanted):
                row = self._one(f"{rows.GET_VERSIONS} WHERE version >= ? ORDER BY version LIMIT 1", target)
                one = past_module.stored_version(row)
                if one.version > target:
                    one = min((*self._past.first_version(target), one), key=lambda one: one.version)
                found[one.version] = one.published_at
        return sorted(found.items())

    def evaluators(self) -> list[str]:
        """Returns the names of those who have reported scores, in order."""
        found: list[str] = []
        # One step in the primary key for each, where DISTINCT would read every score.
        following = "SELECT MIN(evaluator) FROM scores WHERE evaluator > ?"
        while (name := self._one(following, found[-1] if found else "")[0]) is not None:
            found.append(name)
        return found

    def scores(self, evaluator: str, after: int, most: int) -> list[tuple[int, float, float | None]]:
        """Returns at most `most` (version, accuracy, averaged accuracy) beyond `after`, as `publications` does."""
        versions = self._spread("scores", "evaluator = ? AND", (evaluator,), after, most)
        return [
            (score.version, score.accuracy, score.averaged_accuracy)
            for score in (self._score(evaluator, version) for version in versions)
        ]

    def latest_scores(self) -> tuple[Score, ...]:
        """Returns each evaluator's score of the latest version it reported, by name."""
        latest = self._rows("SELECT evaluator, MAX(version) FROM scores GROUP BY evaluator ORDER BY evaluator")
        return tuple(self._score(evaluator, version) for evaluator, version in list(latest))

    def _score(self, evaluator: str, version: int) -> Score:
        row = self._one(f"{rows.GET_SCORES} WHERE evaluator = ? AND version = ?", evaluator, version)
        name, version, accuracy, averaged, examples, reported_at = layout.verified("scores", row)
        return Score(name, version, accuracy, averaged, examples, reported_at)

    def _spread(self, table: str, condition: str, given: tuple[Any, ...], after: int, most: int) -> list[int]:
        """Returns at most `most` versions of a table beyond `after`; each is one step in the primary key."""
        (newest,) = self._one(f"SELECT MAX(version) FROM {table} WHERE {condition} version > ?", *given, after)
        if newest is None:
            return []
        found = []
        for target in range(newest, after, -max(1, -(-(newest - after) // most))):
            (version,) = self._one(f"SELECT MIN(version) FROM {table} WHERE {condition} version >= ?", *given, target)
            found.append(version)
        return sorted(set(found))

    def array_files(self) -> set[str]:
        """Returns the names of the files in the arrays folder that rows refer to."""
        found = self._rows("SELECT file FROM arrays UNION SELECT file FROM versions")
        return {file for (file,) in found if file}

    def _one(self, query: str, *arguments: Any) -> Any:
        with self._reading():
            return self._connection.execute(query, arguments).fetchone()

    def _rows(self, query: str, *arguments: Any) -> Iterator[Any]:
        with self._reading():
            yield from self._connection.execute(query, arguments)

    @contextlib.contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, UnicodeError) as error:
            raise StoreError(
                f"{self._folder.database} cannot be read: {layout.said(error)}; restore the state from a backup"
            ) from error


def create(folder: StateFolder, terms: Terms, terms_bytes: bytes, initial_model: npt.NDArray[np.float32]) -> None:
    """Makes the database of a new federation, in whole or not at all. The folder exists and is locked."""
    temporary = folder.database.with_name(folder_module.DATABASE_NAME + ".new")
    temporary.unlink(missing_ok=True)
    array = grid.initial_array(initial_model, grid_exponent=terms.grid_exponent, step_exponent=terms.step_exponent)
    model = grid.published_model(array, grid_exponent=terms.grid_exponent, step_exponent=terms.step_exponent)
    model_bytes = model.astype("<f4", copy=False).tobytes()
    sha256 = hashlib.sha256(model_bytes).digest()
    connection = layout.create(temporary)
    try:
        database = Database(folder, connection)
        database.begin()
        connection.executemany(
            rows.PUT_META,
            [("terms", terms_bytes), ("terms_digest", wire_terms.digest(terms_bytes)), ("server_epoch", 1)],
        )
        database.checkpoint(Published(0, model_bytes, sha256, array, None, 0, None), 0, (), (), 0)
        database.commit()
    finally:
        connection.close()
    temporary.rename(folder.database)
    folder_module.sync_directory(folder.root)


def remove_orphans(folder: StateFolder, database: Database) -> None:
    """Removes files that a crash left before a commit named them, and the spool, whose tail may be torn."""
    known = database.array_files()
    for path in folder.arrays.iterdir():
        if path.name not in known:
            path.unlink()
    for path in folder.spool.iterdir():
        path.unlink()


def terms_digest_of(database: Database) -> bytes:
    """Returns the digest of a state's terms."""
    return wire_terms.digest(database.terms_bytes())


def stored_terms(database: Database) -> Terms:
    """Returns the terms of a state."""
    return wire_terms.from_bytes(database.terms_bytes())
