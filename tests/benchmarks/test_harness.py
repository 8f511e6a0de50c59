"""What a figure is, and that one which could not be measured makes the run fail."""

import json
import sys

import pytest

from benchmarks import __main__ as command
from benchmarks import harness


def good():
    measured = harness.Pairs(ours=(0.002, 0.004, 0.003), yardstick=(0.001, 0.001, 0.002))
    yield measured.row(name="good", value=measured.seconds * 1e3, unit="ms", against="half of it", bar=2.0)


def broken():
    raise FileNotFoundError("no peer")
    yield


@pytest.fixture
def run(monkeypatch, tmp_path):
    def run(groups, *arguments):
        monkeypatch.setattr(command, "GROUPS", groups)
        monkeypatch.setattr(sys, "argv", ["benchmarks", "--output", str(tmp_path / "bench.json"), *arguments])
        return command.main(), json.loads((tmp_path / "bench.json").read_text())

    return run


def test_row_has_the_promised_keys_and_the_median_ratio(run):
    code, written = run({"good": good})
    assert code == 0
    assert written["ratios"] == [
        # Ratios 2, 4 and 1.5; times 2, 4 and 3 ms.
        {
            "name": "good",
            "value": 3.0,
            "unit": "ms",
            "against": "half of it",
            "ratio": 2.0,
            "bar": 2.0,
            "holds": True,
        }
    ]


def test_figure_that_could_not_be_measured_fails_the_run_and_keeps_the_others(run, capsys):
    code, written = run({"broken": broken, "good": good})
    assert code == 1
    assert [row["name"] for row in written["ratios"]] == ["good"]
    assert written["not_measured"] == [{"name": "broken", "reason": "FileNotFoundError: no peer"}]
    assert "NOT MEASURED broken: FileNotFoundError: no peer" in capsys.readouterr().err


def test_figure_over_its_bar_fails_a_strict_run_only(run):
    def slow():
        yield harness.Pairs((3.0,), (1.0,)).row(name="slow", value=3.0, unit="s", against="1 s", bar=2.0)

    assert run({"slow": slow})[0] == 0
    assert run({"slow": slow}, "--strict")[0] == 1


@pytest.mark.parametrize(
    ("value", "sense", "holds"), [(2.0, "at most", True), (2.1, "at most", False), (1.9, "at least", False)]
)
def test_bound_is_judged_on_the_right_side_and_written_with_the_verdict(run, value, sense, holds):
    def bound():
        yield harness.Bound("fast", value, "ms", 2.0, sense)

    code, written = run({"bound": bound}, "--strict")
    assert code == (0 if holds else 1)
    assert written["bounds"][0]["holds"] is holds


def test_both_sides_are_measured_in_turn_and_who_begins_alternates():
    order = []
    harness.side_by_side(
        lambda: order.append("a"), lambda: order.append("b"), ours_times=1, yardstick_times=2, repeats=2
    )
    assert "".join(order) == "abb" + "abb" + "bba"  # one to warm up, then two pairs
