"""The same rounds with other systems: five client processes hand over arrays of one size and get a model back.

Every system runs in an environment of its own as its documentation starts it, without training; ours runs right before
and right after it on the same machine, and the ratio of the two is what is told. Writes bench-peers.json. A system that
cannot run or does not finish in its time is told as such.

Usage: python -m benchmarks.peers [--sizes 69,61706] [--systems flower-1.17,flower,flare] [--output FILE]
"""

import argparse
import json
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import crew as crew_module
from benchmarks import harness, machine, processes, rounds, systems
from benchmarks.harness import Bound
from benchmarks.rounds import DURABLE, WIRE, Mode
from benchmarks.systems import NAMES, Run


@dataclass(frozen=True, slots=True)
class Effort:
    """How much is done for one size.

    Attributes:
        ours: rounds of ours in one block.
        pairs: runs of Flower 1.17, each between two blocks of ours.
        rounds: by system.
        limit_seconds: for one run of a system.
    """

    ours: int
    pairs: int
    rounds: dict[str, int]
    limit_seconds: float = 150.0


EFFORTS = {
    69: Effort(100, 3, {"flower-1.17": 60, "flower": 3, "flare": 5}),
    61_706: Effort(50, 3, {"flower-1.17": 40, "flower": 3, "flare": 5}),
    10**6: Effort(10, 3, {"flower-1.17": 15, "flower": 3, "flare": 5}),
    10**7: Effort(4, 3, {"flower-1.17": 5, "flower": 2, "flare": 4}),
    5 * 10**7: Effort(2, 1, {"flower-1.17": 3, "flower": 2, "flare": 3}),
}
BARS = {69: 4.0, 61_706: 2.5, 10**6: 2.5, 10**7: 5.0}
"""How many times the rounds per second of Flower 1.17 the wire row must reach."""


class _Ours:
    """Our servers at one size, with five clients that wait to be told to play."""

    def __init__(self, stack: ExitStack, parameters: int, effort: Effort, blocks: int) -> None:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".bench-")))
        # At the largest size ours waits beside the other system in the same memory: one server must do.
        modes = (WIRE, DURABLE) if parameters <= 10**7 else (WIRE,)
        self._crew = stack.enter_context(crew_module.hired(rounds.CLIENTS, folder / "clients.log"))
        self._effort = effort
        self._pids: dict[Mode, int] = {}
        size = rounds.Size(parameters, effort.ours, blocks, modes)
        for at, mode in enumerate(modes):
            address, self._pids[mode] = rounds.serve(stack, folder / f"mode-{at}", size, mode)
            self._crew.all("enter", mode=mode.name, address=address, short_hash=not mode.is_durable)
        self.found: dict[Mode, list[rounds.Found]] = {mode: [] for mode in modes}
        self.block()
        self.found = {mode: [] for mode in modes}  # that one warmed up

    def block(self) -> dict[Mode, float]:
        """Plays one block with each server; returns the seconds of a round."""
        for mode, pid in self._pids.items():
            self._crew.all("prepare", mode=mode.name, count=self._effort.ours)
            found = rounds.Found()
            rounds.play(self._crew, mode, pid, self._effort.ours, found)
            found.peak_bytes = processes.peak_bytes(pid)
            self.found[mode].append(found)
        return {mode: found[-1].wall[0] for mode, found in self.found.items()}


def measure(parameters: int, effort: Effort, chosen: list[str], say: Callable[[str], None]) -> dict[str, Any]:
    """Measures one size with ours and with all systems."""
    plan = [system for system in chosen for _ in range(effort.pairs if system == "flower-1.17" else 1)]
    ratios: dict[str, dict[Mode, list[float]]] = {}
    runs: dict[str, list[Run]] = {}
    with ExitStack() as stack:
        ours = _Ours(stack, parameters, effort, len(plan) + 2)
        before = ours.block()
        for system in plan:
            say(f"{NAMES[system]}, {parameters:,} parameters")
            run = systems.run(system, parameters, effort.rounds[system], effort.limit_seconds)
            runs.setdefault(system, []).append(run)
            after = ours.block()
            if run.round_seconds:
                theirs = statistics.median(run.round_seconds)
                for mode, seconds in after.items():
                    beside = (before[mode] + seconds) / 2
                    ratios.setdefault(system, {}).setdefault(mode, []).append(theirs / beside)
            before = after
    rows = [_our_row(mode, found, parameters) for mode, found in ours.found.items()]
    rows += [_their_row(system, runs[system], ratios.get(system, {}), parameters) for system in dict.fromkeys(plan)]
    return {"parameters": parameters, "rows": rows}


