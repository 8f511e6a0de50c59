"""The database and its thread: same promises as in memory, damage is found, and an error ends everything."""

import asyncio
import hashlib
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hushgrad.server import database as database_module
from hushgrad.server.database import Database
from hushgrad.server.errors import InputError, StoreError
from hushgrad.server.folder import StateFolder
from hushgrad.server.store import Store

from tests.conformance import store_suite
from tests.support.federations import MemoryStore, make_terms


class InTransactions:
    """The database with each write in a transaction of its own."""

    def __init__(self, folder: StateFolder) -> None:
        self.folder = folder
        self.database = Database.open(folder)

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.database, name)
        if name not in ("write", "checkpoint"):
            return method

        def in_transaction(*args: Any) -> Any:
            self.database.begin()
            result = method(*args)
            self.database.commit()
            return result

        return in_transaction


def make_folder(tmp_path: Path, terms: Any = store_suite.TERMS) -> StateFolder:
    folder = StateFolder(tmp_path / "state")
    folder.make()
    database_module.create(folder, terms, terms.to_bytes(), np.zeros(terms.parameters, np.float32))
    return folder


class TestDatabase(store_suite.StoreSuite):
    def make(self, tmp_path: Path) -> InTransactions:
        return InTransactions(make_folder(tmp_path))

    def reopened(self, store: InTransactions) -> InTransactions:
        store.database.close()
        return InTransactions(store.folder)


class TestMemoryStore(store_suite.StoreSuite):
    def make(self, tmp_path: Path) -> MemoryStore:
        return MemoryStore(store_suite.TERMS)

    def reopened(self, store: MemoryStore) -> MemoryStore:
        return store


def test_every_connection_syncs_fully_and_writes_ahead(tmp_path: Path) -> None:
    folder = make_folder(tmp_path)
    for read_only in (False, True):
        connection = Database.open(folder, read_only=read_only)._connection
        assert connection.execute("PRAGMA synchronous").fetchone() == (2,)
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


LARGE = make_terms(parameters=70_000)


def checkpointed(tmp_path: Path, versions: int, keep: int = 0) -> StateFolder:
    folder = make_folder(tmp_path, LARGE)
    store = InTransactions(folder)
    for version in range(1, versions + 1):
        model = np.full(LARGE.parameters, version, "<f4").tobytes()
        one = store_suite.Published(
            version, model, hashlib.sha256(model).digest(), np.full(LARGE.parameters, version), None, 0, None
        )
        for path in store.checkpoint(one, version - 1, (), (), keep):
            path.unlink()
    store.database.close()
    return folder


def test_large_arrays_are_files_and_only_those_in_use_stay(tmp_path: Path) -> None:
    folder = checkpointed(tmp_path, versions=4, keep=2)
    names = sorted(path.name.rsplit("-", 1)[0] for path in folder.arrays.iterdir())
    assert names == ["array-4", "model-0", "model-3", "model-4"]
    database = Database.open(folder)
    assert database.snapshot(LARGE).array[0] == 4
    assert [(one.version, one.is_kept) for one in database.versions()] == [
        (0, True),
        (1, False),
        (2, False),
        (3, True),
        (4, True),
    ]
    assert database.model(2) is None
    assert database.manifest(2) == (1, [])


def test_files_that_no_row_names_are_removed(tmp_path: Path) -> None:
    folder = checkpointed(tmp_path, versions=1)
    (folder.arrays / "array-2-0123456789abcdef").write_bytes(b"left by a crash")
    (folder.spool / "half").write_bytes(b"torn")
    database_module.remove_orphans(folder, Database.open(folder))
    assert len(list(folder.arrays.iterdir())) == 3
    assert list(folder.spool.iterdir()) == []


@pytest.mark.parametrize("kind", ["array-1", "model-1"])
def test_one_flipped_bit_in_a_file_is_found(tmp_path: Path, kind: str) -> None:
    folder = checkpointed(tmp_path, versions=1)
    (path,) = [path for path in folder.arrays.iterdir() if path.name.startswith(kind)]
    data = bytearray(path.read_bytes())
    data[12345] ^= 4
    path.write_bytes(data)
    database = Database.open(folder)
    with pytest.raises(StoreError, match="damaged"):
        database.snapshot(LARGE) if kind == "array-1" else database.model(1)


def test_one_flipped_bit_in_a_row_is_found(tmp_path: Path) -> None:
    folder = make_folder(tmp_path)
    with sqlite3.connect(folder.database) as connection:
        connection.execute("UPDATE arrays SET data = X'010000000000000000000000000000000000000000000000'")
    with pytest.raises(StoreError, match="damaged"):
        Database.open(folder).snapshot(store_suite.TERMS)


def test_a_missing_empty_foreign_or_garbled_database_is_refused(tmp_path: Path) -> None:
    folder = StateFolder(tmp_path)
    with pytest.raises(InputError, match="no server state"):
        Database.open(folder)
    folder.database.write_bytes(b"")
    with pytest.raises(InputError, match="empty"):
        Database.open(folder)
    folder.database.write_bytes(b"no database at all" * 100)
    with pytest.raises(InputError, match="cannot be opened"):
        Database.open(folder)
    folder.database.unlink()
    with sqlite3.connect(folder.database) as connection:
        connection.execute("CREATE TABLE somebody_else (x)")
    with pytest.raises(InputError, match="another program"):
        Database.open(folder)
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("delete",)


def test_a_folder_is_locked_for_one_process(tmp_path: Path) -> None:
    first, second = StateFolder(tmp_path), StateFolder(tmp_path)
    first.lock()
    with pytest.raises(InputError, match="in use"):
        second.lock()
    first.unlock()
    second.lock()


# The thread


class Counting(Database):
    """Counts commits, and fails at one of them."""

    commits = 0
    fails_at = 10**9

    def commit(self) -> None:
        self.commits += 1
        if self.commits >= self.fails_at:
            raise sqlite3.OperationalError("disk I/O error")
        super().commit()


def test_jobs_that_wait_share_a_commit_and_keep_their_order(tmp_path: Path) -> None:
    async def scenario() -> None:
        folder = make_folder(tmp_path)
        database = Counting.open(folder)
        failures: list[StoreError] = []
        store = Store(database, keep_last=0, on_failure=failures.append)
        seen: list[int] = []
        futures = [store.do(lambda database, at=at: seen.append(at)) for at in range(600)]
        barrier = store.barrier()
        assert not barrier.done()
        await barrier
        assert all(future.done() for future in futures)
        assert seen == list(range(600))
        # At least 600 / 256 batches; far fewer than jobs, because they were queued at once.
        assert 3 <= database.commits < 300
        store.close()
        assert failures == []

    asyncio.run(scenario())


def test_after_a_failed_commit_nothing_is_answered_any_more(tmp_path: Path) -> None:
    async def scenario() -> None:
        folder = make_folder(tmp_path)
        database = Counting.open(folder)
        database.fails_at = 2
        failures: list[StoreError] = []
        store = Store(database, keep_last=0, on_failure=failures.append)
        await store.write([store_suite.receipt(0)])
        for _ in range(2):
            with pytest.raises(StoreError, match="disk I/O error"):
                await store.write([store_suite.receipt(1)])
        with pytest.raises(StoreError):
            await store.barrier()
        assert len(failures) == 1
        store.close()
        assert [one.round for one in Database.open(folder).receipts()] == [0]

    asyncio.run(scenario())
