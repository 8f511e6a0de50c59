"""The privacy ledger with its outbox: what was committed, what was spent, and the sealed bytes that may leave.

The seal is one durable commit of ledger row, header, payload and digest. Before it, nothing of a round exists; after it
the same bytes are sent as often as needed. Nothing but `Ledger.sendable` gives bytes to send. A method that raises has
changed nothing, except that after a failed write the ledger refuses everything until it is opened again.
"""

import hashlib
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from hushgrad.client import outbox, pace, rows, store
from hushgrad.client.errors import ClientError, LedgerError, PayloadUnreadableError
from hushgrad.client.outbox import Entry, Mark, SealedUpdate
from hushgrad.client.rows import Committed, Init, Kind, Row
from hushgrad.wire import header

Failpoint = Callable[[str], None]
"""Called with the name of each step of a seal; crash tests stop the process there."""


def _no_failpoint(step: str) -> None:
    del step


class LedgerWriteError(ClientError):
    """The ledger could not be written (disk full, input/output error). The process must stop."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A ledger as it stood at one moment, without payloads; taken while its owner may be running."""

    ledger_id: bytes
    secret: bytes
    rows: tuple[Row, ...]
    entries: tuple[tuple[bytes, Entry], ...]

    @property
    def init(self) -> Init:
        """The first row."""
        return rows.read_init(self.rows[0])

    @property
    def runs(self) -> tuple[Committed, ...]:
        """All committed schedules, oldest first."""
        return tuple(rows.read_commit(row) for row in self.rows if row.kind == "commit")

    def is_for(self, fingerprint: str) -> bool:
        """Says whether the ledger belongs to the data with this fingerprint."""
        return rows.keyed_fingerprint(self.secret, fingerprint) == self.init.fingerprint


def _snapshot(connection: sqlite3.Connection) -> Snapshot:
    connection.execute("BEGIN")
    return Snapshot(*store.identity(connection), tuple(store.rows(connection)), tuple(store.entries(connection)))


def create(
    folder: Path,
    *,
    participant: str,
    fingerprint: str,
    lifetime_epsilon: float,
    lifetime_delta: float,
    accepted_new_budget: bool,
) -> Init:
    """Makes a new ledger. The only way to get one.

    Raises:
        LedgerError: if there is one already, or another process holds the folder.
    """
    folder.mkdir(parents=True, exist_ok=True)
    held = store.lock(folder)
    try:
        ledger_id, secret = os.urandom(16), os.urandom(32)
        init = Init(
            participant=participant,
            fingerprint=rows.keyed_fingerprint(secret, fingerprint),
            ledger_id=ledger_id.hex(),
            lifetime_epsilon=lifetime_epsilon,
            lifetime_delta=lifetime_delta,
            accepted_new_budget=accepted_new_budget,
        )
        body = rows.init_body(init)
        digest = hashlib.sha256(body).digest()
        head = header.next_head(header.first_head(ledger_id), digest)
        store.create(folder, ledger_id, secret, Row(1, "init", None, None, body, digest, head))
        return init
    finally:
        held.release()


def read(folder: Path) -> Snapshot:
    """Reads a ledger without taking its lock; works while a client runs.

    Raises:
        LedgerError: if there is none, or it cannot be read.
    """
    connection = store.connect(folder, read_only=True)
    try:
        found = _snapshot(connection)
    except (sqlite3.Error, UnicodeError) as error:
        raise LedgerError(f"the ledger in {folder} cannot be read ({store.said(error)}); restore it") from None
    finally:
        connection.close()
    if not found.rows:
        raise LedgerError(f"the ledger in {folder} has no rows; restore it from where it was")
    return found


