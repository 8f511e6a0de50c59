"""Plants a bug in a copy of the tree and lets the simulator look for it: python -m tests.faults.planted.plant."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import click

from tests.faults.planted.bugs import BUGS, Bug

ROOT = Path(__file__).resolve().parents[3]
_ROOTS = ("protos", "accountant", "client", "server")
_MOST_SEEDS = 1000


def copy_tree(folder: Path) -> None:
    """Copies what the simulator runs."""
    for part in (*_ROOTS, "tests/faults/simulator", "tests/support"):
        shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))


def plant(bug: Bug, folder: Path) -> None:
    """Makes the replacement in a copy.

    Raises:
        ValueError: if the text to replace is not there exactly once: the bug has to be planted anew.
    """
    path = folder / bug.path
    text = path.read_text()
    if text.count(bug.old) != 1:
        raise ValueError(f"{bug.name}: expected its text once in {bug.path}, found it {text.count(bug.old)} times")
    path.write_text(text.replace(bug.old, bug.new))


def simulate(folder: Path, first: int, end: int) -> tuple[int, str] | None:
    """Runs seeds in a copy; returns the first that fails, and why; None when all promises were kept."""
    output = folder / "campaign.json"
    output.unlink(missing_ok=True)
    command = [sys.executable, "-m", "tests.faults.simulator", "--seeds", f"{first}:{end}", "--no-explain"]
    paths = [str(folder / part) for part in _ROOTS] + [str(folder)]
    done = subprocess.run(
        [*command, "--output", str(output)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        check=False,
    )
    if not output.exists():
        raise RuntimeError(f"the simulator did not run: {done.stderr[-2000:]}")
    failures = json.loads(output.read_text())["failures"]
    return (failures[0]["seed"], failures[0]["failure"]) if failures else None


def hunt(bug: Bug, first: int, end: int) -> tuple[int, str] | None:
    """Plants a bug in a copy of its own and runs seeds there; see `simulate`."""
    with tempfile.TemporaryDirectory() as name:
        copy_tree(Path(name))
        plant(bug, Path(name))
        return simulate(Path(name), first, end)


@click.command()
@click.option("--output", type=click.Path(path_type=Path), help="Write what was found here, as JSON.")
def main(output: Path | None) -> None:
    """Looks for every planted bug, from seed 0 on."""
    found = []
    for bug in BUGS:
        caught = hunt(bug, 0, _MOST_SEEDS)
        seeds = None if caught is None else caught[0] + 1
        found.append({"bug": bug.name, "where": bug.where, "seeds": seeds, "violation": caught and caught[1]})
        print(f"{'missed' if seeds is None else f'{seeds:5d} seeds'}  {bug.name}: {caught and caught[1]}", flush=True)
    if output is not None:
        output.write_text(json.dumps(found, indent=1) + "\n")
    raise SystemExit(any(one["seeds"] is None for one in found))


if __name__ == "__main__":
    main()
