"""Gathering, majorities, stragglers, suspension and return, reports, and what status says of it."""

import pytest
from hushgrad.server.participant import Interval
from hushgrad.server.records import Answer, Disposition, State

from tests.support.federations import Owner, Sender, make_terms, senders_of

NAMES = tuple(f"client-{i}" for i in range(1, 6))
TERMS = make_terms(names=NAMES, final_version=30, window=4, straggler_timeout_seconds=10.0)


def running(versions: int = 1) -> tuple[Owner, list[Sender]]:
    owner, senders = Owner(TERMS), senders_of(TERMS)
    owner.begin(senders)
    for round_ in range(versions):
        send(owner, senders, round_)
    assert owner.federation.newest_version == versions
    return owner, senders


def send(owner: Owner, senders: list[Sender], round_: int) -> None:
    for sender in senders:
        assert owner.submit(sender, sender.seal(round_)).answer is Answer.ACCEPTED


def state(owner: Owner, sender: Sender) -> State:
    return owner.federation.participation(sender.caller).participation.state


# Joining


def test_a_repeated_join_gets_its_session_again_and_a_new_one_fences_the_old() -> None:
    owner, (one, *_) = running()
    first = one.session
    assert owner.join(one, bytes(16)).session == first
    assert owner.join(one, b"b" * 16).session == first + 1
    # The delayed repeat of the older process: its own session, which is stale.
    assert owner.federation.join(one.caller, bytes(16)).session == first
    one.session = first
    assert owner.start(one).answer is Answer.STALE_SESSION


def test_only_sixteen_join_ids_are_remembered() -> None:
    owner, (one, *_) = running()
    for number in range(1, 40):
        owner.join(one, number.to_bytes(16, "big"))
    participant = next(iter(owner.federation.participants))
    assert len(participant.joins) == 16
    assert participant.session == 40


def test_names_that_the_terms_do_not_have_are_unknown() -> None:
    owner = Owner(TERMS)
    assert owner.join(Sender("client-6", TERMS)).answer is Answer.UNKNOWN_PARTICIPANT


def test_without_names_there_is_room_for_so_many_and_no_more() -> None:
    terms = make_terms(participants=2)
    owner = Owner(terms)
    answers = [owner.join(Sender(name, terms)).answer for name in ("a", "b", "c", "a")]
    assert answers == [Answer.ACCEPTED, Answer.ACCEPTED, Answer.UNKNOWN_PARTICIPANT, Answer.ACCEPTED]


def test_joining_changes_nothing_but_the_session_of_an_active_participant() -> None:
    owner, (one, *_) = running(2)
    outcome = owner.join(one, b"c" * 16)
    assert (outcome.participation.state, outcome.participation.entry_round) == (State.ACTIVE, 0)
    assert (outcome.sequence, outcome.head) == (2, one.sealed[1].head)


# Gathering


def test_version_one_waits_for_all_enrolled_and_says_for_whom() -> None:
    owner, senders = Owner(TERMS), senders_of(TERMS)
    owner.begin(senders[:3] + senders[4:])
    send(owner, senders[:3] + senders[4:], 0)
    assert owner.federation.newest_version == 0
    assert owner.federation.waiting_for() == "version 1 waits for 1 of 5 participants: client-4"
    owner.wait(1e6)
    assert owner.federation.newest_version == 0
    owner.join(senders[3])
    owner.start(senders[3])
    assert owner.federation.waiting_for() == "version 1 waits for round 0 of client-4"
    send(owner, senders[3:4], 0)
    assert owner.federation.newest_version == 1


def test_after_the_start_timeout_a_majority_suffices() -> None:
    terms = make_terms(names=NAMES, start_timeout_seconds=60.0, straggler_timeout_seconds=1000.0)
    owner, senders = Owner(terms), senders_of(terms)
    owner.begin(senders[:2])
    send(owner, senders[:2], 0)
    owner.wait(61.0)
    assert owner.federation.newest_version == 0
    owner.join(senders[2])
    owner.start(senders[2])
    send(owner, senders[2:3], 0)
    assert owner.federation.newest_version == 1


def test_the_end_of_the_start_timeout_alone_publishes_version_one() -> None:
    terms = make_terms(names=NAMES, start_timeout_seconds=60.0, straggler_timeout_seconds=1000.0)
    owner, senders = Owner(terms), senders_of(terms)
    owner.begin(senders[:3])
    send(owner, senders[:3], 0)
    assert owner.federation.next_deadline() == 60.0
    owner.wait(60.0)
    assert owner.federation.newest_version == 1


