"""Procedure C.4, as published and repaired."""

import json
import math
from pathlib import Path

import pytest
from hushgrad.accountant import (
    AccountantError,
    BudgetError,
    as_published,
    procedure,
    sizes,
    theorem2,
    theorem2_inverse,
)
from hushgrad.accountant.procedure import Phase
from hushgrad.accountant.sizes import SampleSizes

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "accountant" / "c4.json").read_text())
STOPS = {"literal": "signed", "abs": "absolute"}


def _assert_same(found, expected):
    assert found.trace == pytest.approx(expected["trace_gamma"], rel=1e-9)
    for ours, theirs in (
        (found.sizes.runs[-1][0], "s"),
        (found.sizes.rounds, "T"),
        (found.sizes.grad_computations, "K"),
        (found.sizes.mean, "sbar"),
        (found.sizes.theta, "theta"),
        (found.gamma, "gamma"),
        (found.gamma_new, "gamma_new"),
        (found.epsilon, "eps"),
        (found.noise_multiplier, "sigma"),
        (found.alpha_bar, "abar"),
    ):
        assert ours == pytest.approx(expected[theirs], rel=1e-9)


@pytest.mark.parametrize("row", GOLDEN["first"], ids=lambda row: f"{row['stop']}-N-{row['N']}-{row['eps_allowed']}")
def test_first_phase_as_published_is_the_golden_trace(row):
    found = as_published.scan(
        [],
        records=row["N"],
        grad_computations=row["K0"],
        epsilon_allowed=row["eps_allowed"],
        stop=STOPS[row["stop"]],
    )

    if row["result"] is None:
        assert found is None
    else:
        _assert_same(found[1], row["result"])


@pytest.mark.parametrize("row", GOLDEN["second"], ids=lambda row: f"N-{row['N']}-sigma-{row['sigma1']}")
def test_second_phase_as_published_is_the_golden_trace_and_the_whole_range_finds_more(row):
    setting = {
        "records": row["N"],
        "grad_computations": row["K1"],
        "epsilon_allowed": row["eps_allowed"],
        "stop": "signed",
        "noise_multiplier": row["sigma1"],
    }
    earlier = [(row["s0"], row["T0"])]

    literal = as_published.scan(earlier, **setting)
    whole = as_published.scan(earlier, whole_range=True, **setting)

    if row["literal_scan_from_1"] is None:
        assert literal is None
    else:
        _assert_same(literal[1], row["literal_scan_from_1"])
    assert [found.sizes.runs[-1][0] for found in whole] == [row["valid_s_min"], row["valid_s_max"]]
    _assert_same(whole[1], row["result_full_scan"])


@pytest.mark.parametrize(
    "row",
    [row for row in GOLDEN["first"] if row["stop"] == "abs"],
    ids=lambda row: f"N-{row['N']}-{row['eps_allowed']}",
)
def test_repaired_first_phase_ends_where_the_converged_iteration_does(row):
    setting = {
        "records": row["N"],
        "grad_computations": row["K0"],
        "epsilon_allowed": row["eps_allowed"],
        "delta": 1 / row["N"],
    }
    if row["result"] is None:
        with pytest.raises(BudgetError) as refused:
            procedure.plan([], **setting)
        assert refused.value.requested[0] > row["eps_allowed"]
        return

    plan = procedure.plan([], **setting)

    assert plan.valid == (1, row["result"]["s"])
    # The iteration may stop up to 1e-4 short of (11), and whole rounds move theta a little.
    assert plan.report.epsilon == pytest.approx(row["result"]["eps"], rel=2e-2)
    assert plan.report.epsilon <= row["eps_allowed"]
    assert plan.report.holds


@pytest.mark.parametrize("row", GOLDEN["second"], ids=lambda row: f"N-{row['N']}-sigma-{row['sigma1']}")
def test_repaired_further_phase_covers_the_whole_range(row):
    """Both ends against every sample size one by one, with the closed forms."""
    earlier = (row["s0"], row["T0"])
    records, delta, sigma = row["N"], 1 / row["N"], row["sigma1"]

    plan = procedure.plan(
        [Phase((earlier,), 30.0)],
        records=records,
        grad_computations=row["K1"],
        epsilon_allowed=row["eps_allowed"],
        delta=delta,
        noise_multiplier=sigma,
    )

    def valid(size):
        found = SampleSizes((earlier, (size, row["K1"] / size)))
        epsilon = theorem2_inverse.smallest_epsilon(found, records=records, delta=delta, noise_multiplier=sigma)
        return (
            epsilon <= row["eps_allowed"]
            and theorem2.evaluate(found, records=records, epsilon=epsilon, delta=delta, noise_multiplier=sigma).holds
        )

    every = [size for size in range(1, records // 6) if valid(size)]
    assert plan.valid == (every[0], every[-1])
    assert len(every) == every[-1] - every[0] + 1
    # The gamma of the published scan is too large, so it misses sizes at both ends.
    assert plan.valid[0] <= row["valid_s_min"] <= row["valid_s_max"] <= plan.valid[1]


def test_rounds_are_whole_and_add_up():
    plan = procedure.plan([], records=10_000, grad_computations=50_000, epsilon_allowed=0.05, delta=1e-4)

    assert sum(size * rounds for size, rounds in plan.phase.runs) == 50_000
    assert all(isinstance(rounds, int) for _, rounds in plan.phase.runs)
    assert plan.sizes.theta == pytest.approx(1.0, abs=1e-3)


def test_a_ladder_stays_within_its_budgets_and_never_adds_noise():
    phases = []
    for total, sigma, allowed in ((25_000, None, 0.05), (25_000, 8.0, 0.5), (20_000, 6.0, 1.0)):
        plan = procedure.plan(
            phases,
            records=10_000,
            grad_computations=total,
            epsilon_allowed=allowed,
            delta=1e-4,
            noise_multiplier=sigma,
        )
        assert plan.report.holds
        assert plan.report.epsilon <= allowed
        phases.append(plan.phase)

    assert plan.sizes.grad_computations == 70_000
    noises = [phase.noise_multiplier for phase in phases]
    assert noises == sorted(noises, reverse=True)


def test_more_noise_in_a_further_phase_is_refused():
    with pytest.raises(AccountantError, match="at most the lowest so far"):
        procedure.plan(
            [Phase(((50, 500),), 8.0)],
            records=10_000,
            grad_computations=1000,
            epsilon_allowed=1.0,
            delta=1e-4,
            noise_multiplier=9.0,
        )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("records", 0),
        ("grad_computations", 0),
        ("grad_computations", True),
        ("epsilon_allowed", 0.0),
        ("epsilon_allowed", math.inf),
        ("epsilon_allowed", math.nan),
        ("epsilon_allowed", None),
        ("delta", 0.0),
        ("delta", 1.0),
        ("noise_multiplier", 0.0),
        ("noise_multiplier", math.nan),
    ],
)
def test_bad_numbers_are_refused(name, value):
    good = {"records": 1000, "grad_computations": 1000, "epsilon_allowed": 1.0, "delta": 1e-4}

    with pytest.raises(AccountantError, match=name):
        procedure.plan([], **{**good, name: value})


def test_an_iteration_off_the_branch_ends():
    found = as_published.iterate(sizes.constant(90, 100), records=100, delta=0.01, stop="absolute")

    assert not as_published.accepts(found, records=100, delta=0.01, epsilon_allowed=1e9)
