"""A crash loses no accepted update and changes no published version: the cores under a store that commits or does not.

The store here is durable per event; the crash drops everything else, at every place where the server could be.
"""

import dataclasses

import numpy as np
import pytest
from hushgrad.server.federation import Federation, Outcome
from hushgrad.server.records import Answer, Disposition, State
from hushgrad.wire.terms import Terms

from tests.support.federations import Owner, Sealed, Sender, digest_of, make_terms, senders_of

TERMS = make_terms(participants=3, final_version=8, window=4)


def test_open_receipts_are_wanted_folded_again_and_named_in_a_later_version() -> None:
    owner, senders = Owner(TERMS), senders_of(TERMS)
    owner.begin(senders)
    sealed = senders[0].seal(0)
    assert owner.submit(senders[0], sealed).included_in == 1
    owner = owner.restart()
    seen = owner.federation.participation(senders[0].caller).participation
    assert (seen.state, seen.wanted_rounds) == (State.ACTIVE, (0,))
    for sender in senders[1:]:
        owner.submit(sender, sender.seal(0))
    # Round 0 of client-1 counts as no disposition until its content is here.
    assert owner.federation.waiting_for() == "version 1 waits for round 0 of client-1"
    again = owner.submit(senders[0], sealed)
    assert (again.answer, again.included_in) == (Answer.ACCEPTED, 1)
    assert owner.federation.newest_version == 1
    assert owner.federation.participation(senders[0].caller).participation.wanted_rounds == ()
    assert owner.submit(senders[0], sealed).answer is Answer.DUPLICATE


def test_an_open_receipt_is_skipped_by_suspension_and_included_by_a_resend() -> None:
    owner, senders = Owner(TERMS), senders_of(TERMS)
    owner.begin(senders)
    for sender in senders:
        owner.submit(sender, sender.seal(0))
    sealed = senders[0].seal(1)
    owner.submit(senders[0], sealed)
    owner = owner.restart()
    for sender in senders[1:]:
        owner.submit(sender, sender.seal(1))
    # The straggler timer runs from the start of the server.
    owner.wait(9.9)
    assert owner.federation.newest_version == 1
    owner.wait(0.1)
    assert owner.federation.newest_version == 2
    assert owner.store.find(senders[0].name, 1).disposition is Disposition.SKIPPED
    assert owner.federation.participation(senders[0].caller).participation.wanted_rounds == (1,)
    owner = owner.restart()
    outcome = owner.submit(senders[0], sealed)
    assert (outcome.answer, outcome.included_in) == (Answer.ACCEPTED, 3)
    for sender in senders[1:]:
        owner.submit(sender, sender.seal(2))
    assert owner.store.find(senders[0].name, 1).included_in == 3


def test_void_settles_a_wanted_round_and_skipped_contradicts_it() -> None:
    owner, senders = Owner(TERMS), senders_of(TERMS)
    owner.begin(senders)
    owner.submit(senders[0], senders[0].seal(0))
    owner = owner.restart()
    assert owner.federation.report(senders[0].caller, [(0, "skipped", b"")]).answer is Answer.CONFLICT
    outcome = owner.settle(owner.federation.report(senders[0].caller, [(0, "void", b"")]))
    assert (outcome.answer, outcome.participation.wanted_rounds) == (Answer.ACCEPTED, ())
    for sender in senders[1:]:
        owner.submit(sender, sender.seal(0))
    assert owner.federation.newest_version == 1


def test_a_conflict_is_still_found_after_a_restart() -> None:
    owner, senders = Owner(TERMS), senders_of(TERMS)
    owner.begin(senders)
    owner.submit(senders[0], senders[0].seal(0))
    owner = owner.restart()
    assert owner.submit(senders[0], senders[0].seal(0)).answer is Answer.CONFLICT
    assert owner.submit(senders[0], senders[0].seal(1, ledger_sequence=1)).answer is Answer.CONFLICT


