"""Claims against numbers that were computed beforehand; their origin stands in the golden file."""

import json
from pathlib import Path

import pytest
from hushgrad import accountant

_ROWS = json.loads((Path(__file__).parents[1] / "golden" / "accountant" / "tight.json").read_text())["rows"]


def _name(row):
    s, n = row["sampling_probability"]
    mode = f"{row['sampling']}-{row['adjacency']}"
    return f"{mode}-{s}-of-{n}-sigma-{row['noise_multiplier']:.5g}-rounds-{row['rounds']}-{row['delta']:.1g}"


@pytest.mark.parametrize("row", _ROWS, ids=_name)
def test_claim_is_the_golden_number_and_never_below_a_certified_bound(row):
    s, n = row["sampling_probability"]
    group = accountant.RoundGroup(s / n, row["noise_multiplier"], row["rounds"])

    claim = accountant.from_schedule([group], sampling=row["sampling"], adjacency=row["adjacency"], delta=row["delta"])

    assert claim.epsilon == pytest.approx(row["epsilon"], rel=5e-3)
    assert claim.epsilon >= row.get("lower_bound", 0.0)


def test_fixed_sampling_accounted_as_poisson_would_miss_the_golden_numbers():
    """The twin: the golden numbers tell the two samplers apart."""
    fixed = [row for row in _ROWS if (row["sampling"], row["adjacency"]) == ("fixed", "add-remove")]
    for row in fixed[:3]:
        s, n = row["sampling_probability"]
        group = accountant.RoundGroup(s / n, row["noise_multiplier"], row["rounds"])
        claim = accountant.from_schedule([group], sampling="poisson", adjacency="add-remove", delta=row["delta"])
        assert claim.epsilon < 0.6 * row["epsilon"]
