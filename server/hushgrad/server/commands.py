"""The verbs of hushgrad-server. Each imports what it needs when it is called, so that help costs nothing."""

import json
from pathlib import Path

import click
from hushgrad.server.errors import InputError, UnreachableError

_CONFIG = click.option(
    "--config",
    "config_path",
    type=click.Path(path_type=Path),
    default=Path("server.toml"),
    show_default=True,
    help="Configuration file.",
)
_STATE = click.option("--state", type=click.Path(path_type=Path), help="State folder, in place of the configuration's.")
_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group()
def group() -> None:
    """The server of a private federation: adds noised updates to one model and publishes it."""


@group.command()
@_CONFIG
@_STATE
@click.option("--terms", "terms_path", type=click.Path(path_type=Path), required=True, help="Terms file.")
@click.option("--initial", type=click.Path(path_type=Path), help="Version 0 as .safetensors; zeros without it.")
@_JSON
def init(config_path: Path, state: Path | None, terms_path: Path, initial: Path | None, as_json: bool) -> None:
    """Make the state of a new federation and print the digest of its terms."""
    from hushgrad.server import config, initialize
    from hushgrad.server.folder import StateFolder

    folder = StateFolder(Path(config.load(config_path, state=state).state))
    done = initialize.initialize(folder, terms_path, initial)
    if as_json:
        click.echo(
            json.dumps({"terms_digest": done.terms_digest.hex(), "state": str(folder.root), "was_new": done.was_new})
        )
        return
    if done.was_new:
        click.echo(f"made the state of federation {done.terms.federation} in {folder.root}")
    else:
        click.echo(f"federation {done.terms.federation} exists in {folder.root} with the same terms; nothing changed")
    click.echo(f"terms digest {done.terms_digest.hex()}")


@group.command()
@_CONFIG
@_STATE
@click.option("--listen", help="host:port, in place of the configuration's.")
@click.option(
    "--terms", "terms_path", type=click.Path(path_type=Path), help="Refuse to start unless these are the terms."
)
@click.option("--log-format", type=click.Choice(["console", "json"]), default="console", show_default=True)
def run(config_path: Path, state: Path | None, listen: str | None, terms_path: Path | None, log_format: str) -> None:
    """Serve until stopped, or until the federation has ended and everybody has its last model."""
    from hushgrad.server import app, config, logs

    settings = config.load(config_path, listen=listen, state=state)
    app.run(settings, logs.configure("json" if log_format == "json" else "console"), terms_path=terms_path)


@group.command()
@click.argument("address")
@click.option("--tls-ca", envvar="HUSHGRAD_TLS_CA", type=click.Path(path_type=Path), help="Whom to believe, PEM.")
@click.option("--tls-certificate", envvar="HUSHGRAD_TLS_CERTIFICATE", type=click.Path(path_type=Path), help="Own, PEM.")
@click.option("--tls-key", envvar="HUSHGRAD_TLS_KEY", type=click.Path(path_type=Path), help="Its key, PEM.")
@_JSON
def status(
    address: str, tls_ca: Path | None, tls_certificate: Path | None, tls_key: Path | None, as_json: bool
) -> None:
    """Tell how the federation at ADDRESS (host:port) is doing.

    With TLS: with the certificate of an operator, an evaluator or a participant. Plain text is spoken to this machine
    only, such as to admin_listen.
    """
    import grpc
    from hushgrad.server import asking
    from hushgrad.server.plain_status import plain_status, state_name
    from hushgrad.v1 import status_pb2, status_pb2_grpc

    with asking.channel(address, ca=tls_ca, certificate=tls_certificate, key=tls_key) as channel:
        try:
            answer = status_pb2_grpc.StatusServiceStub(channel).GetStatus(status_pb2.GetStatusRequest(), timeout=5)
        except grpc.RpcError as error:
            if error.code() in (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED):
                raise InputError(error.details()) from error
            hint = (
                "if it speaks TLS, give --tls-ca, --tls-certificate and --tls-key"
                if tls_ca is None
                else "or one of the two certificates is not of the other's authority, or has expired"
            )
            raise UnreachableError(f"no server answers at {address} ({error.code().name}); {hint}") from error
    if as_json:
        click.echo(json.dumps(plain_status(answer)))
        return
    phase = status_pb2.Phase.Name(answer.phase).removeprefix("PHASE_").lower()
    click.echo(f"{answer.federation}: {phase}, version {answer.server.newest_version} of {answer.final_version}")
    if answer.waiting_for:
        click.echo(answer.waiting_for)
    for one in answer.participants:
        # Whoever owes nothing has its next owed round at its exit.
        owes = one.next_owed_round != one.participation.exit_round or not one.participation.HasField("exit_round")
        due = f"owes round {one.next_owed_round}, " if owes and answer.phase != status_pb2.PHASE_ENDED else ""
        click.echo(
            f"  {one.participant}: {state_name(one.participation.state)}, {due}"
            f"{one.updates_accepted} updates, {one.updates_duplicate} repeats, "
            f"{one.updates_invalid} invalid, {one.rounds_without_update} rounds without update"
            + (f" ({one.rounds_lost} lost)" if one.rounds_lost else "")
            + (f", {one.updates_flagged} improbable" if one.updates_flagged else "")
        )


