"""A whole run: what its claim includes, and when it is refused."""

import math
from dataclasses import replace

import pytest
from hushgrad import accountant
from hushgrad.accountant import AccountantError, Mechanism, RefusedError, RoundGroup, Run, runs

_MECHANISM = Mechanism(
    clip_norm=0.5,
    noise_multiplier=7.5,
    grid_exponent=-16,
    parameters=69,
    max_examples_per_round=420,
    chunk_examples=64,
    unit_roundoff=2.0**-53,
    clip_error=1e-12,
)
_RUN = Run("poisson", 1768, (200,) * 80, _MECHANISM)


def test_a_claim_includes_sensitivity_and_imperfections():
    """The demo's kind of numbers: a little above the plain schedule, by the grid's share of the noise."""
    plain = accountant.from_schedule(
        [RoundGroup(200 / 1768, 7.5, 80)], sampling="poisson", adjacency="add-remove", delta=1e-5
    )

    claim = accountant.claim(_RUN, delta=1e-5)

    assert plain.epsilon < claim.epsilon < 1.002 * plain.epsilon
    assert claim.delta == 1e-5


def test_rounds_of_one_size_are_grouped_with_the_charged_noise():
    run = replace(_RUN, sample_sizes=(200, 100, 200, 50))

    assert runs.groups(run) == [
        RoundGroup(size / 1768, _MECHANISM.charged_noise_multiplier(), rounds)
        for size, rounds in ((50, 1), (100, 1), (200, 2))
    ]


def test_distances_add_up_over_rounds():
    once, many = (accountant.distances(replace(_RUN, sample_sizes=(200,) * rounds)) for rounds in (1, 80))

    for name in ("noise", "masks", "batch_tail"):
        assert getattr(many, name) == pytest.approx(80 * getattr(once, name), rel=1e-12)
        assert getattr(once, name) > 0
    assert many.total() == many.noise + many.masks + many.batch_tail


def test_delta_is_charged_for_both_sides_of_the_definition():
    """(1 + e^eps) times the distance, with an eps no smaller than the claim's."""
    claim = accountant.claim(_RUN, delta=1e-5)

    _, charged = runs._curve_and_charge(_RUN, 1e-5, quick=False)

    total = accountant.distances(_RUN).total()
    assert (1 + math.exp(claim.epsilon * 0.999)) * total <= charged <= (1 + math.exp(claim.epsilon * 1.01)) * total


def test_a_batch_limit_that_is_often_exceeded_is_refused_and_named():
    tight = replace(_RUN, mechanism=replace(_MECHANISM, max_examples_per_round=250))

    with pytest.raises(RefusedError, match="max_examples_per_round"):
        accountant.claim(tight, delta=1e-5)


def test_a_huge_epsilon_makes_imperfections_too_dear():
    loud = replace(_RUN, mechanism=replace(_MECHANISM, noise_multiplier=0.3, grid_exponent=-18))

    with pytest.raises(RefusedError, match="smaller epsilon"):
        accountant.claim(loud, delta=1e-5)


def test_a_run_without_rounds_costs_nothing():
    assert accountant.claim(replace(_RUN, sample_sizes=()), delta=1e-5).epsilon == 0.0


def test_fixed_sampling_costs_more_and_charges_no_tail():
    fixed = replace(_RUN, sampling="fixed")

    assert accountant.claim(fixed, delta=1e-5).epsilon > 2 * accountant.claim(_RUN, delta=1e-5).epsilon
    assert accountant.distances(fixed).batch_tail == 0.0
    assert accountant.distances(fixed).masks == 0.0


def test_every_prefix_of_a_run_costs_at_most_the_run():
    whole = accountant.claim(_RUN, delta=1e-5).epsilon

    for rounds in (1, 40, 79):
        assert accountant.claim(replace(_RUN, sample_sizes=(200,) * rounds), delta=1e-5).epsilon <= whole


def test_the_quick_epsilon_is_never_above_the_claims():
    assert runs.quick_epsilon(_RUN, delta=1e-5) <= accountant.claim(_RUN, delta=1e-5).epsilon


@pytest.mark.parametrize(
    "change",
    [
        {"sampling": "shuffle"},
        {"records": 0},
        {"records": True},
        {"sample_sizes": (200, 0)},
        {"sample_sizes": (200.0,)},
        {"sample_sizes": (True,)},
        {"sample_sizes": (1769,)},
        {"sampling": "fixed", "sample_sizes": (1768,)},
        {"sampling": "fixed", "sample_sizes": (421,)},
        {"adjacency": "replace-some"},
    ],
)
def test_runs_that_make_no_sense_are_refused(change):
    with pytest.raises(AccountantError):
        replace(_RUN, **change)


@pytest.mark.parametrize("delta", [0, 1, math.nan, None])
def test_a_run_needs_a_delta(delta):
    with pytest.raises(AccountantError, match="delta"):
        accountant.claim(_RUN, delta=delta)


@pytest.mark.parametrize("sampling", ["poisson", "fixed"])
def test_a_run_with_a_replaced_record_costs_more_and_says_so(sampling):
    run = replace(_RUN, sampling=sampling)

    removed = accountant.claim(run, delta=1e-5)
    replaced = accountant.claim(replace(run, adjacency="replace-one"), delta=1e-5)

    assert replaced.adjacency == "replace-one"
    assert "replaced by another" in replaced.describe()
    assert removed.epsilon < replaced.epsilon


def test_a_run_with_a_tiny_delta_is_claimed_by_renyi_or_refused_for_its_imperfections():
    """The masks' and tables' own bounds, about 1e-15 for 80 rounds, need a delta a hundred times as large."""
    with pytest.raises(RefusedError, match="imperfections"):
        accountant.claim(_RUN, delta=1e-18)
