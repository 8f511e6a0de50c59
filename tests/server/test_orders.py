"""What operators order: what it does to versions, rounds, timers and callers, and that a restart obeys it again."""

import pytest
from hushgrad.server.administration import Order, Ruling
from hushgrad.server.records import Answer, Disposition, State, Verb

from tests.support.federations import Owner, Sender, make_terms, senders_of

AT = 1_796_090_584.0  # 2026-12-01 02:03:04 UTC
TERMS = make_terms(names=("a", "b", "c"))


def order(number: int = 0, who: str = "alice", reason: str = "") -> Order:
    return Order(AT, who, bytes([number] * 16), reason)


def running(rounds: int = 1, **terms: object) -> tuple[Owner, list[Sender]]:
    """Returns a federation in which everybody has sent so many rounds."""
    terms_ = make_terms(names=("a", "b", "c"), **terms) if terms else TERMS
    owner, senders = Owner(terms_), senders_of(terms_)
    owner.begin(senders)
    for round_ in range(rounds):
        for sender in senders:
            assert owner.submit(sender, sender.seal(round_)).answer is Answer.ACCEPTED
    return owner, senders


def newest(owner: Owner) -> int:
    return owner.federation.newest_version


# Pause and resume


def test_while_paused_updates_are_accepted_and_no_version_is_made() -> None:
    owner, senders = running()
    owner.order(owner.federation.orders.pause(order()))
    for sender in senders:
        outcome = owner.submit(sender, sender.seal(1))
        assert (outcome.answer, outcome.included_in) == (Answer.ACCEPTED, 2)
    assert newest(owner) == 1
    owner.order(owner.federation.orders.resume(order(1), owner.now))
    assert newest(owner) == 2
    assert {key for frozen in owner.frozen for key in frozen.folded} == {(name, r) for name in "abc" for r in (0, 1)}


def test_a_pause_changes_no_model() -> None:
    plain, plain_senders = running(3)
    owner, senders = running(1)
    owner.order(owner.federation.orders.pause(order()))
    for sender in senders:
        owner.submit(sender, sender.seal(1))
    owner.order(owner.federation.orders.resume(order(1), owner.now))
    for sender in senders:
        owner.submit(sender, sender.seal(2))
    del plain_senders
    assert owner.models[3].model == plain.models[3].model


def test_nobody_is_suspended_while_paused_and_everybody_has_all_its_time_again_after_it() -> None:
    owner, senders = running()
    for sender in senders[:2]:
        owner.submit(sender, sender.seal(1))
    owner.wait(9.0)
    owner.order(owner.federation.orders.pause(order()))
    assert owner.wait(1000.0) == ()
    assert owner.federation.next_deadline() == float("inf")
    owner.order(owner.federation.orders.resume(order(1), owner.now))
    assert owner.wait(9.9) == ()
    assert owner.wait(0.2) != ()
    assert newest(owner) == 2


def test_the_status_says_who_paused_and_since_when() -> None:
    owner, _ = running()
    owner.order(owner.federation.orders.pause(order(reason="disk is changed")))
    assert owner.federation.waiting_for() == (
        "version 2 waits for an operator to resume: paused by alice, 2026-12-01 02:03:04 UTC (disk is changed)"
    )


def test_a_restarted_server_is_still_paused() -> None:
    owner, senders = running()
    owner.order(owner.federation.orders.pause(order()))
    for sender in senders:
        owner.submit(sender, sender.seal(1))
    owner = owner.restart()
    for sender in senders:
        assert owner.submit(sender, sender.sealed[1]).answer is Answer.ACCEPTED
    assert newest(owner) == 1
    owner.order(owner.federation.orders.resume(order(1), owner.now))
    assert newest(owner) == 2


def test_pausing_what_is_paused_changes_nothing_and_is_in_the_log() -> None:
    owner, _ = running()
    owner.order(owner.federation.orders.pause(order()))
    ruling = owner.order(owner.federation.orders.pause(order(1, "bob")))
    assert ruling.act is not None
    assert (ruling.answer, ruling.act.changed) == (Answer.ACCEPTED, False)
    assert owner.federation.administration.paused_by.who == "alice"
    assert [act.who for act in owner.federation.administration.acts] == ["alice", "bob"]


