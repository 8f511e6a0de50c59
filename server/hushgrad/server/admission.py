"""Decides the fate of one update from what it declares and what is known; changes nothing.

Knows no array, socket, clock or file: the caller has computed the digest and looked the payload over, and acts on the
decision. Nothing here depends on the order in which updates arrive, except which of two that contradict each other is
refused.
"""

import struct
from dataclasses import dataclass

from hushgrad.server.participant import Participant
from hushgrad.server.records import Answer, Archive, Disposition, Receipt
from hushgrad.v1 import terms_pb2
from hushgrad.wire import header as wire_header
from hushgrad.wire.errors import ContractError
from hushgrad.wire.header import UpdateHeader
from hushgrad.wire.terms import Terms

_MAX_SEQUENCE = 2**63 - 1
_FINAL_RETRY_MILLISECONDS = 200
_CLOSING_RETRY_MILLISECONDS = 1000
_ROUND_AT = struct.Struct("<Q")


@dataclass(frozen=True, slots=True)
class Standing:
    """Where the federation stands when an update arrives.

    Attributes:
        newest: the newest published version.
        frozen: the newest version whose content is fixed.
        included_in: the version that the next checkpoint will hold.
        remembered_from: the first round whose receipts memory holds.
        final_version: the last version there will be.
        is_closing: whether this process makes no version any more that could hold another update.
    """

    newest: int
    frozen: int
    included_in: int
    remembered_from: int
    final_version: int
    is_closing: bool = False


@dataclass(frozen=True, slots=True)
class Decision:
    """The fate of an update, and what follows from it.

    Attributes:
        answer: the fate.
        detail: for people.
        first_answer: with DUPLICATE, what the update was answered first.
        included_in: with ACCEPTED, or DUPLICATE of it: the first version whose checkpoint holds the update; else 0.
        retry_after_milliseconds: with BUSY.
        receipt: the receipt as it has to be from now on; None when nothing changes.
        must_fold: whether the payload has to be folded into the model.
    """

    answer: Answer
    detail: str = ""
    first_answer: Answer | None = None
    included_in: int = 0
    retry_after_milliseconds: int = 0
    receipt: Receipt | None = None
    must_fold: bool = False


def admit(
    header_bytes: bytes,
    digest: bytes,
    payload_defect: str | None,
    *,
    participant: Participant,
    terms: Terms,
    terms_digest: bytes,
    standing: Standing,
    archive: Archive,
    note: str = "",
) -> Decision:
    """Decides the fate of an update of a participant whose terms digest, name and session were found right.

    Args:
        header_bytes: the 192 bytes of its header.
        digest: SHA-256(header || payload), 32 bytes.
        payload_defect: what `aggregation.defect` says of the payload; None also before the payload has arrived, in
            which case ACCEPTED means: send it.
        note: why the update is improbable, for the receipt of one that is accepted all the same.

    The order of the checks is part of the contract: header against caller, known round, end of the run, window,
    ledger chain, content.
    """
    header, defect = None, ""
    try:
        header = wire_header.unpack(header_bytes)
    except ContractError as error:
        defect = str(error)
    round_ = _round_of(header_bytes, participant.name, terms_digest) if header is None else header.round
    if round_ is None:
        return Decision(Answer.INVALID, defect)
    if header is not None and (header.participant != participant.name or header.terms_digest != terms_digest):
        return Decision(
            Answer.INVALID,
            f"the header must name the caller and its terms, {participant.name} and {terms_digest.hex()}, found "
            f"{header.participant} and {header.terms_digest.hex()}",
        )
    known = participant.find(round_, standing.remembered_from, archive)
    if known is not None and known.digest is not None:
        return _known(known, digest, standing, note)
    if ending := _ending(standing):
        return ending
    if round_ < standing.newest - terms.window:
        return Decision(
            Answer.STALE,
            f"round {round_} has left the window: version {standing.newest} is published and the window is "
            f"{terms.window}",
        )
    if round_ >= standing.newest + terms.window:
        return Decision(
            Answer.TOO_FAR_AHEAD,
            f"with version {standing.newest} published, rounds below {standing.newest + terms.window} are taken, found "
            f"round {round_}; send it again after a newer version",
        )
    if header is not None and header.ledger_sequence > _MAX_SEQUENCE:
        defect = f"ledger_sequence must be at most {_MAX_SEQUENCE}, found {header.ledger_sequence}"
        header = None
    if header is None:
        return _refused(Receipt(participant.name, round_, digest), defect)
    head = wire_header.next_head(header.ledger_previous_head, digest)
    if conflict := _chain_conflict(participant, header, head, archive):
        return Decision(Answer.CONFLICT, conflict)
    receipt = Receipt(
        participant.name,
        round_,
        digest,
        header.ledger_sequence,
        header.ledger_previous_head,
        head,
    )
    if reason := content_defect(header, terms) or payload_defect:
        return _refused(receipt, reason)
    return _accepted(receipt, standing, note)


