"""Silent sockets, half-sent uploads, a dribbler and a flooder against one server, beside one good client.

Usage: python -m tests.faults.attackers [--seconds 40] [--json OUTPUT]. Prints what the good client felt and what the
server paid. `make hostile` runs it; tests/server/test_hostile.py runs a smaller one.
"""

import argparse
import asyncio
import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import google_crc32c
import grpc
import numpy as np
import psutil
from hushgrad.v1 import common_pb2, updates_pb2, updates_pb2_grpc
from hushgrad.wire.terms import Terms

from tests.support.federations import Sealed, Sender, make_terms
from tests.support.raw_http2 import DATA, Connection, frame, message_start
from tests.support.servers import Client, ServerProcess, configure, make_state

PARAMETERS = 61_706
"""The paper's LeNet: a submit carries 247 kB, in one message."""

_ROUNDS = 5000
_UPLOAD = "/hushgrad.v1.UpdateService/UploadUpdate"
_IN_FLIGHT = 64
_PAUSE = 0.02


@dataclass(frozen=True, slots=True)
class Felt:
    """Seconds of the good client's submits."""

    count: int
    median: float
    p95: float
    p99: float
    worst: float


@dataclass(frozen=True, slots=True)
class Scene:
    """What was measured.

    Attributes:
        quiet, attacked: the good client's submits before the attack and during it.
        upload_seconds: how long the good client's upload took under attack, however often it was told to wait.
        silent_closed_after: seconds until the last silent socket was closed; none of them ever spoke.
        half_sent_closed: half-sent uploads that the server had ended when the scene was over, of how many.
        flooded, flood_served: calls of the flooder that were answered, and those that were not told to wait.
        memory_before, memory_after: of the server, in MiB, the second the largest one seen.
        files: most file handles of the server.
    """

    quiet: Felt
    attacked: Felt
    upload_seconds: float
    silent_closed_after: float
    half_sent: int
    half_sent_closed: int
    dribbler_closed_after: float
    flooded: int
    flood_served: int
    memory_before: float
    memory_after: float
    files: int


def play(
    root: Path,
    *,
    silent: int,
    half_sent: int,
    seconds: float,
    quiet_seconds: float = 3.0,
    parameters: int = PARAMETERS,
    **limits: float,
) -> Scene:
    """Plays the scene in a folder.

    Args:
        limits: that differ from the defaults.
    """
    terms = make_terms(
        parameters=parameters, participants=half_sent + 3, final_version=_ROUNDS, window=_ROUNDS, max_delay=1
    )
    make_state(root, terms)
    configure(root, improbable_updates="refuse", limits=limits)
    with ServerProcess(root) as server, contextlib.ExitStack() as stack:
        process = psutil.Process(server.process.pid)
        good = _joined(server.address, "good", terms)
        updates = _honest(good.sender, terms)
        quiet = _felt(good, updates, quiet_seconds)
        attackers = [_joined(server.address, f"half-{at}", terms) for at in range(half_sent)]
        dribbler = _joined(server.address, "dribbler", terms)
        _joined(server.address, "flooder", terms).close()
        memory_before = process.memory_info().rss / 2**20
        begin = time.monotonic()
        slow = _half_sent(server.address, dribbler)
        sockets = [Connection(server.address, greet=False) for _ in range(silent)]
        uploads = [_half_sent(server.address, client) for client in attackers]
        flooder = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.attackers", "--flood", server.address, "--seconds", str(seconds)],
            stdout=subprocess.PIPE,
            env={"PYTHONPATH": ":".join(path for path in sys.path if path), "GRPC_VERBOSITY": "NONE"},
        )
        stack.callback(flooder.kill)
        watch = _Watch(process, sockets, slow, begin)
        first = _felt(good, updates, min(seconds, 7.0), watch.look)
        upload_seconds = _upload(good, next(updates))
        attacked = _felt(good, updates, max(seconds - 7.0, 0.5), watch.look, first)
        told, _ = flooder.communicate(timeout=60)
        flood = json.loads(told)
        closed = sum(_is_over(upload) for upload in uploads)
        for connection in (*sockets, *uploads, slow):
            connection.close()
        for client in (good, dribbler, *attackers):
            client.close()
        return Scene(
            quiet=_summary(quiet),
            attacked=_summary(attacked),
            upload_seconds=upload_seconds,
            silent_closed_after=watch.silent_closed_after,
            half_sent=half_sent,
            half_sent_closed=closed,
            dribbler_closed_after=watch.dribbler_closed_after,
            flooded=flood["answered"],
            flood_served=flood["served"],
            memory_before=memory_before,
            memory_after=watch.memory,
            files=watch.files,
        )


class _Watch:
    """Looks at the server, the sockets and the dribbler while the good client works."""

    def __init__(self, process: psutil.Process, sockets: list[Connection], slow: Connection, begin: float) -> None:
        self._process = process
        self._open = list(sockets)
        self._slow = slow
        self._begin = begin
        self._dribbled_at = begin
        self.silent_closed_after = -1.0
        self.dribbler_closed_after = -1.0
        self.memory = 0.0
        self.files = 0

    def look(self) -> None:
        now = time.monotonic()
        self.memory = max(self.memory, self._process.memory_info().rss / 2**20)
        self.files = max(self.files, self._process.num_fds())
        if self._open:
            self._open = [one for one in self._open if not one.read(0.00001)[1]]
            if not self._open:
                self.silent_closed_after = now - self._begin
        if now - self._dribbled_at >= 1 and self.dribbler_closed_after < 0:
            self._dribbled_at = now
            if not self._slow.send(frame(DATA, 0, 1, b"\0")) or _is_over(self._slow):
                self.dribbler_closed_after = now - self._begin