# Repeats


def test_a_repeat_gets_the_first_row_and_changes_nothing_also_after_a_restart() -> None:
    """The answer to a pause is lost; somebody resumes; the pause is sent again."""
    owner, _ = running()
    first = owner.order(owner.federation.orders.pause(order()))
    owner.order(owner.federation.orders.resume(order(1, "bob"), owner.now))
    for place in (owner, owner.restart()):
        again = place.order(place.federation.orders.pause(order(who="alice")))
        assert (again.answer, again.act, again.records) == (Answer.ACCEPTED, first.act, ())
        assert place.federation.administration.paused_by is None
        assert len(place.federation.administration.acts) == 2


def test_an_id_that_was_another_order_is_refused() -> None:
    owner, _ = running()
    owner.order(owner.federation.orders.pause(order()))
    for ruling in (
        owner.federation.orders.resume(order(), owner.now),
        owner.federation.orders.evict(order(), "a", owner.now),
        owner.federation.orders.end(order(), None, owner.now),
        owner.federation.orders.drain(order()),
    ):
        assert (ruling.answer, ruling.records) == (Answer.INVALID, ())
        assert "was another order (pause, by alice" in ruling.detail


# Evict


def test_version_1_is_made_without_somebody_who_never_came() -> None:
    owner, senders = Owner(TERMS), senders_of(TERMS)
    owner.begin(senders[:2])
    for sender in senders[:2]:
        owner.submit(sender, sender.seal(0))
    assert newest(owner) == 0
    assert owner.federation.waiting_for() == "version 1 waits for 1 of 3 participants: c"
    owner.order(owner.federation.orders.evict(order(reason="left the project"), "c", owner.now))
    assert newest(owner) == 1


def test_an_evicted_participant_may_join_and_is_told_why_it_cannot_start() -> None:
    owner, senders = Owner(TERMS), senders_of(TERMS)
    owner.order(owner.federation.orders.evict(order(reason="left the project"), "c", owner.now))
    for place in (owner, owner.restart()):
        joined = place.join(senders[2], bytes([place is owner]) * 16)
        assert joined.answer is Answer.ACCEPTED
        assert joined.participation.evicted
        assert joined.participation.state is State.LEFT
        started = place.start(senders[2])
        assert started.answer is Answer.UNKNOWN_PARTICIPANT
        assert "c was evicted by alice, 2026-12-01 02:03:04 UTC (left the project)" in started.detail


def test_nobody_waits_for_the_evicted_and_what_it_had_sealed_still_counts() -> None:
    owner, senders = running()
    evicted, others = senders[0], senders[1:]
    for sender in others:
        owner.submit(sender, sender.seal(1))
    assert owner.federation.waiting_for() == "version 2 waits for round 1 of a"
    ruling = owner.order(owner.federation.orders.evict(order(), "a", owner.now))
    assert ruling.answer is Answer.ACCEPTED
    assert newest(owner) == 2
    late = owner.submit(evicted, evicted.seal(1))
    assert (late.answer, late.included_in, late.participation.evicted) == (Answer.ACCEPTED, 3, True)
    for sender in others:
        owner.submit(sender, sender.seal(2))
    assert newest(owner) == 3
    assert ("a", 1) in owner.frozen[-1].folded


def test_the_evicted_leave_the_base_of_the_majority() -> None:
    """Of three, one is evicted and one suspended: one of two is no majority; of two evicted the last one goes on."""
    owner, senders = running()
    owner.order(owner.federation.orders.evict(order(), "a", owner.now))
    owner.submit(senders[2], senders[2].seal(1))
    owner.wait(11.0)
    assert newest(owner) == 1
    owner.order(owner.federation.orders.evict(order(1), "b", owner.now))
    assert newest(owner) == 2


