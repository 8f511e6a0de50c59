"""`hushgrad watch`."""

import json
from datetime import UTC, datetime
from pathlib import Path

import click


@click.command()
@click.argument("address", metavar="HOST:PORT")
@click.option(
    "--every", type=click.FloatRange(0.2, 3600), default=1.0, show_default=True, help="Seconds between looks."
)
@click.option("--once", is_flag=True, help="Look once.")
@click.option("--tls-ca", envvar="HUSHGRAD_TLS_CA", type=click.Path(path_type=Path), help="Whom to believe, PEM.")
@click.option("--tls-certificate", envvar="HUSHGRAD_TLS_CERTIFICATE", type=click.Path(path_type=Path), help="Own, PEM.")
@click.option("--tls-key", envvar="HUSHGRAD_TLS_KEY", type=click.Path(path_type=Path), help="Its key, PEM.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line, for each change.")
def command(
    address: str,
    every: float,
    once: bool,
    tls_ca: Path | None,
    tls_certificate: Path | None,
    tls_key: Path | None,
    as_json: bool,
) -> None:
    """Watch the federation at HOST:PORT until it has ended, or Ctrl-C.

    On a terminal it draws, elsewhere it prints a line for each change. With TLS: with the certificate of an operator,
    an observer, an evaluator or a participant. Plain text is spoken to this machine only, such as to admin_listen.
    """
    from hushgrad.experiments import watch_view, watching
    from rich.console import Console
    from rich.live import Live

    access = watching.Access(address, tls_ca, tls_certificate, tls_key)
    moments = watching.follow(access, every_seconds=every)
    console = Console()
    try:
        if once or as_json or not console.is_terminal:
            before = None
            for seen in moments:
                if seen.what_counts() != before:
                    before = seen.what_counts()
                    told = {"at": datetime.now(UTC).isoformat(timespec="milliseconds"), **seen.told()}
                    if as_json or not console.is_terminal:
                        click.echo(json.dumps(told) if as_json else watch_view.line(seen))
                    else:
                        console.print(watch_view.Screen(seen))
                if once:
                    return
            return
        with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:
            for seen in moments:
                live.update(watch_view.Screen(seen), refresh=True)
    except KeyboardInterrupt:
        return  # the way to stop watching
    except BrokenPipeError:
        return  # nobody reads any more
