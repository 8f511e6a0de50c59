"""`hushgrad demo`."""

import json
from pathlib import Path

import click


@click.command()
@click.option("--seed", type=click.IntRange(min=0), default=1, show_default=True, help="Fixes test set and parts.")
@click.option(
    "--rounds", type=click.IntRange(1, 10_000), help="Rounds of each client; the noise follows. [default: 140]"
)
@click.option("--name", default="", help="Name of the run. [default: made from the time]")
@click.option(
    "--runs-dir", type=click.Path(file_okay=False, path_type=Path), default="runs", show_default=True,
    help="Folder of all runs.",
)  # fmt: skip
@click.option("--keep-sealed", is_flag=True, help="Keep the sealed bytes of every update at the server.")
@click.option("--chaos", is_flag=True, help="Kill a client and the server, lose and repeat calls, and audit the end.")
@click.option("--page", is_flag=True, help="Show a live page in your browser; it stays at the end until Ctrl-C.")
@click.option("--json", "as_json", is_flag=True, help="Print summary.json and nothing else.")
@click.option("--prepare-only", is_flag=True, help="Write everybody's files and start nothing.")
@click.option(
    "--out", type=click.Path(file_okay=False, path_type=Path),
    help="With --prepare-only: the folder for the files. [default: RUNS-DIR/NAME]",
)  # fmt: skip
@click.option("--listen", default="", metavar="HOST:PORT", help="With --prepare-only: where the server listens.")
@click.option("--server", default="", metavar="HOST:PORT", help="With --prepare-only: where clients find the server.")
def command(
    seed: int,
    rounds: int | None,
    name: str,
    runs_dir: Path,
    keep_sealed: bool,
    chaos: bool,
    page: bool,
    as_json: bool,
    prepare_only: bool,
    out: Path | None,
    listen: str,
    server: str,
) -> None:
    """Watch five clients train one private model through a server, as separate processes on this machine.

    The data are 11,055 web pages, phishing or not. A fifth is the public test set; the rest is cut into five private
    parts, one for each client. --seed fixes the cut, never the noise: two runs are never the same.
    """
    if page and (prepare_only or as_json):
        raise click.UsageError("--page goes neither with --prepare-only nor with --json")
    if not prepare_only and (out or listen or server):
        raise click.UsageError("--out, --listen and --server go with --prepare-only")

    from hushgrad.experiments import demo_settings
    from rich.console import Console

    rounds = rounds if rounds is not None else demo_settings.ROUNDS
    if prepare_only:
        from hushgrad.experiments import demo_files

        folder = out or runs_dir / (name or "demo")
        demo_files.prepare(
            folder,
            seed=seed,
            rounds=rounds,
            listen=listen or "127.0.0.1:7443",
            server=server or listen or "127.0.0.1:7443",
            keep_sealed=keep_sealed,
        )
        files = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
        click.echo(json.dumps({"files": files}, indent=2) if as_json else f"wrote {len(files)} files into {folder}")
        return

    from hushgrad.experiments import demo, summary

    options = demo.Options(
        seed=seed, rounds=rounds, runs=runs_dir, name=name, keep_sealed=keep_sealed, chaos=chaos, page=page
    )
    console = Console(stderr=as_json, quiet=as_json)
    folder, found = demo.run(options, console)
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return
    summary.show(console, found)
    console.print(
        f"Pictures: {folder / 'accuracy.png'} and {folder / 'epsilon.png'}\n"
        f"Everything else: {folder} (summary.json, history.csv, both models, ledgers, logs, configuration)",
        highlight=False,
        soft_wrap=True,
    )
    if page:
        demo.hold_page(folder, console)
