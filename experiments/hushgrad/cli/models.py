"""`hushgrad models`."""

import contextlib
import json
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
    ):
        command = option(command)
    return command


@click.group()
def command() -> None:
    """List and fetch the models that a running server keeps.

    With TLS: with the certificate of a participant, an evaluator, a watcher or an operator. Plain text is spoken to
    this machine only.
    """


@command.command("list")
@click.argument("address", metavar="HOST:PORT")
@_reached
def list_(address: str, tls_ca: Path | None, tls_certificate: Path | None, tls_key: Path | None, as_json: bool) -> None:
    """List the versions that the server at HOST:PORT keeps."""
    from hushgrad.experiments import kept_models

    shelf = kept_models.Shelf(address, ca=tls_ca, certificate=tls_certificate, key=tls_key)
    with contextlib.closing(shelf):
        found = list(shelf.kept())
    if as_json:
        size = 4 * shelf.terms.parameters
        click.echo(json.dumps({"bytes_each": size, "models": [one.plain() for one in found]}, indent=1))
        return
    click.echo(f"{shelf.terms.federation}: {len(found)} kept, {kept_models.size_text(4 * shelf.terms.parameters)} each")
    for one in found:
        when = "" if one.published_at is None else f"{one.published_at.astimezone():%Y-%m-%d %H:%M:%S}"
        averaged = "  also averaged" if one.averaged_available else ""
        click.echo(f"{one.version:>8}  {when:<19}  {one.sha256[:16]}{averaged}".rstrip())


@command.command("get")
@click.argument("address", metavar="HOST:PORT")
@click.argument("version", type=click.IntRange(0, 2**63 - 1), required=False)
@click.option("-o", "--output", type=click.Path(path_type=Path), help="The file; else version-N.safetensors.")
@click.option("--averaged", is_flag=True, help="The averaged model of the newest version.")
@click.option(
    "--encoding", type=click.Choice(["float32", "float16"]), default="float32", show_default=True, help="Of elements."
)
@_reached
def get(
    address: str,
    version: int | None,
    output: Path | None,
    averaged: bool,
    encoding: str,
    tls_ca: Path | None,
    tls_certificate: Path | None,
    tls_key: Path | None,
    as_json: bool,
) -> None:
    """Fetch VERSION from the server at HOST:PORT into a new .safetensors file; without VERSION the newest.

    What arrived is compared with its digest. With float16 it is rounded, and is another array than the version.
    """
    from hushgrad.experiments import kept_models

    shelf = kept_models.Shelf(address, ca=tls_ca, certificate=tls_certificate, key=tls_key)
    with contextlib.closing(shelf):
        number = shelf.newest() if version is None else version
        stem = f"version-{number}{'-averaged' if averaged else ''}{'' if encoding == 'float32' else '-' + encoding}"
        file = output or Path(f"{stem}.safetensors")
        told = shelf.get(number, averaged=averaged, encoding=encoding, file=file)
    if as_json:
        click.echo(json.dumps(told))
    else:
        click.echo(f"{told['file']}: {told['kind']} version {number}, {told['parameters']} parameters, {encoding}")
