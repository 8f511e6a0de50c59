"""States that earlier programs left: the present one goes on with them to the end, and leaves newer ones alone."""

import contextlib
import shutil
import sqlite3
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hushgrad.client import ledger, store
from hushgrad.client.errors import LedgerError
from hushgrad.server import backup, layout
from hushgrad.server.database import Database, stored_terms
from hushgrad.server.errors import InputError, StoreError
from hushgrad.server.folder import StateFolder

from tests.faults import crowd

STATES = Path(__file__).parents[1] / "golden" / "state"
CLIENTS = ["client-1", "client-2", "client-3"]


@pytest.fixture(params=sorted(STATES.glob("layout-*.tar.gz")), ids=lambda path: path.name.partition(".")[0])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    with tarfile.open(request.param) as archive:
        archive.extractall(tmp_path / "run", filter="data")
    return tmp_path / "run"


@pytest.mark.e2e
def test_a_federation_of_an_earlier_layout_goes_on_to_its_end(root: Path) -> None:
    before = crowd.sealed_in_ledgers(root, CLIENTS)
    with crowd.Crowd(root) as federation:
        federation.start_server()
        federation.start_clients()
        federation.wait_for_end(60)
    sealed = crowd.sealed_in_ledgers(root, CLIENTS)
    assert before.items() <= sealed.items()
    # One is void and can never be sent; the skipped one was never sealed.
    found = crowd.judge(root, CLIENTS, lost=[("client-3", 7)])
    assert (len(found.sealed), found.versions) == (59, 21)


def test_reading_an_earlier_layout_changes_nothing_and_opening_it_brings_it_up(
    root: Path, request: pytest.FixtureRequest
) -> None:
    folder = StateFolder(root / "server")
    contents = {path: path.read_bytes() for path in root.rglob("*.sqlite")}
    database = Database.open(folder, read_only=True)
    seen = database.snapshot(stored_terms(database))
    database.close()
    books = [ledger.verify(root / name) for name in CLIENTS]
    # Reading client-1 may fold its log into the file, as SQLite always does; the layout stays.
    assert folder.database.read_bytes() == contents[folder.database]
    before = {path: layout_of(path) for path in contents}
    assert set(before.values()) == {int(request.node.callspec.id.rpartition("-")[2])}
    database = Database.open(folder)
    again = database.snapshot(stored_terms(database))
    database.close()
    assert (again.receipts, again.participants, again.histories) == (seen.receipts, seen.participants, seen.histories)
    for name, book in zip(CLIENTS, books, strict=True):
        ledger.Ledger(root / name).close()
        assert ledger.verify(root / name) == book
    assert {path.stem: layout_of(path) for path in contents} == {
        "server": layout.VERSION,
        "ledger": store.SCHEMA_VERSION,
    }


def test_rows_of_an_earlier_layout_that_were_damaged_are_not_blessed_by_new_checksums(tmp_path: Path) -> None:
    """Layout 1 had no checksums to compare; from layout 2 on every row's is looked at before it gets another."""
    with tarfile.open(STATES / "layout-2.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    folder = StateFolder(tmp_path / "server")
    with contextlib.closing(sqlite3.connect(folder.database)) as connection:
        connection.execute("UPDATE receipts SET sequence = sequence + 1 WHERE participant = 'client-1' AND round = 2")
        connection.commit()
    with pytest.raises(StoreError, match="a row of receipts in the server's database is damaged: client-1 2"):
        Database.open(folder)
    assert layout_of(folder.database) == 2


def test_a_backup_of_an_earlier_layout_can_be_restored_and_replaced(root: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(root / "server", copy)
    restored = backup.restore(StateFolder(tmp_path / "new"), copy, force=False)
    assert (restored.backup.version, restored.server_epoch) == (6, 2)
    assert layout_of(tmp_path / "new" / "server.sqlite") == layout.VERSION
    assert layout_of(copy / "server.sqlite") == layout_of(root / "server" / "server.sqlite") < layout.VERSION
    (copy / "spool").rmdir()
    assert backup.backup(StateFolder(root / "server"), copy).version == 6
    assert layout_of(copy / "server.sqlite") == layout.VERSION


def open_ledger(folder: Path) -> None:
    ledger.Ledger(folder).close()


def open_server(folder: Path) -> None:
    Database.open(StateFolder(folder)).close()


def read_server(folder: Path) -> None:
    Database.open(StateFolder(folder), read_only=True).close()


@pytest.mark.parametrize("unknown", [0, 4, 2**31 - 1])
@pytest.mark.parametrize(
    ("path", "use"),
    [
        ("server/server.sqlite", open_server),
        ("server/server.sqlite", read_server),
        ("client-2/ledger.sqlite", open_ledger),
        ("client-2/ledger.sqlite", ledger.read),
    ],
)
def test_a_layout_that_this_program_does_not_know_is_refused_and_left_alone(
    root: Path, unknown: int, path: str, use: Callable[[Path], object]
) -> None:
    file = root / path
    with contextlib.closing(sqlite3.connect(file)) as connection:
        connection.execute(f"PRAGMA user_version = {unknown}")
    content = file.read_bytes()
    with pytest.raises((InputError, LedgerError), match=f"has layout {unknown}, ") as caught:
        use(file.parent)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 2
    assert file.read_bytes() == content


def layout_of(path: Path) -> int:
    with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        return connection.execute("PRAGMA user_version").fetchone()[0]
