"""The n-th durability call kills the process, or fails: nothing that was answered is lost, nothing is drawn again."""

import contextlib
import signal
import sqlite3
import time
from pathlib import Path

import grpc
import pytest

from tests.faults import crowd
from tests.faults.disk.driver import TERMS, Drive, Traced, need, strace
from tests.support.servers import ServerProcess

pytestmark = pytest.mark.e2e
SYNCS = "fsync,fdatasync"


@pytest.fixture(autouse=True)
def _strace() -> None:
    need("strace", "strace")


def sweep(root: Path, inject: str) -> bool:
    """Runs one server with a fault, then healthy ones; returns whether the fault came to pass."""
    root.mkdir()
    drive = Drive(root)
    drive.prepare()
    try:
        with Traced(root, inject) as server:
            came_through = drive.go(server)
            if not came_through:
                server.process.wait(timeout=2)
    except AssertionError as error:
        if "did not start" not in str(error):
            raise
        came_through = False
    assert drive.accepted <= drive.stored()
    drive.finish()
    return not came_through


@pytest.mark.parametrize("number", [8, 15])
def test_a_server_killed_at_a_durability_call_loses_nothing_that_it_answered(tmp_path: Path, number: int) -> None:
    # 8 lies among joins and starts, 15 in a checkpoint.
    assert sweep(tmp_path / "run", f"{SYNCS}:signal=SIGKILL:when={number}")


@pytest.mark.faults
@pytest.mark.timeout(400)
def test_a_server_killed_at_every_durability_call_loses_nothing_that_it_answered(tmp_path: Path) -> None:
    points = 0
    for number in range(1, 200):
        if not sweep(tmp_path / f"sync-{number}", f"{SYNCS}:signal=SIGKILL:when={number}"):
            break
        points += 1
    for number in range(5, 200, 9):
        if not sweep(tmp_path / f"write-{number}", f"pwrite64:signal=SIGKILL:when={number}"):
            break
        points += 1
    print(f"killed at {points} points")
    assert points >= 40


@pytest.mark.parametrize(("call", "error", "number"), [("fdatasync", "EIO", 12), ("pwrite64", "ENOSPC", 60)])
def test_a_server_whose_disk_fails_exits_within_two_seconds_and_answers_nothing_more(
    tmp_path: Path, call: str, error: str, number: int
) -> None:
    drive = Drive(tmp_path)
    drive.prepare()
    with Traced(tmp_path, f"{call}:error={error}:when={number}+") as server:
        assert not drive.go(server)
        failed_at = time.monotonic()
        assert drive.last_error is grpc.StatusCode.UNAVAILABLE
        assert server.process.wait(timeout=10) == 1
        assert time.monotonic() - failed_at < 2
        last = server.log_path.read_text().splitlines()[-1]
        assert last.startswith("hushgrad-server: the store failed")
    before = set(drive.accepted)
    assert 0 < len(before) < 2 * TERMS.final_version
    assert before <= drive.stored()
    drive.finish()


@pytest.mark.faults
@pytest.mark.timeout(400)
def test_a_client_killed_at_every_durability_call_sends_only_what_its_ledger_holds(tmp_path: Path) -> None:
    with crowd.crowd(tmp_path / "run", clients=1, rounds=150) as federation:
        federation.start_server()
        for number in range(1, 19):
            federation.start_client("client-1", *strace(f"{SYNCS}:signal=SIGKILL:when={number}"))
            assert federation.processes["client-1"].wait(timeout=60) == -signal.SIGKILL, federation.tails()
            check_ledger_covers_wire(federation)
        for number in (7, 19, 31, 43):
            federation.start_client("client-1", *strace(f"pwrite64:signal=SIGKILL:when={number}"))
            assert federation.processes["client-1"].wait(timeout=60) == -signal.SIGKILL, federation.tails()
            check_ledger_covers_wire(federation)
        federation.start_client("client-1")
        federation.wait_for_end(60)
        assert len(crowd.judge(federation.root, federation.names).sealed) == 150


def check_ledger_covers_wire(federation: crowd.Crowd) -> None:
    """Checks that everything that the server has received is in the ledger, with the same digest."""
    with contextlib.closing(sqlite3.connect(federation.root / "server" / "server.sqlite")) as connection:
        received = connection.execute("SELECT round, digest FROM receipts WHERE digest IS NOT NULL").fetchall()
    ledger = federation.root / "client-1" / "ledger.sqlite"
    with contextlib.closing(sqlite3.connect(ledger)) as connection:
        sealed = dict(connection.execute("SELECT round, digest FROM ledger WHERE kind = 'update'").fetchall())
    for round_, digest in received:
        assert sealed.get(round_) == digest, f"round {round_} is at the server and not in the ledger"


@pytest.mark.faults
@pytest.mark.parametrize("call", ["fdatasync:error=EIO:when=6+", "pwrite64:error=ENOSPC:when=40+"])
def test_a_client_whose_disk_fails_stops_with_one_clear_line_and_goes_on_later(tmp_path: Path, call: str) -> None:
    with crowd.crowd(tmp_path / "run", clients=1, rounds=150) as federation:
        federation.start_server()
        federation.start_client("client-1", *strace(call))
        assert federation.processes["client-1"].wait(timeout=60) == 1, federation.tails()
        last = federation.log("client-1").splitlines()[-1]
        assert last.startswith("hushgrad-client: ")
        assert "Traceback" not in federation.log("client-1")
        check_ledger_covers_wire(federation)
        federation.start_client("client-1")
        federation.wait_for_end(60)
        assert len(crowd.judge(federation.root, federation.names).sealed) == 150


def test_without_faults_the_drive_itself_comes_to_its_end(tmp_path: Path) -> None:
    drive = Drive(tmp_path)
    drive.prepare()
    with ServerProcess(tmp_path) as server:
        assert drive.go(server)
    drive.check()
