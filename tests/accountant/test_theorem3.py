"""Theorem 3 and Theorem 1 against golden numbers and their own definitions."""

import json
import math
from pathlib import Path

import pytest
from hushgrad.accountant import AccountantError, RoundGroup, sizes, theorem1, theorem2_inverse, theorem3
from hushgrad.accountant.sizes import SampleSizes

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "accountant" / "theory.json").read_text())
PROOFS = {"paper": "printed", "corrected": "repaired"}
NAMES = {"epsilon": "eps", "r0": "r0", "u0": "u0", "u1": "u1", "r": "r", "rho": "rho", "rho_hat": "rhohat"}


@pytest.mark.parametrize("row", GOLDEN["theorem3"], ids=lambda row: f"{row['flavour']}-sigma-{row['sigma']}")
def test_theorem3_is_the_golden_number(row):
    report = theorem3.smallest_epsilon(
        SampleSizes(tuple((size, rounds) for size, rounds in row["runs"])),
        records=row["N"],
        delta=row["delta"],
        noise_multiplier=row["sigma"],
        proof=PROOFS[row["flavour"]],
    )

    expected = row["result"]
    for ours, theirs in {**NAMES, "c1": "c1", "c0": "c0"}.items():
        assert getattr(report, ours) == pytest.approx(expected[theirs], rel=1e-9)
    assert report.moments == pytest.approx(expected["S"], rel=1e-9)
    assert report.branch == expected["branch"].replace("rhohat", "rho_hat")
    assert report.failed == ()


def test_c_is_continuous_and_its_branches_meet_where_38_says():
    r, rho, rho_hat = 0.45, 1.1, 0.9
    meeting = 2 * r * rho / rho_hat**2 + 2 / rho_hat  # (38)

    below, at, above = (theorem3.c(meeting * factor, r=r, rho=rho, rho_hat=rho_hat) for factor in (0.999, 1.0, 1.001))

    assert at == pytest.approx(2 / (rho_hat * meeting), rel=1e-12)
    assert below > at > above


def test_on_the_other_branch_the_bound_on_noise_is_met_with_equality():
    """Few long rounds: the root is the smaller in c, and epsilon lies above what (12) asks for."""
    found = sizes.constant(30, 9_000_000)

    report = theorem3.smallest_epsilon(found, records=1000, delta=1e-5, noise_multiplier=10.0)

    assert report.branch == "root"
    assert report.epsilon > theorem2_inverse.epsilon_of_noise(10.0, 1e-5)
    noise = report.conditions[-1]
    assert (noise.name, noise.holds) == ("noise", True)
    assert noise.lhs == pytest.approx(noise.rhs, rel=1e-9)


def test_premises_that_fail_are_named_and_leave_no_epsilon():
    # s_max / N = 0.2 and sigma = 6: r0 = 1.2 is above 1/e, and u0 is above 1.
    report = theorem3.smallest_epsilon(sizes.constant(200, 2000), records=1000, delta=1e-5, noise_multiplier=6.0)

    assert math.isinf(report.epsilon)
    assert {condition.name for condition in report.failed} == {"r0", "u0"}


def test_little_noise_leaves_no_epsilon():
    report = theorem3.smallest_epsilon(sizes.constant(1, 2000), records=100_000, delta=1e-5, noise_multiplier=1.4)

    assert math.isinf(report.epsilon)


@pytest.mark.parametrize("noise_multiplier", [0.0, -1.0, math.nan, math.inf, True])
def test_bad_noise_is_refused(noise_multiplier):
    with pytest.raises(AccountantError, match="noise_multiplier"):
        theorem3.smallest_epsilon(sizes.constant(1, 100), records=1000, delta=1e-5, noise_multiplier=noise_multiplier)


def test_a_sample_of_everything_is_refused():
    with pytest.raises(AccountantError, match="at most 99"):
        theorem3.moments(sizes.constant(100, 1000), 100)


def test_theorem1_has_no_constants_so_the_implied_ones_move_with_the_setting():
    few = theorem1.compare(RoundGroup(0.01, 4.0, 100), delta=1e-5)
    many = theorem1.compare(RoundGroup(0.01, 4.0, 100_000), delta=1e-5)
    loud = theorem1.compare(RoundGroup(0.3, 0.8, 10), delta=1e-5)

    assert few.implied_c1 > 4 * many.implied_c1
    assert loud.implied_c2 > 2 * few.implied_c2
    # Definitions (4): z = q sqrt(T / epsilon), and c2 z = sigma sqrt(epsilon / L).
    for found in (few, many, loud):
        assert found.implied_c1 == pytest.approx(1 / found.z**2)
        assert found.c2_times_z == pytest.approx(found.implied_c2 * found.z)
