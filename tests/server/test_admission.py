"""Every answer to an update, one row each, and that a refused update changes nothing."""

import dataclasses
import struct

import pytest
from hushgrad.server.records import Answer, Disposition
from hushgrad.wire import header

from tests.support.federations import Owner, Sender, make_terms, senders_of

TERMS = make_terms(participants=2, final_version=20, window=3)


def running(versions: int = 0) -> tuple[Owner, Sender, Sender]:
    """Returns a federation of two that has published so many versions."""
    owner, (one, two) = Owner(TERMS), senders_of(TERMS)
    owner.begin([one, two])
    for round_ in range(versions):
        for sender in (one, two):
            assert owner.submit(sender, sender.seal(round_)).answer is Answer.ACCEPTED
    assert owner.federation.newest_version == versions
    return owner, one, two


def test_an_update_is_accepted_into_the_next_version() -> None:
    owner, one, _ = running(2)
    outcome = owner.submit(one, one.seal(2))
    assert (outcome.answer, outcome.included_in) == (Answer.ACCEPTED, 3)


def test_a_repeat_gets_the_first_answer_before_and_after_its_checkpoint() -> None:
    owner, one, two = running(2)
    sealed = one.seal(2)
    owner.submit(one, sealed)
    before = owner.submit(one, sealed)
    owner.submit(two, two.seal(2))
    after = owner.submit(one, sealed)
    for repeat in (before, after):
        assert (repeat.answer, repeat.first_answer, repeat.included_in, repeat.records) == (
            Answer.DUPLICATE,
            Answer.ACCEPTED,
            3,
            (),
        )


def test_a_repeat_from_long_ago_is_found_in_the_archive() -> None:
    owner, one, _ = running(15)
    repeat = owner.submit(one, one.sealed[0])
    assert (repeat.answer, repeat.first_answer, repeat.included_in) == (Answer.DUPLICATE, Answer.ACCEPTED, 1)
    assert len(next(iter(owner.federation.participants)).receipts) < 10


def test_a_repeat_changes_the_model_by_nothing() -> None:
    owner, one, two = running(1)
    for _ in range(3):
        owner.submit(one, one.sealed[0])
    owner.submit(one, one.seal(1))
    owner.submit(two, two.seal(1))
    other, _, _ = running(2)
    assert owner.models[2].model == other.models[2].model


@pytest.mark.parametrize("versions", [1, 15])
def test_another_update_for_a_known_round_is_a_conflict(versions: int) -> None:
    owner, one, _ = running(versions)
    assert owner.submit(one, one.seal(0)).answer is Answer.CONFLICT


def test_another_row_with_a_known_number_is_a_conflict() -> None:
    owner, one, _ = running(2)
    forged = one.seal(2, ledger_sequence=1)
    outcome = owner.submit(one, forged)
    assert outcome.answer is Answer.CONFLICT
    assert "rolled back" in outcome.detail


def test_a_row_that_does_not_continue_the_known_one_is_a_conflict() -> None:
    owner, one, _ = running(2)
    assert owner.submit(one, one.seal(2, ledger_previous_head=bytes(32))).answer is Answer.CONFLICT


def test_a_row_that_the_known_next_one_does_not_continue_is_a_conflict() -> None:
    owner, one, _ = running(0)
    forged = Sender(one.name, TERMS, seed=9)
    forged.session = one.session
    one.seal(0)
    assert owner.submit(one, one.seal(1)).answer is Answer.ACCEPTED
    assert owner.submit(one, forged.seal(0)).answer is Answer.CONFLICT


def test_the_chain_is_checked_against_rows_of_the_archive() -> None:
    owner, one, _ = running(15)
    assert owner.submit(one, one.seal(15, ledger_sequence=2)).answer is Answer.CONFLICT


def test_rows_of_one_chain_are_accepted_in_any_order() -> None:
    owner, one, _ = running(0)
    sealed = [one.seal(round_) for round_ in range(3)]
    assert [owner.submit(one, sealed[at]).answer for at in (2, 0, 1)] == [Answer.ACCEPTED] * 3


