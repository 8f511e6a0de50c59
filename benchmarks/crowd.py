"""Five hundred clients of a small model at once: rounds, what an update costs, and how long the slowest waits."""

import statistics
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from benchmarks import crew as crew_module
from benchmarks import federation, processes, rounds
from benchmarks.federation import Plan
from benchmarks.harness import Bound, Record

CLIENTS = 500
PROCESSES = 5
BLOCK_ROUNDS = 5
BLOCKS = 6

ROUNDS_PER_SECOND = 3.0
CPU_MICROSECONDS = 450.0
TAIL = 3.0
PEAK_MIB = 150.0


def figures() -> Iterator[Bound | Record]:
    """Lets them play with the real server, then with the wire alone."""
    for is_durable in (True, False):
        yield from _play(is_durable)


def _play(is_durable: bool) -> Iterator[Bound | Record]:
    plan = Plan(participants=CLIENTS, rounds=2 * BLOCK_ROUNDS * (BLOCKS + 2))
    wall, cpu, submits, clients_cpu = [], [], [], []
    command = federation.durable_server() if is_durable else federation.wire_server(hashes=True)
    with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".bench-") as name, ExitStack() as stack:
        folder = Path(name)
        config = federation.prepare(folder / "server", plan, server=command, limits=rounds.LIMITS)
        address, log = processes.free_address(), folder / "server.log"
        server = stack.enter_context(processes.running([*command, "run", "--config", config, "--listen", address], log))
        processes.wait_until_serving(address, server, log)
        crew = stack.enter_context(
            crew_module.hired(PROCESSES, folder / "clients.log", module="benchmarks.crowd_worker")
        )
        crew.all("enter", address=address, each=CLIENTS // PROCESSES)
        for block in range(BLOCKS + 1):
            crew.all("prepare", count=BLOCK_ROUNDS)
            before = processes.cpu_seconds(server.pid)
            answers = crew.all("play")
            if block == 0:
                continue  # it warms up
            cpu.append((processes.cpu_seconds(server.pid) - before) / (BLOCK_ROUNDS * CLIENTS))
            began, ended = min(one["began"] for one in answers), max(one["ended"] for one in answers)
            wall.append((ended - began) / BLOCK_ROUNDS)
            submits += [seconds for one in answers for seconds in one["submits"]]
            clients_cpu.append(sum(one["cpu"] for one in answers) / (BLOCK_ROUNDS * CLIENTS))
        peak = processes.peak_bytes(server.pid)
        busy = sum(one["busy"] for one in crew.all("leave"))
    rate, per_update = 1 / statistics.median(wall), statistics.fmean(cpu) * 1e6
    median = statistics.median(submits)
    tail = statistics.quantiles(submits, n=100)[98]
    row = f"{CLIENTS} clients, 69 parameters, {'durable' if is_durable else 'wire'}"
    yield Record(
        row,
        {
            "kind": "crowd",
            "rounds_per_second": rate,
            "server_cpu_us_per_update": per_update,
            "clients_cpu_us_per_update": statistics.fmean(clients_cpu) * 1e6,
            "submit_median_ms": median * 1e3,
            "submit_p99_ms": tail * 1e3,
            "peak_mib": peak / 2**20,
            "busy_answers": busy,
        },
    )
    if is_durable:
        yield Bound(f"{row}: rounds", rate, "/s", ROUNDS_PER_SECOND, "at least")
        yield Bound(f"{row}: server CPU of an update", per_update, "us", CPU_MICROSECONDS)
        yield Bound(f"{row}: p99 of a submit, in medians", tail / median, "x", TAIL)
        yield Bound(f"{row}: peak memory", peak / 2**20, "MiB", PEAK_MIB)
