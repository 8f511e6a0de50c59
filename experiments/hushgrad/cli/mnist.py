"""`hushgrad mnist`."""

import json
import time
from pathlib import Path
from typing import Literal

import click


@click.command()
@click.argument("model", type=click.Choice(["features", "lenet"]))
@click.option("--seeds", default="1,2,3", show_default=True, help="Of initial models; one federation each.")
@click.option(
    "--out", type=click.Path(file_okay=False, path_type=Path), help="A new folder. [default: runs/mnist-MODEL-TIME]"
)
@click.option("--json", "as_json", is_flag=True, help="Print summary.json and nothing else.")
def command(model: Literal["features", "lenet"], seeds: str, out: Path | None, as_json: bool) -> None:
    """Train on MNIST over gRPC: five clients that each hold all 60,000 digits, epsilon 0.15 per client.

    MODEL is a softmax regression on fixed oriented gradients, or LeNet-5. HUSHGRAD_DATA names the folder of the four
    MNIST files. The report gives the claim of one client and that of a digit that all five hold.
    """
    from hushgrad.experiments import mnist
    from hushgrad.experiments.errors import InputError
    from rich.console import Console

    numbers = [part.strip() for part in seeds.split(",")]
    if not all(number.isdecimal() for number in numbers) or len(set(numbers)) != len(numbers):
        raise InputError(f"--seeds must be different whole numbers separated by commas, found {seeds!r}")
    folder = out or Path("runs") / time.strftime(f"mnist-{model}-%Y%m%d-%H%M%S")
    console = Console(stderr=as_json, quiet=as_json)
    found = mnist.run(model, tuple(int(number) for number in numbers), folder, console)
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return
    mnist.show(console, found)
    console.print(f"Picture: {folder / 'accuracy.png'}; everything else: {folder}", highlight=False, soft_wrap=True)
