"""`hushgrad split`."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click
from hushgrad.experiments.errors import InputError

if TYPE_CHECKING:
    from hushgrad.experiments.partition import Kind


@click.command()
@click.argument("file")
@click.option("--clients", type=int, required=True, help="Number of parts.")
@click.option("--test", "test_fraction", type=float, required=True, help="Share of the test set, 0 for none.")
@click.option("--seed", type=int, required=True, help="Fixes the split.")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="A new folder.")
@click.option(
    "--kind",
    type=click.Choice(["disjoint", "iid", "dirichlet", "size"]),
    default="disjoint",
    show_default=True,
    help="How the parts differ: equally many records at random, at one client each or (iid) drawn by each from all; "
    "classes in other shares (dirichlet); other sizes.",
)
@click.option("--alpha", type=float, help="With dirichlet: the smaller, the more the classes' shares differ.")
@click.option("--weights", help="With size: one number per client, as in 5,3,1.")
@click.option("--label", default="y", show_default=True, help="The .csv's label column, or the .npz's label array.")
@click.option("--features", type=int, help="Number of features, for LIBSVM files: they do not say it.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def command(
    file: str,
    clients: int,
    test_fraction: float,
    seed: int,
    out: Path,
    kind: "Kind",
    alpha: float | None,
    weights: str | None,
    label: str,
    features: int | None,
    as_json: bool,
) -> None:
    """Cut FILE into client-1.npz, client-2.npz, ... and test.npz, to try a federation out on one machine.

    FILE is a .csv file with a header, a .npz file with arrays X and y, another format that docs/your-data.md lists, or
    the name of one of scikit-learn's built-in sets: breast_cancer, digits, iris, wine.
    """
    from hushgrad.experiments import split_files

    written = split_files.write(
        file,
        out,
        label=label,
        clients=clients,
        test_fraction=test_fraction,
        seed=seed,
        kind=kind,
        alpha=alpha,
        weights=None if weights is None else _numbers(weights),
        features=features,
    )
    names = dict(enumerate(written.class_names))
    if as_json:
        result = {
            "files": [str(path) for path in written.files],
            "test": str(written.test) if written.test else None,
            "rows": max(written.rows),
            "rows_of_each": list(written.rows),
            "test_rows": written.test_rows,
            "left_out": written.left_out,
            "classes": names,
        }
        click.echo(json.dumps(result, indent=2))
        return
    first, last = written.files[0], written.files[-1]
    sizes = set(written.rows)
    records = f"{written.rows[0]} records each" if len(sizes) == 1 else f"{', '.join(map(str, written.rows))} records"
    click.echo(f"{first} to {last.name}: {records}" if first != last else f"{first}: {written.rows[0]} records")
    if written.test:
        click.echo(f"{written.test}: {written.test_rows} records, the public test set")
    if written.left_out:
        click.echo(f"in no part: {written.left_out}")
    click.echo("labels: " + ", ".join(f"{number} = {name}" for number, name in names.items()))
    click.echo(f"in `hushgrad new`, say --records {max(written.rows)}")
    if len(sizes) > 1:
        click.echo(
            "a client that has fewer records than are declared takes part with fewer, under Poisson sampling only"
        )


def _numbers(text: str) -> list[float]:
    try:
        return [float(number) for number in text.split(",")]
    except ValueError:
        raise InputError(f"--weights must be numbers with commas between them, found {text!r}") from None
