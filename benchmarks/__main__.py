"""Measures every figure, prints tables and writes a JSON file.

Ends with 1 when a figure could not be measured; a figure that misses its bar is shown and does not change the exit code
unless --strict is given, because a busy machine is no fault of the code.
"""

import argparse
import functools
import json
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks import (
    accounting,
    crowd,
    fanout,
    folding,
    harness,
    ingest,
    machine,
    memory,
    networks,
    noise,
    processes,
    resting,
    rounds,
    sealing,
    starting,
    training,
)
from benchmarks.harness import Bound, Record, Row, Unmeasured

GROUPS: dict[str, Callable[[], Iterable[harness.Figure | Unmeasured]]] = {
    "accounting": accounting.figures,
    "noise": noise.figures,
    "training": training.figures,
    "networks": networks.figures,
    "sealing": sealing.figures,
    "folding": folding.figures,
    "starting": starting.figures,
    "resting": resting.figures,
    "rounds": rounds.figures,
    "ingest": ingest.figures,
    "memory": memory.figures,
    "crowd": crowd.figures,
    "fanout": fanout.figures,
}
SETS = {
    "client": ("noise", "training", "networks", "sealing"),
    "server": ("resting", "rounds", "ingest", "memory", "crowd", "fanout"),
}

LARGEST = 10**7
"""Larger rounds take longer than all others together: they are measured when asked for."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("bench.json"), help="file to write (bench.json)")
    parser.add_argument("--strict", action="store_true", help="also fail when a figure misses its bar")
    parser.add_argument("--sizes", default="", help="of the rounds, as numbers of parameters")
    parser.add_argument(
        "--all-sizes", action="store_true", help="also rounds of 50,000,000 parameters: some minutes more"
    )
    parser.add_argument("groups", nargs="*", metavar="GROUP", help=f"of {', '.join((*GROUPS, *SETS))}; all without any")
    arguments = parser.parse_args()
    if unknown := set(arguments.groups) - set(GROUPS) - set(SETS):
        parser.error(f"no group {', '.join(sorted(unknown))}; there are {', '.join((*GROUPS, *SETS))}")
    every_size = {str(size.parameters) for size in rounds.SIZES}
    chosen = {str(size.parameters) for size in rounds.SIZES if size.parameters <= LARGEST or arguments.all_sizes}
    if arguments.sizes:
        chosen = set(arguments.sizes.split(","))
    if strange := chosen - every_size:
        parser.error(f"no size {', '.join(sorted(strange))}; there are {', '.join(sorted(every_size, key=int))}")
    sizes = tuple(size for size in rounds.SIZES if str(size.parameters) in chosen)
    groups = GROUPS | {"rounds": functools.partial(rounds.figures, sizes)}

    processes.tidy_when_told_to_stop()
    started = time.monotonic()
    console = Console(stderr=True)
    found: list[harness.Figure | Unmeasured] = []
    wanted = [group for name in arguments.groups or GROUPS for group in SETS.get(name, (name,))]
    before = machine.describe()
    for name in dict.fromkeys(wanted):
        console.print(f"[{time.monotonic() - started:4.0f} s] measuring {name}", markup=False)
        for one in harness.measure(name, groups[name]):
            found.append(one)
            if isinstance(one, Record):
                console.print(f"[{time.monotonic() - started:4.0f} s]   {one.name}", markup=False)
    measured = [one for one in found if not isinstance(one, Unmeasured)]
    missing = [one for one in found if isinstance(one, Unmeasured)]

    arguments.output.write_text(json.dumps(_document(before, measured, missing), indent=2) + "\n")
    paper = Console(width=None if sys.stdout.isatty() else 140)
    for table in _tables(measured):
        if table.row_count:
            paper.print(table)
    console.print(f"{len(measured)} figures in {time.monotonic() - started:.0f} s, written to {arguments.output}")
    for one in missing:
        console.print(f"NOT MEASURED {one.name}: {one.reason}", style="bold red", markup=False, soft_wrap=True)
    judged = [one for one in measured if not isinstance(one, Record)]
    failed = bool(missing) or not measured or (arguments.strict and not all(one.holds for one in judged))
    return 1 if failed else 0


def _document(before: dict[str, Any], measured: list[harness.Figure], missing: list[Unmeasured]) -> dict[str, Any]:
    def of(kind: type) -> list[dict[str, object]]:
        return [one.to_dict() for one in measured if isinstance(one, kind)]

    return {
        "machine": before,
        "version": machine.commit(),
        "ratios": of(Row),
        "bounds": of(Bound),
        "records": of(Record),
        "not_measured": [{"name": one.name, "reason": one.reason} for one in missing],
    }


def _tables(measured: list[harness.Figure]) -> Iterable[Table]:
    ratios = Table(
        "figure", "value", "against", "ratio", "bar", "holds", caption="ratio: ours / yardstick, less is better"
    )
    bounds = Table("figure", "value", "bar", "holds")
    columns = ("", "rounds/s", "round ms", "server CPU ms", "in MB/s", "peak MiB", "x 5 raw echoes", "x 5 gRPC echoes")
    played = Table(*columns, caption="rounds of five client processes; medians")
    others = Table("beside", "values")
    for one in measured:
        if isinstance(one, Row):
            ratios.add_row(
                one.name, f"{one.value:.4g} {one.unit}", one.against, f"{one.ratio:.3g}", f"{one.bar:.3g}", _holds(one)
            )
        elif isinstance(one, Bound):
            bounds.add_row(one.name, f"{one.value:.3g} {one.unit}", f"{one.sense} {one.bar:.3g}", _holds(one))
        elif one.values.get("kind") == "rounds":
            names = ("rounds_per_second", "round_ms", "server_cpu_ms", "ingest_mb_per_second", "peak_mib")
            numbers = [one.values[name] for name in (*names, "x_raw_echoes", "x_grpc_echoes")]
            played.add_row(one.name, *(f"{float(number):.3g}" for number in numbers))
        else:
            values = [f"{key} {value:.4g}" for key, value in one.values.items() if not isinstance(value, str)]
            others.add_row(one.name, ", ".join(values))
    return ratios, played, others, bounds


def _holds(one: Row | Bound) -> str:
    return "yes" if one.holds else "[bold red]no"


if __name__ == "__main__":
    sys.exit(main())
