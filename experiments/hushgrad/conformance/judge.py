"""Judges what a client sent: header, payload, checksum, caller and chain. Values in, words out.

Each function returns None, or one sentence that says what was expected and what was found.
"""

import struct
from collections.abc import Iterable, Sequence

import numpy as np
from hushgrad.conformance.scripted import Submission
from hushgrad.conformance.world import CLIP_NORM, PARTICIPANT, Federation
from hushgrad.v1 import terms_pb2
from hushgrad.wire import header as wire_header
from hushgrad.wire.errors import ContractError
from hushgrad.wire.grid import INT32_MAX


def first(words: Iterable[str | None]) -> str | None:
    """Returns the first complaint."""
    return next((word for word in words if word is not None), None)


def layout(submission: Submission, federation: Federation, digest: bytes) -> str | None:
    """Judges the 192 bytes of a header against the terms and what the client was told."""
    head = submission.header
    if len(head) != wire_header.HEADER_BYTES:
        return f"a header has 192 bytes, one of {len(head)} arrived"
    if head[:8] == b"HGUPDATE" and struct.unpack_from(">I", head, 8)[0] == 1:
        return "the header's numbers are big-endian; every number is little-endian"
    try:
        found = wire_header.unpack(head)
    except ContractError as error:
        return f"the header of an update cannot be read: {error}"
    name = PARTICIPANT.encode()
    expected = [
        ("terms digest at offset 12", digest, found.terms_digest),
        ("participant at offset 44, filled up with zero bytes", name.ljust(64, b"\0"), head[44:108]),
        ("element type at offset 116", terms_pb2.ELEMENT_TYPE_INT32, found.element_type),
        ("sampler at offset 120", "poisson", found.sampler),
        ("noise multiplier at offset 124", federation.noise_multiplier, found.noise_multiplier),
        ("clip norm at offset 132", CLIP_NORM, found.clip_norm),
        ("number of payload bytes at offset 184", len(submission.payload), found.payload_bytes),
    ]
    return first(
        f"round {found.round}: {what} must be {wanted!r}, found {was!r}"
        for what, wanted, was in expected
        if wanted != was
    )


def flags(submission: Submission) -> str | None:
    """Judges the flags: this kit asks nobody for insecure noise."""
    if len(submission.header) != wire_header.HEADER_BYTES:
        return "there is no header of 192 bytes to look for flags in"
    found = struct.unpack_from("<I", submission.header, 180)[0]
    if found & wire_header.FLAG_INSECURE_NOISE:
        return (
            f"round {submission.round} has the flag of insecure noise (bit 0 of {found:#x}), which only tests may set"
        )
    return f"round {submission.round} has unknown flags {found:#x}" if found & ~3 else None


def payload(submission: Submission, federation: Federation) -> str | None:
    """Judges number and range of the elements, and their byte order by their size."""
    d = federation.terms.parameters
    update = submission.update(d)
    if update is None:
        return f"a payload of {d} elements has {4 * d} bytes, one of {len(submission.payload)} arrived"
    if (update == -INT32_MAX - 1).any():
        return f"round {submission.round} holds the element -2^31, which is invalid; sums saturate at +-(2^31 - 1)"
    # In these federations every true element is below 2^29 in all likelihood (noise 2 C, sums 60 C, grid C 2^-16), and
    # a swapped one is spread over all of 2^32.
    swapped = np.frombuffer(submission.payload, ">i4")
    if np.abs(update.astype(np.int64)).max() > 2**28 > np.abs(swapped.astype(np.int64)).max():
        return f"the payload of round {submission.round} is big-endian; every element is little-endian"
    return None


def checksum(submission: Submission) -> str | None:
    """Judges the CRC-32C."""
    if submission.crc_right:
        return None
    return f"crc32c of round {submission.round} is not the CRC-32C (Castagnoli) over header || payload"


def caller(submission: Submission, digest: bytes, session: int) -> str | None:
    """Judges who the message says is asking."""
    found = submission.caller
    expected = [
        ("terms_digest", digest.hex(), found.terms_digest.hex()),
        ("participant", PARTICIPANT, found.participant),
        ("session", session, found.session),
    ]
    return first(
        f"Caller.{what} of round {submission.round} must be {wanted}, found {was}"
        for what, wanted, was in expected
        if wanted != was
    )


def chain(submissions: Sequence[Submission]) -> str | None:
    """Judges the ledger's sequence numbers and heads over all updates, in the order of their rounds."""
    last: wire_header.UpdateHeader | None = None
    last_head = b""
    heads: dict[int, tuple[bytes, int]] = {}
    for submission in submissions:
        try:
            found = wire_header.unpack(submission.header)
        except ContractError as error:
            return f"the header of an update cannot be read: {error}"
        head = wire_header.next_head(found.ledger_previous_head, submission.digest)
        known = heads.setdefault(found.ledger_sequence, (head, found.round))
        if known[0] != head:
            return (
                f"ledger row {found.ledger_sequence} is named with two different heads, for rounds {known[1]} and "
                f"{found.round}"
            )
    for submission in sorted(submissions, key=lambda one: one.round):
        found = wire_header.unpack(submission.header)
        if last is not None and found.round > last.round:
            if found.ledger_sequence <= last.ledger_sequence:
                return (
                    f"round {found.round} has ledger sequence {found.ledger_sequence}, round {last.round} before it "
                    f"has {last.ledger_sequence}; sequences grow"
                )
            if found.ledger_sequence == last.ledger_sequence + 1 and found.ledger_previous_head != last_head:
                return (
                    f"round {found.round} names another previous head than SHA-256(head || digest) of round "
                    f"{last.round}: the chain is broken"
                )
        last, last_head = found, wire_header.next_head(found.ledger_previous_head, submission.digest)
    return None


def same_bytes(submissions: Sequence[Submission], when: str) -> str | None:
    """Judges that all submissions of each round are the same bytes."""
    known: dict[int, Submission] = {}
    for submission in submissions:
        before = known.setdefault(submission.round, submission)
        if before.payload != submission.payload:
            return f"round {submission.round} was sent with two different payloads {when}: its noise was drawn twice"
        if before.header != submission.header:
            return f"round {submission.round} was sent with two different headers {when}: it was sealed twice"
    return None
