"""`hushgrad certs`."""

import json
from pathlib import Path

import click

_DIR = click.option(
    "--dir",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    default="certificates",
    show_default=True,
    help="Folder of the authority.",
)
_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group()
def command() -> None:
    """Make, list, renew and revoke the certificates of a federation."""


@command.command()
@click.argument("federation")
@click.option(
    "--host", "hosts", multiple=True, required=True, help="Name or IP address of the server; may be repeated."
)
@click.option("--days", type=click.FloatRange(min=0, min_open=True), default=3650, show_default=True)
@click.option("--server-days", type=click.FloatRange(min=0, min_open=True), default=365, show_default=True)
@_DIR
@_JSON
def init(federation: str, hosts: tuple[str, ...], days: float, server_days: float, folder: Path, as_json: bool) -> None:
    """Make the private authority of FEDERATION (its name in the terms), and the server's certificate."""
    from hushgrad.experiments import certificates

    made = certificates.init(folder, federation, hosts, days=days, server_days=server_days)
    text = (
        f"made the authority of {federation} in {folder}; keep {folder / 'ca.key'} secret.\nIn server.toml:\n"
        f"{certificates.server_table(folder)}"
    )
    click.echo(json.dumps(made, indent=2) if as_json else text)


@command.command()
@click.argument("name")
@click.option(
    "--role",
    type=click.Choice(["participant", "watcher", "evaluator", "operator", "observer", "server"]),
    required=True,
    help="What the certificate is for.",
)
@click.option("--host", "hosts", multiple=True, help="With --role server: name or IP address; may be repeated.")
@click.option("--csr", type=click.Path(dir_okay=False, path_type=Path), help="Sign this request (PEM); make no key.")
@click.option("--days", type=click.FloatRange(min=0, min_open=True), help="[default: 90; of a server 365]")
@click.option(
    "--out", type=click.Path(file_okay=False, path_type=Path), help="Where the files go. [default: DIR/members/NAME]"
)
@_DIR
@_JSON
def issue(
    name: str,
    role: str,
    hosts: tuple[str, ...],
    csr: Path | None,
    days: float | None,
    out: Path | None,
    folder: Path,
    as_json: bool,
) -> None:
    """Make a key and a certificate for NAME, where `hushgrad enroll` does not fit.

    The key is then known where this runs: prefer `hushgrad enroll`, or --csr with a request that NAME made.
    """
    from hushgrad.experiments import certificates

    made = certificates.issue(folder, name, role, hosts=hosts, csr=csr, days=days, out=out)
    click.echo(json.dumps(made, indent=2) if as_json else f"wrote {', '.join(made['files'])}")


@command.command()
@click.argument("certificate", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--days", type=click.FloatRange(min=0, min_open=True), help="[default: 90; of a server 365]")
@_DIR
@_JSON
def renew(certificate: Path, days: float | None, folder: Path, as_json: bool) -> None:
    """Give the file CERTIFICATE a new one for the same key and names. A running server takes it up by itself."""
    from hushgrad.experiments import certificates

    made = certificates.renew(folder, certificate, days=days)
    click.echo(json.dumps(made, indent=2) if as_json else f"{certificate} holds until {made['not_after']}")


@command.command()
@click.argument("name", required=False)
@click.option("--serial", help="One certificate, by its serial number in hexadecimal.")
@click.option("--reason", default="", help="For people; it is written beside the number.")
@_DIR
@_JSON
def revoke(name: str | None, serial: str | None, reason: str, folder: Path, as_json: bool) -> None:
    """Put all certificates of NAME on the deny list, and withdraw what was announced for it. Takes effect at once."""
    from hushgrad.experiments import certificates

    made = certificates.revoke(folder, name=name, serial=serial, reason=reason)
    number, was_open = len(made["revoked"]), made["withdrawn"]
    text = f"{number} certificates are on the deny list now" + (", and an open bundle is withdrawn" if was_open else "")
    click.echo(json.dumps(made, indent=2) if as_json else text)


@command.command("list")
@_DIR
@_JSON
def list_(folder: Path, as_json: bool) -> None:
    """List what was signed."""
    from hushgrad.experiments import certificates

    rows = certificates.listed(folder)
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return
    for row in rows:
        click.echo(f"{row['serial']:>40}  {row['state']:<8} {row['not_after']}  {row['holder']}")
