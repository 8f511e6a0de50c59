"""Several runs, several clients: what adds up, what composes, and what is refused."""

import pytest
from hushgrad import accountant
from hushgrad.accountant import AccountantError, CommittedRun, RefusedError, RoundGroup, lifetime

_GROUPS = (RoundGroup(0.02, 3.0, 100),)
_DELTA = 1e-6


def _run(name, committed, first_release, **changes):
    arguments = {"groups": _GROUPS, "sampling": "poisson", "adjacency": "add-remove", **changes}
    return CommittedRun(name, committed=committed, first_release=first_release, **arguments)


def test_runs_committed_before_any_release_are_one_composition():
    runs = [_run("a", 2, 5), _run("b", 3, 70), _run("c", 4, None)]

    claim = accountant.together(runs, delta=_DELTA)

    whole = accountant.from_schedule(
        [RoundGroup(0.02, 3.0, 300)], sampling="poisson", adjacency="add-remove", delta=_DELTA
    )
    single = accountant.from_schedule(_GROUPS, sampling="poisson", adjacency="add-remove", delta=_DELTA)
    assert claim.epsilon == pytest.approx(whole.epsilon, rel=1e-3)
    assert single.epsilon < claim.epsilon < 3 * single.epsilon


def test_a_run_committed_after_a_release_is_not_composed():
    with pytest.raises(RefusedError, match="committed after the first release"):
        accountant.together([_run("a", 2, 3), _run("b", 40, 41)], delta=_DELTA)


@pytest.mark.parametrize("other", [{"sampling": "fixed"}, {"adjacency": "replace-one"}])
def test_one_claim_has_one_sampling_and_one_adjacency(other):
    with pytest.raises(AccountantError, match="one sampling and one adjacency"):
        accountant.together([_run("a", 2, 5), _run("b", 3, 6, **other)], delta=_DELTA)


def test_no_runs_and_impossible_rows_are_refused():
    with pytest.raises(AccountantError, match="number of runs"):
        accountant.together([], delta=_DELTA)
    with pytest.raises(AccountantError, match="after its first release"):
        _run("a", 5, 5)
    with pytest.raises(AccountantError, match="committed"):
        _run("a", -1, None)


def test_a_record_at_several_clients_has_the_claim_of_all_their_rounds():
    clients = {"north": _GROUPS, "south": (RoundGroup(0.05, 4.0, 100),)}

    found = lifetime.of_record(clients, sampling="poisson", adjacency="add-remove", delta=_DELTA)

    together = [*clients["north"], *clients["south"]]
    expected = accountant.from_schedule(together, sampling="poisson", adjacency="add-remove", delta=_DELTA)
    assert found.claim == expected
    assert all(found.claim.epsilon > claim.epsilon for claim in found.per_client.values())
    assert found.to_dict()["epsilon_per_client"] == {name: claim.epsilon for name, claim in found.per_client.items()}
    assert "epsilon" not in found.to_dict()


def test_a_record_sits_somewhere():
    with pytest.raises(AccountantError, match="number of clients"):
        lifetime.of_record({}, sampling="poisson", adjacency="add-remove", delta=_DELTA)
