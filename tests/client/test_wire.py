"""What leaves a client but sealed updates: every byte of whole runs, recorded between real processes and a server.

Nothing else may depend on the records: not which calls are made, not their order, not their sizes, not a field of them.
"""

import hashlib
import json
import os
import socket
import subprocess
import sys
import threading
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import click.testing
import numpy as np
import numpy.typing as npt
import pytest
from hushgrad.client import __main__ as command
from hushgrad.client import store
from hushgrad.wire import header

from tests.support import client_world
from tests.support.fake_server import FakeServer

CONFIG = """
participant = "client-1"
server = "{server}"
state = "state"
[data]
file = "data.npz"
class_names = ["0", "1"]
[model]
kind = "logistic"
[privacy]
records = 100
clip_norm = 0.5
noise_multiplier = 4.0
sampler = "poisson"
epsilon = 1.0
delta = 1e-5
lifetime_epsilon = 1.0
lifetime_delta = 1e-5
release_interval_seconds = 0.05
"""

DATA, HEADERS = 0, 1
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


class Recorder:
    """Passes bytes on and keeps those that come from the client, by connection."""

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self._target = (host, int(port))
        self.connections: list[bytearray] = []

    @contextmanager
    def serving(self) -> Iterator[str]:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            threading.Thread(target=self._accept, args=(listener,), daemon=True).start()
            try:
                yield f"127.0.0.1:{listener.getsockname()[1]}"
            finally:
                with suppress(OSError):
                    listener.shutdown(socket.SHUT_RDWR)

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            server = socket.create_connection(self._target)
            kept = bytearray()
            self.connections.append(kept)
            for source, sink, keep in ((client, server, kept), (server, client, None)):
                threading.Thread(target=self._pass_on, args=(source, sink, keep), daemon=True).start()

    @staticmethod
    def _pass_on(source: socket.socket, sink: socket.socket, kept: bytearray | None) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                if kept is not None:
                    kept += data
                sink.sendall(data)
        with suppress(OSError):
            sink.shutdown(socket.SHUT_WR)


def frames(recorded: bytes) -> list[tuple[int, int, bytes]]:
    """Returns kind, stream and content of each HTTP/2 frame (RFC 9113, section 4.1) that a client sent."""
    assert recorded.startswith(_PREFACE)
    found, at = [], len(_PREFACE)
    while at + 9 <= len(recorded):
        length = int.from_bytes(recorded[at : at + 3], "big")
        stream = int.from_bytes(recorded[at + 5 : at + 9], "big") & 0x7FFFFFFF
        found.append((recorded[at + 3], stream, bytes(recorded[at + 9 : at + 9 + length])))
        at += 9 + length
    return found


def messages(recorder: Recorder) -> list[bytes]:
    """Returns the gRPC messages that left, call by call: each call of this client sends one frame of data with one."""
    (connection,) = recorder.connections
    return [content for kind, _, content in frames(bytes(connection)) if kind == DATA and content]


def public(method: str, request: Any) -> bytes:
    """Returns a request without what must differ between any two runs: noise, what is hashed over it, fresh names."""
    kept = type(request)()
    kept.CopyFrom(request)
    if method == "Join":
        kept.join_id = bytes(16)
    if method == "SubmitUpdate":
        head = header.unpack(kept.header)
        assert len(kept.payload) == head.payload_bytes
        kept.payload, kept.crc32c = bytes(head.payload_bytes), 1
        kept.header = kept.header.replace(head.ledger_previous_head, bytes(32))
    return bytes(kept.SerializeToString(deterministic=True))


def records(rows: int, seed: int = 1) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    rng = np.random.default_rng(seed)
    features = rng.random((rows, 3))
    return features, (features[:, 0] > 0.5).astype(np.int64)


def _with_an_outlier() -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    features, labels = records(99)
    return np.vstack([features, [1e9, -1e9, 1e9]]), np.append(labels, 1)


DATA_SETS = {
    "a data set": records(99),
    "with one record more": _with_an_outlier(),
    "with nearly nothing": (np.zeros((3, 3)), np.zeros(3, np.int64)),
}


class Run:
    """One client's whole run: what it sent, byte by byte and call by call, and what it wrote for people."""

    def __init__(self, recorder: Recorder, server: FakeServer, log: str, folder: Path, command_line: bytes) -> None:
        self.bytes = b"".join(bytes(connection) for connection in recorder.connections)
        self.messages = messages(recorder)
        self.calls = [(name, public(name, request)) for name, request in server.seen if name != "WatchModels"]
        self.watches = [public(name, request) for name, request in server.seen if name == "WatchModels"]
        self.log = log
        self.folder, self.command_line = folder, command_line


