"""The picture of a federation: its numbers are the federation's, and it stands still."""

import dataclasses

import pytest
from hushgrad.server import declarations, overview
from hushgrad.server.counting import Counters
from hushgrad.server.overview import Facts, Overview
from hushgrad.server.records import Act, Answer, DeclaredClaim, Verb
from hushgrad.v1 import membership_pb2, status_pb2, terms_pb2
from hushgrad.wire.errors import ContractError

from tests.support.federations import Owner, digest_of, make_terms, senders_of

TERMS = make_terms(participants=3, straggler_timeout_seconds=10.0)
CLAIM = DeclaredClaim(0.5, 1e-5, "add-remove", "poisson", "record", "pld", "1 (dp-accounting 0.6)", 6, True)


def picture_of(owner: Owner, counters: Counters | None = None, **facts: float) -> Overview:
    values = {"now": owner.now, "wall_seconds": 1e9 + owner.now, "started_at": 0.0, "published_at": 0.0, **facts}
    return overview.take(
        owner.federation, digest_of(TERMS), counters or Counters(), Facts(**values, server_epoch=1, watchers=0)
    )


def one(picture: Overview, name: str) -> overview.ParticipantPicture:
    (found,) = [participant for participant in picture.participants if participant.name == name]
    return found


def test_while_it_gathers_it_says_who_is_missing():
    owner = Owner(TERMS)
    first, *_ = senders_of(TERMS)
    owner.join(first)
    owner.start(first)
    picture = picture_of(owner)
    assert (picture.phase, picture.newest_version) == ("gathering", 0)
    assert picture.waiting_for == owner.federation.waiting_for() == "version 1 waits for 2 of 3 participants"
    assert picture.deadline_seconds is None  # without a start timeout nothing happens by itself


def test_it_names_who_holds_up_the_next_version_and_when_that_ends():
    owner = Owner(TERMS)
    senders = senders_of(TERMS)
    owner.begin(senders)
    for sender in senders[:2]:
        owner.submit(sender, sender.seal(0))
        owner.submit(sender, sender.seal(1))
    owner.now = 4.0
    picture = picture_of(owner)
    assert picture.holding_up == ("client-3",)
    assert picture.waiting_for == "version 1 waits for round 0 of client-3"
    assert (picture.waiting_seconds, picture.deadline_seconds) == (4.0, 6.0)  # of the terms' 10 seconds
    assert [participant.holds_up for participant in picture.participants] == [False, False, True]
    assert (one(picture, "client-1").round, one(picture, "client-1").staleness) == (1, 1)
    assert (one(picture, "client-3").round, one(picture, "client-3").behind) == (None, 2)


def test_staleness_is_how_far_the_newest_version_is_behind_the_newest_round():
    owner = Owner(TERMS)
    senders = senders_of(TERMS)
    owner.begin(senders)
    for sender in senders:
        owner.submit(sender, sender.seal(0))
    owner.submit(senders[0], senders[0].seal(1))
    picture = picture_of(owner)
    assert picture.newest_version == 1
    assert [participant.staleness for participant in picture.participants] == [0, 0, 0]
    owner.submit(senders[0], senders[0].seal(2))
    assert one(picture_of(owner), "client-1").staleness == 1


def test_it_does_not_change_when_the_federation_does():
    owner = Owner(TERMS)
    senders = senders_of(TERMS)
    owner.begin(senders)
    picture = picture_of(owner)
    before = dataclasses.replace(picture)
    for sender in senders:
        owner.submit(sender, sender.seal(0))
    assert picture == before
    assert picture_of(owner).newest_version == 1


def test_a_suspended_participant_is_shown_as_one():
    owner = Owner(TERMS)
    senders = senders_of(TERMS)
    owner.begin(senders)
    for sender in senders[:2]:
        owner.submit(sender, sender.seal(0))
    owner.wait(10.5)
    lost = one(picture_of(owner), "client-3")
    assert (lost.state, lost.suspensions, lost.without_update, lost.holds_up) == ("suspended", 1, 1, False)


def test_a_pause_is_a_phase_and_its_reason_is_the_sentence():
    owner = Owner(TERMS)
    owner.begin(senders_of(TERMS))
    pause = Act(1e9, "operator eve of test", Verb.PAUSE, bytes(16), changed=True, reason="a power cut at noon")
    owner.federation.administration.apply(pause)
    picture = picture_of(owner)
    assert picture.phase == "paused"
    assert "waits for an operator to resume" in picture.waiting_for
    assert "a power cut at noon" in picture.waiting_for
    assert picture.deadline_seconds is None


def test_who_was_evicted_is_shown_as_such():
    owner = Owner(TERMS)
    senders = senders_of(TERMS)
    owner.begin(senders)
    owner.federation.participants[0].is_evicted = True
    assert [participant.is_evicted for participant in picture_of(owner).participants] == [True, False, False]