def _joined(address: str, name: str, terms: Terms) -> Client:
    client = Client(address, Sender(name, terms))
    client.join()
    return client


def _honest(sender: Sender, terms: Terms) -> Iterator[Sealed]:
    """Seals a few updates and then repeats their content: what a round costs the server is the same."""
    generator = np.random.default_rng(7)
    scale = 2.5 * 0.5 * 2.0**-terms.grid_exponent
    payloads = [np.rint(generator.normal(0, scale, terms.parameters)).astype("<i4").tobytes() for _ in range(16)]
    for round_ in range(_ROUNDS):
        yield sender.seal(round_, payloads[round_ % 16])


def _felt(
    client: Client, updates: Iterator[Sealed], seconds: float, between: object = None, before: Sequence[float] = ()
) -> list[float]:
    times, end = list(before), time.monotonic() + seconds
    while time.monotonic() < end:
        update = next(updates)
        begin = time.monotonic()
        answer = client.submit(update)
        times.append(time.monotonic() - begin)
        assert answer.verdict.answer == common_pb2.ANSWER_ACCEPTED, answer.verdict
        if callable(between):
            between()
        time.sleep(_PAUSE)
    return times


def _summary(times: list[float]) -> Felt:
    times = sorted(times)
    at = [times[min(len(times) - 1, int(q * len(times)))] for q in (0.95, 0.99)]
    return Felt(len(times), statistics.median(times), *at, times[-1])


def _upload(client: Client, sealed: Sealed) -> float:
    begin = time.monotonic()
    while True:
        with contextlib.suppress(grpc.RpcError):
            answer = client.updates.UploadUpdate(client.pieces(sealed), timeout=30).result.verdict
            if answer.answer != common_pb2.ANSWER_BUSY:
                assert answer.answer == common_pb2.ANSWER_ACCEPTED, answer
                return time.monotonic() - begin
            time.sleep(answer.retry_after_milliseconds / 1000)


def _half_sent(address: str, client: Client) -> Connection:
    """Begins an upload, sends its first piece and half of the second, and stays silent."""
    sealed = client.sender.seal(0)
    start, first, second = list(client.pieces(sealed, size=2**14))[:3]
    connection = Connection(address)
    connection.begin(_UPLOAD)
    for message in (start, first):
        _send(connection, message.SerializeToString())
    data = second.SerializeToString()
    _send(connection, data[: len(data) // 2], len(data))
    return connection


def _send(connection: Connection, data: bytes, length: int | None = None) -> None:
    whole = message_start(len(data) if length is None else length) + data
    for at in range(0, len(whole), 16_000):
        connection.send(frame(DATA, 0, 1, whole[at : at + 16_000]))


def _is_over(connection: Connection) -> bool:
    """Says whether the server has ended the call: trailers carry the field's name."""
    data, closed = connection.read(0.001)
    return closed or b"grpc-status" in data


async def _flood(address: str, seconds: float) -> dict[str, int]:
    """Submits junk as fast as answers come, with many calls in flight."""
    counts = {"answered": 0, "served": 0}
    end = time.monotonic() + seconds
    async with grpc.aio.insecure_channel(address) as channel:
        submit = updates_pb2_grpc.UpdateServiceStub(channel).SubmitUpdate
        header, payload = bytes(192), bytes(100_000)
        request = updates_pb2.SubmitUpdateRequest(
            caller=common_pb2.Caller(terms_digest=bytes(32), participant="flooder", session=1),
            header=header,
            payload=payload,
            crc32c=google_crc32c.value(header + payload),
        )

        async def one() -> None:
            while time.monotonic() < end:
                with contextlib.suppress(grpc.RpcError):
                    answer = await submit(request, timeout=10)
                    counts["answered"] += 1
                    counts["served"] += answer.verdict.answer != common_pb2.ANSWER_BUSY

        await asyncio.gather(*(one() for _ in range(_IN_FLIGHT)))
    return counts


def main() -> None:
    """Plays the whole scene, or floods for it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=75.0)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--flood", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.flood:
        print(json.dumps(asyncio.run(_flood(arguments.flood, arguments.seconds))))
        return
    runs = Path("runs")  # a real disk, and ignored by git
    runs.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=runs, prefix="hostile-") as root:
        scene = play(Path(root), silent=500, half_sent=200, seconds=arguments.seconds)
    for name, felt in (("before", scene.quiet), ("under attack", scene.attacked)):
        print(
            f"submit of 247 kB, {name}: median {1e3 * felt.median:.1f} ms, 95 % {1e3 * felt.p95:.1f}, "
            f"99 % {1e3 * felt.p99:.1f}, worst {1e3 * felt.worst:.1f}, {felt.count} submits"
        )
    print(
        f"upload in pieces under attack: {scene.upload_seconds:.1f} s\n"
        f"500 silent sockets: the last one closed after {scene.silent_closed_after:.1f} s\n"
        f"half-sent uploads: {scene.half_sent_closed} of {scene.half_sent} ended; "
        f"1 byte a second: ended after {scene.dribbler_closed_after:.1f} s\n"
        f"flood: {scene.flooded} answers, {scene.flood_served} of them were served, the others told to wait\n"
        f"server: {scene.memory_before:.0f} MiB before, {scene.memory_after:.0f} MiB at most, {scene.files} files"
    )
    if arguments.json:
        arguments.json.write_text(json.dumps(asdict(scene), indent=1) + "\n")
    if scene.attacked.median > 0.2 or scene.half_sent_closed < scene.half_sent:
        sys.exit("hostile: the good client waited too long, or an attacker was let be")


if __name__ == "__main__":
    main()