def test_an_accepted_update_of_the_evicted_is_asked_for_again_after_a_crash() -> None:
    owner, senders = running()
    owner.submit(senders[0], senders[0].seal(1))
    owner = owner.restart()
    ruling = owner.order(owner.federation.orders.evict(order(), "a", owner.now))
    assert [record.disposition for record in ruling.records if hasattr(record, "disposition")] == [Disposition.SKIPPED]
    owner = owner.restart()
    assert owner.federation.participation(senders[0].caller).participation.wanted_rounds == (1,)
    assert owner.submit(senders[0], senders[0].sealed[1]).answer is Answer.ACCEPTED
    for sender in senders[1:]:
        owner.submit(sender, sender.seal(1))
    assert ("a", 1) in owner.frozen[-1].folded


def test_a_seat_that_nobody_took_can_be_closed_and_stays_closed() -> None:
    terms = make_terms(participants=3)
    owner, senders = Owner(terms), senders_of(terms)
    owner.begin(senders[:2])
    for sender in senders[:2]:
        owner.submit(sender, sender.seal(0))
    owner.order(owner.federation.orders.evict(order(), "", owner.now))
    assert newest(owner) == 1
    for place in (owner, owner.restart()):
        assert place.join(senders[2]).answer is Answer.UNKNOWN_PARTICIPANT
        assert place.federation.orders.evict(order(1), "", owner.now).answer is Answer.INVALID


@pytest.mark.parametrize("name", ["d", "A"])
def test_whom_the_terms_do_not_name_cannot_be_evicted(name: str) -> None:
    owner, _ = running()
    ruling = owner.federation.orders.evict(order(), name, owner.now)
    assert (ruling.answer, ruling.detail) == (Answer.UNKNOWN_PARTICIPANT, f"the terms name a, b, c, found {name}")
    assert owner.federation.administration.acts == []


def test_terms_with_a_number_lose_a_seat_with_each_who_joined_and_is_evicted() -> None:
    terms = make_terms(participants=3)
    owner, senders = Owner(terms), senders_of(terms)
    for sender in senders:
        owner.join(sender)
    for sender in senders[:2]:
        owner.start(sender)
        owner.submit(sender, sender.seal(0))
    ghost = owner.federation.orders.evict(order(), "ghost", owner.now)
    assert (ghost.answer, ghost.records) == (Answer.UNKNOWN_PARTICIPANT, ())
    assert owner.federation.orders.evict(order(), "", owner.now).answer is Answer.INVALID
    owner.order(owner.federation.orders.evict(order(), "client-3", owner.now))
    assert newest(owner) == 1


def test_the_last_one_cannot_be_evicted() -> None:
    owner, _ = running()
    owner.order(owner.federation.orders.evict(order(), "a", owner.now))
    owner.order(owner.federation.orders.evict(order(1), "b", owner.now))
    ruling = owner.federation.orders.evict(order(2), "c", owner.now)
    assert (ruling.answer, ruling.records) == (Answer.INVALID, ())
    assert "would leave nobody" in ruling.detail


# End


def test_an_end_with_nothing_new_is_the_newest_version() -> None:
    owner, senders = running()
    ruling = owner.order(owner.federation.orders.end(order(), None, owner.now))
    assert ruling.act.final_version == 1
    assert owner.federation.has_ended
    assert owner.submit(senders[0], senders[0].seal(1)).answer is Answer.RUN_ENDED
    assert owner.start(senders[0]).answer is Answer.RUN_ENDED
    assert owner.join(senders[0], bytes([1] * 16)).answer is Answer.RUN_ENDED


def test_an_end_holds_every_accepted_update_and_waits_for_no_other() -> None:
    owner, senders = running()
    owner.submit(senders[0], senders[0].seal(1))
    ruling = owner.order(owner.federation.orders.end(order(), None, owner.now))
    assert (ruling.act.final_version, newest(owner)) == (2, 2)
    assert owner.frozen[-1].folded == (("a", 1),)
    skipped = {(one.participant, one.round) for one in ruling.records if hasattr(one, "disposition")}
    assert skipped == {("b", 1), ("c", 1)}
    assert owner.federation.has_ended


