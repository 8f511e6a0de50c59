"""The terms of a federation as a value: what is agreed, whether it is consistent, and its digest."""

import hashlib
from dataclasses import dataclass
from typing import Literal

from google.protobuf.message import DecodeError
from hushgrad.v1 import terms_pb2
from hushgrad.wire import grid, header, names
from hushgrad.wire.arrays import ArraySpec
from hushgrad.wire.errors import ContractError

PROTOCOL = 1
MAX_UNARY_BYTES = 2**20
MAX_CHUNK_BYTES = 2**20
MIN_CHUNK_BYTES = 2**16
MAX_INLINE_MODEL_BYTES = 2**18
MAX_FINAL_VERSION = 10**6

DelayKind = Literal["max-delay", "sqrt", "unbounded"]
_DELAY_VALUES = {
    "max-delay": terms_pb2.PermissibleDelay.KIND_MAX_DELAY,
    "sqrt": terms_pb2.PermissibleDelay.KIND_SQRT,
    "unbounded": terms_pb2.PermissibleDelay.KIND_UNBOUNDED,
}
_DELAY_NAMES = {value: name for name, value in _DELAY_VALUES.items()}


@dataclass(frozen=True, slots=True)
class Privacy:
    """What the terms ask of every participant's privacy; see PrivacyTerms in terms.proto."""

    clip_norm: float
    noise_multiplier_min: float
    noise_multiplier_max: float
    samplers: tuple[str, ...]
    max_examples_per_round: int
    insecure_noise_allowed: bool = False
    caller_clipping_forbidden: bool = False


@dataclass(frozen=True, slots=True)
class Limits:
    """Sizes in bytes that the server enforces; see Limits in terms.proto."""

    max_unary_bytes: int = MAX_UNARY_BYTES
    max_chunk_bytes: int = MAX_CHUNK_BYTES
    max_inline_model_bytes: int = 2**16


@dataclass(frozen=True, slots=True)
class Terms:
    """The terms of one federation; the fields are those of Terms in terms.proto, which explains each.

    Raises:
        ContractError: at construction, if the terms are not consistent.
    """

    federation_id: bytes
    federation: str
    model: str
    arrays: tuple[ArraySpec, ...]
    initial_model_sha256: bytes
    grid_exponent: int
    step_exponent: int
    step_numerators: tuple[int, ...]
    sample_sizes: tuple[int, ...]
    delay_kind: DelayKind
    max_delay: int
    window: int
    final_version: int
    publish_every: int
    participants: tuple[str, ...]
    largest_number_of_participants: int
    straggler_timeout_seconds: float
    start_timeout_seconds: float
    privacy: Privacy
    limits: Limits

    def __post_init__(self) -> None:
        _check(self)

    @property
    def parameters(self) -> int:
        """d, the number of parameters."""
        return sum(spec.size for spec in self.arrays)

    def step_numerator(self, round_: int) -> int:
        """Returns e_i; the last one holds for all later rounds."""
        return self.step_numerators[min(round_, len(self.step_numerators) - 1)]

    def step_size(self, round_: int) -> float:
        """Returns eta_i = e_i * 2**-p."""
        return self.step_numerator(round_) * 2.0**-self.step_exponent

    def sample_size(self, round_: int) -> int:
        """Returns the nominal s_i; the last one holds for all later rounds."""
        return self.sample_sizes[min(round_, len(self.sample_sizes) - 1)]

    def is_published(self, version: int) -> bool:
        """Says whether the version is one of those that are published."""
        return version % self.publish_every == 0 or version == self.final_version

    def to_bytes(self) -> bytes:
        """Returns the bytes whose digest every ledger pins. Made once, by whoever creates the federation."""
        return _to_message(self).SerializeToString(deterministic=True)


def digest(terms_bytes: bytes) -> bytes:
    """Returns the digest of a federation's terms: SHA-256 over the bytes as they were made, 32 bytes."""
    return hashlib.sha256(terms_bytes).digest()