@group.command()
@click.argument("directory", type=click.Path(path_type=Path))
@_CONFIG
@_STATE
@_JSON
def export(directory: Path, config_path: Path, state: Path | None, as_json: bool) -> None:
    """Write terms, models, manifests and receipts into DIRECTORY as plain files."""
    from hushgrad.server import config
    from hushgrad.server import export as export_module
    from hushgrad.server.folder import StateFolder

    if directory.exists() and not directory.is_dir():
        raise InputError(f"{directory} must be a folder")
    counts = export_module.export(StateFolder(Path(config.load(config_path, state=state).state)), directory)
    if as_json:
        click.echo(json.dumps(counts))
    else:
        click.echo(
            f"wrote {counts['versions']} versions, {counts['receipts']} receipts and {counts['sealed']} sealed updates "
            f"to {directory}"
        )


@group.command()
@click.argument("directory", type=click.Path(path_type=Path))
@_CONFIG
@_STATE
@_JSON
def backup(directory: Path, config_path: Path, state: Path | None, as_json: bool) -> None:
    """Copy the state into DIRECTORY, verified, whether or not the server runs.

    DIRECTORY is new, empty, or holds an earlier backup, which is replaced in one step. With `backups = true` in
    server.toml, clients keep what they sent until a backup holds it.
    """
    import dataclasses

    from hushgrad.server import backup as backup_module
    from hushgrad.server import config
    from hushgrad.server.folder import StateFolder

    found = backup_module.backup(StateFolder(Path(config.load(config_path, state=state).state)), directory)
    if as_json:
        click.echo(json.dumps({**dataclasses.asdict(found), "directory": str(directory)}))
    else:
        click.echo(f"backed up version {found.version} with {found.updates} updates to {directory}, and verified it")


@group.command()
@click.argument("directory", type=click.Path(path_type=Path))
@_CONFIG
@_STATE
@click.option("--force", is_flag=True, help="Also over a state that is newer than the backup, or cannot be read.")
@_JSON
def restore(directory: Path, config_path: Path, state: Path | None, force: bool, as_json: bool) -> None:
    """Put the backup in DIRECTORY in the place of the state, which is moved aside. The server must not run.

    Consequences: the server's epoch rises, every participant joins again and reports what it holds, versions after the
    backup are made anew from that, and rounds that nobody holds are lost. Lost updates stay spent at their clients.
    """
    from hushgrad.server import backup as backup_module
    from hushgrad.server import config
    from hushgrad.server.folder import StateFolder

    folder = StateFolder(Path(config.load(config_path, state=state).state))
    done = backup_module.restore(folder, directory, force=force)
    if as_json:
        click.echo(
            json.dumps(
                {
                    "version": done.backup.version,
                    "updates": done.backup.updates,
                    "server_epoch": done.server_epoch,
                    "replaced": None if done.replaced is None else str(done.replaced),
                    "versions_lost": done.versions_lost,
                }
            )
        )
        return
    click.echo(
        f"restored version {done.backup.version} into {folder.root}; the server's epoch is now {done.server_epoch}"
    )
    if done.versions_lost:
        click.echo(f"{done.versions_lost} published versions are gone and will be made anew, with other content")
    if done.replaced is not None:
        click.echo(f"the state before lies in {done.replaced}")
    click.echo("start the server: participants report what they hold, and status says what is lost")
