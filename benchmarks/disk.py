"""What durability cannot do without, timed by itself on the disk at hand: commits, files of arrays, hashes."""

import hashlib
import os
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

_ROW_BYTES = 200
_LARGEST_ROW_BYTES = 256 * 1024
_STATE_BYTES = 12
"""Of each parameter in a checkpoint: the array of int64 and the model of float32."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds of one round: commits of rows, files of arrays, SHA-256."""

    commits: float
    writes: float
    hashes: float


def round_cost(parameters: int, clients: int, publish_every: int) -> Cost:
    """Times the least that one round needs: one commit of receipts, one of the checkpoint, each update's digest.

    Versions that are published every so many rounds cost each round so much less.
    """
    repeats = 21 if parameters < 10**6 else 3
    array = bytes(_STATE_BYTES * parameters)
    with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".bench-") as name:
        folder = Path(name)
        connection = sqlite3.connect(folder / "rows.sqlite", isolation_level=None)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("CREATE TABLE rows (id INTEGER PRIMARY KEY, body BLOB)")
        is_row = len(array) <= _LARGEST_ROW_BYTES
        receipts = _median(lambda: _commit(connection, [bytes(_ROW_BYTES)] * clients), repeats)
        checkpoint = _median(lambda: _commit(connection, [array if is_row else bytes(_ROW_BYTES)]), repeats)
        connection.close()
        write = 0.0 if is_row else _median(lambda: _write(folder, array), repeats)
    update = array[: 4 * parameters]
    digest = _median(lambda: hashlib.sha256(update), repeats)
    # The clients check what they fetch; the server's digests and theirs share the processor's cores.
    hashes = (clients + (1 + clients) / publish_every) * digest / min(os.cpu_count() or 1, clients)
    return Cost(receipts + checkpoint / publish_every, write / publish_every, hashes)


def _commit(connection: sqlite3.Connection, rows: list[bytes]) -> None:
    connection.execute("BEGIN IMMEDIATE")
    connection.executemany("INSERT INTO rows (body) VALUES (?)", [(row,) for row in rows])
    connection.execute("COMMIT")


def _write(folder: Path, data: bytes) -> None:
    temporary = folder / "array.tmp"
    with open(temporary, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, folder / "array")
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _median(action: Callable[[], object], repeats: int) -> float:
    found = []
    for _ in range(repeats):
        began = time.perf_counter()
        action()
        found.append(time.perf_counter() - began)
    return statistics.median(found)
