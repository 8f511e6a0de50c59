"""A lifetime budget adds up exactly, refuses what does not fit, and is unchanged by a refusal."""

import math

import pytest
from hushgrad.accountant import AccountantError, Budget, BudgetError, Claim


def _claim(epsilon, delta=1e-6):
    return Claim(epsilon, delta, "add-remove", "poisson", method_version="1")


def test_five_runs_of_a_tenth_fit_into_a_half_and_a_sixth_run_does_not():
    """In binary floating point 0.1 + 0.1 + 0.1 is above 0.3; budgets are decimals."""
    budget = Budget(lifetime_epsilon=0.5, lifetime_delta=1e-5)
    for number in range(5):
        budget.charge(f"run {number}", _claim(0.1))

    assert budget.left() == (0.0, 5e-6)
    with pytest.raises(BudgetError):
        budget.charge("run 5", _claim(0.0001))


@pytest.mark.parametrize("claim", [_claim(0.5001), _claim(0.1, 2e-5)])
def test_a_refused_charge_changes_nothing(claim):
    budget = Budget(lifetime_epsilon=0.8, lifetime_delta=1e-5, committed=[("first", _claim(0.3))])
    before = (budget.committed, budget.spent(), budget.left())

    with pytest.raises(BudgetError, match="left") as refusal:
        budget.charge("second", claim)

    assert (budget.committed, budget.spent(), budget.left()) == before
    assert refusal.value.requested == (claim.epsilon, claim.delta)
    assert refusal.value.left == (0.5, 9e-6)


def test_a_cap_of_zero_is_a_cap():
    """NVIDIA-NeMo/Safe-Synthesizer#367: "target or infinity" turned a cap of 0 into none."""
    budget = Budget(lifetime_epsilon=0, lifetime_delta=1e-5)

    with pytest.raises(BudgetError):
        budget.charge("run", _claim(0.0001))
    budget.charge("nothing", _claim(0.0))
    assert budget.spent()[0] == 0.0


@pytest.mark.parametrize("cap", [None, math.inf, math.nan, -1, "0.5", True])
def test_a_cap_that_is_no_finite_number_is_an_error_and_never_no_cap(cap):
    with pytest.raises(AccountantError, match="lifetime_epsilon"):
        Budget(lifetime_epsilon=cap, lifetime_delta=1e-5)


@pytest.mark.parametrize("cap", [None, 0, 1, math.nan])
def test_a_lifetime_delta_must_be_between_zero_and_one(cap):
    with pytest.raises(AccountantError, match="lifetime_delta"):
        Budget(lifetime_epsilon=1.0, lifetime_delta=cap)


def test_a_run_is_charged_once():
    budget = Budget(lifetime_epsilon=1.0, lifetime_delta=1e-5)
    budget.charge("run", _claim(0.1))

    with pytest.raises(AccountantError, match="once"):
        budget.charge("run", _claim(0.1))
    assert budget.spent() == (0.1, 1e-6)


def test_a_budget_that_is_already_overspent_is_not_loaded():
    with pytest.raises(BudgetError):
        Budget(lifetime_epsilon=0.5, lifetime_delta=1e-5, committed=[("a", _claim(0.3)), ("b", _claim(0.3))])


def test_check_raises_what_charge_raises_and_commits_nothing():
    budget = Budget(lifetime_epsilon=0.5, lifetime_delta=1e-5)

    budget.check("run", _claim(0.4))
    with pytest.raises(BudgetError):
        budget.check("run", _claim(0.6))
    assert budget.committed == ()


@pytest.mark.parametrize(("run", "claim"), [("", _claim(0.1)), (None, _claim(0.1)), ("run", (0.1, 1e-6))])
def test_only_named_runs_with_claims_are_charged(run, claim):
    with pytest.raises(AccountantError):
        Budget(lifetime_epsilon=1.0, lifetime_delta=1e-5).charge(run, claim)
