"""How fast updates of ten million parameters come in, beside a gRPC stream of the same bytes that is thrown away.

One client uploads, the others are silent, so that no version is ever due: receiving, checking and adding, nothing else.
"""

import statistics
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from benchmarks import crew as crew_module
from benchmarks import federation, processes, rounds
from benchmarks.federation import Plan
from benchmarks.harness import Bound, Record

PARAMETERS = 10**7
UPLOADS = 15
BARS = {"without SHA-256": 75.0, "with SHA-256": 45.0}
"""Percent of the bare stream's throughput."""


def figures() -> Iterator[Bound | Record]:
    """Uploads in turn to both servers and to the bare one."""
    plan = Plan(parameters=PARAMETERS, rounds=200, delay=60, window=64)
    seconds: dict[str, list[float]] = {name: [] for name in ("bare", *BARS)}
    cpu: dict[str, list[float]] = {name: [] for name in ("bare", *BARS)}
    with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".bench-") as folder_name, ExitStack() as stack:
        folder = Path(folder_name)
        crew = stack.enter_context(crew_module.hired(1, folder / "client.log"))
        pids = {}
        for name in BARS:
            hashes = name == "with SHA-256"
            command = federation.wire_server(hashes=hashes)
            config = federation.prepare(folder / name.replace(" ", "-"), plan, server=command, limits=rounds.LIMITS)
            address, log = processes.free_address(), folder / f"{name}.log"
            server = stack.enter_context(
                processes.running([*command, "run", "--config", config, "--listen", address], log)
            )
            processes.wait_until_serving(address, server, log)
            pids[name] = server.pid
            crew.all("enter", mode=name, address=address, short_hash=not hashes)
            crew.all("prepare", mode=name, count=UPLOADS + 2)
        bare, pids["bare"] = rounds.start_bare(stack, folder)
        crew.all("bare", address=bare, size=4 * PARAMETERS)
        for repeat in range(UPLOADS + 2):
            for name, pid in pids.items():
                before = processes.cpu_seconds(pid)
                answer = crew.one(0, "sink" if name == "bare" else "hand over", mode=name)
                if repeat >= 2:
                    seconds[name].append(answer["ended"] - answer["began"])
                    cpu[name].append(processes.cpu_seconds(pid) - before)
    for name, bar in BARS.items():
        share = statistics.median(b / a for a, b in zip(seconds[name], seconds["bare"], strict=True))
        ours = statistics.median(seconds[name])
        yield Record(
            f"ingest {name}, {PARAMETERS:,} parameters",
            {
                "kind": "ingest",
                "mb_per_second": 4e-6 * PARAMETERS / ours,
                "upload_ms": ours * 1e3,
                "server_cpu_ms": statistics.fmean(cpu[name]) * 1e3,
                "bare_stream_ms": statistics.median(seconds["bare"]) * 1e3,
                "bare_stream_cpu_ms": statistics.fmean(cpu["bare"]) * 1e3,
            },
        )
        yield Bound(f"ingest {name}, in throughput of a bare stream of 1 MiB chunks", 100 * share, "%", bar, "at least")
