"""Files that are damaged, torn, swapped, deleted or put back: refused by name, never used, never sent."""

import contextlib
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
from copy import deepcopy
from pathlib import Path

import pytest
from hushgrad.client import ledger
from hushgrad.client.errors import ClientError
from hushgrad.server.database import Database, stored_terms
from hushgrad.server.errors import ServerError
from hushgrad.server.folder import StateFolder

from tests.faults import crowd
from tests.faults.disk.driver import TERMS, Drive, refusal
from tests.support.servers import ServerProcess

pytestmark = pytest.mark.e2e


@pytest.fixture
def killed(tmp_path: Path) -> Drive:
    """A drive half through, whose server was killed: its write-ahead log is still there."""
    drive = Drive(tmp_path / "run")
    drive.root.mkdir()
    drive.prepare()
    with ServerProcess(drive.root) as server:
        assert drive.go(server, until=6)
        server.stop(signal.SIGKILL)
    return drive


def test_the_torn_tail_of_a_servers_log_is_dropped_whole_and_sent_again(killed: Drive, tmp_path: Path) -> None:
    wal = killed.root / "server" / "server.sqlite-wal"
    whole = wal.read_bytes()
    # The last commit is a checkpoint of a few pages: less than one page of it is missing, or some of its bytes.
    for number, cut in enumerate((1, 100, 4000)):
        copy = tmp_path / f"torn-{number}"
        shutil.copytree(killed.root, copy)
        (copy / "server" / "server.sqlite-wal").write_bytes(whole[:-cut])
        drive = Drive(copy)
        drive.senders, drive.round = deepcopy(killed.senders), killed.round - 1
        drive.finish()


def test_a_flipped_bit_anywhere_in_a_servers_files_is_refused_or_changes_nothing(killed: Drive, tmp_path: Path) -> None:
    with contextlib.closing(sqlite3.connect(killed.root / "server" / "server.sqlite")) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    path = killed.root / "server" / "server.sqlite"
    original = path.read_bytes()
    folder = StateFolder(killed.root / "server")
    chance = random.Random(17)
    terms, models = read_all(folder)
    refused = 0
    for _ in range(300):
        data = bytearray(original)
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        path.write_bytes(data)
        for end in ("-wal", "-shm"):
            path.with_name(path.name + end).unlink(missing_ok=True)
        try:
            found_terms, found = read_all(folder)
        except (ServerError, sqlite3.Error, ValueError, KeyError):
            refused += 1
            continue
        # Unused space, or labels that nothing rests on.
        assert found_terms == terms
        assert found == models
    path.write_bytes(original)
    assert refused >= 10  # the twin: flips do hit what counts


def read_all(folder: StateFolder) -> tuple[object, list]:
    """Reads terms and every array through the verifying reader."""
    database = Database.open(folder, read_only=True)
    try:
        terms = stored_terms(database)
        array = database.snapshot(terms).array.tobytes()
        return terms, [array, *(database.model(version) for version in range(7))]
    finally:
        database.close()


def test_a_flipped_bit_in_the_checkpoint_names_it_and_the_server_does_not_start(killed: Drive) -> None:
    path = killed.root / "server" / "server.sqlite"
    with contextlib.closing(sqlite3.connect(path)) as connection:
        (data,) = connection.execute("SELECT data FROM arrays WHERE name = 'array'").fetchone()
        connection.execute("UPDATE arrays SET data = ? WHERE name = 'array'", (bytes([data[0] ^ 1]) + data[1:],))
        connection.commit()
    code, text = refusal(killed.root)
    assert code == 1
    assert "array in" in text
    assert "is damaged: expected SHA-256" in text
    assert text.count("\n") == 1


def test_the_log_of_another_server_is_refused_or_changes_nothing(killed: Drive, tmp_path: Path) -> None:
    other = Drive(tmp_path / "other")
    other.root.mkdir()
    other.prepare()
    with ServerProcess(other.root) as server:
        assert other.go(server, until=3)
        server.stop(signal.SIGKILL)
    shutil.copyfile(other.root / "server" / "server.sqlite-wal", killed.root / "server" / "server.sqlite-wal")
    try:
        with ServerProcess(killed.root) as server:
            server.stop()
    except AssertionError:
        return  # it did not start
    # It started: then what it has must be a state that one of the two runs had, whole.
    terms, _ = stored_terms(Database.open(StateFolder(killed.root / "server"))), None
    assert terms == TERMS