def test_the_entry_round_is_the_callers_while_gathering_and_after_the_next_version_later() -> None:
    owner, senders = Owner(TERMS), senders_of(TERMS)
    owner.join(senders[0])
    assert owner.start(senders[0], 2).participation.entry_round == 2
    # A repeat returns the entry that stands.
    assert owner.start(senders[0], 3).participation.entry_round == 2
    owner, senders = running(3)
    owner.settle(owner.federation.observe(senders[0].caller, 3, 0.0))
    assert owner.start(senders[0], 3).participation.entry_round == 4


# Versions


def test_a_version_waits_for_every_owed_round_and_names_them() -> None:
    owner, senders = running(7)
    send(owner, senders[:2] + senders[3:], 7)
    assert owner.federation.waiting_for() == "version 8 waits for round 7 of client-3"
    send(owner, senders[2:3], 7)
    assert owner.federation.newest_version == 8


def test_updates_of_later_rounds_are_in_earlier_versions() -> None:
    owner, senders = running(1)
    send(owner, senders[:1], 1)
    send(owner, senders[:1], 2)
    send(owner, senders[1:], 1)
    assert ("client-1", 2) in owner.frozen[-1].folded
    assert owner.frozen[-1].aggregate.version == 2


def test_an_observer_owes_only_what_is_below_its_exit_and_the_smaller_exit_counts() -> None:
    owner, senders = running(3)
    outcome = owner.settle(owner.federation.observe(senders[0].caller, 5, 0.0))
    assert (outcome.participation.state, outcome.participation.exit_round) == (State.OBSERVING, 5)
    assert owner.settle(owner.federation.observe(senders[0].caller, 9, 0.0)).participation.exit_round == 5
    assert owner.settle(owner.federation.leave(senders[0].caller, 4, 0.0)).participation.exit_round == 4
    send(owner, senders[1:], 3)
    assert owner.federation.waiting_for() == "version 4 waits for round 3 of client-1"
    send(owner, senders[:1], 3)
    send(owner, senders[1:], 4)
    assert owner.federation.newest_version == 5


def test_only_every_publish_every_th_version_is_published_and_the_final_one() -> None:
    terms = make_terms(participants=2, final_version=5, publish_every=2, window=4)
    owner, senders = Owner(terms), senders_of(terms)
    owner.begin(senders)
    for round_ in range(5):
        send(owner, senders, round_)
    assert sorted(owner.models) == [2, 4, 5]
    assert owner.federation.has_ended
    assert owner.federation.waiting_for() == ""


# Stragglers


def test_a_straggler_is_suspended_when_it_alone_holds_up_the_next_version() -> None:
    owner, senders = running(3)
    send(owner, senders[1:], 3)
    assert owner.federation.next_deadline() == 10.0
    assert owner.wait(9.9) == ()
    owner.wait(0.1)
    assert state(owner, senders[0]) is State.SUSPENDED
    assert owner.federation.newest_version == 4
    assert owner.store.find("client-1", 3).disposition is Disposition.SKIPPED
    assert owner.federation.participation(senders[0].caller).participation.exit_round == 4


def test_a_late_update_of_a_suspended_participant_counts_but_does_not_bring_it_back() -> None:
    owner, senders = running(3)
    send(owner, senders[1:], 3)
    owner.wait(10.0)
    outcome = owner.submit(senders[0], senders[0].seal(3))
    assert (outcome.answer, outcome.included_in) == (Answer.ACCEPTED, 5)
    assert outcome.participation.state is State.SUSPENDED
    # The next round, which it is not asked for because it did not know.
    assert owner.submit(senders[0], senders[0].seal(4)).answer is Answer.ACCEPTED
    send(owner, senders[1:], 4)
    assert owner.frozen[-1].folded[:2] == (("client-1", 3), ("client-1", 4))
    participant = next(iter(owner.federation.participants))
    assert (participant.accepted, participant.without_update) == (5, 0)


def test_a_suspended_participant_comes_back_by_start_and_waits_twice_as_long_the_next_time() -> None:
    owner, senders = running(3)
    send(owner, senders[1:], 3)
    owner.wait(10.0)
    assert owner.start(senders[0], 3).participation.entry_round == 5
    send(owner, senders[1:], 4)
    assert owner.federation.newest_version == 5
    send(owner, senders[1:], 5)
    owner.wait(19.9)
    assert state(owner, senders[0]) is State.ACTIVE
    owner.wait(0.2)
    assert state(owner, senders[0]) is State.SUSPENDED
    assert owner.federation.participation(senders[0].caller).participation.suspensions == 2


def test_the_timer_runs_from_the_last_chunk_of_an_upload_in_progress() -> None:
    owner, senders = running(3)
    send(owner, senders[1:], 3)
    owner.now = 8.0
    owner.federation.chunk_arrived(senders[0].caller, 8.0)
    owner.wait(9.9)
    assert state(owner, senders[0]) is State.ACTIVE
    owner.wait(0.2)
    assert state(owner, senders[0]) is State.SUSPENDED


