"""What the theory verbs have in common on the way out: one JSON object, or aligned lines for people."""

import json
import math
from collections.abc import Sequence
from typing import Any

import click
from hushgrad.accountant.theorem2 import Condition
from hushgrad.accountant.verdict import Verdict

_SHOWN_OTHERWISE = ("conditions", "claim", "claimable", "why_not", "phases", "statement")


def conditions(found: Sequence[Condition]) -> dict[str, dict[str, Any]]:
    """Returns conditions by name: both sides, how they are compared, and whether that holds."""
    return {
        condition.name: {
            "lhs": condition.lhs,
            "relation": condition.relation,
            "rhs": condition.rhs,
            "holds": condition.holds,
        }
        for condition in found
    }


def verdict(found: Verdict) -> dict[str, Any]:
    """Returns the three keys with which every answer ends."""
    return {
        "claim": found.claim.to_dict() if found.claim else None,
        "claimable": found.claimable,
        "why_not": found.why_not,
    }


def show(values: dict[str, Any], *, as_json: bool, found: Verdict | None) -> None:
    """Prints an answer; `found` is the verdict whose keys are in it, None if it has no claim."""
    if as_json:
        click.echo(json.dumps(plain(values)))
        return
    click.echo(
        aligned(
            [[name.replace("_", " "), short(value)] for name, value in values.items() if name not in _SHOWN_OTHERWISE]
        )
    )
    for phase in values.get("phases", ()):
        runs = ", ".join(f"{rounds} {'round' if rounds == 1 else 'rounds'} of {size}" for size, rounds in phase["runs"])
        low, high = phase["valid_sample_sizes"]
        click.echo(f"phase: {runs} at noise multiplier {short(phase['noise_multiplier'])} ({low} to {high} possible)")
    if values.get("conditions"):
        rows = [
            [name, short(side["lhs"]), side["relation"], short(side["rhs"]), _outcome(side)]
            for name, side in values["conditions"].items()
        ]
        click.echo(aligned([["condition", "left", "", "right", ""], *rows]))
    if "statement" in values:
        click.echo(f"Theorem 1 says: {values['statement']}.")
    if found is not None:
        click.echo(f"claim: {found.claim.describe()}" if found.claim else "claim: none")
    if values["claimable"]:
        click.echo("The bound above is true for this sampler as well; the claim is the tighter number.")
    else:
        click.echo(f"Not to be shown as true: {values['why_not']}")


def _outcome(side: dict[str, Any]) -> str:
    if side["rhs"] is None:
        return "no epsilon left"
    outcome = "holds" if side["holds"] else "FAILS"
    if side.get("epsilon_from") is None:
        return outcome
    to = "" if side["epsilon_to"] is None or math.isinf(side["epsilon_to"]) else f" to {short(side['epsilon_to'])}"
    return f"{outcome} (for epsilon from {short(side['epsilon_from'])}{to})"


def plain(value: Any) -> Any:
    """Returns values that JSON has: infinities and NaN become null."""
    if isinstance(value, dict):
        return {key: plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def short(value: Any) -> str:
    """Returns a value for a table: six digits, a dash for nothing, a claim as its epsilon at its delta."""
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list | tuple):
        return " ".join(short(inner) for inner in value)
    if isinstance(value, dict):
        return f"{value['epsilon']:g} at {value['delta']:.4g}"
    return "-" if value is None else str(value)


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Returns rows as lines with columns of one width each."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )
