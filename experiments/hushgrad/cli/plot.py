"""`hushgrad plot`."""

import json
from pathlib import Path

import click


@click.command()
@click.argument("runs", nargs=-1, type=click.Path(path_type=Path))
@click.option(
    "--frontier", "plans", type=click.Path(path_type=Path, dir_okay=False), multiple=True,
    help="What `hushgrad-accountant plan --json` wrote; several draw several lines.",
)  # fmt: skip
@click.option(
    "--out", type=click.Path(path_type=Path, dir_okay=False),
    help="Picture to write. [default: runs.png or frontier.png]",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def command(runs: tuple[Path, ...], plans: tuple[Path, ...], out: Path | None, as_json: bool) -> None:
    """Draw RUNS beside each other, or plans of the accountant.

    RUNS are runs/*.json files of experiments, or whole folders of results: accuracy by rounds, a line for each setting.
    With --frontier: noise against sample size, and noise left against bytes sent.
    """
    if bool(runs) == bool(plans):
        raise click.UsageError("name either RUNS or --frontier files")
    if runs:
        from hushgrad.experiments.study import report

        picture = out or Path("runs.png")
        labels = report.compare(picture, runs)
        click.echo(json.dumps({"picture": str(picture), "lines": labels}) if as_json else str(picture))
        return
    from hushgrad.experiments import frontier

    out = out or Path("frontier.png")
    read = [frontier.read(path) for path in plans]
    frontier.draw(out, read)
    click.echo(json.dumps({"picture": str(out), "lines": [line.label for line in read]}) if as_json else str(out))