# Ledgers. One prepared federation serves these tests; each works on a copy.


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A federation of two, killed in the middle, with an old copy of the first ledger beside it."""
    root = tmp_path_factory.mktemp("ledgers") / "run"
    with crowd.crowd(root, clients=2, rounds=150, round_seconds=0.05) as federation:
        federation.start_server()
        federation.start_clients()
        federation.wait(lambda: federation.version >= 3, 60, "version 3")
        federation.kill("client-1")
        shutil.copytree(root / "client-1", root / "old-client-1")
        at = federation.version
        federation.start_client("client-1")
        federation.wait(lambda: federation.version >= at + 5, 60, "five versions more")
        for name in (*federation.names, "server"):
            federation.kill(name)
    return root


@pytest.fixture
def copied(trained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / "run"))


def run_client(root: Path, address: str = "127.0.0.1:1") -> tuple[int, str]:
    """Runs client-1 until it gives up; returns exit code and stderr."""
    done = subprocess.run(
        [sys.executable, "-m", "hushgrad.client", "run", "--config", "client-1.toml", "--server", address],
        cwd=root,
        env=crowd.environment(root),
        capture_output=True,
        text=True,
        timeout=60,
    )
    return done.returncode, done.stderr


@pytest.mark.faults
def test_a_deleted_ledger_is_refused_and_the_way_to_a_new_one_is_explained(copied: Path) -> None:
    for path in (copied / "client-1").glob("ledger.sqlite*"):
        path.unlink()
    code, text = run_client(copied)
    assert code not in (0, 4)
    assert "ledger init" in text
    assert "Traceback" not in text
    assert not (copied / "client-1" / "ledger.sqlite").exists()


@pytest.mark.faults
def test_a_ledger_put_back_from_an_old_copy_is_found_out_before_anything_is_drawn(copied: Path) -> None:
    shutil.rmtree(copied / "client-1")
    shutil.copytree(copied / "old-client-1", copied / "client-1")
    before = crowd.sealed_in_ledgers(copied, ["client-1"])
    with crowd.Crowd(copied) as federation:
        federation.start_server()
        code, text = run_client(copied, federation.address)
    assert code == 5
    assert "rolled back" in text
    assert crowd.sealed_in_ledgers(copied, ["client-1"]) == before


@pytest.mark.faults
def test_the_log_of_another_ledger_is_refused_or_changes_nothing(copied: Path) -> None:
    wal = copied / "client-1" / "ledger.sqlite-wal"
    assert wal.exists()  # it was killed; opening it by ourselves would empty the log
    shutil.copytree(copied, copied.parent / "before")
    before = crowd.sealed_in_ledgers(copied.parent / "before", ["client-1"])
    shutil.copyfile(copied / "client-2" / "ledger.sqlite-wal", wal)
    try:
        snapshot = ledger.verify(copied / "client-1")
    except ClientError:
        return
    assert {("client-1", row.round): row.digest.hex() for row in snapshot.rows if row.kind == "update"}.items() <= (
        before.items()
    )


@pytest.mark.faults
def test_a_flipped_bit_anywhere_in_a_ledger_is_refused_or_changes_nothing(copied: Path) -> None:
    path = copied / "client-1" / "ledger.sqlite"
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    original = path.read_bytes()
    rows = ledger.verify(copied / "client-1").rows
    chance = random.Random(18)
    refused = 0
    for _ in range(150):
        data = bytearray(original)
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        path.write_bytes(data)
        for end in ("-wal", "-shm"):
            path.with_name(path.name + end).unlink(missing_ok=True)
        try:
            assert ledger.verify(copied / "client-1").rows == rows
        except ClientError:
            refused += 1
    assert refused >= 10
