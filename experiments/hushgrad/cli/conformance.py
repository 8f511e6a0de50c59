"""`hushgrad conformance`."""

import json
import sys
from pathlib import Path

import click

_ENVIRONMENT = """
COMMAND gets these environment variables:

\b
  HUSHGRAD_SERVER       host:port, plain gRPC
  HUSHGRAD_PARTICIPANT  the name to join with
  HUSHGRAD_STATE_DIR    a folder for what must survive; it exists and is empty at the first start
  HUSHGRAD_DATA         an .npz file with arrays X (N, f) and y (N,); the same records lie beside it
                        as .csv with the header x0, x1, ..., label
  HUSHGRAD_PRIVACY      JSON: records, clip_norm, noise_multiplier, sampler, sample_size, epsilon, delta

It ends with 0 when the federation has ended, 3 when the budget does not allow the run, and 5 when a conflict needs a
person. It may be killed at any moment and started again. The model is logistic regression with arrays weights [f] and
bias [].
"""


@click.group()
def command() -> None:
    """Judge a client or a server that somebody wrote from the contract."""


@command.command(
    help="Judge a client: play the server, and look at bytes, order, exit codes and chance.\n" + _ENVIRONMENT
)
@click.argument("client", metavar="-- COMMAND", nargs=-1, type=click.UNPROCESSED)
@click.option("--only", multiple=True, metavar="CHECK", help="Only this check; may be repeated.")
@click.option("--quick", is_flag=True, help="600 rounds of statistics in place of 2,400.")
@click.option(
    "--patience", type=float, default=30.0, show_default=True, help="Seconds that the client has for one thing."
)
@click.option("--at-once", type=click.IntRange(1, 16), default=3, show_default=True, help="Scenarios at the same time.")
@click.option("--keep", type=click.Path(path_type=Path), help="A new folder for logs and state; they stay there.")
@click.option("--list", "list_checks", is_flag=True, help="List the checks and start nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def client(
    client: tuple[str, ...],
    only: tuple[str, ...],
    quick: bool,
    patience: float,
    at_once: int,
    keep: Path | None,
    list_checks: bool,
    as_json: bool,
) -> None:
    """Judges a client."""
    from hushgrad.conformance import client_kit, report

    if list_checks:
        _list(client_kit.checks(), as_json)
        return
    results = client_kit.run(client, only=only, quick=quick, patience_seconds=patience, at_once=at_once, keep=keep)
    click.echo(json.dumps(report.to_dict(results), indent=2) if as_json else report.table(results))
    sys.exit(0 if report.passed(results) else 1)


def _list(checks: list, as_json: bool) -> None:
    if as_json:
        rows = [{"check": check.name, "promise": check.promise, "false_alarm": check.false_alarm} for check in checks]
        click.echo(json.dumps(rows, indent=2))
        return
    for check in checks:
        chance = f"{check.false_alarm:.0e}" if check.false_alarm else "-"
        click.echo(f"{check.name:22} {chance:>6}  {check.promise}")
