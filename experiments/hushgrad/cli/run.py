"""`hushgrad run` and `hushgrad run collect`."""

import json
import os
from pathlib import Path
from typing import Any

import click

_HOSTS = click.option(
    "--hosts", "inventory_path", type=click.Path(path_type=Path, dir_okay=False),
    help="Inventory (TOML): which hosts there are, and who runs where. Goes with --backend hosts.",
)  # fmt: skip


class _Run(click.Command):
    """A command whose first word may also be that of another one: a FILE called collect is ./collect."""

    @property
    def verbs(self) -> dict[str, click.Command]:
        """The other commands."""
        return {"collect": collect}

    def make_context(self, info_name: str | None, args: list[str], *rest: Any, **extra: Any) -> click.Context:
        if args and args[0] in self.verbs:
            return self.verbs[args[0]].make_context(f"{info_name} {args[0]}", args[1:], *rest, **extra)
        return super().make_context(info_name, args, *rest, **extra)


@click.command(cls=_Run)
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option(
    "--out", type=click.Path(file_okay=False, path_type=Path), help="Folder of the results. [default: runs/NAME]"
)
@click.option(
    "--backend", type=click.Choice(["simulate", "processes", "hosts"]), default="simulate", show_default=True,
    help="In one process with seeded noise; as real processes on this machine; or on the hosts of --hosts.",
)  # fmt: skip
@_HOSTS
@click.option(
    "--jobs", type=click.IntRange(min=1), default=None, help="Simulated runs at the same time. [default: processors]"
)
@click.option("--shard", metavar="I/N", help="Only every N-th run, from the I-th on, for cluster job arrays.")
@click.option(
    "--rows", type=click.Choice(["csv", "parquet"]), default="csv", show_default=True,
    help="Format of the runs' scored versions. Parquet needs the extra parquet.",
)  # fmt: skip
@click.option("--quiet", is_flag=True, help="Print no progress.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def command(
    file: Path,
    out: Path | None,
    backend: str,
    inventory_path: Path | None,
    jobs: int | None,
    shard: str | None,
    rows: str,
    quiet: bool,
    as_json: bool,
) -> None:
    """Make all runs of an experiment FILE that are not done yet.

    An interrupted sweep goes on where it stopped, and so does a run with real processes: nobody's budget is spent
    twice. `hushgrad report FOLDER` makes tables and figures of the results. `hushgrad run collect FOLDER` asks hosts
    again for claims that were out of reach.
    """
    from hushgrad.experiments.study import conduct, progress
    from hushgrad.experiments.study import file as experiment_file

    if (inventory_path is not None) != (backend == "hosts"):
        raise click.UsageError("--hosts goes with --backend hosts, and that needs it")
    if jobs is not None and backend != "simulate":
        raise click.UsageError("--jobs goes with simulated runs; runs with real processes are made one after the other")
    experiment = experiment_file.load(file)
    folder = out or Path("runs") / experiment.name
    with progress.shown(quiet=quiet or as_json) as tell:
        made = conduct.conduct(
            experiment,
            folder,
            backend=_backend(backend, folder, inventory_path, (lambda _: None) if tell is None else tell.within),
            jobs=jobs or os.cpu_count() or 1,
            shard=shard,
            rows="parquet" if rows == "parquet" else "csv",
            progress=tell,
        )
    if as_json:
        click.echo(json.dumps({"folder": str(folder), "runs_made": made}))
    else:
        click.echo(f"{made} runs made; the results are in {folder}")


def _backend(name: str, folder: Path, inventory_path: Path | None, say: Any) -> Any:
    """Returns what makes the runs; None: the simulator does."""
    if name == "simulate":
        return None
    from hushgrad.experiments.study import backends, inventory

    if inventory_path is None:
        return backends.Processes(folder, say)
    return backends.Hosts(folder, inventory.load(inventory_path), say)


@click.command()
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@click.option(
    "--hosts", "inventory_path", type=click.Path(path_type=Path, dir_okay=False), required=True,
    help="The inventory that the runs were made with.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def collect(folder: Path, inventory_path: Path, as_json: bool) -> None:
    """Gather summaries and claims of the runs in FOLDER from the hosts, never ledgers.

    Each client checks its own ledger and says what it claims and how many rounds it has spent. Results of runs that
    ended while a host was out of reach are completed.
    """
    from hushgrad.experiments.study import collect as collecting
    from hushgrad.experiments.study import inventory, tables

    found = collecting.collect(folder, inventory.load(inventory_path))
    if as_json:
        click.echo(json.dumps(found, indent=1))
        return
    header = ["run", "client", "host", "epsilon", "delta", "rounds spent", "of", "ledger"]
    click.echo(tables.markdown(header, collecting.cells(found)))
