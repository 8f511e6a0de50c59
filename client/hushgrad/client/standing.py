"""How a ledger stands, read without touching it: what was committed, what was sealed, and whether its chain holds.

Nothing here takes the ledger's lock, and nothing is written, so a running client is not disturbed. Each function reads
one moment of the ledger: a seal is in it as a whole or not at all. What the numbers mean is said in `report`.
"""

import os
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from hushgrad.client import pace, rows, store, zeroed
from hushgrad.client.errors import LedgerError
from hushgrad.client.outbox import Entry
from hushgrad.client.pace import Seal
from hushgrad.client.rows import Committed, Init, Row

Process = Literal["running", "not seen", "unknown"]

_LOCKS = Path("/proc/locks")


@dataclass(frozen=True, slots=True)
class Outbox:
    """What became of the sealed updates of a run.

    Attributes:
        unanswered: no final answer yet.
        oldest_unanswered: the lowest round of these; None if there are none.
        accepted: the server has them.
        refused: the server will never take them.
        held: those whose bytes are still here.
    """

    unanswered: int
    oldest_unanswered: int | None
    accepted: int
    refused: int
    held: int


@dataclass(frozen=True, slots=True)
class RunStanding:
    """One run of a ledger.

    Attributes:
        committed: its commit row.
        commit_row: the number of that row.
        sealed: the rounds of its updates, in the order of the ledger.
        skipped: how many rounds were skipped.
        void: how many sealed rounds could not be sent any more.
        last_rows: the numbers of the ledger rows of its last updates, as many as a pace is made of.
        next_round: one more than the largest round of any of its rows.
        outbox: what became of the updates.
    """

    committed: Committed
    commit_row: int
    sealed: tuple[int, ...]
    skipped: int
    void: int
    last_rows: frozenset[int]
    next_round: int
    outbox: Outbox


@dataclass(frozen=True, slots=True)
class Standing:
    """A ledger at one moment.

    Attributes:
        init: its first row.
        rows: how many there are.
        head: the newest head, 32 bytes.
        runs: oldest first.
        checked: whether the whole chain and the outbox were checked, in the same moment.
        seals: when the last updates were sealed, as far as that was noted.
        process: whether a client is running on it, as far as can be seen from here.
        zeroed: by terms digest, hex, how many records counted as zero, as far as that was noted.
    """

    init: Init
    rows: int
    head: bytes
    runs: tuple[RunStanding, ...]
    checked: bool
    seals: tuple[Seal, ...]
    process: Process
    zeroed: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Checked:
    """A ledger whose chain holds up to row `rows`, with the head of that row."""

    rows: int
    head: bytes


def read(folder: Path, *, check: bool) -> Standing:
    """Reads how a ledger stands.

    Args:
        folder: the state folder.
        check: check the whole chain first. That takes a second or two for 200,000 rows.

    Raises:
        LedgerError: if there is none, it cannot be read, or the check fails; it names the row then.
    """
    with _moment(folder) as connection:
        if check:
            _check(connection)
        first = next(store.rows(connection, last=1), None)
        if first is None or first.kind != "init":
            raise LedgerError(f"the ledger in {folder} does not begin with a row of kind init; restore it")
        count, head = store.newest(connection)
        return Standing(
            init=rows.read_init(first),
            rows=count,
            head=head,
            runs=tuple(_run(connection, row) for row in store.commit_rows(connection)),
            checked=check,
            seals=pace.read(folder, count),
            process=process(folder),
            zeroed=zeroed.read(folder),
        )


def check(folder: Path) -> Checked:
    """Checks a whole chain and the outbox beside it. Held payloads are not read; `ledger.verify` does that.

    Raises:
        LedgerError: at the first bad row, which it names.
    """
    with _moment(folder) as connection:
        _check(connection)
        return Checked(*store.newest(connection))


def some_rows(folder: Path, first: int, last: int) -> list[tuple[Row, Entry | None]]:
    """Returns the rows `first` to `last` with what became of their updates, as they stand there, unchecked.

    Raises:
        LedgerError: if they cannot be read.
    """
    with _moment(folder) as connection:
        entries = store.entries_of_rows(connection, first, last)
        return [(row, entries.get(row.sequence)) for row in store.rows(connection, first, last)]


def process(folder: Path) -> Process:
    """Says whether some process holds the lock of a state folder, without trying to take it.

    "not seen" is not "none": a process in another container holds its lock where this one cannot look.
    """
    try:
        locked = os.stat(folder / store.LOCK_NAME)
        text = _LOCKS.read_text()
    except FileNotFoundError:
        return "not seen" if _LOCKS.exists() else "unknown"
    except OSError:
        return "unknown"
    name = f"{os.major(locked.st_dev):02x}:{os.minor(locked.st_dev):02x}:{locked.st_ino}"
    for line in text.splitlines():
        fields = line.split()
        if "FLOCK" in fields and name in fields and "->" not in fields:
            return "running"
    return "not seen"


@contextmanager
def _moment(folder: Path) -> Iterator[sqlite3.Connection]:
    connection = store.connect(folder, read_only=True)
    try:
        connection.execute("BEGIN")
        yield connection
    except (sqlite3.Error, UnicodeError, TypeError) as error:
        # A forged row may have a text where a number belongs, which is a TypeError where it is first used.
        raise LedgerError(f"the ledger in {folder} cannot be read ({store.said(error)}); restore it") from None
    finally:
        connection.close()


def _check(connection: sqlite3.Connection) -> None:
    ledger_id, _ = store.identity(connection)
    rows.verify(ledger_id, store.rows(connection), lambda row: None)
    store.check_outbox(connection)


def _run(connection: sqlite3.Connection, row: Row) -> RunStanding:
    committed = rows.read_commit(row)
    noted = store.noted_rounds(connection, committed.terms_digest)
    sealed = store.sealed_rounds(connection, committed.terms_digest)
    largest = max(max(sealed, default=-1), noted.get("skipped", (0, -1))[1], noted.get("void", (0, -1))[1])
    tally = store.outbox_tally(connection, committed.terms_digest)
    waiting = [lowest for state, _, _, _, lowest in tally if state == "sealed"]
    return RunStanding(
        committed=committed,
        commit_row=row.sequence,
        sealed=sealed,
        skipped=noted.get("skipped", (0, -1))[0],
        void=noted.get("void", (0, -1))[0],
        last_rows=store.last_updates(connection, committed.terms_digest, pace.LOOKED_AT),
        next_round=largest + 1,
        outbox=Outbox(
            unanswered=sum(count for state, _, _, count, _ in tally if state == "sealed"),
            oldest_unanswered=min(waiting, default=None),
            accepted=sum(count for state, _, _, count, _ in tally if state == "accepted"),
            refused=sum(count for state, reason, _, count, _ in tally if state == "final" and reason != "VOID"),
            held=sum(count for _, _, held, count, _ in tally if held),
        ),
    )
