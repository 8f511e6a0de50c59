"""The command `hushgrad-client`: verbs, options, and which exit code a failure gets. Work is done in `commands`."""

import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, Literal

import click
from hushgrad.client import texts
from hushgrad.client.errors import ClientError

_PATH = click.Path(path_type=Path, dir_okay=False)


def _options(default_config: str | None) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Adds what every verb takes, and turns failures into one line and an exit code."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def guarded(*, log_format: Literal["console", "json"], **arguments: Any) -> None:
            try:
                from hushgrad.client import log  # imported here: it may be missing, and that is one line, too

                log.configure(log_format)
                function(**arguments)
            except ModuleNotFoundError as error:
                missing = (error.name or "").partition(".")[0]
                if missing in ("", "hushgrad"):
                    raise
                extras = "client,web" if missing in ("starlette", "uvicorn") else "client"
                click.echo(
                    f"hushgrad-client: this needs the package {missing}: pip install 'hushgrad[{extras}]'", err=True
                )
                sys.exit(1)
            except OSError as error:
                click.echo(f"hushgrad-client: {error.filename or 'the system'}: {error.strerror or error}", err=True)
                sys.exit(1)
            except (ClientError, ValueError) as error:
                # ValueErrors of the contract and the accountant are bad input as well; their texts say what to do.
                if not isinstance(error, ClientError) and not type(error).__module__.startswith("hushgrad."):
                    raise
                click.echo(f"hushgrad-client: {' '.join(str(error).split())}", err=True)
                sys.exit(getattr(error, "exit_code", 2))

        ending = [
            click.option("--json", "as_json", is_flag=True, help="Print JSON."),
            click.option("--log-format", type=click.Choice(["console", "json"]), default="console", show_default=True),
        ]
        if default_config is None:
            for option in reversed(ending):
                guarded = option(guarded)
            return guarded
        options = [
            click.option("--config", type=_PATH, default=default_config, show_default=True, help="Configuration file."),
            click.option("--server", envvar="HUSHGRAD_SERVER", help="host:port; wins over the file."),
            click.option("--data", envvar="HUSHGRAD_DATA", help="Data file; wins over the file's."),
            *(
                click.option(
                    f"--tls-{key}", envvar=f"HUSHGRAD_TLS_{key.upper()}", help=f"PEM file; wins over [tls] {key}."
                )
                for key in ("ca", "certificate", "key")
            ),
            *ending,
        ]
        if default_config == "client.toml":
            options += [
                click.option("--participant", envvar="HUSHGRAD_PARTICIPANT", help="Name; wins over the file."),
                click.option(
                    "--state", envvar="HUSHGRAD_STATE", help="Folder of ledger and outbox; wins over the file."
                ),
            ]
        for option in reversed(options):
            guarded = option(guarded)
        return guarded

    return decorate


@click.group()
@click.version_option(package_name="hushgrad")
def main() -> None:
    """Trains beside private data and sends only noised, sealed updates; keeps the privacy ledger."""


@main.command()
@click.option("--dry-run", is_flag=True, help="Say what the run would cost; draw and write nothing.")
@click.option("--accept-large-delta", is_flag=True, help="Accept a delta above 1/records.")
@_options("client.toml")
def run(config: Path, dry_run: bool, accept_large_delta: bool, as_json: bool, **overrides: str | None) -> None:
    """Takes part in a federation until it ends; safe to stop and start again."""
    from hushgrad.client import commands
    from hushgrad.client import config as configuration

    loaded = configuration.load_client(config, overrides)
    if dry_run:
        answer = commands.dry_run(loaded, accept_large_delta=accept_large_delta)
        click.echo(commands.dumps(answer) if as_json else texts.dry_run(answer))
        sys.exit(0 if answer["fits"] else 3)
    answer = commands.run(loaded, accept_large_delta=accept_large_delta)
    if as_json:
        click.echo(commands.dumps(answer))


@main.command()
@_options("client.toml")
def status(config: Path, as_json: bool, **overrides: str | None) -> None:
    """Says what was committed, what was spent, what is left, and what waits to be sent."""
    from hushgrad.client import commands
    from hushgrad.client import config as configuration

    answer = commands.status(configuration.load_client(config, overrides))
    click.echo(commands.dumps(answer) if as_json else texts.status(answer))


@main.command()
@click.option("--port", type=click.IntRange(0, 65535), default=0, show_default=True, help="Where; 0 takes a free one.")
@_options("client.toml")
def page(config: Path, port: int, as_json: bool, **overrides: str | None) -> None:
    """Serves a page that shows the ledger to whoever has its address, on this machine, until it is stopped.

    Reads and changes nothing; a client may be running. --json prints the address as JSON.
    """
    import json

    from hushgrad.client import commands
    from hushgrad.client import config as configuration

    def announce(url: str) -> None:
        click.echo(json.dumps({"url": url}) if as_json else f"{url}\nwhoever has this address can read the ledger here")

    commands.page(configuration.load_client(config, overrides), port=port, announce=announce)


@main.command()
@_options("client.toml")
def leave(config: Path, as_json: bool, **overrides: str | None) -> None:
    """Sends what is sealed and leaves, so that nobody waits for this participant; `run` takes part again."""
    from hushgrad.client import commands
    from hushgrad.client import config as configuration

    answer = commands.leave(configuration.load_client(config, overrides))
    if as_json:
        click.echo(commands.dumps(answer))