def from_bytes(terms_bytes: bytes) -> Terms:
    """Reads terms.

    Raises:
        ContractError: if the bytes are no terms of this protocol, or not consistent.
    """
    message = terms_pb2.Terms()
    try:
        message.ParseFromString(terms_bytes)
    except DecodeError as error:
        raise ContractError(f"the terms must be a serialized hushgrad.v1.Terms: {error}") from error
    if message.protocol != PROTOCOL:
        raise ContractError(
            f"this program speaks protocol {PROTOCOL}, the terms ask for {message.protocol}; update the older side"
        )
    if message.element_type != terms_pb2.ELEMENT_TYPE_INT32:
        raise ContractError(f"element_type must be int32 (1), found {message.element_type}")
    return Terms(
        federation_id=message.federation_id,
        federation=message.federation,
        model=message.model,
        arrays=tuple(ArraySpec(spec.name, tuple(spec.shape)) for spec in message.arrays),
        initial_model_sha256=message.initial_model_sha256,
        grid_exponent=message.grid_exponent,
        step_exponent=message.step_exponent,
        step_numerators=tuple(message.step_numerators),
        sample_sizes=tuple(message.sample_sizes),
        delay_kind=_DELAY_NAMES.get(message.delay.kind, "unknown"),  # type: ignore[arg-type]
        max_delay=message.delay.max_delay,
        window=message.window,
        final_version=message.final_version,
        publish_every=message.publish_every,
        participants=tuple(message.participants),
        largest_number_of_participants=message.largest_number_of_participants,
        straggler_timeout_seconds=message.straggler_timeout_seconds,
        start_timeout_seconds=message.start_timeout_seconds,
        privacy=Privacy(
            clip_norm=message.privacy.clip_norm,
            noise_multiplier_min=message.privacy.noise_multiplier_min,
            noise_multiplier_max=message.privacy.noise_multiplier_max,
            samplers=tuple(header.SAMPLER_NAMES.get(value, "unknown") for value in message.privacy.samplers),
            max_examples_per_round=message.privacy.max_examples_per_round,
            insecure_noise_allowed=message.privacy.insecure_noise_allowed,
            caller_clipping_forbidden=message.privacy.caller_clipping_forbidden,
        ),
        limits=Limits(
            max_unary_bytes=message.limits.max_unary_bytes,
            max_chunk_bytes=message.limits.max_chunk_bytes,
            max_inline_model_bytes=message.limits.max_inline_model_bytes,
        ),
    )


def _to_message(terms: Terms) -> terms_pb2.Terms:
    return terms_pb2.Terms(
        protocol=PROTOCOL,
        federation_id=terms.federation_id,
        federation=terms.federation,
        model=terms.model,
        arrays=[terms_pb2.ArraySpec(name=spec.name, shape=spec.shape) for spec in terms.arrays],
        initial_model_sha256=terms.initial_model_sha256,
        element_type=terms_pb2.ELEMENT_TYPE_INT32,
        grid_exponent=terms.grid_exponent,
        step_exponent=terms.step_exponent,
        step_numerators=terms.step_numerators,
        sample_sizes=terms.sample_sizes,
        delay=terms_pb2.PermissibleDelay(kind=_DELAY_VALUES[terms.delay_kind], max_delay=terms.max_delay),
        window=terms.window,
        final_version=terms.final_version,
        publish_every=terms.publish_every,
        participants=terms.participants,
        largest_number_of_participants=terms.largest_number_of_participants,
        straggler_timeout_seconds=terms.straggler_timeout_seconds,
        start_timeout_seconds=terms.start_timeout_seconds,
        privacy=terms_pb2.PrivacyTerms(
            clip_norm=terms.privacy.clip_norm,
            noise_multiplier_min=terms.privacy.noise_multiplier_min,
            noise_multiplier_max=terms.privacy.noise_multiplier_max,
            samplers=[header.SAMPLER_VALUES[name] for name in terms.privacy.samplers],
            max_examples_per_round=terms.privacy.max_examples_per_round,
            insecure_noise_allowed=terms.privacy.insecure_noise_allowed,
            caller_clipping_forbidden=terms.privacy.caller_clipping_forbidden,
        ),
        limits=terms_pb2.Limits(
            max_unary_bytes=terms.limits.max_unary_bytes,
            max_chunk_bytes=terms.limits.max_chunk_bytes,
            max_inline_model_bytes=terms.limits.max_inline_model_bytes,
        ),
    )


def _require(condition: bool, expectation: str, found: object) -> None:
    if not condition:
        raise ContractError(f"{expectation}, found {found}")


def _check(terms: Terms) -> None:
    names.check_name(terms.federation, what="federation")
    _require(len(terms.federation_id) == 16, "federation_id must be 16 bytes", len(terms.federation_id))
    _require(len(terms.initial_model_sha256) == 32, "initial_model_sha256 must be 32 bytes", terms.initial_model_sha256)
    _require(len(terms.arrays) > 0, "arrays must name at least one array", "none")
    array_names = [spec.name for spec in terms.arrays]
    _require(len(set(array_names)) == len(array_names), "array names must be unique", array_names)
    _require(
        1 <= terms.final_version <= MAX_FINAL_VERSION,
        f"final_version must be 1 to {MAX_FINAL_VERSION}",
        terms.final_version,
    )
    _require(terms.delay_kind in _DELAY_VALUES, f"delay must be one of {sorted(_DELAY_VALUES)}", terms.delay_kind)
    _require(0 <= terms.max_delay <= MAX_FINAL_VERSION, f"max_delay must be 0 to {MAX_FINAL_VERSION}", terms.max_delay)
    _require(
        terms.max_delay + 1 <= terms.window < 2**63,
        f"window must be >= max_delay + 1 = {terms.max_delay + 1}",
        terms.window,
    )
    most = terms.max_delay + 1 if terms.delay_kind == "max-delay" else 1
    _require(
        1 <= terms.publish_every <= most, f"publish_every must be 1 to {most} with this delay", terms.publish_every
    )
    for name in terms.participants:
        names.check_name(name)
    _require(len(set(terms.participants)) == len(terms.participants), "participants must be unique", terms.participants)
    _require(
        terms.largest_number_of_participants >= 1,
        "there must be room for a participant",
        terms.largest_number_of_participants,
    )
    if terms.participants:
        _require(
            terms.largest_number_of_participants == len(terms.participants),
            f"largest_number_of_participants must be the number of names, {len(terms.participants)}",
            terms.largest_number_of_participants,
        )
    _require(
        0 < terms.straggler_timeout_seconds < float("inf"),
        "straggler_timeout_seconds must be finite and > 0",
        terms.straggler_timeout_seconds,
    )
    _require(
        0 <= terms.start_timeout_seconds < float("inf"),
        "start_timeout_seconds must be finite and >= 0",
        terms.start_timeout_seconds,
    )
    _check_privacy(terms.privacy)
    _check_limits(terms.limits)
    _check_arithmetic(terms)


