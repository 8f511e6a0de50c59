"""`hushgrad decode`."""

import json
import sys
from pathlib import Path

import click


@click.command()
@click.argument("file", type=click.Path(path_type=Path, allow_dash=True))
@click.option("--type", "kind", help="Name of the message, such as SubmitUpdateRequest; guessed without it.")
@click.option("--json", "as_json", is_flag=True, help="Print the message as JSON.")
def command(file: Path, kind: str | None, as_json: bool) -> None:
    """Print what a stored or captured message says. FILE may be - for standard input.

    Reads headers and sealed updates (.update), terms, and every message of hushgrad.v1: raw, as gRPC frames it, in
    hexadecimal or in base64. Errors name the path of the field that is damaged.
    """
    from hushgrad.experiments import decode
    from hushgrad.experiments.errors import InputError

    try:
        data = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error.strerror}") from error
    found = decode.decode(data, kind)
    if as_json:
        shown = {"type": found.kind, "could_also_be": found.also, "sha256": found.sha256, "message": found.plain}
        click.echo(json.dumps(shown, indent=2))
        return
    click.echo(
        found.kind if not found.also else f"{found.kind} (a guess; it could also be {', '.join(found.also[:5])})"
    )
    width = max((len(path) for path, _ in found.rows), default=0)
    for path, value in found.rows:
        click.echo(f"  {path:{width}}  {value}")
    click.echo(f"SHA-256 {found.sha256}")
