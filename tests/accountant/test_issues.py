"""Scenarios from public reports about other accountants: the right number on the command line, not the wrong one."""

import json
import sys
from pathlib import Path

import pytest
from hushgrad.accountant import __main__ as entry

_ROWS = json.loads((Path(__file__).parents[1] / "golden" / "accountant" / "issues.json").read_text())["rows"]


@pytest.mark.parametrize("row", _ROWS, ids=[f"{row['ref'].split(';')[0]}: {row['what'][:30]}" for row in _ROWS])
def test_the_reported_scenario_gets_the_right_number(row, capsys, monkeypatch):
    options = {
        name.replace("_", "-"): row[name]
        for name in ("sampling", "adjacency", "records", "sample_size", "rounds", "noise_multiplier", "delta")
    }
    arguments = [f"--{name}={value}" for name, value in options.items()]
    monkeypatch.setattr(sys, "argv", ["hushgrad-accountant", "epsilon", *arguments, "--accept-large-delta", "--json"])

    with pytest.raises(SystemExit) as ended:
        entry.main()

    assert not ended.value.code
    claim = json.loads(capsys.readouterr().out)
    assert claim["epsilon"] == pytest.approx(row["right"], rel=5e-3, abs=1e-12)
    assert claim["epsilon"] >= row.get("lower_bound", 0.0)
    assert claim["method"] == row.get("method", "pld")
    assert claim["sampling"] == row["sampling"]
    assert claim["adjacency"] == row["adjacency"]
    assert "wrong" not in row or claim["epsilon"] != pytest.approx(row["wrong"], rel=0.03)
