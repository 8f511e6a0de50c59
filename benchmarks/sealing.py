"""What it costs a client to seal a round: ledger row, header, payload and digest in one durable commit."""

import itertools
import os
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from hushgrad.client import ledger, rows

from benchmarks import harness
from benchmarks.harness import Row

PARAMETERS = 69
TERMS_DIGEST = bytes(range(32))

BAR = 2.0
"""Both sides wait for one fdatasync, which is nearly all of it; the seal adds hashes and a second small row."""


def figures() -> Iterator[Row]:
    """Seals rounds of 69 parameters, against committing one bare row of the same size on the same disk."""
    with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".bench-") as folder:
        yield from _sealing(Path(folder))


def _sealing(folder: Path) -> Iterator[Row]:
    payload = np.arange(PARAMETERS, dtype="<i4").tobytes()
    round_numbers = itertools.count()
    with _new_ledger(folder / "client") as book, _bare_table(folder / "bare.sqlite") as bare:
        body = os.urandom(192 + len(payload))

        def commit_a_row() -> None:
            bare.execute("BEGIN IMMEDIATE")
            bare.execute("INSERT INTO rows (body) VALUES (?)", (body,))
            bare.execute("COMMIT")

        measured = harness.side_by_side(
            lambda: book.seal(TERMS_DIGEST, next(round_numbers), payload),
            commit_a_row,
            ours_times=1,
            yardstick_times=1,
            repeats=301,
        )
    yield measured.row(
        name="seal one round of 69 parameters",
        value=measured.seconds * 1e3,
        unit="ms",
        against="one bare SQLite row, WAL and synchronous=FULL",
        bar=BAR,
    )


def _bare_table(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("CREATE TABLE rows (id INTEGER PRIMARY KEY, body BLOB)")
    return connection


def _new_ledger(folder: Path) -> ledger.Ledger:
    ledger.create(
        folder,
        participant="client-1",
        fingerprint="0" * 64,
        lifetime_epsilon=1.0,
        lifetime_delta=1e-5,
        accepted_new_budget=False,
    )
    book = ledger.Ledger(folder)
    book.commit(
        rows.Committed(
            terms_digest=TERMS_DIGEST,
            federation="benchmark",
            sampler="poisson",
            adjacency="add-remove",
            records=1768,
            parameters=PARAMETERS,
            flags=0,
            timing="not covered",
            schedule=(rows.Group(26, 26 / 1768, 2.1, 2.09, 0.5, 10_000),),
            claim={"epsilon": 0.5, "delta": 1e-5},
            delta=1e-5,
        )
    )
    return book
