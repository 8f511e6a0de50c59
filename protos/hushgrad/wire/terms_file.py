"""terms.toml: how people write terms, and how it becomes the terms of a federation."""

import hashlib
import math
from pathlib import Path
from typing import Literal, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt
from hushgrad.wire import grid
from hushgrad.wire import terms as terms_module
from hushgrad.wire.arrays import ArraySpec
from hushgrad.wire.errors import ContractError
from hushgrad.wire.terms import Limits, Privacy, Terms

_T = TypeVar("_T")


class _Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A table of the file; unknown keys are errors."""


class ArrayEntry(_Section, frozen=True):
    """One of the [[arrays]] of the model, in the order in which an update holds them.

    Attributes:
        name: of the array, as in the .safetensors file with the initial model.
        shape: its sizes, outermost first.
    """

    name: str
    shape: list[int]


class StepSize(_Section, frozen=True):
    """The [step_size] table: round step sizes eta_i, with t = s_0 + ... + s_{i-1} of the nominal sample sizes.

    Attributes:
        kind: constant: eta0; inverse: eta0 / (1 + beta t); inverse-sqrt: eta0 / (1 + beta sqrt(t)); list: values, of
            which the last holds on.
        eta0: the first step size, for sums of clipped gradients, not for means.
        beta: how fast step sizes fall.
        values: of kind list.
    """

    kind: Literal["constant", "inverse", "inverse-sqrt", "list"]
    eta0: float = 0.0
    beta: float = 0.0
    values: list[float] = []


class SampleSize(_Section, frozen=True):
    """The [sample_size] table: nominal sample sizes s_i, the records that a round is expected to take.

    Attributes:
        kind: constant: size; polynomial: ceil(q * (i + 1)^p); list: values, of which the last holds on.
        size: of kind constant.
        q: of kind polynomial.
        p: of kind polynomial.
        values: of kind list.
    """

    kind: Literal["constant", "polynomial", "list"]
    size: int = 0
    q: float = 0.0
    p: float = 0.0
    values: list[int] = []


class Delay(_Section, frozen=True):
    """The [delay] table: when a participant may begin a round; see PermissibleDelay in terms.proto.

    Attributes:
        kind: max-delay: when it is at most max_delay rounds ahead of the newest version; sqrt: when the SGD steps since
            that version are at most sqrt(t / ln t); unbounded: always.
        max_delay: of kind max-delay; 0: everybody waits for everybody in every round.
    """

    kind: Literal["max-delay", "sqrt", "unbounded"]
    max_delay: int = 0


class PrivacySection(_Section, frozen=True):
    """The [privacy] table: what is asked of every participant. What changes privacy has no default.

    Attributes:
        clip_norm: C: no record moves a round's sum by more, in L2 norm.
        noise_multiplier_min: sigma: the noise of each number has at least the deviation sigma * C.
        noise_multiplier_max: the most that a stricter participant may add; the grid has to hold it.
        samplers: which ways of choosing a round's records are allowed.
        max_examples_per_round: a larger batch is so rare that delta covers it.
        insecure_noise_allowed: for simulators: also take updates whose noise is reproducible, and which claim nothing.
        caller_clipping_forbidden: refuse updates whose clipping was done outside hushgrad and is only declared.
    """

    clip_norm: float
    noise_multiplier_min: float
    noise_multiplier_max: float
    samplers: list[Literal["poisson", "fixed"]]
    max_examples_per_round: int
    insecure_noise_allowed: bool = False
    caller_clipping_forbidden: bool = False


class LimitsSection(_Section, frozen=True):
    """The [limits] table: sizes in bytes that the server enforces.

    Attributes:
        max_unary_bytes: an update up to this size comes in one message, a larger one in chunks.
        max_chunk_bytes: largest chunk.
        max_inline_model_bytes: a model up to this size comes with the news of it, a larger one is fetched.
    """

    max_unary_bytes: int = terms_module.MAX_UNARY_BYTES
    max_chunk_bytes: int = terms_module.MAX_CHUNK_BYTES
    max_inline_model_bytes: int = 2**16


class TermsFile(_Section, frozen=True):
    """A whole terms.toml. `hushgrad-server init` makes it final, with a digest that every ledger pins.

    Attributes:
        federation: its name.
        model: for people; the server does not interpret it.
        arrays: of the model.
        final_version: the federation ends with this version; every participant does as many rounds.
        window: updates are taken up to so many versions late; at least max_delay + 1.
        straggler_timeout_seconds: then the federation goes on without whoever holds it up.
        step_size: see the table.
        sample_size: see the table.
        delay: see the table.
        privacy: see the table.
        grid_exponent: updates are integers that stand for multiples of 2^grid_exponent; without it, it is computed from
            the privacy table.
        publish_every: every so many rounds a version is published; at most max_delay + 1.
        participants: names of those who may take part; without them, largest_number_of_participants says how many.
        largest_number_of_participants: how many may take part, where their names are not known yet.
        start_timeout_seconds: version 1 waits for all participants; after so long a majority is enough. 0: no such end.
        limits: see the table.
    """

    federation: str
    model: str
    arrays: list[ArrayEntry]
    final_version: int
    window: int
    straggler_timeout_seconds: float
    step_size: StepSize
    sample_size: SampleSize
    delay: Delay
    privacy: PrivacySection
    grid_exponent: int | None = None
    publish_every: int = 1
    participants: list[str] = []
    largest_number_of_participants: int | None = None
    start_timeout_seconds: float = 0.0
    limits: LimitsSection = LimitsSection()


def load(path: Path) -> TermsFile:
    """Reads a terms.toml.

    Raises:
        ContractError: if it cannot be read, is no TOML, or has unknown, missing or ill-typed keys.
    """
    try:
        return msgspec.toml.decode(path.read_bytes(), type=TermsFile)
    except OSError as error:
        raise ContractError(f"terms file {path} cannot be read: {error.strerror}") from error
    except (msgspec.ValidationError, msgspec.DecodeError) as error:
        raise ContractError(f"terms file {path}: {error}") from error


def sample_sizes(section: SampleSize, final_version: int) -> list[int]:
    """Returns s_0 .. s_{final_version-1}, shortened by dropping repeats of the last value.

    Raises:
        ContractError: if a polynomial's q or p is not a finite number, or its values leave the range of a float.
    """
    if section.kind == "constant":
        sizes = [section.size]
    elif section.kind == "polynomial":
        try:
            sizes = [math.ceil(section.q * float(i + 1) ** section.p) for i in range(final_version)]
        except (ValueError, OverflowError):
            raise ContractError(
                f"sample_size: q * (i + 1)^p must stay finite, found q = {section.q} and p = {section.p}"
            ) from None
    else:
        sizes = list(section.values)
    return _without_repeats(sizes)


def step_sizes(section: StepSize, nominal: list[int], final_version: int) -> list[float]:
    """Returns eta_0 .. eta_{final_version-1}, in full."""
    if section.kind == "list":
        if not section.values:
            raise ContractError("step_size.values must not be empty with kind 'list'")
        return (section.values + [section.values[-1]] * final_version)[:final_version]
    if section.eta0 <= 0:
        raise ContractError(f"step_size.eta0 must be > 0, found {section.eta0}")
    if section.beta < 0:
        raise ContractError(f"step_size.beta must be >= 0, found {section.beta}")
    steps, t = [], 0
    for i in range(final_version):
        growth = {"constant": 0.0, "inverse": float(t), "inverse-sqrt": math.sqrt(t)}[section.kind]
        steps.append(section.eta0 / (1 + section.beta * growth))
        t += nominal[min(i, len(nominal) - 1)]
    return steps


def build(file: TermsFile, initial_model: npt.NDArray[np.float32], federation_id: bytes) -> Terms:
    """Makes the terms of a federation from its file.

    Args:
        file: what people wrote.
        initial_model: w_0, shape (d,), in the order of the file's arrays.
        federation_id: 16 random bytes.

    Raises:
        ContractError: if the terms are not consistent.
    """
    arrays = tuple(ArraySpec(entry.name, tuple(entry.shape)) for entry in file.arrays)
    parameters = sum(spec.size for spec in arrays)
    if parameters != initial_model.size:
        raise ContractError(f"the initial model must have {parameters} numbers, found {initial_model.size}")
    room = file.largest_number_of_participants or len(file.participants)
    if room < 1:
        raise ContractError("give participants (names) or largest_number_of_participants")
    if not 1 <= file.final_version <= terms_module.MAX_FINAL_VERSION:
        raise ContractError(f"final_version must be 1 to {terms_module.MAX_FINAL_VERSION}, found {file.final_version}")
    nominal = sample_sizes(file.sample_size, file.final_version)
    if not nominal or min(nominal) < 1:
        raise ContractError(f"every nominal sample size must be >= 1, found {nominal[:3]}")
    privacy = Privacy(
        clip_norm=file.privacy.clip_norm,
        noise_multiplier_min=file.privacy.noise_multiplier_min,
        noise_multiplier_max=file.privacy.noise_multiplier_max,
        samplers=tuple(file.privacy.samplers),
        max_examples_per_round=file.privacy.max_examples_per_round,
        insecure_noise_allowed=file.privacy.insecure_noise_allowed,
        caller_clipping_forbidden=file.privacy.caller_clipping_forbidden,
    )
    for what, value in (("clip_norm", privacy.clip_norm), ("noise_multiplier_min", privacy.noise_multiplier_min)):
        if not 0 < value < math.inf:
            raise ContractError(f"privacy.{what} must be finite and > 0, found {value}")
    g = (
        file.grid_exponent
        if file.grid_exponent is not None
        else grid.grid_exponent(
            clip_norm=privacy.clip_norm,
            noise_multiplier_min=privacy.noise_multiplier_min,
            parameters=parameters,
        )
    )
    steps = step_sizes(file.step_size, nominal, file.final_version)
    p = grid.step_exponent(
        steps,
        initial_max=float(np.abs(initial_model).max()),
        grid_exponent=g,
        participants=room,
    )
    array = grid.initial_array(initial_model, grid_exponent=g, step_exponent=p)
    published = grid.published_model(array, grid_exponent=g, step_exponent=p)
    return Terms(
        federation_id=federation_id,
        federation=file.federation,
        model=file.model,
        arrays=arrays,
        initial_model_sha256=hashlib.sha256(published.astype("<f4").tobytes()).digest(),
        grid_exponent=g,
        step_exponent=p,
        step_numerators=tuple(_without_repeats(grid.step_numerators(steps, p))),
        sample_sizes=tuple(nominal),
        delay_kind=file.delay.kind,
        max_delay=file.delay.max_delay,
        window=file.window,
        final_version=file.final_version,
        publish_every=file.publish_every,
        participants=tuple(sorted(file.participants)),
        largest_number_of_participants=room,
        straggler_timeout_seconds=file.straggler_timeout_seconds,
        start_timeout_seconds=file.start_timeout_seconds,
        privacy=privacy,
        limits=Limits(
            max_unary_bytes=file.limits.max_unary_bytes,
            max_chunk_bytes=file.limits.max_chunk_bytes,
            max_inline_model_bytes=file.limits.max_inline_model_bytes,
        ),
    )


def _without_repeats(values: list[_T]) -> list[_T]:
    end = len(values)
    while end > 1 and values[end - 2] == values[-1]:
        end -= 1
    return values[:end]
