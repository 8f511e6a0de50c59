"""From finished runs to rows of a table: runs that differ in their seed alone are one row. Values in, values out."""

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

CAUTION = (
    "{runs} runs were made on these data. A claim covers one run whose settings were fixed without looking at the "
    "records; choosing the best of several runs by their accuracy is not covered by any claim here."
)
SEEDED = "Simulated runs draw seeded noise, which protects nobody: they say what the same settings would claim."


@dataclass(frozen=True, slots=True)
class Row:
    """Runs that differ in their seed alone.

    Attributes:
        axes: what the sweep varied, by dotted key.
        labels: words of the file, such as what a paper printed.
        backend: which made them.
        runs: as `store.read` returns them, by seed.
    """

    axes: Mapping[str, Any]
    labels: Mapping[str, Any]
    backend: str
    runs: tuple[Mapping[str, Any], ...]

    def mean(self, key: str) -> float:
        """Returns the mean of a number over the seeds."""
        return statistics.fmean(self.values(key))

    def std(self, key: str) -> float:
        """Returns the standard deviation over the seeds (n - 1); 0 for one seed."""
        values = self.values(key)
        return statistics.stdev(values) if len(values) > 1 else 0.0

    def values(self, key: str) -> list[float]:
        """Returns a number of each run, by seed."""
        return [float(run[key]) for run in self.runs]

    @property
    def first(self) -> Mapping[str, Any]:
        """The first run, for what all of them share."""
        return self.runs[0]

    @property
    def claim(self) -> Mapping[str, Any] | None:
        """What a client's whole run claims, or would claim; None without noise."""
        found: Mapping[str, Any] | None = self.first["claim"] or self.first["would_claim"]
        return found


def rows(runs: Sequence[Mapping[str, Any]]) -> list[Row]:
    """Returns one row for each setting, in order of the runs' numbers."""
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for run in sorted(runs, key=lambda run: (run["number"], run["backend"])):
        same = {**run["configuration"], "seeds": None}
        groups.setdefault(json.dumps([run["backend"], run["axes"], same], sort_keys=True), []).append(run)
    return [
        Row(group[0]["axes"], group[0]["labels"], group[0]["backend"], tuple(sorted(group, key=_seed)))
        for group in groups.values()
    ]


def summary(row: Row) -> dict[str, Any]:
    """Returns what a table says of a row, as plain values."""
    averaged = [run["accuracy_averaged"] for run in row.runs if run["accuracy_averaged"] is not None]
    shared = row.first.get("claim_for_shared_record") or row.first.get("would_claim_for_shared_record")
    return {
        **dict(row.axes),
        **{key: value for key, value in row.labels.items() if f"labels.{key}" not in row.axes},
        "backend": row.backend,
        "rounds": row.first["rounds"],
        "sample_size": row.first["sample_size"],
        "noise_multiplier": row.first["noise_multiplier"],
        "claim": row.claim,
        "claim_for_shared_record": shared,
        "trusted": row.first["trusted"],
        "runs": len(row.runs),
        "accuracy_mean": row.mean("accuracy"),
        "accuracy_std": row.std("accuracy"),
        "accuracy_averaged_mean": statistics.fmean(averaged) if averaged else None,
        "seconds_mean": row.mean("seconds") if row.backend == "simulate" else None,
        "bytes_up_mean": row.mean("bytes_up"),
    }


def caution(runs: int, backends: Sequence[str]) -> str:
    """Returns what stands below every table of a sweep."""
    text = CAUTION.format(runs=runs)
    return f"{text} {SEEDED}" if "simulate" in backends else text


def _seed(run: Mapping[str, Any]) -> int:
    return int(run["seed"])
