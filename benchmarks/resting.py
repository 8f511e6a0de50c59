"""What a server takes while nothing happens, and how soon it serves."""

import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks import crew as crew_module
from benchmarks import federation, processes, rounds
from benchmarks.federation import Plan
from benchmarks.harness import Bound

STARTS = 5
IDLE_SECONDS = 10.0
IDLE_PERCENT = 0.5
READY_SECONDS = 1.0


def figures() -> Iterator[Bound]:
    """Starts the real server some times, and leaves the last one alone with five clients that watch."""
    command, ready = federation.durable_server(), []
    with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".bench-") as name:
        folder = Path(name)
        config = federation.prepare(folder / "server", Plan(), server=command)
        log = folder / "server.log"
        for start in range(STARTS):
            address = processes.free_address()
            before = time.perf_counter()
            with processes.running([*command, "run", "--config", config, "--listen", address], log) as server:
                processes.wait_until_serving(address, server, log)
                ready.append(time.perf_counter() - before)
                if start == STARTS - 1:
                    with crew_module.hired(rounds.CLIENTS, folder / "clients.log") as crew:
                        crew.all("enter", mode="durable", address=address, short_hash=False)
                        time.sleep(1)
                        used = processes.cpu_seconds(server.pid)
                        time.sleep(IDLE_SECONDS)
                        idle = 100 * (processes.cpu_seconds(server.pid) - used) / IDLE_SECONDS
    yield Bound("server: from command to SERVING", statistics.median(ready), "s", READY_SECONDS)
    yield Bound("server: CPU while five clients watch and nothing happens", idle, "%", IDLE_PERCENT)
