"""The verbs of `hushgrad-accountant` that look ahead and look back: plan a run, check an exported ledger."""

import json
from typing import IO

import click
from hushgrad.accountant import _validate, claims, planner
from hushgrad.accountant import check as checking
from hushgrad.accountant.check import Check
from hushgrad.accountant.claims import Adjacency, Sampling
from hushgrad.accountant.errors import AccountantError


@click.command()
@click.option("--sampling", type=click.Choice(["poisson", "fixed"]), required=True)
@click.option("--adjacency", type=click.Choice(["add-remove", "replace-one"]), required=True)
@click.option("--records", type=int, required=True, help="N, the declared number of records.")
@click.option("--epochs", type=float, help="K / N: how often each record is used on average.")
@click.option("--grad-computations", type=int, help="K, instead of --epochs.")
@click.option("--epsilon", type=float, required=True, help="What the whole run may cost.")
@click.option("--delta", type=float, required=True, help="In (0, 1).")
@click.option("--accept-large-delta", is_flag=True, help="Allow a delta above 1/N.")
@click.option("--sample-sizes", metavar="S,S,...", help="To compare. [default: a spread]")
@click.option("--parameters", type=int, help="d of the model, for the bytes on the wire.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object; `hushgrad plot --frontier` draws it.")
def plan(
    sampling: Sampling,
    adjacency: Adjacency,
    records: int,
    epochs: float | None,
    grad_computations: int | None,
    epsilon: float,
    delta: float,
    accept_large_delta: bool,
    sample_sizes: str | None,
    parameters: int | None,
    as_json: bool,
) -> None:
    """Compare sample sizes at one epsilon and one number of gradients: rounds, noise, bytes.

    More rounds of smaller samples need less noise a round; they cost bytes and time instead. At a fixed sample size
    rounds are never free: epsilon grows about like their square root.
    """
    warning = claims.check_delta(delta, records, accept_large=accept_large_delta)
    if warning:
        click.echo(f"warning: {warning}", err=True)
    rows = planner.plan(
        records=records,
        grad_computations=_grad_computations(records, epochs, grad_computations),
        epsilon=epsilon,
        delta=delta,
        sampling=sampling,
        adjacency=adjacency,
        sample_sizes=_sizes(sample_sizes),
        parameters=parameters,
    )
    if as_json:
        asked = {
            "records": records,
            "epsilon_allowed": epsilon,
            "delta": delta,
            "sampling": sampling,
            "adjacency": adjacency,
            "parameters": parameters,
        }
        click.echo(json.dumps({**asked, "plans": [row.to_dict() for row in rows]}))
        return
    click.echo(f"{'s':>8} {'T':>8} {'sigma':>8} {'epsilon':>9} {'paper':>9} {'MB sent':>9}")
    for row in rows:
        paper = "-" if row.paper_epsilon is None else f"{row.paper_epsilon:.4g}"
        sent = "-" if row.bytes_total is None else f"{row.bytes_total / 1e6:.4g}"
        click.echo(
            f"{row.sample_size:>8} {row.rounds:>8} {row.noise_multiplier:>8g} {row.claim.epsilon:>9g} {paper:>9} "
            f"{sent:>9}"
        )
    click.echo(f"each row: {rows[-1].claim.describe()}")
    if rows[-1].why_not:
        click.echo(f"paper, last row: {rows[-1].why_not}")


@click.command()
@click.argument("file", type=click.File("r"))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def check(file: IO[str], as_json: bool) -> None:
    """Recompute the claims of an exported ledger from FILE alone, and follow its chain; exit 1 where it disagrees.

    FILE is what `hushgrad-client ledger export` prints; - reads standard input.
    """
    try:
        document = json.load(file)
    except (ValueError, RecursionError) as error:
        raise AccountantError(f"{file.name} is not JSON: {error}") from None
    found = checking.check(document)
    if as_json:
        click.echo(json.dumps(found.to_dict()))
    else:
        for line in _lines(found):
            click.echo(line)
    if not found.agrees:
        click.get_current_context().exit(1)


VERBS: tuple[click.Command, ...] = (plan, check)


def _lines(found: Check) -> list[str]:
    lines = [f"{found.rows} rows, head {found.head}"]
    for run in found.runs:
        if run.claim is not None:
            lines.append(f"{run.federation}: claims {run.claim.describe(clipped_by_caller=run.clipped_by_caller)}")
        if run.from_commit is not None and run.from_updates is not None:
            lines.append(
                f"  recomputed from the commit row {run.from_commit.epsilon:g}, from {run.from_updates.rounds} update "
                f"rows {run.from_updates.epsilon_so_far:g} ({run.from_updates.label})"
            )
        lines += [f"  DISAGREES: {fault}" for fault in run.faults]
    lines += [f"DISAGREES: {fault}" for fault in found.faults]
    lines.append("everything agrees" if found.agrees else "this ledger does not hold what it says")
    return lines + [f"not checked: {sentence}" for sentence in checking.NOT_CHECKED]


def _grad_computations(records: int, epochs: float | None, grad_computations: int | None) -> int:
    if (epochs is None) == (grad_computations is None):
        raise AccountantError("give either --epochs or --grad-computations")
    if grad_computations is not None:
        return grad_computations
    return round(_validate.positive("epochs", epochs) * records)


def _sizes(text: str | None) -> list[int]:
    try:
        return [int(part) for part in text.split(",")] if text is not None else []
    except ValueError:
        raise AccountantError(f"--sample-sizes is a list of whole numbers, found {text!r}") from None