def test_a_row_number_may_be_missing_in_between() -> None:
    owner, one, _ = running(1)
    one._sequence += 5
    assert owner.submit(one, one.seal(1)).answer is Answer.ACCEPTED


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"noise_multiplier": 1.9}, "noise_multiplier"),
        ({"noise_multiplier": 3.1}, "noise_multiplier"),
        ({"clip_norm": 0.6}, "clip_norm"),
        ({"sampler": "fixed"}, "sampler"),
        ({"flags": header.FLAG_INSECURE_NOISE}, "insecure"),
        ({"element_type": 2}, "element_type"),
        ({"payload_bytes": 24}, "payload"),
        ({"payload": bytes(16)}, "payload"),
        ({"payload": struct.pack("<5i", 0, 0, -(2**31), 0, 0)}, "2^31"),
    ],
)
def test_content_that_the_terms_refuse_is_invalid_for_ever(changes: dict, word: str) -> None:
    owner, one, two = running(1)
    sealed = one.seal(1, **changes)
    first, repeat = owner.submit(one, sealed), owner.submit(one, sealed)
    assert (first.answer, repeat.answer, repeat.first_answer) == (Answer.INVALID, Answer.DUPLICATE, Answer.INVALID)
    assert word in first.detail
    assert owner.store.find(one.name, 1).disposition is Disposition.INVALID
    # The round is settled by it: the federation goes on without this update.
    owner.submit(two, two.seal(1))
    assert owner.federation.newest_version == 2
    assert owner.frozen[-1].folded == ((two.name, 1),)


@pytest.mark.parametrize("forbidden", [False, True])
def test_clipping_declared_by_the_caller_is_taken_unless_the_terms_forbid_it(forbidden: bool) -> None:
    privacy = dataclasses.replace(TERMS.privacy, caller_clipping_forbidden=forbidden)
    terms = dataclasses.replace(TERMS, privacy=privacy)
    owner, senders = Owner(terms), senders_of(terms)
    owner.begin(senders)
    outcome = owner.submit(senders[0], senders[0].seal(0, flags=header.FLAG_CLIPPING_DECLARED))
    assert outcome.answer is (Answer.INVALID if forbidden else Answer.ACCEPTED)
    if forbidden:
        assert "clipping" in outcome.detail


def test_a_header_that_declares_something_impossible_is_settled_as_invalid_too() -> None:
    owner, one, _ = running(1)
    good = one.seal(1)
    bad = bytearray(good.header)
    bad[124:132] = struct.pack("<d", float("nan"))
    digest = header.digest(bytes(bad), good.payload)
    outcome = owner.settle(owner.federation.submit(one.caller, bytes(bad), digest, good.payload))
    assert outcome.answer is Answer.INVALID
    assert owner.store.find(one.name, 1).disposition is Disposition.INVALID


def test_a_ledger_number_that_no_database_holds_is_invalid_and_not_an_error() -> None:
    owner, one, _ = running(1)
    outcome = owner.submit(one, one.seal(1, ledger_sequence=2**64 - 1))
    assert outcome.answer is Answer.INVALID
    assert owner.store.find(one.name, 1).sequence is None


def test_a_header_of_somebody_else_is_invalid_and_leaves_no_trace() -> None:
    owner, one, two = running(1)
    sealed = two.seal(1)
    outcome = owner.settle(owner.federation.submit(one.caller, sealed.header, sealed.digest, sealed.payload))
    assert (outcome.answer, outcome.records) == (Answer.INVALID, ())
    assert owner.submit(two, sealed).answer is Answer.ACCEPTED


