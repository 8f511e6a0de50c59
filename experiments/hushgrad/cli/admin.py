"""`hushgrad admin`."""

import contextlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click


def _reached(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        click.option("--json", "as_json", is_flag=True, help="Print JSON."),
        click.option("--tls-key", envvar="HUSHGRAD_TLS_KEY", type=click.Path(path_type=Path), help="Its key, PEM."),
        click.option(
            "--tls-certificate", envvar="HUSHGRAD_TLS_CERTIFICATE", type=click.Path(path_type=Path), help="Own, PEM."
        ),
        click.option(
            "--tls-ca", envvar="HUSHGRAD_TLS_CA", type=click.Path(path_type=Path), help="Whom to believe, PEM."
        ),
        click.argument("address", metavar="HOST:PORT"),
    ):
        command = option(command)
    return command


_REASON = click.option("--reason", default="", help="For people; kept in the log.")
_YES = click.option("--yes", is_flag=True, help="Do not ask; it cannot be undone.")
Tls = dict[str, Path | None]


def _desk(address: str, tls: Tls) -> Any:
    from hushgrad.experiments import administration

    return contextlib.closing(
        administration.Desk(address, ca=tls["tls_ca"], certificate=tls["tls_certificate"], key=tls["tls_key"])
    )


def _told(told: dict[str, Any], as_json: bool) -> None:
    """Prints what became of an order."""
    from hushgrad.experiments import administration

    if as_json:
        click.echo(json.dumps(told))
        return
    click.echo(administration.act_text(told["act"]).strip())
    _stands(told["standing"])


def _stands(standing: dict[str, Any]) -> None:
    if standing["paused_by"]:
        click.echo(f"paused by {standing['paused_by']['who']} since {standing['paused_by']['at']}")
    if standing["evicted"]:
        click.echo(f"evicted: {', '.join(standing['evicted'])}")
    if standing["closed_seats"]:
        click.echo(f"vacant seats closed: {standing['closed_seats']}")
    if standing["ended_by"]:
        has = "ended" if standing["has_ended"] else "ends"
        click.echo(f"{has} with version {standing['final_version']}, ordered by {standing['ended_by']['who']}")
    if standing["is_draining"]:
        click.echo("drains: it takes nobody new and stops after the next version")


def _confirm(desk: Any, what: str, yes: bool) -> None:
    """Asks a person before what cannot be undone; where nobody can be asked, --yes is needed."""
    if yes:
        return
    from hushgrad.experiments.errors import InputError

    if not sys.stdin.isatty():
        raise InputError(f"to {what} cannot be undone; add --yes")
    click.confirm(f"{what} of the federation {desk.status()['federation']}? It cannot be undone", abort=True)


@click.group()
def command() -> None:
    """See how a running federation is administered, and order changes; each is recorded with who and when.

    With TLS: with the certificate of an operator. Plain text is spoken to this machine only, such as to admin_listen.
    """


@command.command()
@_reached
def status(address: str, as_json: bool, **tls: Path | None) -> None:
    """Tell where the federation stands, what it waits for, and which orders hold."""
    with _desk(address, tls) as desk:
        told = desk.status()
    if as_json:
        click.echo(json.dumps(told))
        return
    final = told["administration"]["final_version"]
    click.echo(f"{told['federation']}: {told['phase']}, version {told['newest_version']} of {final}")
    if told["waiting_for"]:
        click.echo(told["waiting_for"])
    _stands(told["administration"])


@command.command()
@_reached
def participants(address: str, as_json: bool, **tls: Path | None) -> None:
    """List who takes part, and who was evicted."""
    with _desk(address, tls) as desk:
        told = desk.status()
    evicted = told["administration"]["evicted"]
    rows = [{**one, "evicted": one["participant"] in evicted} for one in told["participants"]]
    joined = [one["participant"] for one in rows]
    if as_json:
        absent = [name for name in evicted if name not in joined]
        click.echo(json.dumps({"participants": rows, "evicted_before_they_joined": absent}))
        return
    for one in rows:
        state = "evicted" if one["evicted"] else one["state"]
        click.echo(
            f"{one['participant']}: {state}, next owes round {one['next_owed_round']}, "
            f"{one['updates_accepted']} updates, {one['rounds_without_update']} rounds without one, "
            f"suspended {one['suspensions']} times"
        )
    for name in evicted:
        if name not in joined:
            click.echo(f"{name}: evicted before it joined")


@command.command()
@_REASON
@_reached
def pause(address: str, reason: str, as_json: bool, **tls: Path | None) -> None:
    """Make no more versions until `resume`; updates are taken as ever and nobody is suspended."""
    with _desk(address, tls) as desk:
        _told(desk.pause(reason), as_json)


@command.command()
@_REASON
@_reached
def resume(address: str, reason: str, as_json: bool, **tls: Path | None) -> None:
    """Go on after a pause."""
    with _desk(address, tls) as desk:
        _told(desk.resume(reason), as_json)


