"""A table of plans: for each sample size, how many rounds, how much noise, what it costs and what it sends.

Every row keeps to the same epsilon and delta with the same number of gradients; the choice between them is a person's.

In formulas: N the number of records, K the gradient computations of the whole run, s the sample size, T = ceil(K / s).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hushgrad.accountant import _validate, calibration, claims, theorem2_answer, verdict
from hushgrad.accountant.claims import Adjacency, Claim, RoundGroup, Sampling
from hushgrad.accountant.errors import AccountantError
from hushgrad.accountant.sizes import SampleSizes

ELEMENT_BYTES = 4
"""An update is one int32 for each parameter."""

_FEWEST_ROUNDS, _MOST_ROUNDS, _ROWS = 10, 5_000, 10


@dataclass(frozen=True, slots=True)
class Plan:
    """One row.

    Attributes:
        sample_size: s.
        rounds: T.
        noise_multiplier: the smallest of four digits that keeps the claim within epsilon.
        claim: the tight one.
        paper_epsilon: Theorem 2's epsilon at this noise, where it may be shown as true; else None.
        why_not: why it may not, in one sentence; None where it may.
        bytes_per_round: of one update's payload; None if the number of parameters was not given.
        bytes_total: of all rounds.
    """

    sample_size: int
    rounds: int
    noise_multiplier: float
    claim: Claim
    paper_epsilon: float | None
    why_not: str | None
    bytes_per_round: int | None
    bytes_total: int | None

    def to_dict(self) -> dict[str, Any]:
        """Returns plain values for JSON."""
        return {
            "sample_size": self.sample_size,
            "rounds": self.rounds,
            "noise_multiplier": self.noise_multiplier,
            "claim": self.claim.to_dict(),
            "paper_epsilon": self.paper_epsilon,
            "why_not": self.why_not,
            "bytes_per_round": self.bytes_per_round,
            "bytes_total": self.bytes_total,
        }


def plan(
    *,
    records: int,
    grad_computations: int,
    epsilon: float,
    delta: float,
    sampling: Sampling,
    adjacency: Adjacency,
    sample_sizes: Sequence[int] = (),
    parameters: int | None = None,
) -> list[Plan]:
    """Returns one row for each sample size, smallest first.

    Args:
        records: N, declared.
        grad_computations: K; e epochs are e * N.
        epsilon: > 0, what the whole run may cost.
        delta: in (0, 1).
        sampling: "poisson" or "fixed".
        adjacency: "add-remove" or "replace-one".
        sample_sizes: to compare; none: a spread of 1, 2 and 5 times powers of ten, with 10 to 5,000 rounds.
        parameters: d of the model, for the bytes.

    Raises:
        AccountantError: if a value is not allowed, or no sample size is left to compare.
        RefusedError: if no noise multiplier reaches epsilon.
    """
    _validate.count("records", records)
    _validate.count("grad_computations", grad_computations)
    _validate.positive("epsilon", epsilon)
    _validate.delta("delta", delta)
    if parameters is not None:
        _validate.count("parameters", parameters)
    largest = records - 1 if sampling == "fixed" else records
    sizes = sorted(set(sample_sizes)) or _spread(grad_computations, largest)
    if not sizes:
        raise AccountantError("no sample size fits these records and gradient computations; name --sample-sizes")
    for size in sizes:
        if not _validate.count("every sample size", size) <= largest:
            raise AccountantError(f"every sample size must be 1 to {largest} with {sampling} sampling, found {size}")
    return [_row(size, records, grad_computations, epsilon, delta, sampling, adjacency, parameters) for size in sizes]


def _row(
    size: int,
    records: int,
    grad_computations: int,
    epsilon: float,
    delta: float,
    sampling: Sampling,
    adjacency: Adjacency,
    parameters: int | None,
) -> Plan:
    rounds = math.ceil(grad_computations / size)

    def groups(sigma: float) -> list[RoundGroup]:
        return [RoundGroup(size / records, sigma, rounds)]

    sigma, claim = calibration.smallest_noise_multiplier(
        lambda sigma: claims.from_schedule(groups(sigma), sampling=sampling, adjacency=adjacency, delta=delta),
        epsilon=epsilon,
        quick_epsilon_for=lambda sigma: claims.privacy_curve(
            groups(sigma), sampling=sampling, adjacency=adjacency, quick=True
        ).epsilon(delta),
    )
    paper = theorem2_answer.answer(SampleSizes(((size, rounds),)), records=records, delta=delta, noise_multiplier=sigma)
    judged = verdict.judge(
        paper.epsilon,
        source="Theorem 2",
        failed=paper.failed,
        groups=groups(sigma),
        sampling=sampling,
        adjacency=adjacency,
        delta=delta,
    )
    return Plan(
        sample_size=size,
        rounds=rounds,
        noise_multiplier=sigma,
        claim=claim,
        paper_epsilon=paper.epsilon if judged.claimable else None,
        why_not=judged.why_not,
        bytes_per_round=None if parameters is None else ELEMENT_BYTES * parameters,
        bytes_total=None if parameters is None else ELEMENT_BYTES * parameters * rounds,
    )


def _spread(grad_computations: int, largest: int) -> list[int]:
    sizes = [
        digit * 10**power
        for power in range(10)
        for digit in (1, 2, 5)
        if digit * 10**power <= largest
        and _FEWEST_ROUNDS <= math.ceil(grad_computations / (digit * 10**power)) <= _MOST_ROUNDS
    ]
    return sizes[-_ROWS:]
