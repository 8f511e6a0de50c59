"""How soon a thousand watchers have a version, while another federation on the same cores takes a large update.

From the moment the last update is sent, so that its receipt, its addition and the checkpoint are in the figure, to the
moment the last watcher has all bytes of the version.
"""

import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from benchmarks import crew as crew_module
from benchmarks import federation, processes, rounds
from benchmarks.federation import Plan
from benchmarks.harness import Bound, Record

WATCHERS = 1000
PROCESSES = 4
PARAMETERS = 2500
NEIGHBOUR_PARAMETERS = 10**7
REPEATS = 9
SECONDS = 0.3
_HEAD_START_SECONDS = 0.03


def figures() -> Iterator[Bound | Record]:
    """Publishes versions to them, alone and beside an upload of 40 MB with its checkpoint."""
    with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".bench-") as name, ExitStack() as stack:
        folder = Path(name)
        sender, pid = _federation(stack, folder / "small", PARAMETERS)
        neighbour, _ = _federation(stack, folder / "large", NEIGHBOUR_PARAMETERS)
        watchers = stack.enter_context(
            crew_module.hired(PROCESSES, folder / "watchers.log", module="benchmarks.crowd_worker")
        )
        watchers.all("watch", address=sender.address, each=WATCHERS // PROCESSES)
        alone: list[float] = []
        beside: list[float] = []
        spread, cpu = [], []
        for repeat in range(2 * REPEATS + 2):
            is_beside = repeat % 2 == 1
            if is_beside:
                neighbour.crew.begin(0, "play", mode="durable", count=1)
                time.sleep(_HEAD_START_SECONDS)
            before = processes.cpu_seconds(pid)
            sent = sender.crew.one(0, "hand over", mode="durable")
            answers = watchers.all("arrived", version=repeat + 1)
            used = processes.cpu_seconds(pid) - before
            if is_beside:
                neighbour.crew.finish(0)
            times = [at for one in answers for at in one["arrived"]]
            if repeat < 2:
                continue  # they warm up
            (beside if is_beside else alone).append(max(times) - sent["began"])
            if is_beside:
                spread.append(max(times) - min(times))
                cpu.append(used)
        peak = processes.peak_bytes(pid)
    yield Record(
        f"{WATCHERS:,} watchers of {4 * PARAMETERS / 1000:g} kB",
        {
            "kind": "fan-out",
            "last_has_it_ms": statistics.median(beside) * 1e3,
            "slowest_of_all_ms": max(beside) * 1e3,
            "first_to_last_ms": statistics.median(spread) * 1e3,
            "alone_ms": statistics.median(alone) * 1e3,
            "server_cpu_us_per_watcher": statistics.fmean(cpu) / WATCHERS * 1e6,
            "peak_mib": peak / 2**20,
        },
    )
    yield Bound(
        f"{WATCHERS:,} watchers of {4 * PARAMETERS / 1000:g} kB: all have it, beside a 40 MB upload and its checkpoint",
        statistics.median(beside),
        "s",
        SECONDS,
    )


class _Federation:
    """A server with one participant."""

    def __init__(self, address: str, crew: crew_module.Crew) -> None:
        self.address = address
        self.crew = crew


def _federation(stack: ExitStack, folder: Path, parameters: int) -> tuple[_Federation, int]:
    plan = Plan(parameters=parameters, participants=1, rounds=4 * REPEATS + 20)
    command = federation.durable_server()
    config = federation.prepare(folder, plan, server=command, limits=rounds.LIMITS)
    address, log = processes.free_address(), folder / "server.log"
    server = stack.enter_context(processes.running([*command, "run", "--config", config, "--listen", address], log))
    processes.wait_until_serving(address, server, log)
    crew = stack.enter_context(crew_module.hired(1, folder / "client.log"))
    crew.all("enter", mode="durable", address=address, short_hash=False)
    crew.all("prepare", mode="durable", count=2 * REPEATS + 2)
    return _Federation(address, crew), server.pid
