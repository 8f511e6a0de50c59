"""Ladders: anything may be skipped, nothing repeated or exceeded, and readings are not claims."""

import pytest
from hushgrad import accountant
from hushgrad.accountant import AccountantError, Claim, Ladder, RoundGroup, ladder

_PHASES = [RoundGroup(0.01, 4.0, 100), RoundGroup(0.02, 3.0, 50), RoundGroup(0.05, 2.0, 20)]


def _ladder():
    return Ladder(_PHASES, sampling="poisson", adjacency="add-remove", delta=1e-5)


def test_the_claim_is_that_of_the_whole_ladder_whatever_happens():
    climbed = _ladder()
    whole = accountant.from_schedule(_PHASES, sampling="poisson", adjacency="add-remove", delta=1e-5)

    assert climbed.claim == whole
    climbed.execute(3)
    climbed.execute(160)
    assert climbed.claim == whole


def test_rounds_are_skipped_never_repeated_or_reordered():
    climbed = _ladder()
    climbed.execute(10)
    climbed.execute(120)

    for round_ in (10, 120, 11, 119, 0):
        with pytest.raises(AccountantError, match="never repeated"):
            climbed.execute(round_)
    climbed.execute(121)
    assert climbed.next_round == 122


@pytest.mark.parametrize("round_", [-1, 170, 10**9, True, 1.0, None])
def test_rounds_outside_the_ladder_do_not_exist(round_):
    with pytest.raises(AccountantError, match="round"):
        _ladder().execute(round_)


def test_less_than_written_down_may_be_released_and_more_may_not():
    climbed = _ladder()
    climbed.execute(0, released=RoundGroup(0.005, 5.0, 1))

    for more in (RoundGroup(0.011, 4.0, 1), RoundGroup(0.01, 3.9, 1), RoundGroup(0.01, 4.0, 2)):
        with pytest.raises(AccountantError, match=r"at most|one round"):
            climbed.execute(1, released=more)
    assert climbed.next_round == 1  # a refused round changed nothing


def test_a_reading_is_labelled_and_is_no_claim():
    climbed = _ladder()
    for round_ in range(0, 150, 3):
        climbed.execute(round_)

    reading = climbed.reading()

    assert not isinstance(reading, Claim)
    assert (reading.rounds, "not a guarantee" in reading.label) == (50, True)
    assert 0 < reading.epsilon_so_far < climbed.claim.epsilon
    assert "epsilon" not in reading.to_dict()


def test_the_whole_ladder_executed_reads_as_its_claim():
    climbed = Ladder([RoundGroup(0.1, 2.0, 3)], sampling="fixed", adjacency="add-remove", delta=1e-6)
    for round_ in range(climbed.rounds):
        climbed.execute(round_)

    assert climbed.reading().epsilon_so_far == climbed.claim.epsilon


def test_an_empty_ladder_costs_nothing_and_allows_nothing():
    empty = Ladder([], sampling="poisson", adjacency="add-remove", delta=1e-5)

    assert (empty.claim.epsilon, empty.rounds, empty.reading().epsilon_so_far) == (0.0, 0, 0.0)
    with pytest.raises(AccountantError, match="not in the ladder"):
        empty.execute(0)
    assert ladder.Ladder is Ladder
