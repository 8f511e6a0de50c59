"""Files that are damaged, torn, swapped, deleted or put back: refused by name, never used, never sent."""

import contextlib
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from hushgrad.client import ledger
from hushgrad.client.errors import ClientError, LedgerError, PayloadUnreadableError
from hushgrad.server import wal
from hushgrad.server.database import Database, stored_terms
from hushgrad.server.errors import ServerError, StoreError
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
        # A power cut leaves no index that knows more than the log: it is written after the sync.
        (copy / "server" / "server.sqlite-shm").unlink()
        drive = Drive(copy)
        drive.senders, drive.round = deepcopy(killed.senders), killed.round - 1
        drive.finish()


@pytest.fixture
def in_memory() -> Iterator[Path]:
    """A folder that no disk slows down: tens of thousands of files are written there."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as name:
        yield Path(name)


def folded(killed: Drive) -> tuple[StateFolder, bytes]:
    """Returns a server's state whose log is folded into its database, and that database."""
    path = killed.root / "server" / "server.sqlite"
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return StateFolder(killed.root / "server"), path.read_bytes()


def read_all(folder: StateFolder) -> list[Any]:
    """Reads everything that a server, its export and its answers rest on."""
    wal.check(folder.database)
    database = Database.open(folder, read_only=True)
    try:
        terms = stored_terms(database)
        snapshot = database.snapshot(terms)
        versions = database.versions()
        return [
            terms,
            database.server_epoch(),
            {name: getattr(snapshot, name) for name in snapshot.__slots__ if name != "array"},
            snapshot.array.tobytes(),
            versions,
            [database.model(one.version) for one in versions],
            [database.manifest(one.version) for one in versions],
            list(database.receipts()),
            database.find_row("client-1", 2),
        ]
    finally:
        database.close()


def flip(path: Path, data: bytes, at: int, bit: int) -> None:
    """Writes a file with one bit flipped, and no log or index beside it."""
    flipped = bytearray(data)
    flipped[at] ^= 1 << bit
    path.write_bytes(flipped)
    for end in ("-wal", "-shm"):
        path.with_name(path.name + end).unlink(missing_ok=True)


def count_refusals(
    path: Path, data: bytes, offsets: Iterable[int], read: Callable[[], Any], error: type[Exception]
) -> int:
    """Flips one bit at each offset, reads everything, and counts what was refused in one line.

    Anything else must read as it did before: then the bit was in unused space, or SQLite keeps it twice.
    """
    path.write_bytes(data)
    whole = read()
    chance = random.Random(17)
    refused = 0
    for at in offsets:
        flip(path, data, at, chance.randrange(8))
        text = outcome(read, whole, error)
        assert text is not None, f"byte {at} changes what is read, and nobody says so"
        assert text.count("\n") == 0
        refused += bool(text)
    return refused


def outcome(read: Callable[[], Any], whole: Any, error: type[Exception]) -> str | None:
    """Returns what is said of a file that is refused, nothing when it reads as ever, and None when it does not."""
    try:
        return "" if read() == whole else None
    except error as refused:
        return str(refused)


def sample(data: bytes, number: int) -> list[int]:
    """Returns the offsets of the file header, of the first bytes of every page, and some others."""
    chance = random.Random(18)
    firsts = [page + at for page in range(0, len(data), 4096) for at in range(0, 24, 5)]
    return [*range(100), *firsts, *(chance.randrange(len(data)) for _ in range(number))]


def test_a_flipped_bit_in_a_servers_database_is_refused_or_changes_nothing(killed: Drive) -> None:
    folder, data = folded(killed)
    assert count_refusals(folder.database, data, sample(data, 150), lambda: read_all(folder), ServerError) >= 100


@pytest.mark.faults
@pytest.mark.timeout(1200)
def test_a_flipped_bit_in_any_byte_of_a_servers_database_is_refused_or_changes_nothing(
    killed: Drive, in_memory: Path
) -> None:
    _, data = folded(killed)
    folder = StateFolder(Path(shutil.copytree(killed.root / "server", in_memory / "server")))
    refused = count_refusals(folder.database, data, range(len(data)), lambda: read_all(folder), ServerError)
    print(f"server: {len(data)} bytes, one bit of each flipped: {refused} refused, the others changed nothing")
    assert refused > len(data) // 10  # the twin: flips do hit what counts


