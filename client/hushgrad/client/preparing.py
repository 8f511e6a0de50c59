"""Everything that must be settled before a first round: the terms, the tables of the draws, the committed schedule.

Shared by the client that trains built-in models and by the loops that people write. Nothing is drawn here.
"""

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

import structlog
from hushgrad.client import commitment, delay, report, watcher
from hushgrad.client.commitment import Arithmetic
from hushgrad.client.config import ClientConfig
from hushgrad.client.errors import ConflictError, UnreachableError
from hushgrad.client.ledger import Ledger
from hushgrad.client.rows import Committed
from hushgrad.client.session import Facts
from hushgrad.client.transport import RetryableError, Transport
from hushgrad.wire import terms as wire_terms
from hushgrad.wire.errors import ContractError
from hushgrad.wire.terms import Terms

if TYPE_CHECKING:
    from hushgrad.client import dpsgd


def get_terms(
    transport: Transport, pinned: str | None, timeout_seconds: float, stopped: threading.Event
) -> tuple[Terms, bytes] | None:
    """Returns the federation's terms and their digest; None if it was stopped before the server answered.

    Raises:
        UnreachableError: if no server answered in time.
        ConflictError: if the terms are not the pinned ones, or cannot be accepted.
    """
    try:
        answer = watcher.connect(transport, timeout_seconds=timeout_seconds, stopped=stopped)
    except RetryableError as error:
        raise UnreachableError(
            f"no server answered at {transport.address} within {timeout_seconds:g} s ({error}); start it, or correct "
            "the address"
        ) from None
    if answer is None:
        return None
    serialized, digest = answer
    if pinned is not None and digest.hex() != pinned.lower():
        raise ConflictError(
            f"the federation at {transport.address} has terms {digest.hex()}, the configuration pins {pinned.lower()}; "
            "find out which one is meant before anything is spent"
        )
    try:
        terms = wire_terms.from_bytes(serialized)
    except ContractError as error:
        raise ConflictError(f"the terms of the server at {transport.address} cannot be accepted: {error}") from None
    transport.use_terms(digest, terms.limits)
    return terms, digest


def facts(terms: Terms, config: ClientConfig) -> Facts:
    """Returns what the session core must know."""
    return Facts(
        final_version=terms.final_version,
        window=terms.window,
        straggler_timeout_seconds=terms.straggler_timeout_seconds,
        delay=delay.of(terms),
        release_interval_seconds=config.privacy.release_interval_seconds,
        round_seconds=config.round_seconds,
    )


def recipes(draws: "dpsgd.Draws", terms: Terms, config: ClientConfig) -> "Callable[[int], dpsgd.Recipe]":
    """Builds the tables of all rounds and returns what gives a round's recipe.

    Raises:
        InputError: if a recipe does not fit the data.
    """

    from hushgrad.client import dpsgd  # the training path; verbs that train nothing do without

    def recipe(round_: int) -> dpsgd.Recipe:
        return dpsgd.Recipe(
            sampler=config.privacy.sampler,
            records=config.privacy.records,
            sample_size=terms.sample_size(round_),
            clip_norm=config.privacy.clip_norm,
            noise_multiplier=config.privacy.noise_multiplier,
            grid_exponent=terms.grid_exponent,
        )

    for size_round in sorted({terms.sample_size(round_): round_ for round_ in range(len(terms.sample_sizes))}.values()):
        draws.prepare(recipe(size_round))
    return recipe


def declare(transport: Transport, committed: Committed, config: ClientConfig) -> None:
    """Lets the server be told what this run promises, unless the configuration says no."""
    if config.declare_claim:
        transport.declare(
            committed.claim, planned_rounds=committed.rounds, timing_covered=committed.timing == "covered"
        )


def commit(
    book: Ledger, terms: Terms, digest: bytes, config: ClientConfig, arithmetic: Arithmetic, *, flags: int = 0
) -> Committed:
    """Commits the whole schedule before the first round, or checks that it is the one committed earlier.

    Raises:
        BudgetRefusedError: if it does not fit the budget.
        InputError: if it cannot be accounted, or is not the one committed earlier.
    """
    proposal = commitment.propose(terms, digest, config, arithmetic, flags=flags)
    committed = book.committed(digest)
    if committed is not None:
        commitment.check_unchanged(committed, proposal, config)
    else:
        claim = commitment.claim(proposal)
        committed = commitment.check_affordable(claim, proposal, config, commitment.budget(book.init, book.runs()))
        book.commit(committed)
    structlog.get_logger().info(
        "committed",
        rounds=committed.rounds,
        claim=dict(committed.claim),
        noise_multiplier=config.privacy.noise_multiplier,
        **report.notes(committed),
    )
    return committed
