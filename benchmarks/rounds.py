"""Whole rounds of five client processes, for models of every size, beside what carries the same bytes and does nothing.

Each size has two rows. `wire` is the server without receipts, hashes and checkpoints (see `wire_server`), and is held
against echoes of the same bytes: over gRPC, over plain sockets one after the other, and a copy in memory. `durable` is
the real server, and is held against the wire row plus the commits and hashes that it makes beside it.
"""

import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from hushgrad.v1 import terms_pb2, terms_pb2_grpc
from hushgrad.wire import terms as wire_terms

from benchmarks import crew as crew_module
from benchmarks import disk, federation, processes, raw_sockets
from benchmarks.crew import Crew
from benchmarks.federation import Plan
from benchmarks.harness import Bound, Record, Unmeasured

CLIENTS = 5
_VERIFIED_PARAMETERS = 61_706


@dataclass(frozen=True, slots=True)
class Mode:
    """One server under one set of terms.

    Attributes:
        is_durable: the real server, or the wire alone.
        publish_every: with 1 everybody waits for every version; else rounds run ahead by one less than this.
    """

    is_durable: bool
    publish_every: int = 1

    @property
    def name(self) -> str:
        """For tables."""
        kind = "durable" if self.is_durable else "wire"
        return kind if self.publish_every == 1 else f"{kind}, a version every {self.publish_every} rounds"


@dataclass(frozen=True, slots=True)
class Size:
    """How one size is measured.

    Attributes:
        parameters: d.
        rounds: in one block; a multiple of what is published.
        blocks: measured after one that warms up; 0: the first one counts.
        modes: what runs.
    """

    parameters: int
    rounds: int
    blocks: int
    modes: tuple[Mode, ...]


WIRE, DURABLE = Mode(False), Mode(True)
WIRE_TENTH, DURABLE_TENTH = Mode(False, 10), Mode(True, 10)

SIZES = (
    Size(69, 50, 9, (WIRE, DURABLE)),
    Size(61_706, 20, 7, (WIRE, DURABLE)),
    Size(10**6, 10, 5, (WIRE, WIRE_TENTH, DURABLE_TENTH)),
    Size(10**7, 3, 3, (WIRE,)),
    Size(10**7, 10, 2, (WIRE_TENTH, DURABLE_TENTH)),
    Size(5 * 10**7, 2, 1, (WIRE,)),
    Size(5 * 10**7, 10, 0, (WIRE_TENTH, DURABLE_TENTH)),
)

_REST_SECONDS = 0.004
"""About as long as the clients of a small model wait between rounds. Processors that rested take longer to answer: in a
row, the echoes of 276 bytes take half as long, less than gRPC can do, and from one run to the next twice as long."""

ECHOES_69 = 13.0
ECHOES_LARGE = 3.5
SERVER_CPU_MS = 2.0
DURABLE_FACTOR = 1.5


@dataclass(slots=True)
class Found:
    """What the blocks of one mode gave; seconds and CPU seconds of one round each."""

    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    client_cpu: list[float] = field(default_factory=list)
    submits: list[float] = field(default_factory=list)
    spreads: list[float] = field(default_factory=list)
    peak_bytes: int = 0
    busy: int = 0


@dataclass(slots=True)
class _Yardsticks:
    grpc: list[float] = field(default_factory=list)
    grpc_cpu: list[float] = field(default_factory=list)
    raw: list[float] = field(default_factory=list)
    in_a_row: list[float] = field(default_factory=list)
    copy: list[float] = field(default_factory=list)


def figures(sizes: tuple[Size, ...] = SIZES) -> Iterator[Bound | Record | Unmeasured]:
    """Measures every size; one that fails is reported and does not keep the others from being measured."""
    wire_seconds: dict[tuple[int, int], float] = {}
    for size in sizes:
        # Small ones run side by side, block by block. Large ones one after the other: they would fill the memory.
        groups = [size.modes] if size.parameters <= 10**6 else [(mode,) for mode in size.modes]
        for modes in groups:
            try:
                found, yardsticks = _measure(size, modes)
            except Exception as error:
                names = ", ".join(mode.name for mode in modes)
                yield Unmeasured(
                    f"rounds of {size.parameters:,} parameters ({names})", f"{type(error).__name__}: {error}"
                )
                continue
            for mode in modes:
                yield from _report(size, mode, found[mode], yardsticks, wire_seconds)