def verify(folder: Path) -> Snapshot:
    """Checks the whole chain of a ledger and the payloads that it still holds.

    Raises:
        LedgerError: at the first bad row, which it names.
    """
    connection = store.connect(folder, read_only=True)
    try:
        found = _snapshot(connection)
        held = {(terms_digest, entry.round) for terms_digest, entry in found.entries if entry.held}
        listed = {(terms_digest, entry.round) for terms_digest, entry in found.entries}

        def payload_digest(row: Row) -> bytes | None:
            key = (row.terms_digest or b"", row.round or 0)
            if key not in listed:
                raise LedgerError(f"ledger row {row.sequence}: the outbox has lost the entry of round {row.round}")
            if key not in held:
                return None
            payload = store.payload(connection, folder, row.sequence, row.digest)
            if payload is None:
                raise LedgerError(
                    f"ledger row {row.sequence}: the sealed bytes of round {row.round} must still be held and cannot "
                    "be read; the next run reports the round as void"
                )
            return header.digest(row.body, payload)

        rows.verify(found.ledger_id, found.rows, payload_digest)
        store.check_outbox(connection)
    except (sqlite3.Error, UnicodeError) as error:
        raise LedgerError(f"the ledger in {folder} cannot be read ({store.said(error)}); restore it") from None
    finally:
        connection.close()
    return found