@pytest.mark.parametrize("with_index", [True, False])
def test_a_flipped_bit_in_a_servers_log_is_refused(killed: Drive, with_index: bool) -> None:
    """With the index that the killed process left, anywhere. Without it, as after a power cut, the last transaction is
    left out: it cannot be told from a torn one.
    """
    folder = StateFolder(killed.root / "server")
    path = folder.database.with_name("server.sqlite-wal")
    data = path.read_bytes()
    index = folder.database.with_name("server.sqlite-shm")
    wal.check(folder.database)
    if not with_index:
        index.unlink()
        wal.check(folder.database)
    frames = [32 + at for at in range(0, len(data) - 32, 24 + 4096)]
    end = len(data) if with_index else [at for at in frames if any(data[at + 4 : at + 8])][-2]
    chance = random.Random(19)
    starts = [at + within for at in frames for within in range(0, 24, 5) if at + within < end]
    for at in (*range(32), *starts, *(chance.randrange(end) for _ in range(150))):
        flipped = bytearray(data)
        flipped[at] ^= 1 << chance.randrange(8)
        path.write_bytes(flipped)
        with pytest.raises(StoreError, match="-wal is damaged"):
            wal.check(folder.database)
    code, text = refusal(killed.root)
    assert (code, text.count("\n")) == (1, 1)
    assert "restore the state from a backup" in text


def test_a_row_that_is_gone_or_back_from_the_past_is_found(killed: Drive) -> None:
    folder, data = folded(killed)
    read_all(folder)
    for harm in (
        "DELETE FROM receipts WHERE round = 3 AND participant = 'client-2'",
        "DELETE FROM participants WHERE name = 'client-1'",
        "DELETE FROM versions WHERE version = 2",
        "DELETE FROM arrays WHERE name = 'array'",
        "DELETE FROM meta WHERE key = 'first_start'",
    ):
        table = harm.split()[2]
        with contextlib.closing(sqlite3.connect(folder.database)) as connection:
            before = connection.execute("SELECT value FROM sums WHERE name = ?", (table,)).fetchone()
            assert connection.execute(harm).rowcount == 1
            # As a disk does it that lost one write: the page of the sums is the newer one.
            connection.execute("UPDATE sums SET value = ? WHERE name = ?", (*before, table))
            connection.commit()
        with pytest.raises(StoreError, match=f"{table} does not hold the rows that were written last"):
            read_all(folder)
        folder.database.write_bytes(data)
        for end in ("-wal", "-shm"):
            folder.database.with_name("server.sqlite" + end).unlink(missing_ok=True)


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


def read_ledger(folder: Path) -> Any:
    """Reads everything that a client, its reports and its sending rest on."""
    with ledger.Ledger(folder) as book:
        (run,) = book.runs()
        entries = book.entries(run.terms_digest)
        sendable = []
        for entry in entries:
            if entry.held and entry.state != "final":
                try:
                    sendable.append(book.sendable(run.terms_digest, entry.round))
                except PayloadUnreadableError:
                    return "void"
        return book.position, book.spent(run.terms_digest), entries, sendable, book.init, run, ledger.verify(folder)


def folded_ledger(root: Path) -> tuple[Path, bytes]:
    path = root / "client-1" / "ledger.sqlite"
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return path, path.read_bytes()


def reading(folder: Path) -> Callable[[], Any]:
    """Returns what reads a ledger; sealed bytes that are damaged are void, which is a refusal too."""

    def read() -> Any:
        found = read_ledger(folder)
        if found == "void":
            raise LedgerError("void")
        return found

    return read


@pytest.mark.faults
def test_a_flipped_bit_in_a_ledger_is_refused_or_changes_nothing(copied: Path) -> None:
    path, data = folded_ledger(copied)
    assert count_refusals(path, data, sample(data, 300), reading(path.parent), LedgerError) >= 100


@pytest.mark.faults
@pytest.mark.timeout(1200)
def test_a_flipped_bit_in_any_byte_of_a_ledger_is_refused_or_changes_nothing(copied: Path, in_memory: Path) -> None:
    folded_ledger(copied)
    path, data = folded_ledger(Path(shutil.copytree(copied, in_memory / "run")))
    refused = count_refusals(path, data, range(len(data)), reading(path.parent), LedgerError)
    print(f"ledger: {len(data)} bytes, one bit of each flipped: {refused} refused, the others changed nothing")
    assert refused > len(data) // 10


@pytest.mark.faults
def test_a_flipped_bit_in_the_log_of_a_ledger_never_shows_other_rows(copied: Path) -> None:
    """SQLite drops what follows a bad frame: a ledger that is too short then, which the server finds out at Join, as
    with an old copy, before anything is drawn.
    """
    folder = copied / "client-1"
    path = folder / "ledger.sqlite-wal"
    assert path.exists()
    originals = {one: one.read_bytes() for one in folder.iterdir() if one.is_file()}
    whole = ledger.verify(folder)
    data = originals[path]
    chance = random.Random(20)
    shorter = 0
    for at in (*range(32), *(chance.randrange(len(data)) for _ in range(300))):
        for one, content in originals.items():
            one.write_bytes(content)
        flipped = bytearray(data)
        flipped[at] ^= 1 << chance.randrange(8)
        path.write_bytes(flipped)
        try:
            found = ledger.verify(folder)
        except LedgerError:
            continue
        assert found.rows == whole.rows[: len(found.rows)]
        shorter += len(found.rows) < len(whole.rows)
    assert shorter > 10
