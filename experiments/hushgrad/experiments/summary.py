"""summary.json and the tables that end a demo: what was reached, and at which price. Values in, values out."""

import csv
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from hushgrad.experiments.fetch import Outcome
from rich import box
from rich.console import Console
from rich.table import Table

PACKAGES = ("hushgrad", "numpy", "grpcio", "protobuf", "cryptography", "dp-accounting", "scikit-learn")


@dataclass(frozen=True, slots=True)
class Scores:
    """Accuracies on the public test set, 0 to 1."""

    final: float
    averaged: float
    reference: float


@dataclass(frozen=True, slots=True)
class HistoryRow:
    """One version as the evaluator scored it."""

    version: int
    seconds: float
    accuracy: float
    accuracy_averaged: float | None


def summarise(
    *,
    outcome: Outcome,
    scores: Scores,
    claims: Mapping[str, Mapping[str, Any]],
    noise_multipliers: Mapping[str, float],
    ledgers_verified: bool,
    seed: int,
    wall_seconds: float,
) -> dict[str, Any]:
    """Returns what summary.json says. Its claim is the largest of the clients': every record's is at most that.

    Args:
        outcome: how the federation ended.
        scores: of its models, and of the reference.
        claims: by client, as committed to its ledger before round 0.
        noise_multipliers: by client, the smallest that it declared.
        ledgers_verified: whether every ledger's chain holds.
        seed: of split, parts and initial model.
        wall_seconds: of the whole demo.
    """
    largest = max(claims.values(), key=lambda claim: (claim["epsilon"], claim["delta"]))
    return {
        "test_accuracy": scores.final,
        "test_accuracy_averaged": scores.averaged,
        "reference_accuracy": scores.reference,
        "claim": dict(largest),
        "noise_multiplier": min(noise_multipliers.values()),
        "clip_norm": outcome.terms.privacy.clip_norm,
        "global_version": outcome.version,
        "updates_accepted": outcome.updates_accepted,
        "updates_duplicate": outcome.updates_duplicate,
        "wall_seconds": round(wall_seconds, 2),
        "federation": outcome.terms.federation,
        "model": outcome.terms.model,
        "parameters": outcome.terms.parameters,
        "terms_digest": outcome.terms_digest.hex(),
        "seed": seed,
        "noise": "secure",
        "participants": {
            name: {"claim": dict(claims[name]), "noise_multiplier": noise_multipliers[name]} for name in claims
        },
        "ledgers_verified": ledgers_verified,
        "versions": {"python": platform.python_version(), **{name: metadata.version(name) for name in PACKAGES}},
    }


def read_curve(path: Path) -> list[HistoryRow]:
    """Reads the evaluator's curve.csv."""
    with path.open(newline="") as file:
        return [
            HistoryRow(
                version=int(row["version"]),
                seconds=float(row["seconds"]),
                accuracy=float(row["accuracy"]),
                accuracy_averaged=float(row["accuracy_averaged"]) if row["accuracy_averaged"] else None,
            )
            for row in csv.DictReader(file)
        ]


def write_history(path: Path, rows: Sequence[HistoryRow]) -> None:
    """Writes history.csv."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["version", "seconds", "accuracy", "accuracy_averaged"])
        for row in rows:
            averaged = "" if row.accuracy_averaged is None else f"{row.accuracy_averaged:.6f}"
            writer.writerow([row.version, f"{row.seconds:.3f}", f"{row.accuracy:.6f}", averaged])


def claim_words(claim: Mapping[str, Any]) -> str:
    """Returns a claim in one line, nothing left out."""
    return (
        f"epsilon {claim['epsilon']:g} at delta {claim['delta']:g} per {claim['unit']} "
        f"({claim['adjacency']}, {claim['sampling']} sampling, {claim['method'].upper()})"
    )


def show(console: Console, summary: Mapping[str, Any]) -> None:
    """Prints the tables that end a demo."""
    scores = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    scores.add_column("model")
    scores.add_column("test accuracy", justify="right")
    scores.add_column("epsilon", justify="right")
    epsilon = f"{summary['claim']['epsilon']:g}"
    scores.add_row("last version, private", f"{summary['test_accuracy']:.2%}", epsilon)
    scores.add_row("average of the second half, private", f"{summary['test_accuracy_averaged']:.2%}", epsilon)
    scores.add_row("without privacy, all records in one place", f"{summary['reference_accuracy']:.2%}", "unlimited")
    console.print(scores)
    console.print(
        f"Each client's whole run costs its records at most {claim_words(summary['claim'])}.\n"
        f"{summary['updates_accepted']} updates made {summary['global_version']} versions in "
        f"{summary['wall_seconds']:.0f} s; "
        + ("all ledgers verify." if summary["ledgers_verified"] else "A LEDGER DOES NOT VERIFY."),
        highlight=False,
        soft_wrap=True,
    )
