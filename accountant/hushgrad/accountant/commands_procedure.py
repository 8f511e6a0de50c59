"""The verbs of `hushgrad-accountant` that plan with procedure C.4 and print the paper's tables."""

import json
from collections.abc import Sequence
from typing import Any

import click
from hushgrad.accountant import _theory_input, _theory_output
from hushgrad.accountant.claims import Adjacency, Sampling
from hushgrad.accountant.errors import AccountantError

_COLUMNS = (
    ("sample_size", "", "s"),
    ("rounds", "", "T"),
    ("printed_epsilon", "printed", "epsilon"),
    ("printed_sigma", "", "sigma"),
    ("published_epsilon", "as published", "epsilon"),
    ("published_sigma", "", "sigma"),
    ("failed", "", "fails"),
    ("repaired_epsilon", "repaired", "epsilon"),
    ("repaired_sigma", "", "sigma"),
    ("largest_sample_size", "at printed epsilon", "largest s"),
    ("paper_epsilon_at_printed_sigma", "at printed sigma", "Theorem 2"),
    ("claim_poisson", "tight", "Poisson"),
    ("claim_fixed", "", "fixed"),
)


@click.command()
@_theory_input.COMMON
@click.option("--grad-computations", type=int, required=True, help="K of the next phase.")
@click.option("--epsilon-allowed", type=float, required=True, help="The budget up to and including this phase.")
@click.option("--noise-multiplier", type=float, help="Of the next phase; the first phase may leave it to the theorem.")
@click.option("--earlier", metavar="S:T:X,...", help="The phases before.")
@click.option(
    "--further", metavar="K:X:E,...", help="More phases: K, a lower noise multiplier, and the budget up to there."
)
@click.option("--as-published", is_flag=True, help="C.4 as it is printed, slips included.")
def procedure(
    records: int,
    delta: float,
    sampling: Sampling,
    adjacency: Adjacency,
    accept_large_delta: bool,
    as_json: bool,
    grad_computations: int,
    epsilon_allowed: float,
    noise_multiplier: float | None,
    earlier: str | None,
    further: str | None,
    as_published: bool,
) -> None:
    """Plan phases with procedure C.4: the largest sample size of each that stays within the budget."""
    from hushgrad.accountant import procedure as repaired
    from hushgrad.accountant import verdict

    before = [repaired.Phase(((size, count),), sigma) for size, count, sigma in _theory_input.parse_schedule(earlier)]
    if as_published:
        if further:
            raise AccountantError("--as-published plans one phase; leave --further out")
        values = _published_procedure(before, records, delta, grad_computations, epsilon_allowed, noise_multiplier)
        _theory_output.show(values, as_json=as_json, found=None)
        return
    _theory_input.warn_of_large_delta(delta, records, accept_large_delta)
    phases = list(before)
    plans = []
    wanted = [(grad_computations, noise_multiplier, epsilon_allowed), *_theory_input.parse_further(further)]
    for total, sigma, allowed in wanted:
        plans.append(
            repaired.plan(
                phases,
                records=records,
                grad_computations=total,
                epsilon_allowed=allowed,
                delta=delta,
                noise_multiplier=sigma,
            )
        )
        phases.append(plans[-1].phase)
    report = plans[-1].report
    judged = verdict.judge(
        report.epsilon,
        source="Theorem 2",
        failed=report.failed,
        groups=repaired.round_groups(phases, records),
        sampling=sampling,
        adjacency=adjacency,
        delta=delta,
    )
    values = {
        "phases": [
            {
                "runs": [list(run) for run in plan.phase.runs],
                "noise_multiplier": plan.phase.noise_multiplier,
                "valid_sample_sizes": list(plan.valid),
                "paper_epsilon": plan.report.epsilon,
            }
            for plan in plans
        ],
        "gamma": report.gamma,
        "alpha_bar": report.alpha_bar,
        "theta": report.theta,
        "mean_sample_size": report.mean_sample_size,
        "paper_epsilon": report.epsilon,
        "noise_multiplier": report.noise_multiplier,
        "conditions": _theory_output.conditions(report.conditions),
        "schedule": ",".join(f"{s}:{t}:{phase.noise_multiplier!r}" for phase in phases for s, t in phase.runs),
        "assumes": "all phases are committed before the first round" if len(phases) > 1 else None,
        **_theory_output.verdict(judged),
    }
    _theory_output.show(values, as_json=as_json, found=judged)


@click.command()
@click.option("--table", "number", type=click.IntRange(2, 5), required=True, help="Which table of the paper.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def tables(number: int, as_json: bool) -> None:
    """Print a table of the paper beside what Theorem 2 and tight accounting say."""
    from hushgrad.accountant import paper_tables

    rows = [paper_tables.beside(row) for row in paper_tables.rows(number)]
    if as_json:
        click.echo(json.dumps({"table": number, "rows": _theory_output.plain(rows)}))
        return
    cells = [[_theory_output.short(row[key]) for key, *_ in _COLUMNS] for row in rows]
    headings = [[column[line] for column in _COLUMNS] for line in (1, 2)]
    click.echo(_theory_output.aligned([*headings, *cells]))
    click.echo("What is printed and published is no guarantee: the conditions named fail there.")
    click.echo("Tight: at the printed sigma, one record added or removed, epsilon at delta.")


def _published_procedure(
    before: Sequence[Any],
    records: int,
    delta: float,
    grad_computations: int,
    epsilon_allowed: float,
    noise_multiplier: float | None,
) -> dict[str, Any]:
    from hushgrad.accountant import as_published

    if not abs(delta * as_published.paper_delta(records) ** -1 - 1) <= 1e-3:
        raise AccountantError(f"C.4 sets delta = 1/N = {1 / records:.6g}, found {delta:g}")
    found = as_published.scan(
        [(size, float(count)) for phase in before for size, count in phase.runs],
        records=records,
        grad_computations=grad_computations,
        epsilon_allowed=epsilon_allowed,
        stop="signed",
        noise_multiplier=noise_multiplier,
    )
    last = found[1] if found else None
    return {
        "sample_size": last.sizes.runs[-1][0] if last else None,
        "rounds": last.sizes.runs[-1][1] if last else None,
        "gamma_trace": last.trace if last else None,
        "alpha_bar": last.alpha_bar if last else None,
        "paper_epsilon": last.epsilon if last else None,
        "noise_multiplier": last.noise_multiplier if last else None,
        "claim": None,
        "claimable": False,
        "why_not": "C.4 as published updates gamma once and scans upwards from 1 until it first fails; it is no claim.",
    }


VERBS = (procedure, tables)
