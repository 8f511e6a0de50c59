"""What one run may cost at most, worked out from terms and configuration before its first round.

Values in, values out: terms that this participant cannot accept are refused here, before anything is drawn or written.
"""

import hashlib
import itertools
from dataclasses import dataclass, fields, replace
from typing import Protocol

from hushgrad import accountant
from hushgrad.accountant import AccountantError, BudgetError, Mechanism, Run
from hushgrad.client.config import ClientConfig
from hushgrad.client.errors import BudgetRefusedError, ConflictError, InputError
from hushgrad.client.models.base import Model
from hushgrad.client.rows import Committed, Group, Init
from hushgrad.wire.arrays import ArraySpec
from hushgrad.wire.terms import Terms

ADJACENCY = "add-remove"


@dataclass(frozen=True, slots=True)
class Proposal:
    """A run as it would be committed, its claim still open.

    Attributes:
        run: for the accountant.
        committed: the commit row with an empty claim.
    """

    run: Run
    committed: Committed


class Arithmetic(Protocol):
    """How exactly clipped gradients are summed; a `Model` says so, and so do loops that people write."""

    @property
    def chunk_examples(self) -> int:
        """m; see `Model`."""

    @property
    def unit_roundoff(self) -> float:
        """u; see `Model`."""

    @property
    def clip_error(self) -> float:
        """kappa; see `Model`."""


def check_terms(terms: Terms, config: ClientConfig, model: Model) -> None:
    """Refuses a federation that this configuration does not fit.

    Raises:
        InputError: names the first thing that differs, with both values.
    """
    check_model(terms, model)
    check_privacy(terms, config)


def check_privacy(terms: Terms, config: ClientConfig) -> None:
    """Refuses a federation whose privacy terms this configuration does not fit; the model is not looked at.

    Raises:
        InputError: as `check_terms`.
    """
    if terms.participants and config.participant not in terms.participants:
        raise InputError(
            f"the terms of {terms.federation!r} do not name participant {config.participant!r}; they name "
            f"{', '.join(terms.participants)}"
        )
    offered, mine = terms.privacy, config.privacy
    if mine.sampler not in offered.samplers:
        raise InputError(
            f"[privacy] sampler is {mine.sampler!r}, the terms allow {', '.join(offered.samplers)}; choose one of these"
        )
    if mine.clip_norm != offered.clip_norm:
        raise InputError(
            f"[privacy] clip_norm is {mine.clip_norm}, the terms say {offered.clip_norm}; they must be equal, because "
            "step sizes and grid depend on it"
        )
    if not offered.noise_multiplier_min <= mine.noise_multiplier <= offered.noise_multiplier_max:
        raise InputError(
            f"[privacy] noise_multiplier is {mine.noise_multiplier}, the terms allow {offered.noise_multiplier_min} to "
            f"{offered.noise_multiplier_max}; if your own floor is higher than that, do not take part"
        )
    largest = max(terms.sample_sizes)
    if largest > mine.records:
        raise InputError(
            f"the terms ask for up to {largest} records a round, [privacy] records is {mine.records}; this data is too "
            "small for this federation"
        )


def check_model(terms: Terms, model: Model) -> None:
    """Refuses a federation of another model.

    Raises:
        InputError: if kind or arrays differ; both are shown.
    """
    if terms.model != model.name:
        raise InputError(
            f"[model] kind is {model.name!r}, the terms are for a {terms.model!r} model; change one of them"
        )
    if terms.arrays != model.arrays:
        raise InputError(
            f"the model's arrays are {_show(model.arrays)}, the terms' are {_show(terms.arrays)}; check the number of "
            "features in the data, [model] classes, and whether this is the right federation"
        )


def check_federation(digest: bytes, runs: tuple[Committed, ...], address: str) -> None:
    """Refuses a federation that a ledger with earlier runs does not know: somebody must have meant it.

    Raises:
        ConflictError: if the ledger pins other terms than these.
    """
    if runs and all(run.terms_digest != digest for run in runs):
        known = runs[-1]
        raise ConflictError(
            f"the ledger pins federation {known.federation!r} with terms {known.terms_digest.hex()}, the server at "
            f"{address} has terms {digest.hex()}; if a second federation is meant, write these as terms_digest into "
            "the configuration"
        )


def propose(
    terms: Terms, terms_digest: bytes, config: ClientConfig, arithmetic: Arithmetic, *, flags: int = 0
) -> Proposal:
    """Returns the whole schedule of a run, rounds 0 to final_version - 1.

    Args:
        terms: of the federation.
        terms_digest: 32 bytes.
        config: what this participant declares.
        arithmetic: of the sums; its errors are charged.
        flags: FLAG_* bits that every update of the run will carry.

    Raises:
        InputError: if the accountant cannot charge it.
    """
    privacy = config.privacy
    sizes = tuple(terms.sample_size(round_) for round_ in range(terms.final_version))
    try:
        mechanism = Mechanism(
            clip_norm=privacy.clip_norm,
            noise_multiplier=privacy.noise_multiplier,
            grid_exponent=terms.grid_exponent,
            parameters=terms.parameters,
            max_examples_per_round=terms.privacy.max_examples_per_round,
            chunk_examples=arithmetic.chunk_examples,
            unit_roundoff=arithmetic.unit_roundoff,
            clip_error=arithmetic.clip_error,
        )
        charged = mechanism.charged_noise_multiplier()
        run = Run(sampling=privacy.sampler, records=privacy.records, sample_sizes=sizes, mechanism=mechanism)
    except AccountantError as error:
        raise InputError(f"this run cannot be accounted: {error}") from None
    schedule = tuple(
        Group(
            sample_size=size,
            sampling_probability=size / privacy.records,
            noise_multiplier=privacy.noise_multiplier,
            charged_noise_multiplier=charged,
            clip_norm=privacy.clip_norm,
            rounds=len(list(rounds)),
        )
        for size, rounds in itertools.groupby(sizes)
    )
    committed = Committed(
        terms_digest=terms_digest,
        federation=terms.federation,
        sampler=privacy.sampler,
        adjacency=ADJACENCY,
        records=privacy.records,
        parameters=terms.parameters,
        flags=flags,
        timing="covered" if privacy.release_interval_seconds > 0 else "not covered",
        schedule=schedule,
        claim={},
        delta=privacy.delta,
    )
    return Proposal(run, committed)


