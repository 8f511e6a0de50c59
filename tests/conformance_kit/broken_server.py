"""Our server with one fault that FAULT names, to see whether the kit finds it."""

import dataclasses
import os

import google_crc32c
from hushgrad.conformance import our_server
from hushgrad.server import admission, aggregation, membership
from hushgrad.server.records import Answer
from hushgrad.wire import grid
from hushgrad.wire.terms import Terms


def one_step_size():
    Terms.step_numerator = lambda self, round_: self.step_numerators[0]


def small_arithmetic():
    exact = grid.published_model
    grid.published_model = lambda array, **exponents: exact(array >> 50 << 50, **exponents)


def smallest_element():
    aggregation.defect = lambda payload, parameters: None


def insecure_noise():
    admission.content_defect = lambda header, terms: None


def no_window():
    admit = admission.admit
    admission.admit = lambda *given, terms, **named: admit(*given, terms=_Wide(terms, 10**6), **named)


class _Wide:
    """Terms with another window."""

    def __init__(self, terms, window):
        self._terms, self.window = terms, window

    def __getattr__(self, name):
        return getattr(self._terms, name)


def forgetful():
    known = admission._known

    def forget(receipt, digest, terms, standing, note):
        decision = known(receipt, digest, terms, standing, note)
        return (
            dataclasses.replace(decision, answer=Answer.ACCEPTED) if decision.answer is Answer.DUPLICATE else decision
        )

    admission._known = forget


def no_conflict():
    known = admission._known
    admission._known = lambda receipt, digest, *others: known(receipt, receipt.digest, *others)


def no_chain():
    admission._chain_conflict = lambda participant, header, head, archive: None


def no_fence():
    check = membership.Membership.check

    def unfenced(self, caller):
        participant = self.participants.get(caller.participant)
        newest = participant.session if participant is not None else caller.session
        return check(self, dataclasses.replace(caller, session=newest))

    membership.Membership.check = unfenced


def no_checksum():
    google_crc32c.extend = lambda crc, data: Anything()


class Anything:
    """Equals everything."""

    def __eq__(self, other):
        return True

    def __ne__(self, other):
        return False

    __hash__ = None


FAULTS = {
    fault.__name__.replace("_", "-"): fault
    for fault in (
        one_step_size, small_arithmetic, smallest_element, insecure_noise, no_window, forgetful, no_conflict, no_chain,
        no_fence, no_checksum,
    )
}  # fmt: skip

if __name__ == "__main__":
    FAULTS[os.environ["FAULT"]]()
    our_server.main()