def test_nobody_is_suspended_while_the_federation_waits_for_participants() -> None:
    owner, senders = Owner(TERMS), senders_of(TERMS)
    owner.begin(senders[:4])
    send(owner, senders[:3], 0)
    assert owner.federation.next_deadline() == float("inf")
    assert owner.wait(1e5) == ()
    owner.join(senders[4])
    owner.start(senders[4])
    # Now client-4 and client-5 hold it up, from this moment on.
    assert owner.federation.next_deadline() == 1e5 + 10.0


def test_a_minority_does_not_go_on_alone() -> None:
    owner, senders = running(3)
    send(owner, senders[:2], 3)
    owner.wait(10.0)
    assert [state(owner, sender).name for sender in senders] == ["ACTIVE"] * 2 + ["SUSPENDED"] * 3
    assert owner.federation.newest_version == 3
    assert owner.federation.waiting_for() == (
        "version 4 waits for a majority: 2 of 5 participants take part, suspended: client-3, client-4, client-5"
    )
    owner.start(senders[2], 3)
    assert owner.federation.newest_version == 4


def test_those_who_left_are_no_part_of_the_majority() -> None:
    owner, senders = running(3)
    for sender in senders[2:]:
        owner.settle(owner.federation.leave(sender.caller, 3, 0.0))
    send(owner, senders[:2], 3)
    assert owner.federation.newest_version == 4
    for sender in senders[:2]:
        owner.settle(owner.federation.leave(sender.caller, 4, 0.0))
    assert owner.federation.newest_version == 4
    assert owner.federation.waiting_for() == "version 5 waits for a participant: none takes part"


def test_an_observer_that_never_sends_what_it_owes_does_not_hold_up_the_others_for_ever() -> None:
    owner, senders = running(3)
    owner.settle(owner.federation.observe(senders[0].caller, 5, 0.0))
    send(owner, senders[1:], 3)
    owner.wait(10.0)
    assert owner.federation.newest_version == 4
    assert state(owner, senders[0]) is State.OBSERVING
    send(owner, senders[1:], 4)
    assert owner.federation.newest_version == 5


# Reports


def test_reported_rounds_are_settled_once() -> None:
    owner, senders = running(3)
    send(owner, senders[1:], 3)
    outcome = owner.settle(
        owner.federation.report(senders[0].caller, [(3, "void", b""), (4, "skipped", b""), (0, "skipped", b"")])
    )
    assert outcome.answer is Answer.ACCEPTED
    assert [(record.round, record.disposition) for record in outcome.records] == [
        (3, Disposition.VOID),
        (4, Disposition.SKIPPED),
    ]
    assert owner.federation.newest_version == 4
    again = owner.federation.report(senders[0].caller, [(3, "skipped", b""), (4, "void", b"")])
    assert again.records == ()
    send(owner, senders[1:], 4)
    assert owner.federation.newest_version == 5


def test_held_rounds_without_a_receipt_are_wanted_until_the_window_has_passed_them() -> None:
    owner, senders = running(3)
    sealed = senders[0].seal(3)
    final = senders[0].terms.final_version
    reports = [(3, "held", sealed.digest), (0, "held", senders[0].sealed[0].digest), (final, "held", bytes(32))]
    outcome = owner.federation.report(senders[0].caller, reports)
    assert outcome.participation.wanted_rounds == (3,)


def test_a_held_round_with_another_digest_is_a_conflict_and_nothing_changes() -> None:
    owner, senders = running(3)
    outcome = owner.federation.report(senders[0].caller, [(3, "skipped", b""), (1, "held", bytes(32))])
    assert (outcome.answer, outcome.records) == (Answer.CONFLICT, ())
    assert owner.federation.participation(senders[0].caller).answer is Answer.ACCEPTED
    send(owner, senders, 3)
    assert owner.federation.newest_version == 4


# Intervals


def test_an_interval_settles_in_any_order() -> None:
    interval = Interval(3, 8, settled=[4, 9, 2])
    assert interval.open_rounds(100) == [3, 5, 6, 7]
    for round_ in (6, 3, 1, 8):
        interval.settle(round_)
    assert (interval.below, interval.open_rounds(100)) == (5, [5, 7])
    interval.close(7)
    interval.settle(5)
    assert interval.is_settled


@pytest.mark.parametrize(("skip", "below"), [(2, 3), (4, 5), (6, 6), (99, 8)])
def test_skipping_ahead_in_an_interval_keeps_what_is_settled(skip: int, below: int) -> None:
    interval = Interval(3, 8, settled=[4])
    interval.skip_to(skip)
    assert interval.below == below