def _command_line(process: subprocess.Popen[str]) -> bytes:
    """What `ps` shows to everybody on the machine."""
    return Path(f"/proc/{process.pid}/cmdline").read_bytes()


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    """Each data set's run, in a process of its own."""
    with ExitStack() as stack:
        going = {}
        for name, (features, labels) in DATA_SETS.items():
            folder = tmp_path_factory.mktemp("run")
            server = FakeServer(client_world.make_terms())
            recorder = Recorder(stack.enter_context(server.serving()))
            address = stack.enter_context(recorder.serving())
            np.savez(folder / "data.npz", X=features, y=labels)
            (folder / "client.toml").write_text(CONFIG.format(server=address))
            arguments = ["--config", str(folder / "client.toml")]
            home = {"HUSHGRAD_HOME": str(folder / "home")}
            made = click.testing.CliRunner(env=home).invoke(command.main, ["ledger", "init", *arguments])
            assert made.exit_code == 0, made.output
            process = subprocess.Popen(
                [sys.executable, "-m", "hushgrad.client", "run", *arguments, "--log-format", "json"],
                env={**os.environ, **home, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                stderr=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            stack.callback(process.kill)
            going[name] = (process, recorder, server, folder, _command_line(process))
        found = {}
        for name, (process, recorder, server, folder, command_line) in going.items():
            output, log = process.communicate(timeout=110)
            assert process.returncode == 0, log
            found[name] = Run(recorder, server, output + log, folder, command_line)
    return found


@pytest.mark.e2e
def test_calls_their_order_and_their_public_fields_are_the_same_for_any_records(runs: dict[str, Run]) -> None:
    first, *others = runs.values()
    names = [name for name, _ in first.calls]
    assert names == ["GetTerms", "Join", "Start", *["SubmitUpdate"] * 6]
    for other in others:
        assert other.calls == first.calls
        assert other.watches == first.watches


@pytest.mark.e2e
def test_every_message_has_the_same_size_for_any_records(runs: dict[str, Run]) -> None:
    """On the wire, as recorded: what the server's library makes of it is not asked."""
    sizes = {name: [len(message) for message in run.messages] for name, run in runs.items()}
    first, *others = sizes.values()
    assert len(first) == 6 + 4, "six updates, and four other calls"
    assert all(sorted(other) == sorted(first) for other in others)
    # The watch is another thread's call and may overtake; all others come in order.
    updates = {name: [len(message) for message in run.messages if b"HGUPDATE" in message] for name, run in runs.items()}
    assert {len(set(size)) for size in updates.values()} == {1}


@pytest.mark.e2e
def test_the_recording_sees_a_size_that_depends_on_the_data(runs: dict[str, Run]) -> None:
    """The twin: bytes that a compressor would make of the same updates differ from one to the next."""
    updates = [message for message in runs["a data set"].messages if b"HGUPDATE" in message]
    assert len(updates) == 6
    many = [zlib.compress(message) for run in runs.values() for message in run.messages if b"HGUPDATE" in message]
    assert len({len(one) for one in many}) > 1


@pytest.mark.e2e
def test_noised_payloads_are_all_that_differs(runs: dict[str, Run]) -> None:
    """The twin of the comparison: with payloads left in, no two updates are equal."""
    payloads = [message for run in runs.values() for message in run.messages if b"HGUPDATE" in message]
    assert len(set(payloads)) == 18


@pytest.mark.e2e
def test_logs_tell_no_count_and_nothing_else_about_the_records(runs: dict[str, Run]) -> None:
    """Rounds and versions are public; whatever else is a number in a log line is the same for all data sets."""

    def told(log: str) -> list[tuple[str, str, str]]:
        found = []
        for line in log.splitlines():
            if line.startswith("{") and "event" in (event := json.loads(line)):
                found += [(event["event"], key, str(value)) for key, value in event.items()]
        # A slow machine may let a round take longer than a tick, and a version come sooner or later than a round.
        timed = ("model_received", "round_outlasts_release_interval")
        local = ("timestamp", "server", "state", "session", "version", "staleness")
        return sorted(one for one in found if one[0] not in timed and one[1] not in local)

    first, *others = [told(run.log) for run in runs.values()]
    assert len(first) > 20
    assert all(other == first for other in others)


@pytest.mark.e2e
def test_secrets_of_the_ledger_and_digests_of_the_data_are_nowhere_but_in_their_files(runs: dict[str, Run]) -> None:
    """A plain digest of the data would let whoever knows all records but one test guesses of that one."""
    for run in runs.values():
        _, secret = store.identity(store.connect(run.folder / "state", read_only=True))
        (fingerprint,) = json.loads((run.folder / "home" / "ledgers.json").read_text())["ledgers"]
        data = (run.folder / "data.npz").read_bytes()
        arguments = ["--config", str(run.folder / "client.toml")]
        shown = b"".join(
            click.testing.CliRunner().invoke(command.main, [*verb, *arguments]).stdout_bytes
            for verb in (["status", "--json"], ["ledger", "export"], ["ledger", "show"])
        )
        assert len(secret) == 32
        assert b"client-1" in shown
        for what in (run.bytes, run.log.encode(), run.command_line, shown):
            for private in (secret, bytes.fromhex(fingerprint), hashlib.sha256(data).digest()):
                assert private not in what
                assert private.hex().encode() not in what.lower()
