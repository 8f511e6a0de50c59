"""`hushgrad report`."""

import json
from pathlib import Path

import click


@click.command()
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@click.option(
    "--out", type=click.Path(file_okay=False, path_type=Path), help="Folder for the report. [default: FOLDER/report]"
)
@click.option(
    "--rows", type=click.Choice(["csv", "parquet"]), default="csv", show_default=True,
    help="Format of the file of rows. Parquet needs the extra parquet.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print the table as JSON and write nothing.")
def command(folder: Path, out: Path | None, rows: str, as_json: bool) -> None:
    """Make tables (Markdown, LaTeX, CSV or Parquet, JSON) and figures of the results in FOLDER, from it alone."""
    from hushgrad.experiments.study import report

    if as_json:
        click.echo(json.dumps(report.contents(folder), indent=1))
        return
    for path in report.write(folder, out or folder / "report", "parquet" if rows == "parquet" else "csv"):
        click.echo(path)