class CrashingOwner:
    """An owner whose commits lag behind: a crash loses a random tail of them, and of the answers that rest on them."""

    def __init__(self, terms: Terms, generator: np.random.Generator) -> None:
        self.generator = generator
        self.owner = Owner(terms)
        self.models: dict[int, bytes] = {}

    def submit(self, sender: Sender, sealed: Sealed) -> Answer | None:
        federation, store = self.owner.federation, self.owner.store
        outcome = federation.submit(sender.caller, sealed.header, sealed.digest, sealed.payload)
        frozen = federation.freeze()
        if self.generator.random() < 0.06:
            return self.crash()
        store.write(outcome.records)
        if self.generator.random() < 0.06:
            return self.crash()
        if frozen is not None:
            published = frozen.aggregate.publish()
            if self.generator.random() < 0.1:
                return self.crash()
            store.checkpoint(published, frozen.previous, frozen.folded, frozen.participants, 0)
            assert self.models.setdefault(published.version, published.model) == published.model
            if self.generator.random() < 0.1:
                return self.crash()
            federation.published(published, 0.0)
            self.owner.advance()
        return outcome.answer

    def crash(self) -> None:
        self.owner = self.owner.restart()
        self.owner.advance()


@pytest.mark.parametrize("publish_every", [1, 2])
@pytest.mark.parametrize("seed", range(20))
def test_any_crashes_between_any_commits_give_the_model_of_a_run_without_crashes(seed: int, publish_every: int) -> None:
    terms = make_terms(participants=3, final_version=9, window=4, publish_every=publish_every)
    generator = np.random.default_rng(seed)
    crashing, senders = CrashingOwner(terms, generator), senders_of(terms)
    crashing.owner.begin(senders)
    outbox = [(sender, sender.seal(round_)) for round_ in range(terms.final_version) for sender in senders]
    steps = 0
    while not crashing.owner.federation.has_ended:
        newest = crashing.owner.federation.newest_version
        ready = [entry for entry in outbox if newest - 4 <= entry[1].round < newest + 2]
        sender, sealed = ready[int(generator.integers(len(ready)))]
        answer = crashing.submit(sender, sealed)
        assert answer in (None, Answer.ACCEPTED, Answer.DUPLICATE, Answer.TOO_FAR_AHEAD, Answer.BUSY)
        steps += 1
        assert steps < 5000
    plain, others = Owner(terms), senders_of(terms)
    plain.begin(others)
    for round_ in range(terms.final_version):
        for sender in others:
            plain.submit(sender, sender.seal(round_))
    final = crashing.owner.store.snapshot(terms)
    assert final.array.tolist() == plain.models[terms.final_version].array.tolist()
    assert {history.accepted for history in final.histories.values()} == {terms.final_version}


def test_the_watermark_stays_below_what_a_crash_opened_again_until_a_checkpoint_holds_it() -> None:
    # An outbox goes by the version that was promised. The crash broke the promise, and the others go on without it.
    owner, senders = Owner(TERMS), senders_of(TERMS)
    owner.begin(senders)
    ahead, *others = senders
    for sender in senders:
        owner.submit(sender, sender.seal(0))
    early = ahead.seal(1)
    assert owner.submit(ahead, early).included_in == 2
    owner = owner.restart()
    for sender in others:
        owner.submit(sender, sender.seal(1))
    owner.settle(owner.federation.leave(ahead.caller, 1, owner.now))  # so that version 2 does not wait for it
    assert owner.federation.newest_version == 2
    participants = {one.name: one for one in owner.federation.participants}
    held_back = owner.federation.watermark(participants[ahead.name])
    assert held_back < 2 == owner.federation.watermark(participants[others[0].name])
    assert owner.federation.watermark() == held_back
    outcome = owner.submit(ahead, early)
    assert (outcome.answer, outcome.watermark) == (Answer.ACCEPTED, held_back)
    for sender in others:
        owner.submit(sender, sender.seal(2))
    assert owner.federation.newest_version == owner.federation.watermark() == 3