def _measure(size: Size, modes: tuple[Mode, ...]) -> tuple[dict[Mode, Found], _Yardsticks]:
    found, yardsticks = {mode: Found() for mode in modes}, _Yardsticks()
    payload_bytes = 4 * size.parameters
    with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".bench-") as name, ExitStack() as stack:
        folder = Path(name)
        crew = stack.enter_context(crew_module.hired(CLIENTS, folder / "clients.log"))
        servers = {mode: serve(stack, folder / f"mode-{at}", size, mode) for at, mode in enumerate(modes)}
        for mode, (address, _) in servers.items():
            crew.all("enter", mode=mode.name, address=address, short_hash=not mode.is_durable)
        bare, bare_pid = start_bare(stack, folder)
        crew.all("bare", address=bare, size=payload_bytes)
        raw = _start_raw(stack, folder, payload_bytes)
        source = np.zeros(payload_bytes, np.uint8)
        target = np.ones(payload_bytes, np.uint8)
        echoes = max(1, size.rounds // 3)
        blocks = range(1 - min(size.blocks, 1), size.blocks + 1) if size.blocks else range(1, 2)
        for block in blocks:
            for mode, (address, pid) in servers.items():
                crew.all("prepare", mode=mode.name, count=size.rounds)
                play(crew, mode, pid, size.rounds, found[mode] if block else Found())
                _ = address
            kept = yardsticks if block else _Yardsticks()
            before = processes.cpu_seconds(bare_pid)
            kept.grpc.append(crew.seconds("echo", count=echoes) / echoes)
            kept.grpc_cpu.append((processes.cpu_seconds(bare_pid) - before) / echoes)
            for _ in range(echoes):
                time.sleep(_REST_SECONDS)
                kept.raw.append(_seconds(raw))
                kept.in_a_row.append(_seconds(raw))
                kept.copy.append(_seconds(lambda: np.copyto(target, source)))
        raw.close()
        for mode, (address, pid) in servers.items():
            found[mode].peak_bytes = processes.peak_bytes(pid)
            if size.parameters <= _VERIFIED_PARAMETERS:
                _verify(address, crew, mode, size, rounds=size.rounds * len(blocks))
            found[mode].busy = sum(one["busy"] for one in crew.all("leave", mode=mode.name))
    return found, yardsticks


def serve(stack: ExitStack, folder: Path, size: Size, mode: Mode) -> tuple[str, int]:
    """Starts a server; returns its address and process."""
    command = federation.durable_server() if mode.is_durable else federation.wire_server()
    plan = Plan(
        parameters=size.parameters,
        # So many that the running average of the second half does not begin: memory is measured elsewhere.
        rounds=2 * size.rounds * (size.blocks + 2),
        delay=mode.publish_every - 1 or 1,
        publish_every=mode.publish_every,
        window=2 * mode.publish_every + 2,
    )
    config = federation.prepare(folder, plan, server=command, limits=LIMITS)
    address, log = processes.free_address(), folder / "server.log"
    server = stack.enter_context(processes.running([*command, "run", "--config", config, "--listen", address], log))
    processes.wait_until_serving(address, server, log)
    return address, server.pid


LIMITS = "upload_bytes_per_second = 1e10\ncalls_per_second = 1e5\n"
"""Limits of each client's pace would be measured in place of the server."""


def start_bare(stack: ExitStack, folder: Path) -> tuple[str, int]:
    address, log = processes.free_address(), folder / "bare.log"
    server = stack.enter_context(processes.running([processes.PYTHON, "-m", "benchmarks.bare_server", address], log))
    processes.wait_until_serving(address, server, log)
    return address, server.pid


def _start_raw(stack: ExitStack, folder: Path, payload_bytes: int) -> raw_sockets.RawEchoes:
    address, log = processes.free_address(), folder / "raw.log"
    server = stack.enter_context(processes.running([processes.PYTHON, "-m", "benchmarks.raw_sockets", address], log))
    processes.wait_until_listening(address, server, log)
    return raw_sockets.RawEchoes(address, payload_bytes, CLIENTS)


def play(crew: Crew, mode: Mode, pid: int, rounds: int, found: Found) -> None:
    before = processes.cpu_seconds(pid)
    answers = crew.all("play", mode=mode.name, count=rounds)
    found.cpu.append((processes.cpu_seconds(pid) - before) / rounds)
    began, ended = min(one["began"] for one in answers), max(one["ended"] for one in answers)
    found.wall.append((ended - began) / rounds)
    found.client_cpu.append(sum(one["cpu"] for one in answers) / rounds)
    found.submits += [seconds for one in answers for seconds in one["submits"]]
    arrivals = zip(*(one["arrivals"] for one in answers), strict=True)
    found.spreads += [max(times) - min(times) for times in arrivals]


def _verify(address: str, crew: Crew, mode: Mode, size: Size, *, rounds: int) -> None:
    """Compares the last model with what the updates add up to: a fast server that adds wrongly is no server."""
    import grpc

    with grpc.insecure_channel(address) as channel:
        answer = terms_pb2_grpc.TermsServiceStub(channel).GetTerms(terms_pb2.GetTermsRequest())
    expected = federation.expected_model(wire_terms.from_bytes(answer.terms), rounds)
    if bytes.fromhex(crew.one(0, "model", mode=mode.name)["model"]) != expected:
        raise RuntimeError(f"{mode.name}: the model of {size.parameters} parameters is not what the updates add up to")


def _report(
    size: Size,
    mode: Mode,
    found: Found,
    yardsticks: _Yardsticks,
    wire_seconds: dict[tuple[int, int], float],
) -> Iterator[Bound | Record]:
    wall, cpu = statistics.median(found.wall), statistics.fmean(found.cpu)
    raw, bare = statistics.median(yardsticks.raw), statistics.median(yardsticks.grpc)
    name = f"{mode.name}, {size.parameters:,} parameters"
    values: dict[str, float | int | str] = {
        "kind": "rounds",
        "parameters": size.parameters,
        "row": mode.name,
        "rounds_per_second": 1 / wall,
        "round_ms": wall * 1e3,
        "server_cpu_ms": cpu * 1e3,
        "clients_cpu_ms": statistics.fmean(found.client_cpu) * 1e3,
        "ingest_mb_per_second": CLIENTS * 4e-6 * size.parameters / wall,
        "submit_ms": statistics.median(found.submits) * 1e3,
        "fan_out_ms": statistics.median(found.spreads) * 1e3 if found.spreads else float("nan"),
        "peak_mib": found.peak_bytes / 2**20,
        "busy_answers": found.busy,
        "raw_echoes_ms": raw * 1e3,
        "raw_echoes_in_a_row_ms": statistics.median(yardsticks.in_a_row) * 1e3,
        "grpc_echoes_ms": bare * 1e3,
        "grpc_echoes_cpu_ms": statistics.fmean(yardsticks.grpc_cpu) * 1e3,
        "memcpy_ms": statistics.median(yardsticks.copy) * 1e3,
        "x_raw_echoes": wall / raw,
        "x_grpc_echoes": wall / bare,
    }
    if mode.is_durable:
        cost = disk.round_cost(size.parameters, CLIENTS, mode.publish_every)
        values |= {"commits_ms": cost.commits * 1e3, "hashes_ms": cost.hashes * 1e3, "write_ms": cost.writes * 1e3}
        yield Record(name, _without_nan(values))
        beside = wire_seconds.get((size.parameters, mode.publish_every))
        if beside is not None:
            bar = DURABLE_FACTOR * beside + cost.commits + cost.writes + cost.hashes
            yield Bound(f"{name}: a round, beside the wire, its commits and hashes", wall * 1e3, "ms", bar * 1e3)
        return
    wire_seconds[size.parameters, mode.publish_every] = wall
    yield Record(name, _without_nan(values))
    if size.parameters == 69:
        yield Bound(f"{name}: a round, in five raw echoes", wall / raw, "x", ECHOES_69)
        yield Bound(f"{name}: server CPU of a round", cpu * 1e3, "ms", SERVER_CPU_MS)
    if size.parameters == 10**7:
        yield Bound(f"{name}: a round, in five raw echoes", wall / raw, "x", ECHOES_LARGE)


def _without_nan(values: dict[str, float | int | str]) -> dict[str, float | str]:
    return {key: value for key, value in values.items() if value == value}


def _seconds(action: Any) -> float:
    began = time.perf_counter()
    action()
    return time.perf_counter() - began