def test_an_end_in_the_gathering_is_version_0_and_needs_nobody() -> None:
    owner = Owner(TERMS)
    owner.join(Sender("a", TERMS))
    ruling = owner.order(owner.federation.orders.end(order(), None, owner.now))
    assert (ruling.act.final_version, owner.federation.has_ended) == (0, True)


def test_an_end_needs_no_majority() -> None:
    owner, senders = running()
    owner.submit(senders[0], senders[0].seal(1))
    owner.federation.leave(senders[1].caller, 1, owner.now)
    owner.federation.leave(senders[2].caller, 1, owner.now)
    owner.order(owner.federation.orders.pause(order()))
    owner.order(owner.federation.orders.end(order(1), None, owner.now))
    assert newest(owner) == 2
    assert owner.federation.has_ended
    assert owner.federation.administration.paused_by is None


def test_after_a_crash_an_end_waits_for_what_was_accepted_and_no_longer_than_for_a_straggler() -> None:
    owner, senders = running()
    for sender in senders[:2]:
        owner.submit(sender, sender.seal(1))
    owner = owner.restart()
    owner.order(owner.federation.orders.end(order(), None, owner.now))
    assert newest(owner) == 1
    assert owner.federation.waiting_for() == "version 2 waits for round 1 of a, round 1 of b"
    assert owner.submit(senders[0], senders[0].sealed[1]).answer is Answer.ACCEPTED
    owner.wait(9.0)
    assert newest(owner) == 1
    owner.wait(2.0)
    assert newest(owner) == 2
    assert owner.frozen[-1].folded == (("a", 1),)


def test_a_crash_between_the_order_and_its_version_loses_nothing() -> None:
    owner, senders = running()
    owner.submit(senders[0], senders[0].seal(1))
    ruling = owner.federation.orders.end(order(), None, owner.now)
    owner.store.write(ruling.records)
    owner = owner.restart()
    assert owner.federation.final_version == 2
    assert not owner.federation.has_ended
    assert owner.federation.participation(senders[0].caller).participation.wanted_rounds == (1,)
    again = owner.order(owner.federation.orders.end(order(), None, owner.now))
    assert (again.act, again.records) == (ruling.act, ())
    owner.submit(senders[0], senders[0].sealed[1])
    assert newest(owner) == 2
    assert owner.frozen[-1].folded == (("a", 1),)


def test_ending_twice_changes_nothing() -> None:
    owner, _ = running()
    owner.order(owner.federation.orders.end(order(), None, owner.now))
    ruling = owner.order(owner.federation.orders.end(order(1, "bob"), None, owner.now))
    assert (ruling.answer, ruling.act.changed, ruling.act.final_version) == (Answer.ACCEPTED, False, 1)
    assert owner.restart().federation.final_version == 1


def test_a_lower_final_version_is_obeyed_as_if_the_terms_had_it() -> None:
    owner, senders = running()
    owner.order(owner.federation.orders.end(order(), 3, owner.now))
    owner = owner.restart()
    view = owner.federation.participation(senders[0].caller).participation
    assert (view.state, view.exit_round) == (State.ACTIVE, 3)
    for round_ in (1, 2):
        assert not owner.federation.has_ended
        for sender in senders:
            outcome = owner.submit(sender, sender.seal(round_))
            assert outcome.participation.exit_round == 3
    assert (newest(owner), owner.federation.has_ended) == (3, True)


def test_a_final_version_is_never_raised_nor_below_what_is_fixed() -> None:
    owner, _ = running(2)
    for version, limits in ((7, "at most 6"), (2, "3 to 6"), (0, "3 to 6")):
        ruling = owner.federation.orders.end(order(), version, owner.now)
        assert (ruling.answer, ruling.records) == (Answer.INVALID, ())
        assert f"final_version must be {limits}, found {version}" in ruling.detail
    owner.order(owner.federation.orders.end(order(), 4, owner.now))
    assert "at most 4" in owner.federation.orders.end(order(1), 5, owner.now).detail
    unchanged = owner.order(owner.federation.orders.end(order(2), 4, owner.now))
    assert (unchanged.answer, unchanged.act.changed) == (Answer.ACCEPTED, False)


