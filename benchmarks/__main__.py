"""Measures every figure, prints a table and writes a JSON file.

Ends with 1 when a figure could not be measured; a figure that misses its bar is shown and does not change the exit code
unless --strict is given, because a busy machine is no fault of the code.
"""

import argparse
import json
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks import accounting, folding, harness, networks, noise, sealing, serving, starting, training
from benchmarks.harness import Row, Unmeasured

GROUPS = {
    "accounting": accounting.figures,
    "noise": noise.figures,
    "training": training.figures,
    "networks": networks.figures,
    "sealing": sealing.figures,
    "folding": folding.figures,
    "serving": serving.figures,
    "starting": starting.figures,
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("bench.json"), help="file to write (bench.json)")
    parser.add_argument("--strict", action="store_true", help="also fail when a figure misses its bar")
    parser.add_argument("groups", nargs="*", metavar="GROUP", help=f"of {', '.join(GROUPS)}; all without any")
    arguments = parser.parse_args()
    if unknown := set(arguments.groups) - set(GROUPS):
        parser.error(f"no group {', '.join(sorted(unknown))}; there are {', '.join(GROUPS)}")

    started = time.monotonic()
    console = Console(stderr=True)
    found: list[Row | Unmeasured] = []
    for name in arguments.groups or GROUPS:
        console.print(f"measuring {name}")
        found += harness.measure(name, GROUPS[name])
    rows = [row for row in found if isinstance(row, Row)]
    missing = [row for row in found if isinstance(row, Unmeasured)]

    arguments.output.write_text(json.dumps([row.to_dict() for row in rows], indent=2) + "\n")
    Console(width=None if sys.stdout.isatty() else 140).print(_table(rows))
    console.print(f"{len(rows)} figures in {time.monotonic() - started:.0f} s, written to {arguments.output}")
    for row in missing:
        console.print(f"NOT MEASURED {row.name}: {row.reason}", style="bold red", markup=False, soft_wrap=True)
    failed = bool(missing) or not rows or (arguments.strict and not all(row.holds for row in rows))
    return 1 if failed else 0


def _table(rows: list[Row]) -> Table:
    table = Table(
        "figure", "value", "against", "ratio", "bar", "holds", caption="ratio: ours / yardstick, less is better"
    )
    for row in rows:
        holds = "yes" if row.holds else "[bold red]no"
        table.add_row(row.name, f"{row.value:.4g} {row.unit}", row.against, f"{row.ratio:.3g}", f"{row.bar:.3g}", holds)
    return table


if __name__ == "__main__":
    sys.exit(main())
