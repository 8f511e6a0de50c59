"""`hushgrad conformance`."""

import json
import tempfile
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
    "--patience", type=float, default=20.0, show_default=True, help="Seconds that the client has for one thing."
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
    click.get_current_context().exit(0 if report.passed(results) else 1)


def _list(checks: list, as_json: bool) -> None:
    if as_json:
        rows = [{"check": check.name, "promise": check.promise, "false_alarm": check.false_alarm} for check in checks]
        click.echo(json.dumps(rows, indent=2))
        return
    for check in checks:
        chance = f"{check.false_alarm:.0e}" if check.false_alarm else "-"
        click.echo(f"{check.name:22} {chance:>6}  {check.promise}")


_SERVER_HELP = """Judge a server: play two participants, and look at answers, versions and what survives a kill.

TARGET is host:port of a server that runs a fresh federation made from the files of --write-terms, or, after --, a
command that starts one; then the kit makes the files, and may kill it and start it again. The command gets:

\b
  HUSHGRAD_LISTEN       host:port to listen at
  HUSHGRAD_FEDERATION   the folder with terms.toml, server.toml and initial.safetensors
  HUSHGRAD_STATE_DIR    a folder for what must survive; it exists and is empty at the first start
"""


@command.command(help=_SERVER_HELP)
@click.argument("target", metavar="ADDRESS | -- COMMAND", nargs=-1, type=click.UNPROCESSED)
@click.option("--write-terms", type=click.Path(path_type=Path), metavar="DIR", help="Write the files and play nothing.")
@click.option("--listen", default="127.0.0.1:7443", show_default=True, help="With --write-terms: for server.toml.")
@click.option("--only", multiple=True, metavar="CHECK", help="Report this check only; may be repeated.")
@click.option("--list", "list_checks", is_flag=True, help="List the checks and start nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def server(
    target: tuple[str, ...],
    write_terms: Path | None,
    listen: str,
    only: tuple[str, ...],
    list_checks: bool,
    as_json: bool,
) -> None:
    """Judges a server."""
    from hushgrad.conformance import report, server_files, server_kit

    if list_checks:
        _list(list(server_kit.CHECKS), as_json)
        return
    if write_terms is not None:
        files = [str(path) for path in server_files.write(write_terms, listen)]
        text = (
            f"wrote {', '.join(files)}\nmake a federation of them, start its server, then: hushgrad conformance server"
        )
        click.echo(json.dumps({"files": files}, indent=2) if as_json else f"{text} {listen}")
        return
    if not target:
        raise click.UsageError("give host:port of a server, or a command that starts one after --")
    alone = len(target) == 1 and target[0].rpartition(":")[2].isdecimal()
    with tempfile.TemporaryDirectory(prefix="hushgrad-conformance-") as folder:
        results = (
            server_kit.run(address=target[0], only=only)
            if alone
            else server_kit.run(command=target, only=only, folder=Path(folder))
        )
    click.echo(json.dumps(report.to_dict(results), indent=2) if as_json else report.table(results))
    click.get_current_context().exit(0 if report.passed(results) else 1)