def content_defect(header: UpdateHeader, terms: Terms) -> str | None:
    """Says what a header declares against the terms; None when it agrees with them."""
    privacy = terms.privacy
    if header.round >= terms.final_version:
        return f"rounds end before final_version, {terms.final_version}, found round {header.round}"
    if header.element_type != terms_pb2.ELEMENT_TYPE_INT32:
        return f"element_type must be int32 (1), found {header.element_type}"
    if header.payload_bytes != 4 * terms.parameters:
        return (
            f"an update must have {4 * terms.parameters} payload bytes for the {terms.parameters} parameters of the "
            f"terms, found {header.payload_bytes}"
        )
    if not privacy.noise_multiplier_min <= header.noise_multiplier <= privacy.noise_multiplier_max:
        return (
            f"noise_multiplier must be {privacy.noise_multiplier_min} to {privacy.noise_multiplier_max}, found "
            f"{header.noise_multiplier}"
        )
    if header.clip_norm != privacy.clip_norm:
        return f"clip_norm must be {privacy.clip_norm}, found {header.clip_norm}"
    if header.sampler not in privacy.samplers:
        return f"sampler must be one of {', '.join(privacy.samplers)}, found {header.sampler}"
    if header.flags & wire_header.FLAG_INSECURE_NOISE and not privacy.insecure_noise_allowed:
        return "the terms allow no insecure noise, found an update that is marked so"
    if header.flags & wire_header.FLAG_CLIPPING_DECLARED and privacy.caller_clipping_forbidden:
        return "the terms forbid clipping that is declared by the caller, found an update that is marked so"
    return None


def _known(known: Receipt, digest: bytes, standing: Standing, note: str) -> Decision:
    if known.digest != digest:
        return Decision(
            Answer.CONFLICT,
            f"round {known.round} of {known.participant} is known with another digest; two ledgers exist for one "
            "participant, or one was rolled back",
        )
    if known.lacks_content:
        # It was accepted before a crash: the first answer stands, whatever is thought of its content by now.
        return _ending(standing) or _accepted(known, standing, note)
    if known.disposition is Disposition.INVALID:
        return Decision(Answer.DUPLICATE, known.reason, first_answer=Answer.INVALID)
    return Decision(Answer.DUPLICATE, first_answer=Answer.ACCEPTED, included_in=known.included_in or 0)


def _ending(standing: Standing) -> Decision | None:
    if standing.newest >= standing.final_version:
        return Decision(Answer.RUN_ENDED, f"the final version, {standing.final_version}, is published")
    if standing.frozen >= standing.final_version:
        # Were the server to crash now, the final version could still take this update: no last word yet.
        return Decision(
            Answer.BUSY, "the final version is being written", retry_after_milliseconds=_FINAL_RETRY_MILLISECONDS
        )
    if standing.is_closing:
        return Decision(
            Answer.BUSY,
            "an operator drains this server; send the same again once it has been started again",
            retry_after_milliseconds=_CLOSING_RETRY_MILLISECONDS,
        )
    return None


def _accepted(receipt: Receipt, standing: Standing, note: str) -> Decision:
    included = Receipt(
        receipt.participant,
        receipt.round,
        receipt.digest,
        receipt.sequence,
        receipt.previous_head,
        receipt.head,
        Disposition.INCLUDED,
        note,
        standing.included_in,
    )
    return Decision(Answer.ACCEPTED, included_in=standing.included_in, receipt=included, must_fold=True)


def _refused(receipt: Receipt, reason: str) -> Decision:
    refused = Receipt(
        receipt.participant,
        receipt.round,
        receipt.digest,
        receipt.sequence,
        receipt.previous_head,
        receipt.head,
        Disposition.INVALID,
        reason,
    )
    return Decision(Answer.INVALID, reason, receipt=refused)


def _chain_conflict(participant: Participant, header: UpdateHeader, head: bytes, archive: Archive) -> str | None:
    n = header.ledger_sequence
    same = participant.find_row(n, archive)
    if same is not None and same.head != head:
        return f"ledger row {n} of {participant.name} is known with another head; the ledger was rolled back or copied"
    before = participant.find_row(n - 1, archive)
    if before is not None and before.head != header.ledger_previous_head:
        return (
            f"ledger row {n} of {participant.name} does not continue row {n - 1} as the server knows it; the ledger "
            "was rolled back or copied"
        )
    after = participant.find_row(n + 1, archive)
    if after is not None and after.previous_head != head:
        return (
            f"ledger row {n + 1} of {participant.name}, which the server knows, does not continue row {n}; the ledger "
            "was rolled back or copied"
        )
    return None


def _round_of(header_bytes: bytes, participant: str, terms_digest: bytes) -> int | None:
    """Returns the round of a header that declares something impossible but says whose it is, for its receipt."""
    if len(header_bytes) != wire_header.HEADER_BYTES or header_bytes[:8] != b"HGUPDATE":
        return None
    if header_bytes[12:44] != terms_digest or header_bytes[44:108].rstrip(b"\0") != participant.encode("ascii"):
        return None
    return int(_ROUND_AT.unpack_from(header_bytes, 108)[0])
