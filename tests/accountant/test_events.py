"""Schedules in Google's library and back: the same numbers there, and refusals instead of guesses."""

import dp_accounting
import pytest
from dp_accounting.pld import pld_privacy_accountant
from dp_accounting.rdp import rdp_privacy_accountant
from hushgrad import accountant
from hushgrad.accountant import AccountantError, RefusedError, RoundGroup, events

_GROUPS = [RoundGroup(0.02, 3.0, 100), RoundGroup(0.04, 4.0, 1), RoundGroup(1.0, 40.0, 3)]
_RELATIONS = {
    "add-remove": dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE,
    "replace-one": dp_accounting.NeighboringRelation.REPLACE_ONE,
}


@pytest.mark.parametrize(
    ("sampling", "adjacency"), [("poisson", "add-remove"), ("poisson", "replace-one"), ("fixed", "add-remove")]
)
def test_the_library_says_the_same_of_our_event(sampling, adjacency):
    groups = _GROUPS if sampling == "poisson" else _GROUPS[:2]
    event = accountant.to_dp_event(groups, sampling=sampling, adjacency=adjacency)

    library = pld_privacy_accountant.PLDAccountant(_RELATIONS[adjacency], 2e-4).compose(event)

    ours = accountant.from_schedule(groups, sampling=sampling, adjacency=adjacency, delta=1e-5)
    assert library.get_epsilon(1e-5) == pytest.approx(ours.epsilon, rel=5e-3)


def test_a_fixed_event_with_a_replaced_record_costs_more_there_and_needs_n():
    """google/differential-privacy#378: 2.799 with half the multiplier, where the right upper bound is 1.3356."""
    groups = [RoundGroup(0.04, 3.03241, 125)]
    event = accountant.to_dp_event(groups, sampling="fixed", adjacency="replace-one", records=10_000)

    library = rdp_privacy_accountant.RdpAccountant(None, _RELATIONS["replace-one"]).compose(event)

    assert library.get_epsilon(1e-4) == pytest.approx(2.7994, rel=1e-3)
    for records in (None, 10_001, 10):
        with pytest.raises(AccountantError, match=r"records|q must be"):
            accountant.to_dp_event(groups, sampling="fixed", adjacency="replace-one", records=records)


@pytest.mark.parametrize("adjacency", ["add-remove", "replace-one"])
def test_a_poisson_schedule_comes_back_as_it_went(adjacency):
    event = accountant.to_dp_event(_GROUPS, sampling="poisson", adjacency=adjacency)

    assert accountant.from_dp_event(event, adjacency=adjacency) == events.Schedule(tuple(_GROUPS), "poisson")


def test_a_fixed_schedule_comes_back_when_its_unit_is_said():
    groups = [RoundGroup(0.04, 3.0, 125), RoundGroup(0.01, 2.0, 1)]
    event = accountant.to_dp_event(groups, sampling="fixed", adjacency="replace-one", records=10_000)

    with pytest.raises(AccountantError, match="noise_relative_to"):
        accountant.from_dp_event(event, adjacency="replace-one")
    read = accountant.from_dp_event(event, adjacency="replace-one", noise_relative_to="twice the clip norm")
    assert read == events.Schedule(tuple(groups), "fixed")
    other = accountant.from_dp_event(event, adjacency="replace-one", noise_relative_to="clip norm")
    assert [group.noise_multiplier for group in other.groups] == [1.5, 1.0]


def test_nested_counts_multiply_and_nothing_is_nothing():
    inner = dp_accounting.PoissonSampledDpEvent(0.1, dp_accounting.GaussianDpEvent(2.0))
    twice = dp_accounting.SelfComposedDpEvent(dp_accounting.ComposedDpEvent([inner, inner]), 3)

    read = accountant.from_dp_event(dp_accounting.SelfComposedDpEvent(twice, 5), adjacency="add-remove")

    assert [group.rounds for group in read.groups] == [15, 15]
    nothing = accountant.to_dp_event([], sampling="poisson", adjacency="add-remove")
    assert accountant.from_dp_event(nothing, adjacency="add-remove").groups == ()


_GAUSSIAN = dp_accounting.GaussianDpEvent(2.0)


@pytest.mark.parametrize(
    "event",
    [
        dp_accounting.LaplaceDpEvent(1.0),
        dp_accounting.NonPrivateDpEvent(),
        dp_accounting.UnsupportedDpEvent(),
        dp_accounting.ZCDpEvent(0.1, 0.0),
        dp_accounting.PoissonSampledDpEvent(0.1, dp_accounting.LaplaceDpEvent(1.0)),
        dp_accounting.PoissonSampledDpEvent(0.1, dp_accounting.SelfComposedDpEvent(_GAUSSIAN, 2)),
        dp_accounting.SampledWithReplacementDpEvent(100, 10, _GAUSSIAN),
        dp_accounting.ComposedDpEvent([_GAUSSIAN, dp_accounting.SampledWithoutReplacementDpEvent(100, 10, _GAUSSIAN)]),
        "an event",
        None,
    ],
)
def test_other_events_are_refused(event):
    with pytest.raises(RefusedError, match="not supported"):
        accountant.from_dp_event(event, adjacency="add-remove", noise_relative_to="clip norm")


@pytest.mark.parametrize(
    "event",
    [
        dp_accounting.GaussianDpEvent(0.0),
        dp_accounting.PoissonSampledDpEvent(0.0, _GAUSSIAN),
        dp_accounting.PoissonSampledDpEvent(1.5, _GAUSSIAN),
    ],
)
def test_bad_values_in_an_event_are_bad_values(event):
    with pytest.raises(AccountantError):
        accountant.from_dp_event(event, adjacency="add-remove")