def _our_row(mode: Mode, found: list[rounds.Found], parameters: int) -> dict[str, Any]:
    wall = statistics.median(one.wall[0] for one in found)
    return harness.rounded(
        {
            "system": f"hushgrad, {mode.name}",
            "rounds_per_second": 1 / wall,
            "round_ms": wall * 1e3,
            "server_cpu_ms": statistics.fmean(one.cpu[0] for one in found) * 1e3,
            "server_peak_mib": max(one.peak_bytes for one in found) / 2**20,
            "payload_mb_per_second": 2 * rounds.CLIENTS * 4e-6 * parameters / wall,
            "rounds": sum(len(one.submits) for one in found) // rounds.CLIENTS,
        }
    )


def _their_row(system: str, runs: list[Run], ratios: dict[Mode, list[float]], parameters: int) -> dict[str, Any]:
    row: dict[str, Any] = {"system": NAMES[system], "version": systems.version(system)}
    reasons = [run.reason for run in runs if run.reason]
    seconds = [one for run in runs for one in run.round_seconds]
    if reasons:
        row["not_finished"] = reasons[0]
    if not seconds:
        return row
    wall = statistics.median(seconds)
    row |= {
        "rounds_per_second": 1 / wall,
        "round_ms": wall * 1e3,
        "server_cpu_ms": statistics.fmean(run.cpu_seconds for run in runs) * 1e3,
        "server_peak_mib": max(run.peak_bytes for run in runs) / 2**20,
        "payload_mb_per_second": 2 * rounds.CLIENTS * 4e-6 * parameters / wall,
        "first_round_seconds": statistics.median(run.first_round_seconds for run in runs),
        "rounds": len(seconds),
    }
    row |= {f"x_{mode.name}": statistics.median(found) for mode, found in ratios.items()}
    row |= {f"x_{mode.name}_pairs": [float(f"{one:.3g}") for one in found] for mode, found in ratios.items()}
    return harness.rounded({key: value for key, value in row.items() if value == value})


def bounds(sizes: list[dict[str, Any]]) -> Iterator[Bound]:
    """Judges the ratios that there are bars for."""
    for size in sizes:
        bar = BARS.get(size["parameters"])
        for row in size["rows"]:
            if bar is not None and row["system"] == NAMES["flower-1.17"] and "x_wire" in row:
                name = f"{size['parameters']:,} parameters: rounds per second, wire, beside Flower {row['version']}"
                yield Bound(name, row["x_wire"], "x", bar, "at least")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__)
    parser.add_argument("--sizes", default=",".join(map(str, EFFORTS)), help="numbers of parameters")
    parser.add_argument("--systems", default=",".join(NAMES), help=f"of {', '.join(NAMES)}")
    parser.add_argument("--output", type=Path, default=Path("bench-peers.json"))
    arguments = parser.parse_args()
    wanted = arguments.systems.split(",")
    if unknown := set(wanted) - set(NAMES):
        parser.error(f"no system {', '.join(sorted(unknown))}; there are {', '.join(NAMES)}")
    try:
        chosen = {int(size): EFFORTS[int(size)] for size in arguments.sizes.split(",")}
    except (KeyError, ValueError):
        parser.error(f"--sizes must be of {', '.join(map(str, EFFORTS))}, found {arguments.sizes}")
    if missing := [system for system in wanted if not systems.version(system)]:
        parser.error(f"no environment for {', '.join(missing)}; run `make peers-env`")
    processes.tidy_when_told_to_stop()
    began = time.monotonic()

    def say(what: str) -> None:
        print(f"[{time.monotonic() - began:4.0f} s] {what}", file=sys.stderr, flush=True)

    described = machine.describe()
    sizes: list[dict[str, Any]] = []
    for parameters, effort in chosen.items():
        say(f"ours, {parameters:,} parameters")
        try:
            sizes.append(measure(parameters, effort, wanted, say))
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            sizes.append({"parameters": parameters, "rows": [{"system": "hushgrad", "not_finished": reason}]})
        found = list(bounds(sizes))
        written = {
            "machine": described,
            "versions": {"hushgrad": machine.commit(), "python": platform.python_version()}
            | {NAMES[system]: systems.version(system) for system in wanted},
            "sizes": sizes,
            "bounds": [bound.to_dict() for bound in found],
        }
        arguments.output.write_text(json.dumps(written, indent=2) + "\n")
    for size in sizes:
        for row in size["rows"]:
            what = row.get("not_finished", "")
            rate = f"{row['rounds_per_second']:>9.4g} rounds/s" if "rounds_per_second" in row else "        - "
            beside = f", {row['x_wire']:.3g} times ours on the wire" if "x_wire" in row else ""
            print(f"{size['parameters']:>11,}  {row['system']:<26} {rate}{beside} {what}")
    for bound in found:
        print(f"{'pass' if bound.holds else 'MISS'}  {bound.name}: {bound.value:.3g}, bar {bound.sense} {bound.bar:g}")
    say(f"written to {arguments.output}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
