"""`hushgrad plot`."""

import json
from pathlib import Path

import click


@click.command()
@click.option(
    "--frontier", "plans", type=click.Path(path_type=Path, dir_okay=False), multiple=True, required=True,
    help="What `hushgrad-accountant plan --json` wrote; several draw several lines.",
)  # fmt: skip
@click.option(
    "--out", type=click.Path(path_type=Path, dir_okay=False), default="frontier.png", show_default=True,
    help="Picture to write.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def command(plans: tuple[Path, ...], out: Path, as_json: bool) -> None:
    """Draw plans of the accountant: noise against sample size, and noise left against bytes sent."""
    from hushgrad.experiments import frontier

    read = [frontier.read(path) for path in plans]
    frontier.draw(out, read)
    click.echo(json.dumps({"picture": str(out), "lines": [line.label for line in read]}) if as_json else str(out))