def test_totals_and_refusals_are_the_counters():
    owner = Owner(TERMS)
    counters = Counters()
    counters.updates[Answer.ACCEPTED] = 7
    counters.updates[Answer.DUPLICATE] = 2
    counters.updates[Answer.INVALID] = 1
    counters.answers[Answer.WRONG_TERMS] = 3
    for seconds in (0.004, 0.1, 0.3, 7.0):
        counters.commits.observe(seconds)
    picture = picture_of(owner, counters, now=20.0)
    totals = picture.totals
    assert (totals.accepted, totals.duplicates, totals.seconds) == (7, 2, 20.0)
    assert {reason: number for reason, number in totals.refusals.items() if number} == {"invalid": 1, "wrong_terms": 3}
    assert (picture.store.commits, picture.store.slow_commits) == (4, 2)  # 0.3 and 7 seconds are above a tenth
    assert picture.store.commit_seconds == pytest.approx(7.404 / 4)


def test_a_claim_is_shown_as_declared_and_used_by_rounds_received():
    owner = Owner(TERMS)
    senders = senders_of(TERMS)
    owner.begin(senders)
    first = senders[0]
    outcome = owner.settle(owner.federation.start(first.caller, 0, owner.now, CLAIM))
    assert outcome.records  # an active participant's declaration is durable, too
    for sender in senders:
        owner.submit(sender, sender.seal(0))
    owner.submit(first, first.seal(1))
    picture = picture_of(owner)
    assert one(picture, "client-1").claim == CLAIM
    assert one(picture, "client-1").budget_used == pytest.approx(2 / 6)
    assert (one(picture, "client-2").claim, one(picture, "client-2").budget_used) == (None, None)


def test_what_was_declared_last_stands_through_a_restart():
    owner = Owner(TERMS)
    first, *_ = senders_of(TERMS)
    owner.join(first)
    owner.settle(owner.federation.start(first.caller, 0, owner.now, CLAIM))
    later = dataclasses.replace(CLAIM, epsilon=0.75)
    owner.settle(owner.federation.start(first.caller, 0, owner.now, later))
    owner.settle(owner.federation.start(first.caller, 0, owner.now))
    assert one(picture_of(owner.restart()), "client-1").claim == later


def message(**changes: object) -> membership_pb2.DeclaredClaim:
    fields: dict = {
        "epsilon": 0.5,
        "delta": 1e-5,
        "adjacency": "add-remove",
        "sampler": terms_pb2.SAMPLER_POISSON,
        "unit": "record",
        "method": "pld",
        "method_version": "1 (dp-accounting 0.6)",
        "planned_rounds": 6,
        "timing_covered": True,
        **changes,
    }
    return membership_pb2.DeclaredClaim(**fields)


def test_a_claim_is_read_as_it_was_declared():
    assert declarations.claim(message()) == CLAIM


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"epsilon": float("nan")}, "epsilon"),
        ({"epsilon": float("inf")}, "epsilon"),
        ({"epsilon": -0.1}, "epsilon"),
        ({"delta": 0.0}, "delta"),
        ({"delta": 1.0}, "delta"),
        ({"adjacency": "<script>"}, "adjacency"),
        ({"sampler": terms_pb2.SAMPLER_UNSPECIFIED}, "sampler"),
        ({"unit": "person"}, "unit"),
        ({"method": ""}, "method"),
        ({"method": "p" * 33}, "method"),
        ({"method_version": "1\n2"}, "method_version"),
        ({"method_version": "\u03b5"}, "method_version"),
        ({"planned_rounds": 0}, "planned_rounds"),
        ({"planned_rounds": 2**53 + 1}, "planned_rounds"),
    ],
)
def test_what_is_no_claim_is_refused_by_name(changes, said):
    with pytest.raises(ContractError, match=rf"claim\.{said}"):
        declarations.claim(message(**changes))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"version": 8}, "version must be at most 7"),
        ({"accuracy": float("nan")}, "accuracy must be 0 to 1"),
        ({"accuracy": 1.01}, "accuracy must be 0 to 1"),
        ({"averaged_accuracy": -0.1}, "averaged_accuracy must be 0 to 1"),
        ({"examples": 0}, "examples must be 1"),
    ],
)
def test_what_is_no_score_is_refused_by_name(changes, said):
    fields = {"version": 7, "accuracy": 0.9, "averaged_accuracy": 0.91, "examples": 100}
    declarations.check_score(status_pb2.ReportEvaluationRequest(**fields), 7)
    with pytest.raises(ContractError, match=said):
        declarations.check_score(status_pb2.ReportEvaluationRequest(**{**fields, **changes}), 7)