def test_nothing_but_an_end_or_a_drain_can_be_ordered_after_the_end() -> None:
    owner, _ = running()
    owner.order(owner.federation.orders.end(order(), None, owner.now))
    orders = owner.federation.orders
    rulings: list[Ruling] = [
        orders.pause(order(1)),
        orders.resume(order(2), owner.now),
        orders.evict(order(3), "a", owner.now),
    ]
    assert {ruling.answer for ruling in rulings} == {Answer.RUN_ENDED}
    assert owner.order(orders.drain(order(4))).answer is Answer.ACCEPTED
    assert orders.may_stop()


# Drain


def test_a_drain_makes_one_more_version_and_leaves_nothing_to_be_sent_again() -> None:
    owner, senders = running()
    orders = owner.federation.orders
    owner.submit(senders[0], senders[0].seal(1))
    owner.order(orders.drain(order()))
    assert not orders.may_stop()
    for sender in senders[1:]:
        assert owner.submit(sender, sender.seal(1)).answer is Answer.ACCEPTED
    assert (newest(owner), orders.may_stop()) == (2, True)
    refused = owner.submit(senders[0], senders[0].seal(2))
    assert (refused.answer, refused.records) == (Answer.BUSY, ())
    repeated = owner.submit(senders[0], senders[0].sealed[1])
    assert (repeated.answer, repeated.first_answer) == (Answer.DUPLICATE, Answer.ACCEPTED)
    owner = owner.restart()
    assert not owner.federation.orders.is_draining
    for sender in senders:
        assert owner.federation.participation(sender.caller).participation.wanted_rounds == ()
        sealed = sender.sealed.get(2) or sender.seal(2)
        assert owner.submit(sender, sealed).answer is Answer.ACCEPTED
    assert newest(owner) == 3


def test_while_draining_nobody_new_is_taken_and_the_others_resume() -> None:
    terms = make_terms(participants=3, start_timeout_seconds=5.0)
    owner, senders = Owner(terms), senders_of(terms)
    owner.begin(senders[:2])
    owner.wait(6.0)
    for sender in senders[:2]:
        owner.submit(sender, sender.seal(0))
    owner.order(owner.federation.orders.drain(order()))
    assert owner.join(senders[2]).answer is Answer.BUSY
    assert owner.join(senders[0], bytes([1] * 16)).answer is Answer.ACCEPTED
    assert owner.start(senders[0]).answer is Answer.ACCEPTED
    owner.federation.observe(senders[1].caller, 9, owner.now)
    assert owner.start(senders[1]).answer is Answer.BUSY


@pytest.mark.parametrize("why", ["gathering", "paused"])
def test_a_drain_that_can_expect_no_version_stops_at_once(why: str) -> None:
    if why == "gathering":
        owner = Owner(TERMS)
    else:
        owner, _ = running()
        owner.order(owner.federation.orders.pause(order()))
    owner.order(owner.federation.orders.drain(order(1)))
    assert owner.federation.orders.may_stop()


def test_the_log_has_every_order_that_was_taken_with_who_and_when() -> None:
    owner, _ = running()
    orders = owner.federation.orders
    owner.order(orders.pause(order(0, "alice")))
    owner.order(orders.resume(order(1, "bob"), owner.now))
    owner.order(orders.evict(order(2, "alice", "asked to"), "a", owner.now))
    owner.federation.orders.evict(order(3), "nobody", owner.now)
    owner.order(orders.end(order(4, "bob"), None, owner.now))
    for place in (owner, owner.restart()):
        log = [(act.verb, act.who, act.at, act.reason) for act in place.federation.administration.acts]
        assert log == [
            (Verb.PAUSE, "alice", AT, ""),
            (Verb.RESUME, "bob", AT, ""),
            (Verb.EVICT, "alice", AT, "asked to"),
            (Verb.END, "bob", AT, ""),
        ]