@command.command()
@_reached
@click.argument("name", required=False)
@click.option("--vacant-seat", is_flag=True, help="In place of NAME: a seat that nobody has taken.")
@_REASON
@_YES
def evict(
    address: str, name: str | None, vacant_seat: bool, reason: str, yes: bool, as_json: bool, **tls: Path | None
) -> None:
    """Go on without NAME for good; version 1 too, for which everybody is waited for else.

    What NAME has sent stays. Its certificate stays valid: `hushgrad certs revoke` shuts it out.
    """
    if (name is None) != vacant_seat:
        raise click.UsageError("give NAME or --vacant-seat")
    with _desk(address, tls) as desk:
        _confirm(desk, f"evict {name or 'whoever would take a vacant seat'}", yes)
        _told(desk.evict(name, reason), as_json)


@command.command()
@_REASON
@_reached
def drain(address: str, reason: str, as_json: bool, **tls: Path | None) -> None:
    """Take nobody new, make the next version, and stop the server's process so that nothing has to be sent again."""
    with _desk(address, tls) as desk:
        _told(desk.drain(reason), as_json)


@command.command()
@_REASON
@_YES
@_reached
def end(address: str, reason: str, yes: bool, as_json: bool, **tls: Path | None) -> None:
    """End the federation now: every update that was accepted is in the last version, and everybody is told.

    To let everybody finish up to a later version, lower `final-version`.
    """
    with _desk(address, tls) as desk:
        _confirm(desk, "end the run", yes)
        _told(desk.end(None, reason), as_json)


@command.command("final-version")
@_reached
@click.argument("version", type=click.IntRange(0, 2**63 - 1), required=False)
@_REASON
@_YES
def final_version(address: str, version: int | None, reason: str, yes: bool, as_json: bool, **tls: Path | None) -> None:
    """Show the last version there will be, or lower it to VERSION. It can never be raised.

    Participants have fixed their privacy budgets by the terms: more rounds need a new federation.
    """
    with _desk(address, tls) as desk:
        if version is not None:
            _confirm(desk, f"end with version {version} the run", yes)
            _told(desk.end(version, reason), as_json)
            return
        standing = desk.standing()
    if as_json:
        click.echo(json.dumps({"final_version": standing["final_version"], "ended_by": standing["ended_by"]}))
        return
    click.echo(str(standing["final_version"]))


@command.command()
@_reached
@click.option("--last", type=click.IntRange(min=0), default=20, show_default=True, help="So many newest; 0: all.")
def versions(address: str, last: int, as_json: bool, **tls: Path | None) -> None:
    """List the versions whose models are kept, when each was published, and whose updates it added."""
    from hushgrad.experiments import kept_models
    from hushgrad.v1 import common_pb2

    shelf = kept_models.Shelf(address, ca=tls["tls_ca"], certificate=tls["tls_certificate"], key=tls["tls_key"])
    with contextlib.closing(shelf), _desk(address, tls) as desk:
        caller = common_pb2.Caller(terms_digest=shelf.terms_digest, participant=shelf.name)
        kept = list(shelf.kept())[-last:]
        rows = [{**one.plain(), "updates": desk.manifest(caller, one.version)} for one in kept]
    if as_json:
        click.echo(json.dumps({"versions": rows}))
        return
    for row in rows:
        added = ", ".join(f"{one['participant']}/{one['round']}" for one in row["updates"][:8])
        more = f" and {len(row['updates']) - 8} more" if len(row["updates"]) > 8 else ""
        when = row["published_at"] or ""
        click.echo(f"{row['version']:>8}  {when:<29}  {row['sha256'][:16]}  {added}{more}".rstrip())


@command.command()
@_reached
@click.argument("version", type=click.IntRange(0, 2**63 - 1), required=False)
@click.option("-o", "--output", type=click.Path(path_type=Path), help="The file; else version-N.safetensors.")
@click.option("--averaged", is_flag=True, help="The averaged model of the newest version.")
def export(
    address: str, version: int | None, output: Path | None, averaged: bool, as_json: bool, **tls: Path | None
) -> None:
    """Write VERSION into a new .safetensors file; without VERSION the newest, which is the final one after the end."""
    from hushgrad.experiments import kept_models

    shelf = kept_models.Shelf(address, ca=tls["tls_ca"], certificate=tls["tls_certificate"], key=tls["tls_key"])
    with contextlib.closing(shelf), _desk(address, tls) as desk:
        number = desk.status()["newest_version"] if version is None else version
        file = output or Path(f"version-{number}{'-averaged' if averaged else ''}.safetensors")
        told = shelf.get(number, averaged=averaged, encoding="float32", file=file)
    if as_json:
        click.echo(json.dumps(told))
    else:
        click.echo(f"{told['file']}: {told['kind']} version {number}, {told['parameters']} parameters")


@command.command()
@_reached
def log(address: str, as_json: bool, **tls: Path | None) -> None:
    """List every order that was taken: who gave it, when, and what it was."""
    from hushgrad.experiments import administration

    with _desk(address, tls) as desk:
        acts = list(desk.log())
    if as_json:
        click.echo(json.dumps({"acts": acts}))
        return
    for act in acts:
        click.echo(administration.act_text(act))
