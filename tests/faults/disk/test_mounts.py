"""Disks that fill up, refuse to be written, or lose power. Needs root, to mount below the test's folder."""

import contextlib
import ctypes
import fcntl
import os
import signal
import sqlite3
import struct
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from tests.faults import crowd
from tests.faults.disk.driver import TERMS, Drive, need, refusal
from tests.support.servers import ServerProcess, configure

pytestmark = [pytest.mark.e2e, pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")]

# _IOR('X', 125, __u32) and "discard what is not flushed, the journal too" of fs/ext4/ext4.h: what a power cut leaves.
_EXT4_IOC_SHUTDOWN, _NO_LOG_FLUSH = 0x8004587D, 2


def mount(*arguments: str) -> None:
    """Mounts, or skips the test where that is not allowed."""
    done = subprocess.run(["mount", *arguments], capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip(f"mount {' '.join(arguments)} is not possible here: {done.stderr.strip()}")


def unmount(folder: Path) -> None:
    """Unmounts; a process that is just ending may hold it for a moment."""
    for _ in range(100):
        if subprocess.run(["umount", str(folder)], capture_output=True).returncode == 0:
            return
        time.sleep(0.1)
    raise AssertionError(f"{folder} cannot be unmounted")


@contextlib.contextmanager
def mounted(folder: Path, *arguments: str) -> Iterator[None]:
    """Mounts something on a folder for the time of the block."""
    folder.mkdir(exist_ok=True)
    mount(*arguments, str(folder))
    try:
        yield
    finally:
        unmount(folder)


def test_a_server_on_a_full_disk_answers_nothing_more_and_is_fine_when_there_is_room(tmp_path: Path) -> None:
    with mounted(tmp_path / "server", "-t", "tmpfs", "-o", "size=260k", "tmpfs"):
        drive = Drive(tmp_path)
        drive.prepare()
        with ServerProcess(tmp_path) as server:
            assert not drive.go(server)
            failed_at = time.monotonic()
            assert drive.last_error is grpc.StatusCode.UNAVAILABLE
            assert server.process.wait(timeout=10) == 1
            assert time.monotonic() - failed_at < 2
            assert server.log_path.read_text().splitlines()[-1].startswith("hushgrad-server: the store failed")
        assert 0 < len(drive.accepted) < 2 * TERMS.final_version
        subprocess.run(["mount", "-o", "remount,size=64m", str(tmp_path / "server")], check=True)
        assert drive.accepted <= drive.stored()
        drive.finish()


def test_a_server_refuses_a_state_that_cannot_be_written(tmp_path: Path) -> None:
    drive = Drive(tmp_path)
    drive.prepare()
    state = tmp_path / "server"
    with mounted(state, "--bind", str(state)):
        mount("-o", "remount,ro,bind", str(state))
        code, text = refusal(tmp_path)
    assert code in (1, 2)
    assert text.count("\n") == 1
    assert "Read-only" in text or "readonly" in text
    drive.finish()


@pytest.mark.faults
def test_a_client_on_a_full_disk_sends_and_trains_nothing_more_and_goes_on_when_there_is_room(tmp_path: Path) -> None:
    root = tmp_path / "run"
    root.mkdir()
    with mounted(root / "client-1", "-t", "tmpfs", "-o", "size=200k", "tmpfs"):
        with crowd.crowd(root, clients=1, rounds=150) as federation:
            federation.start_server()
            federation.start_client("client-1")
            assert federation.processes["client-1"].wait(timeout=60) == 1, federation.tails()
            last = federation.log("client-1").splitlines()[-1]
            assert last.startswith("hushgrad-client: ")
            assert "full" in last
            sealed = [event["round"] for event in federation.events("client-1", "round_sealed")]
            subprocess.run(["mount", "-o", "remount,size=64m", str(root / "client-1")], check=True)
            with contextlib.closing(sqlite3.connect(root / "server" / "server.sqlite")) as connection:
                received = {round_ for (round_,) in connection.execute("SELECT round FROM receipts")}
            assert received <= set(sealed)
            assert len(sealed) < 150
            federation.start_client("client-1")
            federation.wait_for_end(60)
        assert len(crowd.judge(root, ["client-1"]).sealed) == 150


@pytest.mark.faults
def test_a_client_refuses_a_state_folder_that_cannot_be_written(tmp_path: Path) -> None:
    root = tmp_path / "run"
    state = root / "client-1"
    with crowd.crowd(root, clients=1, rounds=150) as federation, mounted(state, "--bind", str(state)):
        mount("-o", "remount,ro,bind", str(state))
        federation.start_server()
        federation.start_client("client-1")
        assert federation.processes["client-1"].wait(timeout=30) in (1, 2)
        assert "Traceback" not in federation.log("client-1"), federation.tails()
        federation.kill("server", signal.SIGTERM)


class Disk:
    """An ext4 file system in a file, that can lose its power."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._image = folder.with_name(folder.name + ".img")

    def __enter__(self) -> "Disk":
        need("mkfs.ext4", "e2fsprogs")
        with open(self._image, "wb") as file:
            file.truncate(64 << 20)
        subprocess.run(["mkfs.ext4", "-q", "-F", str(self._image)], check=True, capture_output=True)
        self.folder.mkdir()
        mount("-o", "loop", str(self._image), str(self.folder))
        return self

    def cut(self) -> None:
        """Cuts the power: what was not synced is gone. The file system answers nothing until `restore`."""
        descriptor = os.open(self.folder, os.O_RDONLY)
        try:
            fcntl.ioctl(descriptor, _EXT4_IOC_SHUTDOWN, struct.pack("I", _NO_LOG_FLUSH))
        finally:
            os.close(descriptor)

    def restore(self) -> None:
        """Gives power back. Nobody may use the disk."""
        unmount(self.folder)
        # On a busy machine the loop device goes a moment later; a second one on the same image would see another disk.
        for _ in range(200):
            if not subprocess.run(["losetup", "-j", str(self._image)], capture_output=True, check=True).stdout:
                break
            time.sleep(0.05)
        # What the page cache holds of the image is what reached the disk; nothing has to be dropped.
        mount("-o", "loop", str(self._image), str(self.folder))

    def __exit__(self, *_: object) -> None:
        unmount(self.folder)
        self._image.unlink()


@pytest.mark.parametrize("cuts", [1, pytest.param(8, marks=pytest.mark.faults)])
def test_a_power_cut_at_the_server_loses_nothing_that_was_answered(tmp_path: Path, cuts: int) -> None:
    root = tmp_path / "disk" / "run"
    with Disk(tmp_path / "disk") as disk:
        root.mkdir()
        drive = Drive(root)
        drive.prepare()
        for number in range(1, cuts + 1):
            with ServerProcess(tmp_path, "--config", str(root / "server.toml")) as server:
                assert drive.go(server, until=min(number + 2, TERMS.final_version - 1)), drive.last_error
                disk.cut()
                server.stop(signal.SIGKILL)
            disk.restore()
            assert drive.accepted <= drive.stored()
        with ServerProcess(tmp_path, "--config", str(root / "server.toml")) as server:
            assert drive.go(server)
        drive.check()


@pytest.mark.faults
@pytest.mark.timeout(300)
def test_a_power_cut_at_a_client_leaves_everything_that_it_sent_in_its_ledger(tmp_path: Path) -> None:
    root = tmp_path / "run"
    root.mkdir()
    with Disk(root / "client-1") as disk, crowd.crowd(root, clients=1, rounds=150, round_seconds=0.05) as federation:
        federation.start_server()
        for _ in range(5):
            at = len(federation.events("client-1", "update_answered"))
            federation.start_client("client-1")
            federation.wait(
                lambda at=at: len(federation.events("client-1", "update_answered")) >= at + 4, 60, "four answers"
            )
            disk.cut()
            federation.kill("client-1")
            disk.restore()
            with contextlib.closing(sqlite3.connect(root / "server" / "server.sqlite")) as connection:
                received = dict(connection.execute("SELECT round, digest FROM receipts").fetchall())
            held = crowd.sealed_in_ledgers(root, ["client-1"])
            assert {round_: digest.hex() for round_, digest in received.items()}.items() <= {
                round_: digest for (_, round_), digest in held.items()
            }.items()
        federation.start_client("client-1")
        federation.wait_for_end(60)
        assert len(crowd.judge(root, ["client-1"]).sealed) == 150


# gRPC makes a deadline of Python's clock and compares it with the one below: both jump together in life, so it sees
# neither jump here.
CLOCK = """
import os, sys, time
_real = time.time
def _shifted():
    if sys._getframe(1).f_globals.get("__name__", "").startswith("grpc"):
        return _real()
    try:
        shift = float(open(os.environ["CLOCK_OFFSET_FILE"]).read() or 0)
        if shift:
            open(os.environ["CLOCK_OFFSET_FILE"] + f"-seen-by-{os.getpid()}", "w").close()
        return _real() + shift
    except (OSError, ValueError):
        return _real()
time.time = _shifted
"""


@pytest.mark.parametrize("jump", [-3600.0, 400 * 86400.0])
def test_a_wall_clock_that_jumps_while_the_server_runs_stops_and_reorders_nothing(
    tmp_path: Path, jump: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "clock").mkdir()
    (tmp_path / "clock" / "sitecustomize.py").write_text(CLOCK)
    offset = tmp_path / "offset"
    offset.write_text("0")
    monkeypatch.setenv("CLOCK_OFFSET_FILE", str(offset))
    monkeypatch.syspath_prepend(str(tmp_path / "clock"))
    drive = Drive(tmp_path)
    drive.prepare()
    with ServerProcess(tmp_path) as server:
        assert drive.go(server, until=4)
        offset.write_text(str(jump))
        assert drive.go(server, until=8)
        assert not server.events("suspended")
        server.stop(signal.SIGKILL)
    configure(tmp_path, linger_seconds=1.0, keep_sealed=True)
    offset.write_text(str(-jump))
    drive.finish()


@pytest.mark.faults
@pytest.mark.parametrize("jump", [-3600.0, 400 * 86400.0])
def test_a_wall_clock_that_jumps_under_clients_and_server_costs_nothing(
    tmp_path: Path, jump: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "clock").mkdir()
    (tmp_path / "clock" / "sitecustomize.py").write_text(CLOCK)
    offset = tmp_path / "offset"
    offset.write_text("0")
    monkeypatch.setenv("CLOCK_OFFSET_FILE", str(offset))
    monkeypatch.syspath_prepend(str(tmp_path / "clock"))
    with crowd.crowd(tmp_path / "run", clients=2, rounds=60, round_seconds=0.05) as federation:
        federation.start_server()
        federation.start_clients()
        federation.wait(lambda: federation.version >= 5, 60, "version 5")
        offset.write_text(str(jump))
        at = federation.version
        federation.wait(lambda: federation.version >= at + 10, 20, "ten versions after the jump")
        federation.kill("client-1")
        federation.start_client("client-1")
        federation.wait(lambda: federation.version >= at + 15, 20, "five versions more")
        offset.write_text(str(-jump))
        running = {federation.processes[name].pid for name in (*federation.names, "server")}
        federation.wait_for_end(60)
        seen = {int(path.name.rpartition("-")[2]) for path in tmp_path.glob("offset-seen-by-*")}
        assert seen & running  # the twin: somebody asked for the time after the jump
        assert not federation.events("server", "suspended")
        assert len(crowd.judge(federation.root, federation.names).sealed) == 120


def test_the_numbers_of_the_shutdown_call_are_those_of_this_machine() -> None:
    # _IOR('X', 125, __u32): direction 2 at bit 30, size 4 at bit 16.
    numbers = (2 << 30, ctypes.sizeof(ctypes.c_uint32) << 16, ord("X") << 8, 125)
    assert sum(numbers) == _EXT4_IOC_SHUTDOWN


def test_a_power_cut_takes_what_was_not_synced(tmp_path: Path) -> None:
    # The twin of the tests above: this disk does lose data, so that finding all of it means something.
    folder = tmp_path / "disk"
    with Disk(folder) as disk:
        with open(folder / "synced", "wb") as file:
            file.write(b"x" * 4096)
            file.flush()
            os.fsync(file.fileno())
        (folder / "written").write_bytes(b"x" * 4096)
        disk.cut()
        disk.restore()
        assert (folder / "synced").read_bytes() == b"x" * 4096
        written = folder / "written"
        assert not written.exists() or written.read_bytes() != b"x" * 4096