@pytest.mark.parametrize(
    ("round_", "answer"),
    [
        (6, Answer.STALE),
        (12, Answer.ACCEPTED),
        (13, Answer.TOO_FAR_AHEAD),
        (2**64 - 1, Answer.TOO_FAR_AHEAD),
    ],
)
def test_the_window_decides_what_is_taken(round_: int, answer: Answer) -> None:
    owner, one, _ = running(5)
    owner.settle(owner.federation.observe(one.caller, 5, 0.0))
    two = senders_of(TERMS)[1]
    owner.join(two)
    for earlier in range(10):
        two.seal(earlier)
        if earlier >= 5:
            owner.submit(two, two.sealed[earlier])
    assert owner.federation.newest_version == 10
    outcome = owner.submit(one, one.seal(round_))
    assert outcome.answer is answer
    if answer is not Answer.ACCEPTED:
        assert outcome.records == ()


@pytest.mark.parametrize(
    ("change", "answer"),
    [
        ({"terms_digest": bytes(32)}, Answer.WRONG_TERMS),
        ({"participant": "client-9"}, Answer.UNKNOWN_PARTICIPANT),
        ({"session": 0}, Answer.STALE_SESSION),
        ({"session": 7}, Answer.UNKNOWN_PARTICIPANT),
        ({"terms_digest": bytes(32), "participant": "client-9", "session": 0}, Answer.WRONG_TERMS),
    ],
)
def test_a_caller_is_checked_before_anything_else(change: dict, answer: Answer) -> None:
    owner, one, _ = running(1)
    caller = dataclasses.replace(one.caller, **change)
    sealed = one.sealed[0]
    outcome = owner.settle(owner.federation.submit(caller, sealed.header, sealed.digest, sealed.payload))
    assert (outcome.answer, outcome.participation) == (answer, None)


def test_after_the_end_repeats_are_answered_and_everything_else_is_over() -> None:
    owner, one, two = running(20)
    assert owner.submit(one, one.sealed[19]).first_answer is Answer.ACCEPTED
    assert owner.submit(one, one.seal(20)).answer is Answer.RUN_ENDED
    assert owner.start(two, 20).answer is Answer.RUN_ENDED
    assert owner.join(two, b"b" * 16).answer is Answer.RUN_ENDED
    assert two.session == 2


def test_while_the_final_version_is_written_nothing_gets_a_last_word() -> None:
    owner, one, two = running(19)
    owner.settle(owner.federation.observe(one.caller, 19, 0.0))
    sealed = two.seal(19)
    owner.store.write(owner.federation.submit(two.caller, sealed.header, sealed.digest, sealed.payload).records)
    frozen = owner.federation.freeze()
    late = one.seal(19)
    outcome = owner.federation.submit(one.caller, late.header, late.digest, late.payload)
    assert (outcome.answer, outcome.records) == (Answer.BUSY, ())
    assert outcome.retry_after_milliseconds > 0
    owner.federation.published(frozen.aggregate.publish(), 0.0)
    assert owner.submit(one, late).answer is Answer.RUN_ENDED


def test_a_preview_tells_the_fate_without_the_payload_and_stores_only_refusals() -> None:
    owner, one, _ = running(1)
    sealed = one.seal(1)
    preview = owner.federation.preview(one.caller, sealed.header, sealed.digest)
    assert (preview.answer, preview.records) == (Answer.ACCEPTED, ())
    assert owner.submit(one, sealed).answer is Answer.ACCEPTED
    assert owner.federation.preview(one.caller, sealed.header, sealed.digest).answer is Answer.DUPLICATE
    wrong = one.seal(2, clip_norm=0.7)
    assert owner.settle(owner.federation.preview(one.caller, wrong.header, wrong.digest)).answer is Answer.INVALID


def test_answers_and_states_are_the_numbers_of_the_contract() -> None:
    from hushgrad.server.records import State
    from hushgrad.v1 import common_pb2, membership_pb2

    assert {f"ANSWER_{answer.name}": int(answer) for answer in Answer} | {"ANSWER_UNSPECIFIED": 0} == dict(
        common_pb2.Answer.items()
    )
    assert {f"PARTICIPATION_STATE_{state.name}": int(state) for state in State} | {
        "PARTICIPATION_STATE_UNSPECIFIED": 0
    } == dict(membership_pb2.ParticipationState.items())
