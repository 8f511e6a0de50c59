"""The oracle of every fault test: the set of updates alone decides a model, bit for bit."""

import hashlib

import numpy as np
import pytest
from hushgrad.server.records import Answer

from tests.support.federations import Owner, Sealed, make_terms, senders_of

TERMS = make_terms(parameters=7, participants=4, final_version=8, window=6, max_delay=3)
LATE = {("client-2", 1), ("client-2", 2), ("client-4", 4)}
"""Updates that arrive after newer versions were published without them."""
LAST = ("client-1", TERMS.final_version - 1)
"""Comes last in every order, so that the federation does not end before all others are in."""


def replay(order: int) -> tuple[Owner, dict[int, set[tuple[str, int]]]]:
    """Sends the same sealed updates in an order of its own, the LATE ones after their rounds were skipped."""
    generator = np.random.default_rng(order)
    owner, senders = Owner(TERMS), senders_of(TERMS)
    owner.begin(senders)
    by_name = {sender.name: sender for sender in senders}
    waiting = [sender.seal(round_) for sender in senders for round_ in range(TERMS.final_version)]
    last = next(sealed for sealed in waiting if (sealed.participant, sealed.round) == LAST)
    waiting.remove(last)
    late: list[Sealed] = []
    while waiting or late:
        ready = [sealed for sealed in late if sealed.round < owner.federation.newest_version or not waiting]
        pool = ready if ready and (not waiting or generator.random() < 0.2) else waiting
        sealed = pool[int(generator.integers(len(pool)))]
        (late if sealed in late else waiting).remove(sealed)
        caller = by_name[sealed.participant].caller
        if pool is waiting and (sealed.participant, sealed.round) in LATE:
            owner.settle(owner.federation.report(caller, [(sealed.round, "skipped", b"")]))
            late.append(sealed)
        elif owner.submit(by_name[sealed.participant], sealed).answer is Answer.TOO_FAR_AHEAD:
            waiting.append(sealed)
    assert owner.submit(by_name[last.participant], last).answer is Answer.ACCEPTED
    assert owner.federation.has_ended
    held: set[tuple[str, int]] = set()
    sets = {}
    for frozen in owner.frozen:
        held = held | set(frozen.folded)
        sets[frozen.aggregate.version] = held
    return owner, sets


def test_twenty_random_orders_give_one_final_model_bit_for_bit() -> None:
    digests, manifests, late_inclusions = set(), set(), 0
    for order in range(20):
        owner, sets = replay(order)
        final = owner.models[TERMS.final_version]
        assert sets[TERMS.final_version] == {
            (sender.name, round_) for sender in senders_of(TERMS) for round_ in range(TERMS.final_version)
        }
        digests.add(hashlib.sha256(final.model).hexdigest())
        manifests.add(tuple(tuple(sorted(frozen.folded)) for frozen in owner.frozen))
        late_inclusions += sum(key not in sets[key[1] + 1] for key in LATE)
    assert len(digests) == 1
    # The twin: the orders did differ, and updates did come after versions that were published without them.
    assert len(manifests) > 1
    assert late_inclusions > 20


@pytest.mark.parametrize("order", [0, 7])
def test_every_version_is_the_exact_sum_over_its_manifest(order: int) -> None:
    owner, sets = replay(order)
    sealed = {(s.name, r): s.seal(r) for s in senders_of(TERMS) for r in range(TERMS.final_version)}
    for version, held in sets.items():
        total = [0] * TERMS.parameters
        for key in held:
            for at, element in enumerate(np.frombuffer(sealed[key].payload, "<i4").tolist()):
                total[at] -= TERMS.step_numerator(key[1]) * element
        assert owner.models[version].array.tolist() == total


def test_one_changed_bit_in_one_update_changes_the_final_model() -> None:
    owner, senders = Owner(TERMS), senders_of(TERMS)
    owner.begin(senders)
    for round_ in range(TERMS.final_version):
        for sender, twin in zip(senders, senders_of(TERMS), strict=True):
            payload = bytearray([twin.seal(earlier) for earlier in range(round_ + 1)][-1].payload)
            payload[2] ^= (sender.name, round_) == ("client-3", 5)
            assert owner.submit(sender, sender.seal(round_, bytes(payload))).answer is Answer.ACCEPTED
    assert owner.models[TERMS.final_version].model != replay(0)[0].models[TERMS.final_version].model