def claim(proposal: Proposal) -> accountant.Claim:
    """Returns the privacy claim for the whole run.

    Raises:
        InputError: if no guarantee can be computed.
    """
    try:
        return accountant.claim(proposal.run, delta=proposal.committed.delta)
    except AccountantError as error:
        raise InputError(f"no privacy claim can be made for this run: {error}") from None


def check_delta(config: ClientConfig, *, accept_large: bool) -> str | None:
    """Refuses a delta above 1/records unless a person accepted it; returns a warning or None.

    Raises:
        InputError: if it is too large.
    """
    try:
        return accountant.check_delta(config.privacy.delta, config.privacy.records, accept_large)
    except AccountantError as error:
        raise InputError(f"[privacy] {error} (--accept-large-delta)") from None


def check_lifetime(config: ClientConfig, init: Init) -> None:
    """Refuses a configuration whose lifetime budget is not the one that the ledger was made with.

    Raises:
        InputError: if they differ.
    """
    for key in ("lifetime_epsilon", "lifetime_delta"):
        mine, ledgers = getattr(config.privacy, key), getattr(init, key)
        if mine != ledgers:
            raise InputError(
                f"[privacy] {key} is {mine}, the ledger was made with {ledgers}; a lifetime budget never changes: "
                "correct the configuration"
            )


def budget(init: Init, runs: tuple[Committed, ...]) -> accountant.Budget:
    """Returns the budget of a ledger's life with what was committed charged to it."""
    return accountant.Budget(
        lifetime_epsilon=init.lifetime_epsilon,
        lifetime_delta=init.lifetime_delta,
        committed=[(run.terms_digest.hex(), accountant.Claim.from_dict(run.claim)) for run in runs],
    )


def check_affordable(
    found: accountant.Claim, proposal: Proposal, config: ClientConfig, left: accountant.Budget
) -> Committed:
    """Returns the row to commit, if the run fits both its own limit and what is left of the ledger's lifetime.

    Raises:
        BudgetRefusedError: if it does not fit. Nothing has been charged.
    """
    if found.epsilon > config.privacy.epsilon:
        raise BudgetRefusedError(
            f"{proposal.committed.rounds} rounds would cost epsilon {found.epsilon:g} at delta {found.delta:g}, "
            f"[privacy] epsilon allows {config.privacy.epsilon:g}; raise noise_multiplier, or do not take part"
        )
    try:
        left.check(proposal.committed.terms_digest.hex(), found)
    except BudgetError as error:
        raise BudgetRefusedError(str(error)) from None
    return replace(proposal.committed, claim=found.to_dict())


def check_unchanged(committed: Committed, proposal: Proposal, config: ClientConfig) -> None:
    """Refuses a configuration that differs from what was committed before the first round.

    Raises:
        InputError: names what differs, with both values.
        BudgetRefusedError: if the run's largest epsilon was lowered below what is committed.
    """
    for field in fields(Committed):
        if field.name == "claim":
            continue
        mine, was = getattr(proposal.committed, field.name), getattr(committed, field.name)
        if mine == was:
            continue
        name = field.name
        if name == "schedule":
            name, mine, was = _difference(mine, was)
        raise InputError(
            f"this run was committed with {name} = {was}, the configuration now gives {mine}; a committed schedule "
            "never changes: correct the configuration"
        )
    if committed.epsilon > config.privacy.epsilon:
        raise BudgetRefusedError(
            f"this run was committed at epsilon {committed.epsilon:g}, [privacy] epsilon now allows "
            f"{config.privacy.epsilon:g}; raise it back, or stop here: what is spent stays spent"
        )


def check_initial_model(terms: Terms, model: bytes) -> None:
    """Refuses a version 0 that is not the one of the terms.

    Raises:
        InputError: if the digest differs.
    """
    found = hashlib.sha256(model).digest()
    if found != terms.initial_model_sha256:
        raise InputError(
            f"the initial model has SHA-256 {found.hex()[:16]}..., the terms say "
            f"{terms.initial_model_sha256.hex()[:16]}...; the server is not the one that these terms belong to"
        )


def _difference(mine: tuple[Group, ...], was: tuple[Group, ...]) -> tuple[str, object, object]:
    for a, b in zip(mine, was, strict=False):
        for field in fields(Group):
            if getattr(a, field.name) != getattr(b, field.name):
                return field.name, getattr(a, field.name), getattr(b, field.name)
    return "number of rounds", sum(group.rounds for group in mine), sum(group.rounds for group in was)


def _show(arrays: tuple[ArraySpec, ...]) -> str:
    return ", ".join(f"{spec.name} {list(spec.shape)}" for spec in arrays)
