"""Plans: every row keeps its promise, and what the paper says is shown only where it is true."""

import json
import sys

import pytest
from hushgrad import accountant
from hushgrad.accountant import AccountantError, RoundGroup, planner
from hushgrad.accountant import __main__ as entry

_ASKED = {
    "records": 10_000,
    "grad_computations": 50_000,
    "epsilon": 0.5,
    "delta": 1e-4,
    "sampling": "poisson",
    "adjacency": "add-remove",
}


@pytest.fixture(scope="module")
def plans():
    return planner.plan(**_ASKED, sample_sizes=(1000, 168, 300), parameters=785)


def test_every_row_is_a_run_that_costs_at_most_what_was_asked(plans):
    assert [row.sample_size for row in plans] == [168, 300, 1000]
    for row in plans:
        assert row.rounds == -(-50_000 // row.sample_size)
        group = RoundGroup(row.sample_size / 10_000, row.noise_multiplier, row.rounds)
        again = accountant.from_schedule([group], sampling="poisson", adjacency="add-remove", delta=1e-4)
        assert row.claim == again
        assert 0.497 < row.claim.epsilon <= 0.5
        assert (row.bytes_per_round, row.bytes_total) == (4 * 785, 4 * 785 * row.rounds)


def test_larger_samples_ask_for_more_noise_a_round(plans):
    sigmas = [row.noise_multiplier for row in plans]

    assert sigmas == sorted(sigmas)


def test_the_papers_epsilon_is_shown_only_where_it_is_true(plans):
    for row in plans:
        assert (row.paper_epsilon is None) == (row.why_not is not None)
        assert row.paper_epsilon is None or row.paper_epsilon >= row.claim.epsilon
    assert any(row.paper_epsilon is not None for row in plans)
    (large,) = planner.plan(**{**_ASKED, "delta": 1e-5}, sample_sizes=(5000,))
    assert "condition (9)" in large.why_not


def test_replaced_records_and_fixed_samples_need_more_noise():
    needed = {
        (sampling, adjacency): planner.plan(
            **{**_ASKED, "sampling": sampling, "adjacency": adjacency}, sample_sizes=(400,)
        )[0].noise_multiplier
        for sampling in ("poisson", "fixed")
        for adjacency in ("add-remove", "replace-one")
    }

    assert needed["poisson", "add-remove"] < needed["poisson", "replace-one"] < needed["fixed", "replace-one"]
    assert needed["poisson", "add-remove"] < needed["fixed", "add-remove"] < needed["fixed", "replace-one"]


def test_without_sizes_a_spread_is_compared():
    assert planner._spread(50_000, 10_000) == [10, 20, 50, 100, 200, 500, 1000, 2000, 5000]
    assert planner._spread(50_000, 100) == [10, 20, 50, 100]


@pytest.mark.parametrize(
    "change",
    [
        {"records": 0},
        {"records": True},
        {"grad_computations": 0},
        {"grad_computations": 1.5},
        {"epsilon": 0},
        {"epsilon": None},
        {"delta": 0},
        {"sample_sizes": (0,)},
        {"sample_sizes": (10_001,)},
        {"sampling": "fixed", "sample_sizes": (10_000,)},
        {"parameters": 0},
        {"sampling": "shuffle", "sample_sizes": (10,)},
        {"adjacency": "zero-out", "sample_sizes": (10,)},
        {"records": 1, "grad_computations": 1},
    ],
)
def test_what_cannot_be_planned_is_refused(change):
    with pytest.raises(AccountantError):
        planner.plan(**{**_ASKED, **change})


def _run(capsys, monkeypatch, arguments):
    monkeypatch.setattr(sys, "argv", ["hushgrad-accountant", *arguments.split()])
    with pytest.raises(SystemExit) as ended:
        entry.main()
    output = capsys.readouterr()
    return ended.value.code or 0, output.out, output.err


_COMMAND = "plan --sampling poisson --adjacency add-remove --records 1000 --epsilon 1 --delta 1e-5"


def test_the_command_prints_a_table_or_json(capsys, monkeypatch):
    code, out, _ = _run(capsys, monkeypatch, f"{_COMMAND} --epochs 2 --sample-sizes 100,200 --parameters 10 --json")
    assert code == 0
    answer = json.loads(out)
    assert [row["rounds"] for row in answer["plans"]] == [20, 10]
    assert set(answer["plans"][0]["claim"]) >= {"epsilon", "delta", "sampling", "adjacency"}
    assert "epsilon" not in answer

    code, out, _ = _run(capsys, monkeypatch, f"{_COMMAND} --grad-computations 2000 --sample-sizes 100")
    assert code == 0
    assert "differential privacy" in out


@pytest.mark.parametrize(
    "arguments",
    ["", "--epochs 1 --grad-computations 1000", "--epochs 0", "--epochs nan", "--epochs 1 --sample-sizes 1,x"],
)
def test_bad_input_is_one_line(capsys, monkeypatch, arguments):
    code, out, err = _run(capsys, monkeypatch, f"{_COMMAND} {arguments}")

    assert (code, out, err.count("\n")) == (2, "", 1)
