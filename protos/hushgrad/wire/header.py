"""The fixed header of a sealed update, its digest, and the hash chain of a ledger.

Layout and meaning of every byte stand in updates.proto; a re-serialised protobuf message is never hashed.
"""

import hashlib
import math
import struct
from dataclasses import dataclass
from typing import Final

from hushgrad.v1 import terms_pb2
from hushgrad.wire import names
from hushgrad.wire.errors import ContractError

HEADER_BYTES: Final = 192
DIGEST_BYTES: Final = 32

FLAG_INSECURE_NOISE: Final = 1
FLAG_CLIPPING_DECLARED: Final = 2
_KNOWN_FLAGS: Final = FLAG_INSECURE_NOISE | FLAG_CLIPPING_DECLARED

SAMPLER_NAMES: Final = {terms_pb2.SAMPLER_POISSON: "poisson", terms_pb2.SAMPLER_FIXED: "fixed"}
SAMPLER_VALUES: Final = {name: value for value, name in SAMPLER_NAMES.items()}

_MAGIC: Final = b"HGUPDATE"
_LAYOUT_VERSION: Final = 1
_LAYOUT: Final = struct.Struct("<8sI32s64sQIIddQ32sIQ")
assert _LAYOUT.size == HEADER_BYTES


@dataclass(frozen=True, slots=True)
class UpdateHeader:
    """What a sealed update declares.

    Attributes:
        terms_digest: SHA-256 of the terms, 32 bytes.
        participant: name of the sender.
        round: the sender's local round, >= 0.
        element_type: a value of `ElementType` in terms.proto.
        sampler: "poisson" or "fixed".
        noise_multiplier: standard deviation of the noise per coordinate divided by the clip norm, > 0.
        clip_norm: L2 norm that each example's gradient is clipped to, > 0.
        ledger_sequence: number of the ledger row that seals this update, >= 1.
        ledger_previous_head: head of the ledger before that row, 32 bytes.
        flags: FLAG_* bits.
        payload_bytes: size of the payload in bytes.
    """

    terms_digest: bytes
    participant: str
    round: int
    element_type: int
    sampler: str
    noise_multiplier: float
    clip_norm: float
    ledger_sequence: int
    ledger_previous_head: bytes
    flags: int
    payload_bytes: int

    def __post_init__(self) -> None:
        names.check_name(self.participant)
        for what, value in (
            ("terms_digest", self.terms_digest),
            ("ledger_previous_head", self.ledger_previous_head),
        ):
            if len(value) != DIGEST_BYTES:
                raise ContractError(f"{what} must be {DIGEST_BYTES} bytes, found {len(value)}")
        if self.sampler not in SAMPLER_VALUES:
            raise ContractError(f"sampler must be one of {sorted(SAMPLER_VALUES)}, found {self.sampler!r}")
        if self.element_type not in (terms_pb2.ELEMENT_TYPE_INT32, terms_pb2.ELEMENT_TYPE_INT64):
            raise ContractError(f"element_type must be int32 (1) or int64 (2), found {self.element_type}")
        for what, number in (("noise_multiplier", self.noise_multiplier), ("clip_norm", self.clip_norm)):
            if not (math.isfinite(number) and number > 0):
                raise ContractError(f"{what} must be finite and > 0, found {number}")
        for what, count, smallest in (
            ("round", self.round, 0),
            ("ledger_sequence", self.ledger_sequence, 1),
            ("payload_bytes", self.payload_bytes, 0),
        ):
            if not smallest <= count < 2**64:
                raise ContractError(f"{what} must be {smallest} to 2^64 - 1, found {count}")
        if self.flags & ~_KNOWN_FLAGS:
            raise ContractError(f"flags must only use bits {_KNOWN_FLAGS:#b}, found {self.flags:#b}")

    def pack(self) -> bytes:
        """Returns the 192 bytes of the layout in updates.proto."""
        return _LAYOUT.pack(
            _MAGIC,
            _LAYOUT_VERSION,
            self.terms_digest,
            self.participant.encode("ascii"),
            self.round,
            self.element_type,
            SAMPLER_VALUES[self.sampler],
            self.noise_multiplier,
            self.clip_norm,
            self.ledger_sequence,
            self.ledger_previous_head,
            self.flags,
            self.payload_bytes,
        )


def unpack(header: bytes) -> UpdateHeader:
    """Reads the 192 bytes of a header.

    Raises:
        ContractError: if the bytes are not a header of this layout, or declare a value that the contract does not
            allow.
    """
    if len(header) != HEADER_BYTES:
        raise ContractError(f"an update header must be {HEADER_BYTES} bytes, found {len(header)}")
    (
        magic,
        layout_version,
        terms_digest,
        padded_name,
        round_,
        element_type,
        sampler,
        noise_multiplier,
        clip_norm,
        ledger_sequence,
        ledger_previous_head,
        flags,
        payload_bytes,
    ) = _LAYOUT.unpack(header)
    if magic != _MAGIC or layout_version != _LAYOUT_VERSION:
        raise ContractError(
            f"an update header must begin with {_MAGIC!r} and layout version {_LAYOUT_VERSION}, "
            f"found {magic!r} and {layout_version}"
        )
    try:
        participant = padded_name.rstrip(b"\0").decode("ascii")
    except UnicodeDecodeError:
        raise ContractError(f"the participant's name in a header must be ASCII, found {padded_name!r}") from None
    return UpdateHeader(
        terms_digest=terms_digest,
        participant=participant,
        round=round_,
        element_type=element_type,
        sampler=SAMPLER_NAMES.get(sampler, f"unknown sampler {sampler}"),
        noise_multiplier=noise_multiplier,
        clip_norm=clip_norm,
        ledger_sequence=ledger_sequence,
        ledger_previous_head=ledger_previous_head,
        flags=flags,
        payload_bytes=payload_bytes,
    )


def digest(header: bytes, payload: bytes | memoryview) -> bytes:
    """Returns SHA-256(header || payload), the identity of a sealed update, 32 bytes."""
    state = hashlib.sha256(header)
    state.update(payload)
    return state.digest()


def first_head(ledger_id: bytes) -> bytes:
    """Returns head_0 of the ledger with these 16 random bytes as its identity."""
    if len(ledger_id) != 16:
        raise ContractError(f"a ledger id must be 16 bytes, found {len(ledger_id)}")
    return hashlib.sha256(b"hushgrad ledger" + ledger_id).digest()


def next_head(previous_head: bytes, row_digest: bytes) -> bytes:
    """Returns head_n = SHA-256(head_{n-1} || digest_n), 32 bytes."""
    return hashlib.sha256(previous_head + row_digest).digest()
