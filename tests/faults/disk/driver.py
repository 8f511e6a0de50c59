"""Drives a real server through rounds and through its deaths: whatever fails is sent again, with the same bytes.

Used by the tests of disks and syscalls, which decide how the server dies. The oracle is a run in memory that nothing
happened to: a published model is a function of the set of updates, bit for bit.
"""

import contextlib
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import grpc
import pytest
from hushgrad.v1 import common_pb2

from tests.support.federations import Owner, Sender, make_terms, senders_of
from tests.support.servers import Client, ServerProcess, configure, make_state

TERMS = make_terms(participants=2, final_version=12, window=6, max_delay=2)
FINE = (common_pb2.ANSWER_ACCEPTED, common_pb2.ANSWER_DUPLICATE)


def need(program: str, package: str) -> None:
    """Skips a test for want of a program, with what to install. `make faults` looks for them before it starts."""
    if shutil.which(program) is None:
        pytest.skip(f"{program} is missing; install it with: apt-get install {package}")


def quiet_models() -> dict[int, bytes]:
    """Returns every version of a run to which nothing happened."""
    owner, senders = Owner(TERMS), senders_of(TERMS)
    owner.begin(senders)
    for round_ in range(TERMS.final_version):
        for sender in senders:
            owner.submit(sender, sender.seal(round_))
    return {version: published.model for version, published in owner.models.items()}


class Drive:
    """Two senders and whatever server is there.

    Attributes:
        accepted: the keys that were answered ACCEPTED or DUPLICATE.
        seen: SHA-256 by version, as the server published it.
        last_error: the status of the call that failed last.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.senders: list[Sender] = senders_of(TERMS)
        self.round = 0
        self.accepted: set[tuple[str, int]] = set()
        self.seen: dict[int, bytes] = {}
        self.last_error: grpc.StatusCode | None = None

    def prepare(self) -> None:
        """Makes state and configuration."""
        make_state(self.root, TERMS)
        configure(self.root, linger_seconds=1.0, keep_sealed=True)

    def go(self, server: ServerProcess, until: int = TERMS.final_version) -> bool:
        """Joins, sends all that was sealed before, and goes on; returns whether it came to round `until`."""
        clients = [Client(server.address, sender) for sender in self.senders]
        try:
            for client in clients:
                client.join(server.log_path.name[-16:].encode())
            for client in clients:
                client.start(self.round)
            for client in clients:
                for sealed in list(client.sender.sealed.values()):
                    self._send(client, sealed.round)
            while self.round < until:
                for client in clients:
                    self._send(client, self.round)
                clients[0].wait_for_version(self.round + 1)
                chunk = clients[0].model(self.round + 1)[0]
                assert self.seen.setdefault(self.round + 1, chunk.sha256) == chunk.sha256, "a published version changed"
                self.round += 1
        except grpc.RpcError as error:
            self.last_error = error.code()
            return False
        finally:
            for client in clients:
                client.close()
        return True

    def _send(self, client: Client, round_: int) -> None:
        answer = client.submit(client.sender.sealed.get(round_) or client.sender.seal(round_))
        if answer.verdict.answer == common_pb2.ANSWER_RUN_ENDED:
            return
        assert answer.verdict.answer in FINE, answer.verdict
        self.accepted.add((client.sender.name, round_))

    def finish(self) -> None:
        """Runs a healthy server to the end and compares everything with a quiet run."""
        with ServerProcess(self.root) as server:
            assert self.go(server), self.last_error
        self.check()

    def check(self) -> None:
        """Compares every version with a run to which nothing happened."""
        with contextlib.closing(sqlite3.connect(self.root / "server" / "server.sqlite")) as connection:
            found = dict(connection.execute("SELECT version, model FROM versions").fetchall())
            included = set(
                connection.execute("SELECT participant, round FROM receipts WHERE included_in IS NOT NULL").fetchall()
            )
        quiet = quiet_models()
        assert {version: found[version] for version in quiet} == quiet
        assert self.accepted <= included
        assert len(included) == 2 * TERMS.final_version

    def stored(self) -> set[tuple[str, int]]:
        """Returns the keys of all receipts on disk."""
        with contextlib.closing(sqlite3.connect(self.root / "server" / "server.sqlite")) as connection:
            return set(connection.execute("SELECT participant, round FROM receipts").fetchall())


class Traced(ServerProcess):
    """A server under strace. Its process id is strace's; the server is its child, in a process group of their own."""

    def __init__(self, root: Path, inject: str) -> None:
        super().__init__(root, prefix=strace(inject), preexec=os.setsid)

    def __exit__(self, *_: object) -> None:
        # A strace that is killed lets its child go on.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(timeout=20)


def strace(inject: str) -> list[str]:
    """Returns a command that runs another with a fault injected: SYSCALLS:WHAT:when=N."""
    syscalls = inject.split(":")[0]
    # When a signal kills the traced process, strace ends in the same way.
    return ["strace", "-f", "-qq", "-o", "/dev/null", "-e", f"trace={syscalls}", "-e", f"inject={inject}"]


def refusal(root: Path, *arguments: str) -> tuple[int, str]:
    """Runs `hushgrad-server run` where it should refuse; returns exit code and stderr."""
    done = subprocess.run(
        [sys.executable, "-m", "hushgrad.server", "run", *arguments],
        cwd=root,
        capture_output=True,
        text=True,
        timeout=30,
    )
    return done.returncode, done.stderr


def events(server: ServerProcess) -> list[str]:
    """Returns the names of the events that a server logged."""
    lines = [line for line in server.log_path.read_text().splitlines() if line.startswith("{")]
    return [json.loads(line)["event"] for line in lines]
