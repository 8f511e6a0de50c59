"""The audit: python -m tests.attacks. Prints a table, writes audit.json and audit.png, exits 1 if something is not so.

Every attack runs against the client as it is, and against a copy of the tree with one planted bug. For the first the
bounds must stay below the claim, for the second one must be above it.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
from hushgrad.accountant.claims import RoundGroup

from tests.attacks import bounds, digits, picture, planted
from tests.attacks.attacks import ATTACKS
from tests.attacks.bounds import Claimed
from tests.faults.planted import plant
from tests.faults.planted.bugs import Bug

_OVERHEAD_SECONDS = 7.0
"""Of each job: starting a process, claims, bounds."""

_BUG_WEIGHTS = {"budget re-initialised": 3.0, "rounding not charged": 2.0}
"""Their runs take longest, and they show least; 0.6 for the others."""


@dataclass(frozen=True, slots=True)
class Job:
    """One row of the table: an attack, and the bug that is planted meanwhile, if any."""

    attack: str
    bug: Bug | None
    weight: float


def jobs() -> list[Job]:
    """Returns all rows: every attack against the client as it is, then every bug with the attack that catches it."""
    sound = [Job(attack.name, None, attack.weight) for attack in ATTACKS]
    return sound + [Job(attack, bug, _BUG_WEIGHTS.get(bug.name, 0.6)) for bug, attack in planted.BUGS.items()]


def perform(job: Job, seconds: float, folder: Path, *, runs: int = 10**6, in_family: bool = True) -> dict[str, Any]:
    """Runs one job in a process of its own, for so many seconds of processor time or runs; returns its row."""
    root = plant.ROOT
    if job.bug is not None:
        root = folder / "tree"
        root.mkdir(parents=True)
        planted.tree(job.bug, root)
    folder.mkdir(parents=True, exist_ok=True)
    output = folder / "scores.npz"
    paths = [str(root / part) for part in ("protos", "accountant", "client", "server", "experiments", ".")]
    command = [sys.executable, "-m", "tests.attacks.collect", job.attack]
    started = time.monotonic()
    done = subprocess.run(
        [*command, "--seconds", str(seconds), "--runs", str(runs), "--output", str(output)],
        cwd=root,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{job.attack}: the client did not run: {done.stderr[-3000:]}")
    with np.load(output) as file:
        scores, document = file["scores"], json.loads(str(file["claimed"]))
    groups = tuple(RoundGroup(**group) for group in document.pop("groups"))
    claimed = Claimed(groups=groups, **document)
    verdict = bounds.judge(*scores, claimed, in_family=in_family)
    return {
        "attack": job.attack,
        "bug": None if job.bug is None else job.bug.name,
        "as_expected": verdict.broken == (job.bug is not None),
        "broken": verdict.broken,
        "delta": claimed.delta,
        "adjacency": claimed.adjacency,
        "sampling": claimed.sampling,
        **asdict(verdict),
        "seconds": round(time.monotonic() - started, 1),
    }


def perform_all(minutes: float, workers: int) -> Iterator[dict[str, Any]]:
    """Yields the rows of all jobs, in order; together they take about so many minutes."""
    listed = jobs()
    left = max(0.0, 60 * minutes * workers - _OVERHEAD_SECONDS * len(listed))
    unit = left / sum(job.weight for job in listed)
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(workers) as pool:
        yield from pool.map(
            lambda item: perform(item[1], max(2.0, unit * item[1].weight), Path(folder) / str(item[0])),
            enumerate(listed),
        )


def line(row: dict[str, Any]) -> str:
    """Returns one row as text."""
    what = row["bug"] or "as it is"
    return (
        f"{what:34} {row['attack']:32} {row['claimed']:7.3f} {_number(row['any'])} {_number(row['any_cap'])} "
        f"{_number(row['family'])} {_number(row['family_cap'])} {row['runs']:8d}  "
        f"{'above' if row['broken'] else 'below'}{_complaint(row)}"
    )


def _complaint(row: dict[str, Any]) -> str:
    if row["as_expected"]:
        return ""
    too_few = "" if row["any_cap"] > row["claimed"] else " (too few runs to show it)"
    return f"  <-- not as it should be{too_few}"


def _number(value: float) -> str:
    return "      -" if np.isnan(value) else f"{value:7.3f}"


HEADING = (
    f"{'client':34} {'attack':32} {'claim':>7} {'any':>7} {'(most)':>7} {'family':>7} {'(most)':>7} {'runs':>8}  bounds"
)


def _clean(value: Any) -> Any:
    """JSON has neither NaN nor infinity."""
    return None if isinstance(value, float) and np.isnan(value) else "inf" if value == np.inf else value


@click.command()
@click.option("--minutes", default=10.0, show_default=True, help="How long it may take on processors of its own.")
@click.option("--workers", default=2, show_default=True, help="Processes at a time.")
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), default=".", help="Folder of the results.")
def main(minutes: float, workers: int, out: Path) -> None:
    """Audits the client."""
    out.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    print(
        f"Epsilon at delta {ATTACKS[0].world.delta:g}: what is claimed, and what must be spent at least, by two bounds,"
    )
    print(
        f"each wrong with probability {bounds.ALARM:g}; (most): if no guess had been wrong. docs/privacy.md explains.\n"
    )
    print(HEADING)
    rows = []
    for row in perform_all(minutes, workers):
        print(line(row), flush=True)
        rows.append(row)
    print("\nDigits of the noise: how often a release is proven to come from another data set\n")
    findings = digits.findings()
    for finding in findings:
        print(digits.line(finding))
    document = {
        "commit": _commit(),
        "alarm": bounds.ALARM,
        "minutes": round((time.monotonic() - started) / 60, 1),
        "rows": [{key: _clean(value) for key, value in row.items()} for row in rows],
        "digits": [asdict(finding) for finding in findings],
    }
    (out / "audit.json").write_text(json.dumps(document, indent=1) + "\n")
    picture.draw(rows, out / "audit.png")
    wrong = [row for row in rows if not row["as_expected"]] + [one for one in findings if not one.as_expected]
    print(f"\n{len(rows) + len(findings) - len(wrong)} of {len(rows) + len(findings)} as they should be; ", end="")
    print(f"{document['minutes']} minutes; audit.json and audit.png are in {out}")
    raise SystemExit(bool(wrong))


def _commit() -> str:
    asked: Sequence[str] = ("git", "describe", "--always", "--dirty", "--abbrev=12")
    done = subprocess.run(asked, cwd=plant.ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


if __name__ == "__main__":
    main()
