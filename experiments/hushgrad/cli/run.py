"""`hushgrad run`."""

import json
import os
from pathlib import Path
from typing import Any

import click


@click.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option(
    "--out", type=click.Path(file_okay=False, path_type=Path), help="Folder of the results. [default: runs/NAME]"
)
@click.option(
    "--backend", type=click.Choice(["simulate"]), default="simulate", show_default=True,
    help="In one process with seeded noise; as real processes on this machine; or on the hosts of --inventory.",
)  # fmt: skip
@click.option(
    "--inventory", type=click.Path(path_type=Path, dir_okay=False), help="With --backend hosts: who is where."
)
@click.option(
    "--jobs", type=click.IntRange(min=1), default=None, help="Simulated runs at the same time. [default: processors]"
)
@click.option("--shard", metavar="I/N", help="Only every N-th run, from the I-th on, for cluster job arrays.")
@click.option("--quiet", is_flag=True, help="Print no progress.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def command(
    file: Path,
    out: Path | None,
    backend: str,
    inventory: Path | None,
    jobs: int | None,
    shard: str | None,
    quiet: bool,
    as_json: bool,
) -> None:
    """Make all runs of an experiment FILE that are not done yet.

    An interrupted sweep goes on where it stopped. `hushgrad report FOLDER` makes tables and figures of the results.
    """
    from hushgrad.experiments.study import conduct, progress
    from hushgrad.experiments.study import file as experiment_file

    if (inventory is not None) != (backend == "hosts"):
        raise click.UsageError("--inventory goes with --backend hosts, and that needs it")
    experiment = experiment_file.load(file)
    folder = out or Path("runs") / experiment.name
    make: Any = None
    with progress.shown(quiet=quiet or as_json) as tell:
        made = conduct.conduct(
            experiment,
            folder,
            make=make,
            backend=backend,
            jobs=jobs or os.cpu_count() or 1,
            shard=shard,
            progress=tell,
        )
    if as_json:
        click.echo(json.dumps({"folder": str(folder), "runs_made": made}))
    else:
        click.echo(f"{made} runs made; the results are in {folder}")