class Ledger:
    """An open ledger: one process, any number of its threads.

    Args:
        folder: the state folder; its lock is held until `close`.
        failpoint: for crash tests.
        clock: seconds since 1970, for the note of when updates were sealed.

    Raises:
        LedgerError: if the folder is in use, or there is no sound ledger in it.
    """

    def __init__(
        self, folder: Path, *, failpoint: Failpoint = _no_failpoint, clock: Callable[[], float] = time.time
    ) -> None:
        if not folder.is_dir():
            raise LedgerError(
                f"there is no state folder {folder}; run `hushgrad-client ledger init` to make it with a new ledger"
            )
        self.folder = folder
        self._failpoint = failpoint
        self._clock = clock
        self._guard = threading.RLock()
        self._broken: str | None = None
        store.check_file(folder)  # before the lock: a refusal leaves no lock file behind
        self._lock = store.lock(folder)
        try:
            self._connection = store.connect(folder, read_only=False)
        except BaseException:
            self._lock.release()
            raise
        try:
            self._read()
        except BaseException as error:
            self.close()
            if isinstance(error, (sqlite3.Error, UnicodeError)):
                raise LedgerError(f"the ledger in {folder} cannot be read ({store.said(error)}); restore it") from None
            raise

    def _read(self) -> None:
        ledger_id, self._secret = store.identity(self._connection)
        all_rows = list(store.rows(self._connection))
        rows.verify(ledger_id, all_rows, lambda row: None)
        store.check_outbox(self._connection)
        self.init = rows.read_init(all_rows[0])
        self._heads = [header.first_head(ledger_id), *(row.head for row in all_rows)]
        self._runs = {
            committed.terms_digest: committed
            for committed in (rows.read_commit(row) for row in all_rows if row.kind == "commit")
        }
        self._spent: dict[bytes, set[int]] = {}
        for row in all_rows:
            if row.kind in ("update", "skipped") and row.terms_digest is not None and row.round is not None:
                self._spent.setdefault(row.terms_digest, set()).add(row.round)
        outbox.remove_orphans(
            self.folder / store.PAYLOAD_FOLDER,
            [entry.digest for _, entry in store.entries(self._connection) if entry.held],
        )

    def close(self) -> None:
        """Closes the file and lets others open it."""
        with self._guard:
            self._broken = self._broken or "it was closed"
            self._connection.close()
            self._lock.release()

    def __enter__(self) -> "Ledger":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # What it says.

    def check_owner(self, *, participant: str, fingerprint: str | None = None) -> None:
        """Refuses a ledger of somebody else or of other data.

        Raises:
            LedgerError: if participant or data fingerprint differ from the first row.
        """
        if participant != self.init.participant:
            raise LedgerError(
                f"the ledger in {self.folder} belongs to participant {self.init.participant!r}, the configuration says "
                f"{participant!r}; name the right state folder"
            )
        if fingerprint is not None and rows.keyed_fingerprint(self._secret, fingerprint) != self.init.fingerprint:
            raise LedgerError(
                f"the ledger in {self.folder} belongs to other data than the data at hand; name the right data or the "
                "right state folder, or make another ledger for this data"
            )

    @property
    def position(self) -> tuple[int, bytes]:
        """Number and head of the newest row."""
        with self._guard:
            return len(self._heads) - 1, self._heads[-1]

    def head_at(self, sequence: int) -> bytes | None:
        """Returns the head behind row `sequence`; None if there is no such row."""
        with self._guard:
            return self._heads[sequence] if 0 <= sequence < len(self._heads) else None

    def runs(self) -> tuple[Committed, ...]:
        """Returns all committed schedules, oldest first."""
        with self._guard:
            return tuple(self._runs.values())

    def committed(self, terms_digest: bytes) -> Committed | None:
        """Returns the schedule committed for a federation."""
        with self._guard:
            return self._runs.get(terms_digest)

    def spent(self, terms_digest: bytes) -> frozenset[int]:
        """Returns the rounds of a federation that are sealed, skipped or void."""
        with self._guard:
            return frozenset(self._spent.get(terms_digest, ()))

    def entries(self, terms_digest: bytes) -> list[Entry]:
        """Returns a federation's outbox, oldest round first."""
        with self._guard:
            self._usable()
            with self._reading():
                return [entry for _, entry in store.entries(self._connection, terms_digest)]

    def sendable(self, terms_digest: bytes, round_: int) -> SealedUpdate:
        """Returns the sealed bytes of a round, checked against the digest in its row.

        Raises:
            PayloadUnreadableError: if the bytes are gone or damaged; record the round with `void` then.
            LedgerError: if nothing was sealed for the round, or it will never be sent again.
        """
        with self._guard:
            self._usable()
            sequence, entry = self._sealed(terms_digest, round_, "only sealed rounds can be sent")
            digest = entry.digest
            if entry.state == "final":
                raise LedgerError(f"round {round_} has its final answer and is never sent again")
            with self._reading():
                head = store.body(self._connection, sequence)
                payload = store.payload(self._connection, self.folder, sequence, digest)
        if payload is None or header.digest(head, payload) != digest:
            raise PayloadUnreadableError(
                f"the sealed bytes of round {round_} cannot be read, or are damaged; the round stays spent and is "
                "reported as void",
                round_=round_,
            )
        return SealedUpdate(round_, head, payload, digest)

    # What it records.

    def commit(self, committed: Committed) -> None:
        """Writes a whole schedule down, before its first round.

        Raises:
            LedgerError: if this federation's schedule was committed before.
        """
        with self._guard:
            if committed.terms_digest in self._runs:
                raise LedgerError("this federation's schedule is committed already; it never changes")
            body = rows.commit_body(committed)
            if rows.read_commit(Row(0, "commit", None, None, body, b"", b"")) != committed:
                raise LedgerError(
                    "the schedule does not survive being written and read; this is a mistake in the program"
                )
            row = self._next_row("commit", committed.terms_digest, None, body, hashlib.sha256(body).digest())
            with self._transaction():
                store.insert_row(self._connection, row)
            self._heads.append(row.head)
            self._runs[committed.terms_digest] = committed

    def seal(self, terms_digest: bytes, round_: int, payload: bytes) -> Entry:
        """Records a round as spent and its bytes as sendable, in one durable commit.

        Args:
            terms_digest: the federation.
            round_: the local round.
            payload: the noised update, 4 * d bytes of little-endian int32.

        Raises:
            LedgerError: if the round is not in the committed schedule or was spent, or the payload has another size.
            LedgerWriteError: if the disk refuses.
        """
        with self._guard:
            self._usable()
            committed = self._unspent(terms_digest, round_)
            size = rows.ELEMENT_BYTES * committed.parameters
            if len(payload) != size:
                raise LedgerError(f"the payload of round {round_} must be {size} bytes, found {len(payload)}")
            sequence, previous_head = self.position
            head = rows.make_header(committed, self.init.participant, round_, sequence + 1, previous_head)
            digest = header.digest(head, payload)
            row = self._next_row("update", terms_digest, round_, head, digest)
            self._failpoint("before payload")
            inline: bytes | None = payload
            if len(payload) > outbox.INLINE_PAYLOAD_BYTES:
                try:
                    outbox.write_payload(self.folder / store.PAYLOAD_FOLDER, digest, payload)
                except OSError as error:
                    self._break(str(error))
                inline = None
            self._failpoint("before row")
            entry = Entry(round_, digest, "sealed")
            with self._transaction():
                store.insert_row(self._connection, row)
                self._failpoint("between row and outbox")
                store.insert_entry(self._connection, row.sequence, terms_digest, entry, inline)
                self._failpoint("before commit")
            self._failpoint("after commit")
            self._heads.append(row.head)
            self._spent.setdefault(terms_digest, set()).add(round_)
            pace.note(self.folder, pace.Seal(row.sequence, self._clock()))
            return entry

    def skip(self, terms_digest: bytes, round_: int) -> None:
        """Records that nothing will ever be sealed for a round.

        Raises:
            LedgerError: if the round is not in the committed schedule or was spent.
        """
        with self._guard:
            self._usable()
            self._unspent(terms_digest, round_)
            self._note("skipped", terms_digest, round_)
            self._spent.setdefault(terms_digest, set()).add(round_)

    def void(self, terms_digest: bytes, round_: int) -> None:
        """Records that the sealed bytes of a round cannot be sent any more. The round stays spent.

        Recording it again changes nothing.

        Raises:
            LedgerError: if nothing was sealed for the round.
        """
        with self._guard:
            self._usable()
            _, entry = self._sealed(terms_digest, round_, "it cannot be void")
            if entry.reason != "VOID":
                self._note("void", terms_digest, round_)

    def record(self, terms_digest: bytes, marks: Sequence[Mark]) -> None:
        """Records what became of sealed updates, all in one commit; bytes that may go, go.

        Raises:
            LedgerError: if a round was never sealed.
            LedgerWriteError: if the disk refuses.
        """
        with self._guard:
            self._usable()
            for mark in marks:
                self._sealed(terms_digest, mark.round, "nothing can have become of it")
            with self._transaction():
                dropped = [self._mark(terms_digest, mark) for mark in marks]
            for digest in dropped:
                if digest is not None:
                    outbox.payload_path(self.folder / store.PAYLOAD_FOLDER, digest).unlink(missing_ok=True)

    def _sealed(self, terms_digest: bytes, round_: int, otherwise: str) -> tuple[int, Entry]:
        with self._reading():
            found = store.entry(self._connection, terms_digest, round_)
        if found is None:
            raise LedgerError(f"nothing was sealed for round {round_}; {otherwise}")
        return found

    def _mark(self, terms_digest: bytes, mark: Mark) -> bytes | None:
        """Writes one mark; returns the digest of the bytes that may go now."""
        sequence, entry = self._sealed(terms_digest, mark.round, "nothing can have become of it")
        new = outbox.marked(entry, mark)
        if new != entry:
            store.change_entry(self._connection, sequence, terms_digest, new)
        return entry.digest if entry.held and not new.held else None

    def _note(self, kind: Literal["skipped", "void"], terms_digest: bytes, round_: int) -> None:
        body = rows.note_body(kind, terms_digest, round_)
        row = self._next_row(kind, terms_digest, round_, body, hashlib.sha256(body).digest())
        with self._transaction():
            store.insert_row(self._connection, row)
            if kind == "void":
                sequence, entry = self._sealed(terms_digest, round_, "it cannot be void")
                void = replace(entry, state="final", reason="VOID", held=False)
                store.change_entry(self._connection, sequence, terms_digest, void)
        self._heads.append(row.head)

    def _unspent(self, terms_digest: bytes, round_: int) -> Committed:
        committed = self._runs.get(terms_digest)
        if committed is None:
            raise LedgerError("no schedule was committed for this federation; commit it before the first round")
        if committed.group(round_) is None:
            raise LedgerError(f"round {round_} is not in the committed schedule of {committed.rounds} rounds")
        if round_ in self._spent.get(terms_digest, ()):
            raise LedgerError(f"round {round_} was spent before; a round is never spent twice")
        return committed

    def _next_row(self, kind: Kind, terms_digest: bytes, round_: int | None, body: bytes, digest: bytes) -> Row:
        sequence, head = self.position
        return Row(sequence + 1, kind, terms_digest, round_, body, digest, header.next_head(head, digest))

    @contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, UnicodeError) as error:
            raise LedgerError(f"the ledger in {self.folder} cannot be read ({store.said(error)}); restore it") from None

    def _usable(self) -> None:
        if self._broken is not None:
            raise LedgerWriteError(f"the ledger in {self.folder} cannot be used any more: {self._broken}; start again")

    def _break(self, reason: str) -> None:
        """Refuses everything from now on: after a failed write, memory and disk may differ."""
        self._broken = reason
        raise LedgerWriteError(
            f"the ledger in {self.folder} cannot be written ({reason}); make room or repair the disk, then start again"
        )

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._usable()
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise
        except (sqlite3.Error, UnicodeError) as error:
            self._break(str(error))
