"""`hushgrad reproduce`."""

import json
import os
from pathlib import Path

import click


@click.command()
@click.argument("name")
@click.option(
    "--seeds", type=click.IntRange(min=1), help="How many seeds, 1, 2, ...  [default: as the experiment says]"
)
@click.option("--jobs", type=click.IntRange(min=1), help="Simulated runs at the same time. [default: processors]")
@click.option(
    "--out", type=click.Path(file_okay=False, path_type=Path), default="runs/reproduce", show_default=True,
    help="Folder of the results; what is done there is not done again.",
)  # fmt: skip
@click.option("--quick", is_flag=True, help="One seed and a few rounds: shows that it works, and is no result.")
@click.option("--quiet", is_flag=True, help="Print no progress.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def command(name: str, seeds: int | None, jobs: int | None, out: Path, quick: bool, quiet: bool, as_json: bool) -> None:
    """Repeat NAME of the paper, and print our numbers beside its own.

    NAME is tables (2 to 5), figure1a to figure3c, figure4 to figure12, or beyond. MNIST and ijcnn1 are read from the
    folder HUSHGRAD_DATA.
    """
    from hushgrad.experiments.study import progress, reproduce, tables

    if quick and seeds is not None:
        raise click.UsageError("--quick makes one seed; leave --seeds out")

    with progress.shown(quiet=quiet or as_json or name == "tables") as tell:
        options = reproduce.Options(out, seeds, jobs or os.cpu_count() or 1, tell, quick)
        parts = reproduce.reproduce(name, options)
    if as_json:
        click.echo(json.dumps(reproduce.to_json(name, parts, quick=quick), indent=1))
        return
    if quick:
        click.echo(f"{reproduce.PARTIAL}.\n")
    for part in parts:
        click.echo(f"{part.title}\n\n{tables.markdown(part.header, part.body)}\n")
        for remark in part.remarks:
            click.echo(f"- {remark}")
        for picture in part.pictures:
            click.echo(f"- picture: {picture}")
        click.echo()
