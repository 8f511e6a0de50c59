"""`hushgrad enroll`."""

import json
from pathlib import Path

import click


@click.group()
def command() -> None:
    """Let somebody become a member of a federation with one file."""


@command.command()
@click.argument("name")
@click.option(
    "--config",
    "config_path",
    type=click.Path(dir_okay=False, path_type=Path),
    default="server.toml",
    show_default=True,
    help="The server's configuration, with [tls] and an authority.",
)
@click.option("--server", required=True, metavar="HOST:PORT", help="Where the member finds the server.")
@click.option(
    "--role",
    type=click.Choice(["participant", "watcher", "evaluator", "operator", "observer"]),
    default="participant",
    show_default=True,
)
@click.option(
    "--template",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The member's configuration. [default: client.toml or evaluator.toml beside the server's]",
)
@click.option(
    "--hours",
    type=click.FloatRange(min=0, min_open=True),
    default=168,
    show_default=True,
    help="How long the bundle is good.",
)
@click.option(
    "--member-days",
    type=click.FloatRange(min=0, min_open=True),
    default=90,
    show_default=True,
    help="How long the certificate will hold.",
)
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="The new file. [default: NAME.bundle]")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def new(
    name: str,
    config_path: Path,
    server: str,
    role: str,
    template: Path | None,
    hours: float,
    member_days: float,
    out: Path | None,
    as_json: bool,
) -> None:
    """Write the bundle that makes NAME a member, and announce it to the server, running or not.

    Whoever has the file may become NAME, once, while it is good: hand it over in a way that you trust. The member
    then says: hushgrad-client enroll NAME.bundle --data FILE
    """
    from hushgrad.experiments import announce

    made = announce.new(
        name,
        role,
        config_path=config_path,
        server=server,
        template=template,
        hours=hours,
        member_days=member_days,
        out=out or Path(f"{name}.bundle"),
    )
    replaced = "; the bundle that was made for it before is good for nothing now" if made["replaced"] else ""
    text = (
        f"wrote {made['bundle']} for {role} {name}, good once until {made['expires']}{replaced}\n"
        f"hand it over secretly; its reader says: hushgrad-client enroll {Path(made['bundle']).name}"
        + (" --data FILE" if role not in ("operator", "observer") else "")
    )
    click.echo(json.dumps(made, indent=2) if as_json else text)
