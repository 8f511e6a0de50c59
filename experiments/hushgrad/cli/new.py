"""`hushgrad new`."""

import json
from pathlib import Path
from typing import Literal

import click


@click.command()
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--model", "kind", required=True, help="logistic, softmax, mlp, lenet or torch; docs/models.md has them.")
@click.option(
    "--model-option", "settings", multiple=True, metavar="NAME=VALUE",
    help="A further setting of [model]: activation=tanh, padding=2, hidden=128,64.",
)  # fmt: skip
@click.option("--data", required=True, metavar="FILE", help="A table like the clients': .csv, .npz, or a built-in set.")
@click.option("--clients", type=int, required=True, help="Number of participants.")
@click.option("--epsilon", type=float, required=True, help="The most that one client's whole run may cost, with delta.")
@click.option("--delta", type=float, required=True, help="At most 1/N; min(1e-5, 1/(10 N)) is usual.")
@click.option("--clip-norm", type=float, required=True, help="L2 norm that every record's gradient is clipped to.")
@click.option("--records", type=int, help="N of one client, public. [default: rows of FILE / clients, rounded up]")
@click.option("--rounds", type=int, default=100, show_default=True, help="Rounds of each client.")
@click.option("--sample-size", type=int, help="Expected number of records of a round. [default: N / 6]")
@click.option("--eta0", type=float, help="First step size, for sums of gradients. [default: from model and clip norm]")
@click.option("--beta", type=float, default=0.002, show_default=True, help="How fast step sizes fall.")
@click.option("--sampler", type=click.Choice(["poisson", "fixed"]), default="poisson", show_default=True)
@click.option("--label", default="y", show_default=True, help="The .csv's label column, or the .npz's label array.")
@click.option("--classes", type=int, help="Number of classes. [default: those in FILE]")
@click.option(
    "--l2", type=float, default=0.0, show_default=True, help="Penalty lambda/2 * |w|^2 in every record's loss."
)
@click.option("--bounds", type=float, nargs=2, metavar="LOW HIGH", help="Public bounds of all features.")
@click.option("--bounds-from", metavar="FILE", help="A PUBLIC table whose features' ranges are the bounds.")
@click.option("--name", default="federation", show_default=True, help="Name of the federation.")
@click.option("--listen", default="127.0.0.1:7443", show_default=True, metavar="HOST:PORT", help="Of the server.")
@click.option("--server", default="", metavar="HOST:PORT", help="As clients reach it. [default: as it listens]")
@click.option("--accept-large-delta", is_flag=True, help="Allow a delta above 1/N.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def command(
    folder: Path,
    kind: str,
    settings: tuple[str, ...],
    data: str,
    clients: int,
    epsilon: float,
    delta: float,
    clip_norm: float,
    records: int | None,
    rounds: int,
    sample_size: int | None,
    eta0: float | None,
    beta: float,
    sampler: Literal["poisson", "fixed"],
    label: str,
    classes: int | None,
    l2: float,
    bounds: tuple[float, float] | None,
    bounds_from: str | None,
    name: str,
    listen: str,
    server: str,
    accept_large_delta: bool,
    as_json: bool,
) -> None:
    """Write terms.toml, server.toml, client.toml, evaluator.toml and initial.safetensors into the new folder DIR.

    From FILE only the number of columns, the classes and, without --records, the number of rows are taken. The noise is
    calibrated so that one client's whole run costs at most EPSILON at DELTA. Read the files, change what you like, then
    run `hushgrad-server init`.
    """
    from hushgrad.experiments import new

    choice = new.Choice(
        kind=kind,
        data=data,
        clients=clients,
        epsilon=epsilon,
        delta=delta,
        clip_norm=clip_norm,
        records=records,
        rounds=rounds,
        sample_size=sample_size,
        eta0=eta0,
        beta=beta,
        sampler=sampler,
        label=label,
        classes=classes,
        l2=l2,
        bounds=bounds,
        bounds_from=bounds_from,
        name=name,
        listen=listen,
        server=server or listen,
        accept_large_delta=accept_large_delta,
        options=new.options(settings),
    )
    made = new.make(folder, choice)
    if as_json:
        click.echo(json.dumps(made.to_dict(), indent=2))
        return
    plan = made.plan
    counted = " (rows of the table / clients)" if made.records_counted else ""
    click.echo(f"wrote {', '.join(path.name for path in made.files)} into {folder}")
    click.echo(
        f"each client declares N = {plan.request.records} records{counted}; declare what is public, not what is counted"
    )
    click.echo(
        f"{plan.request.rounds} rounds of about {plan.sample_size} records, clip norm {plan.request.clip_norm:g}, "
        f"noise multiplier {plan.noise_multiplier:g}"
    )
    click.echo("a whole run of one client: " + plan.claim.describe())
    click.echo(
        f"read the files, then: hushgrad-server init --config {folder / 'server.toml'} "
        f"--terms {folder / 'terms.toml'} --initial {folder / 'initial.safetensors'}"
    )