def _check_privacy(privacy: Privacy) -> None:
    _require(0 < privacy.clip_norm < float("inf"), "clip_norm must be finite and > 0", privacy.clip_norm)
    _require(
        0 < privacy.noise_multiplier_min <= privacy.noise_multiplier_max < float("inf"),
        "noise multipliers must be 0 < min <= max < infinity",
        (privacy.noise_multiplier_min, privacy.noise_multiplier_max),
    )
    _require(len(privacy.samplers) > 0, "samplers must name at least one sampler", "none")
    for sampler in privacy.samplers:
        _require(sampler in header.SAMPLER_VALUES, f"samplers must be from {sorted(header.SAMPLER_VALUES)}", sampler)
    _require(privacy.max_examples_per_round >= 1, "max_examples_per_round must be >= 1", privacy.max_examples_per_round)


def _check_limits(limits: Limits) -> None:
    _require(
        1 <= limits.max_unary_bytes <= MAX_UNARY_BYTES,
        f"max_unary_bytes must be 1 to {MAX_UNARY_BYTES}",
        limits.max_unary_bytes,
    )
    _require(
        MIN_CHUNK_BYTES <= limits.max_chunk_bytes <= MAX_CHUNK_BYTES,
        f"max_chunk_bytes must be {MIN_CHUNK_BYTES} to {MAX_CHUNK_BYTES}",
        limits.max_chunk_bytes,
    )
    _require(
        0 <= limits.max_inline_model_bytes <= MAX_INLINE_MODEL_BYTES,
        f"max_inline_model_bytes must be 0 to {MAX_INLINE_MODEL_BYTES}",
        limits.max_inline_model_bytes,
    )


def _check_arithmetic(terms: Terms) -> None:
    _require(len(terms.step_numerators) > 0, "step_numerators must not be empty", "none")
    _require(
        min(terms.step_numerators) >= grid.MIN_STEP_NUMERATOR,
        f"every step numerator must be >= {grid.MIN_STEP_NUMERATOR}",
        min(terms.step_numerators),
    )
    _require(len(terms.sample_sizes) > 0, "sample_sizes must not be empty", "none")
    _require(min(terms.sample_sizes) >= 1, "every sample size must be >= 1", min(terms.sample_sizes))
    _require(
        max(terms.sample_sizes) <= terms.privacy.max_examples_per_round,
        f"every sample size must be at most max_examples_per_round, {terms.privacy.max_examples_per_round}",
        max(terms.sample_sizes),
    )
    for what, values in (("step_numerators", terms.step_numerators), ("sample_sizes", terms.sample_sizes)):
        _require(len(values) <= terms.final_version, f"{what} must have at most final_version entries", len(values))
    _require(0 <= terms.step_exponent <= 1000, "step_exponent must be 0 to 1000", terms.step_exponent)
    finest = grid.grid_exponent(
        clip_norm=terms.privacy.clip_norm,
        noise_multiplier_min=terms.privacy.noise_multiplier_min,
        parameters=terms.parameters,
    )
    _require(
        terms.grid_exponent <= finest,
        f"grid exponent must be at most {finest} for this clip norm, noise multiplier and number of parameters",
        terms.grid_exponent,
    )
    grid.check_sums_fit(
        grid_exponent=terms.grid_exponent,
        clip_norm=terms.privacy.clip_norm,
        noise_multiplier_max=terms.privacy.noise_multiplier_max,
        max_examples_per_round=terms.privacy.max_examples_per_round,
    )
    later = terms.final_version - len(terms.step_numerators)
    total = sum(terms.step_numerators) + later * terms.step_numerators[-1]
    bound = grid.array_bound(initial_max=0, participants=terms.largest_number_of_participants, numerators_sum=total)
    _require(bound < 2**63, "participants * (2^31-1) * (sum of step numerators) must be below 2^63", bound)
