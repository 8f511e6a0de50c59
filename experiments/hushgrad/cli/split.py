"""`hushgrad split`."""

import json
from pathlib import Path

import click


@click.command()
@click.argument("file")
@click.option("--clients", type=int, required=True, help="Number of equally large parts.")
@click.option("--test", "test_fraction", type=float, required=True, help="Share of the test set, 0 for none.")
@click.option("--seed", type=int, required=True, help="Fixes the split.")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="A new folder.")
@click.option("--label", default="y", show_default=True, help="The .csv's label column, or the .npz's label array.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def command(file: str, clients: int, test_fraction: float, seed: int, out: Path, label: str, as_json: bool) -> None:
    """Cut FILE into client-1.npz, client-2.npz, ... and test.npz, to try a federation out on one machine.

    FILE is a .csv file with a header, a .npz file with arrays X and y, or the name of one of scikit-learn's built-in
    sets: breast_cancer, digits, iris, wine.
    """
    from hushgrad.experiments import split_files

    written = split_files.write(file, out, label=label, clients=clients, test_fraction=test_fraction, seed=seed)
    names = dict(enumerate(written.class_names))
    if as_json:
        result = {
            "files": [str(path) for path in written.files],
            "test": str(written.test) if written.test else None,
            "rows": written.rows,
            "test_rows": written.test_rows,
            "left_out": written.left_out,
            "classes": names,
        }
        click.echo(json.dumps(result, indent=2))
        return
    first, last = written.files[0], written.files[-1]
    click.echo(
        f"{first} to {last.name}: {written.rows} records each" if first != last else f"{first}: {written.rows} records"
    )
    if written.test:
        click.echo(f"{written.test}: {written.test_rows} records, the public test set")
    if written.left_out:
        click.echo(f"left out, so that all parts are equally large: {written.left_out}")
    click.echo("labels: " + ", ".join(f"{number} = {name}" for number, name in names.items()))
    click.echo(f"in `hushgrad new`, say --records {written.rows}")
