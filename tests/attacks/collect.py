"""Runs one attack many times and writes the scores: python -m tests.attacks.collect. A planted bug is a changed tree.

The parent process puts a tree in front of the path; everything of ours is imported from there.
"""

import json
import time
from dataclasses import asdict
from pathlib import Path

import click
import numpy as np
import numpy.typing as npt

from tests.attacks import pipeline
from tests.attacks.attacks import BY_NAME, Attack
from tests.attacks.bounds import Claimed

RUNS_PER_LEDGER = 90
"""Runs at delta 0.01 that fit into a ledger's lifetime."""


def collect(attack: Attack, *, runs: int, seconds: float) -> tuple[npt.NDArray[np.float64], Claimed]:
    """Returns the scores of runs of both data sets, shape (2, n), and the claim.

    Args:
        attack: which.
        runs: n, at most.
        seconds: of processor time, after which no further run begins: what others do meanwhile costs no runs.
    """
    deadline = time.process_time() + seconds
    with (
        pipeline.client(attack.world, attack.first) as first,
        pipeline.client(attack.world, attack.second) as second,
    ):
        claimed = first.claimed()
        if attack.offers:
            assert attack.world.lifetime is not None
            claimed = Claimed(*attack.world.lifetime, claimed.adjacency, claimed.sampling, ())
        found: list[tuple[float, float]] = []
        while len(found) < runs and time.process_time() < deadline:
            # In turn, so that whatever the machine does meanwhile happens to both.
            found.append((_score(attack, first, len(found)), _score(attack, second, len(found))))
    return np.array(found).T, claimed


def _score(attack: Attack, client: pipeline.Client, number: int) -> float:
    if attack.offers:
        return attack.score(pipeline.accepted(client, attack.offers), attack.world)
    if number % RUNS_PER_LEDGER == 0:
        client.life()
    return attack.score([client.run(ask_the_budget=False)], attack.world)


@click.command()
@click.argument("name", type=click.Choice(list(BY_NAME)))
@click.option("--runs", type=int, default=10**6)
@click.option("--seconds", type=float, required=True)
@click.option("--output", type=click.Path(path_type=Path), required=True)
def main(name: str, runs: int, seconds: float, output: Path) -> None:
    """Writes the scores of one attack, and the claim, into an .npz file."""
    scores, claimed = collect(BY_NAME[name], runs=runs, seconds=seconds)
    np.savez(output, scores=scores, claimed=json.dumps(asdict(claimed)))


if __name__ == "__main__":
    main()