@main.command()
@click.option("--output", help="CSV file of the curve; wins over the file.")
@_options("evaluator.toml")
def evaluate(config: Path, as_json: bool, **overrides: str | None) -> None:
    """Watches a federation and scores every new version on a public test set."""
    from hushgrad.client import commands
    from hushgrad.client import config as configuration

    answer = commands.evaluate(configuration.load_evaluator(config, overrides))
    if as_json:
        click.echo(commands.dumps(answer))


@main.command()
@click.argument("bundle", type=_PATH)
@click.option("--data", envvar="HUSHGRAD_DATA", help="File of the records; an evaluator's test set.")
@click.option("--folder", type=click.Path(path_type=Path), help="Where everything goes. [default: ./NAME]")
@click.option("--server", envvar="HUSHGRAD_SERVER", help="host:port to enroll at; wins over the bundle's.")
@click.option("--yes", is_flag=True, help="Make the ledger without asking; for machines.")
@click.option("--accept-new-budget", is_flag=True, help="Give data that had a ledger before a second budget.")
@_options(None)
def enroll(
    bundle: Path,
    data: str | None,
    folder: Path | None,
    server: str | None,
    yes: bool,
    accept_new_budget: bool,
    as_json: bool,
) -> None:
    """Become a member with the BUNDLE that the operator made: key, certificate, configuration, ledger.

    The key is made here and never leaves. May be repeated when it was interrupted.
    """
    from hushgrad.client import commands, enrollment

    loaded = enrollment.read(bundle)
    enrolled = enrollment.enroll(loaded, folder or Path(loaded.name), data, server=server)
    answer: dict[str, Any] = {**enrollment.describe(enrolled), "ledger": None}
    if not as_json:
        click.echo(texts.enrolled(answer, loaded.address))
    config = enrolled.config
    if config is not None and not commands.has_ledger(config):
        agreed = yes or (not as_json and _agrees(texts.ledger_question(config)))
        if agreed:
            answer["ledger"] = commands.ledger_init(config, accept_new_budget=accept_new_budget)
    if as_json:
        click.echo(commands.dumps(answer))
    elif enrolled.config_path is not None:
        click.echo(texts.after_enrolling(answer, has_ledger=config is not None and commands.has_ledger(config)))


def _agrees(question: str) -> bool:
    try:
        return click.confirm(question, err=True)
    except click.Abort:  # nobody is there to answer
        click.echo(err=True)
        return False


@main.command()
@click.option("--within-days", type=float, help="Do nothing if the certificate holds longer than that.")
@click.option("--evaluator", is_flag=True, help="The configuration is an evaluator's.")
@_options("client.toml")
def renew(config: Path, within_days: float | None, evaluator: bool, as_json: bool, **overrides: str | None) -> None:
    """Gets a certificate that holds longer, for the same key. A running client takes it up by itself."""
    from hushgrad.client import commands, enrollment
    from hushgrad.client import config as configuration
    from hushgrad.wire import certificates

    loaded = (
        configuration.load_evaluator(config, overrides) if evaluator else configuration.load_client(config, overrides)
    )
    until = enrollment.renew(loaded, within_seconds=None if within_days is None else within_days * 86_400)
    answer = {"certificate_expires": certificates.date(until)}
    click.echo(commands.dumps(answer) if as_json else f"the certificate holds until {answer['certificate_expires']}")


@main.group()
def ledger() -> None:
    """Makes, shows and checks the privacy ledger."""


@ledger.command("init")
@click.option("--accept-new-budget", is_flag=True, help="Give data that had a ledger before a second budget.")
@_options("client.toml")
def ledger_init(config: Path, accept_new_budget: bool, as_json: bool, **overrides: str | None) -> None:
    """Makes a new ledger for the configured data and participant."""
    from hushgrad.client import commands
    from hushgrad.client import config as configuration

    answer = commands.ledger_init(configuration.load_client(config, overrides), accept_new_budget=accept_new_budget)
    click.echo(commands.dumps(answer) if as_json else texts.init(answer))


@ledger.command("show")
@_options("client.toml")
def ledger_show(config: Path, as_json: bool, **overrides: str | None) -> None:
    """Prints one line per row."""
    from hushgrad.client import commands
    from hushgrad.client import config as configuration

    answer = commands.ledger_show(configuration.load_client(config, overrides))
    click.echo(commands.dumps(answer) if as_json else texts.table(answer))


@ledger.command("verify")
@_options("client.toml")
def ledger_verify(config: Path, as_json: bool, **overrides: str | None) -> None:
    """Checks the whole chain, every header, and every payload still held; names the first bad row."""
    from hushgrad.client import commands
    from hushgrad.client import config as configuration

    answer = commands.ledger_verify(configuration.load_client(config, overrides))
    click.echo(
        commands.dumps(answer)
        if as_json
        else f"{answer['ledger']}: {answer['rows']} rows, {answer['updates']} of them updates, all sound; "
        f"head {answer['head']}"
    )


@ledger.command("export")
@_options("client.toml")
def ledger_export(config: Path, as_json: bool, **overrides: str | None) -> None:
    """Prints the verified ledger as JSON that anybody can re-check."""
    from hushgrad.client import commands
    from hushgrad.client import config as configuration

    del as_json  # it is JSON in any case
    click.echo(commands.dumps(commands.ledger_export(configuration.load_client(config, overrides))))


if __name__ == "__main__":
    main()