# After a restore


def restored(owner: Owner, *, wait: float) -> Owner:
    """Returns the owner after its state was put back, as `raise_epoch` does it, and started again."""
    participants = owner.store.snapshot(owner.terms).participants
    owner.store.write([dataclasses.replace(one, joins=(), must_report=True) for one in participants])
    again = owner.restart()
    again.federation = Federation(
        again.terms,
        digest_of(again.terms),
        again.store.snapshot(again.terms),
        again.store,
        now=again.now,
        restore_wait_seconds=wait,
    )
    return again


def report(owner: Owner, sender: Sender, held: list[int]) -> Outcome:
    reports = [(round_, "held", sender.sealed[round_].digest) for round_ in held]
    told = range(max(held, default=-1) + 1)
    return owner.settle(owner.federation.report(sender.caller, reports, told, owner.now))


def test_a_restored_server_makes_no_version_before_everybody_has_said_what_they_hold() -> None:
    owner, (one, two, three) = Owner(TERMS), senders_of(TERMS)
    owner.begin((one, two, three))
    owner = restored(owner, wait=60.0)
    for sender in (one, two):
        report(owner, sender, [])
        owner.submit(sender, sender.seal(0))
    assert owner.federation.waiting_for() == (
        "version 1 waits until client-3 says what it holds, because the server was restored"
    )
    # Nobody is a straggler meanwhile, not even after the straggler timeout of 10 s.
    owner.wait(50.0)
    three.seal(0)
    assert report(owner, three, [0]).participation.wanted_rounds == (0,)
    assert owner.federation.newest_version == 0
    owner.submit(three, three.sealed[0])
    assert owner.federation.newest_version == 1
    assert (
        owner.restart().federation.waiting_for()
        == "version 2 waits for round 1 of client-1, round 1 of client-2, round 1 of client-3"
    )


def test_a_restored_server_waits_no_longer_than_it_was_told() -> None:
    owner, senders = at_version_one()
    one, two, _ = senders
    owner = restored(owner, wait=20.0)
    for sender in (one, two):
        report(owner, sender, [0])
        owner.submit(sender, sender.seal(1))
    assert owner.federation.next_deadline() == 20.0
    owner.wait(20.0)
    assert owner.federation.newest_version == 1  # client-3 is a straggler from now on
    assert not any(record.must_report for record in owner.store.snapshot(TERMS).participants)
    owner.wait(10.0)
    assert owner.federation.newest_version == 2


def test_what_somebody_holds_is_waited_for_although_the_backup_says_that_it_owes_nothing() -> None:
    owner, (one, two, three) = at_version_one()
    owner.settle(owner.federation.observe(three.caller, 1, owner.now))
    # Later it took part again, which the backup does not know.
    owner = restored(owner, wait=60.0)
    three.seal(1)
    three.seal(2)
    report(owner, three, [0, 1, 2])
    for sender in (one, two):
        report(owner, sender, [0])
        owner.submit(sender, sender.seal(1))
    assert owner.federation.waiting_for() == "version 2 waits for round 1 of client-3"
    owner.submit(three, three.sealed[1])
    assert owner.federation.newest_version == 2
    assert owner.store.find(three.name, 1).included_in == 2
    # The twin: it does not wait for ever.
    for sender in (one, two):
        owner.submit(sender, sender.seal(2))
    owner.wait(9.0)
    assert owner.federation.newest_version == 2
    owner.wait(1.0)
    assert owner.federation.newest_version == 3


def at_version_one() -> tuple[Owner, list[Sender]]:
    owner, senders = Owner(TERMS), senders_of(TERMS)
    owner.begin(senders)
    for sender in senders:
        owner.submit(sender, sender.seal(0))
    assert owner.federation.newest_version == 1
    return owner, senders
