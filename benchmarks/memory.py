"""The most memory that the real server holds at its worst moment, and whether it grows."""

import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from benchmarks import crew as crew_module
from benchmarks import federation, harness, processes, rounds
from benchmarks.federation import Plan
from benchmarks.harness import Bound, Record, Unmeasured

PARAMETERS = 10**7
ROUNDS = 12
BASE_MIB = 60.0
BYTES_PER_PARAMETER = 32

GROWTH_PARAMETERS = 61_706
SETTLED_ROUNDS = 1000
"""Until then the heap grows by a tenth or so, whatever the server does: blocks of some 250 KB come and go on several
threads, and the C library's allocator takes that long to find its size. What Python holds does not grow."""
BLOCK_ROUNDS = 50
BLOCKS = 10
GROWTH_ROUNDS = 1000
GROWTH_PERCENT = 2.0


def figures() -> Iterator[harness.Figure | Unmeasured]:
    """Measures both."""
    yield from harness.measure("peak memory", _peak)
    yield from harness.measure("growth", _growth)


def _peak() -> Iterator[Bound]:
    """Five clients, delay 1, the running average on, a watcher that stopped in the middle of an older version."""
    plan = Plan(parameters=PARAMETERS, rounds=ROUNDS + 2, delay=1, window=4)
    with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".bench-") as name, ExitStack() as stack:
        folder = Path(name)
        crew, pid = _start(stack, folder, plan)
        half = ROUNDS // 2 + 2
        crew.all("prepare", mode="durable", count=half)
        crew.all("play", mode="durable", count=half)
        crew.one(0, "stop reading", mode="durable")
        crew.all("prepare", mode="durable", count=ROUNDS - half)
        crew.all("play", mode="durable", count=ROUNDS - half)
        peak = processes.peak_bytes(pid)
    bar = BASE_MIB + BYTES_PER_PARAMETER * PARAMETERS / 2**20
    yield Bound(
        f"peak memory, {PARAMETERS:,} parameters, 5 clients, averaging, a stalled watcher", peak / 2**20, "MiB", bar
    )


def _growth() -> Iterator[Bound | Record]:
    """Compares medians over some blocks: what the allocator holds moves by some percent from one to the next."""
    plan = Plan(parameters=GROWTH_PARAMETERS, rounds=2 * (SETTLED_ROUNDS + GROWTH_ROUNDS) + 2)
    with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".bench-") as name, ExitStack() as stack:
        crew, pid = _start(stack, Path(name), plan)
        held = []
        for _ in range((SETTLED_ROUNDS + GROWTH_ROUNDS) // BLOCK_ROUNDS):
            crew.all("prepare", mode="durable", count=BLOCK_ROUNDS)
            crew.all("play", mode="durable", count=BLOCK_ROUNDS)
            held.append(_settled(pid))
    settled = SETTLED_ROUNDS // BLOCK_ROUNDS
    first, last = statistics.median(held[settled - BLOCKS : settled]), statistics.median(held[-BLOCKS:])
    yield Record(
        f"memory over {SETTLED_ROUNDS + GROWTH_ROUNDS:,} rounds, {GROWTH_PARAMETERS:,} parameters",
        {
            "kind": "memory",
            "after_50_rounds_mib": held[0] / 2**20,
            "after_1000_rounds_mib": first / 2**20,
            "after_2000_rounds_mib": last / 2**20,
            "largest_mib": max(held) / 2**20,
        },
    )
    yield Bound(
        f"growth of memory in {GROWTH_ROUNDS:,} rounds after {SETTLED_ROUNDS:,}, {GROWTH_PARAMETERS:,} parameters",
        100 * (last / first - 1),
        "%",
        GROWTH_PERCENT,
    )


def _settled(pid: int) -> float:
    samples = []
    for _ in range(5):
        time.sleep(0.01)
        samples.append(processes.resident_bytes(pid))
    return statistics.median(samples)


def _start(stack: ExitStack, folder: Path, plan: Plan) -> tuple[crew_module.Crew, int]:
    command = federation.durable_server()
    config = federation.prepare(folder / "server", plan, server=command, limits=rounds.LIMITS)
    address, log = processes.free_address(), folder / "server.log"
    server = stack.enter_context(processes.running([*command, "run", "--config", config, "--listen", address], log))
    processes.wait_until_serving(address, server, log)
    crew = stack.enter_context(crew_module.hired(plan.participants, folder / "clients.log"))
    crew.all("enter", mode="durable", address=address, short_hash=False)
    return crew, server.pid
