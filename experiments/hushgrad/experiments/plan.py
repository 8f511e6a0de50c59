"""Works out the numbers of a new federation: noise, grid, step sizes. Writes nothing and sees no record.

In formulas: N records of one client, s the sample size, q = s / N, T rounds, C the clip norm, n clients, f features.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from hushgrad import accountant
from hushgrad.accountant import sampler
from hushgrad.client import models
from hushgrad.client.models import oriented_gradients
from hushgrad.experiments.errors import BudgetRefusedError, InputError
from hushgrad.wire import grid, names
from hushgrad.wire.errors import ContractError

Sampler = Literal["poisson", "fixed"]
StepKind = Literal["constant", "inverse", "inverse-sqrt", "linear"]

MAX_DELAY = 1
"""The paper's experiments let a client be one round ahead of the newest model."""

NOISE_ROOM = 4.0
"""The terms allow a stricter client this many times the smallest noise multiplier."""

BATCH_TAIL_SHARE = 1e-4
"""Share of delta that batches above max_examples_per_round may cost."""


@dataclass(frozen=True, slots=True)
class Request:
    """What a person asks for; None leaves a number to `make`.

    Attributes:
        name: of the federation.
        kind: of the model, one of `models.KINDS`.
        features: number of features of a record.
        classes: number of classes.
        l2: lambda; every record's loss includes lambda / 2 * ||weights||^2.
        clients: number of participants; they are called client-1, client-2, ...
        records: N, declared and public, of each client.
        epsilon, delta: what one client's whole run may cost: per record, added or removed.
        clip_norm: C.
        rounds: T, of each client; also the final version.
        sample_size: s, the expected number of records of a round. None: a sixth of the records.
        eta0: first step size, applied to the SUM of the clipped gradients. None: see `default_eta0`.
        beta: how fast the step sizes fall.
        step_kind: how they fall; "linear": in equal steps towards zero, which they would reach after the last round.
        sampler: "poisson" or "fixed".
        bounded: whether every feature is scaled to [0, 1] by declared bounds.
        options: further settings of the model, as in a client's [model] table.
        max_delay: how many rounds a client may be ahead of the newest model; 0: all wait for all.
    """

    name: str
    kind: str
    features: int
    classes: int
    l2: float
    clients: int
    records: int
    epsilon: float
    delta: float
    clip_norm: float
    rounds: int = 100
    sample_size: int | None = None
    eta0: float | None = None
    beta: float = 0.002
    step_kind: StepKind = "inverse-sqrt"
    sampler: Sampler = "poisson"
    bounded: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)
    max_delay: int = MAX_DELAY


@dataclass(frozen=True, slots=True)
class Plan:
    """A request with every number filled in, and what it costs.

    Attributes:
        request: as asked, for the record.
        participants: their names.
        model: the model that the arrays belong to.
        sample_size: s.
        eta0: the first step size.
        noise_multiplier: sigma, the smallest that the terms allow; the clients' files say it too.
        charged_noise_multiplier: sigma as the accountant charges it, sensitivity and rounding included.
        noise_multiplier_max: the largest that the terms allow.
        grid_exponent: g.
        max_examples_per_round: n_max.
        claim: what one client's whole run costs.
    """

    request: Request
    participants: tuple[str, ...]
    model: models.Model
    sample_size: int
    eta0: float
    noise_multiplier: float
    charged_noise_multiplier: float
    noise_multiplier_max: float
    grid_exponent: int
    max_examples_per_round: int
    claim: accountant.Claim

    @property
    def parameters(self) -> int:
        """d, the number of parameters."""
        return sum(spec.size for spec in self.model.arrays)


def make(request: Request, *, noise_multiplier: float | None = None, accept_large_delta: bool = False) -> Plan:
    """Fills in what a request leaves open, and computes what it costs.

    Args:
        request: what is asked for.
        noise_multiplier: known beforehand, or None to look for the smallest that meets epsilon and delta.
        accept_large_delta: whether a person has typed that a delta above 1/N is meant.

    Returns:
        A plan whose claim is at most (request.epsilon, request.delta).

    Raises:
        InputError: if a number is out of range.
        BudgetRefusedError: if no noise meets epsilon and delta, or the noise that was given does not.
    """
    participants = _check(request)
    sample_size = request.sample_size if request.sample_size is not None else max(1, round(request.records / 6))
    sizes = (sample_size,) * request.rounds
    try:
        model = models.make(
            request.kind, features=request.features, classes=request.classes, l2=request.l2, **request.options
        )
        accountant.check_delta(request.delta, request.records, accept_large=accept_large_delta)
        n_max = _max_examples(request, sample_size)

        def mechanism_for(sigma: float) -> accountant.Mechanism:
            return accountant.Mechanism(
                clip_norm=request.clip_norm,
                noise_multiplier=sigma,
                grid_exponent=_grid_exponent(request, model, sigma),
                parameters=sum(spec.size for spec in model.arrays),
                max_examples_per_round=n_max,
                chunk_examples=model.chunk_examples,
                unit_roundoff=model.unit_roundoff,
                clip_error=model.clip_error,
            )

        def claim_for(sigma: float) -> accountant.Claim:
            run = accountant.Run(request.sampler, request.records, sizes, mechanism_for(sigma))
            return accountant.claim(run, delta=request.delta)

        if noise_multiplier is None:
            noise_multiplier, claim = accountant.smallest_noise_multiplier(claim_for, epsilon=request.epsilon)
        else:
            claim = claim_for(noise_multiplier)
            if claim.epsilon > request.epsilon:
                raise BudgetRefusedError(
                    f"noise multiplier {noise_multiplier} costs epsilon {claim.epsilon} at delta {claim.delta:g}, more "
                    f"than {request.epsilon}"
                )
        g = _grid_exponent(request, model, noise_multiplier)
        noise_max = accountant.claims.rounded_up(NOISE_ROOM * noise_multiplier)
        grid.check_sums_fit(
            grid_exponent=g,
            clip_norm=request.clip_norm,
            noise_multiplier_max=noise_max,
            max_examples_per_round=n_max,
        )
    except accountant.RefusedError as error:
        raise BudgetRefusedError(str(error)) from None
    except (accountant.AccountantError, ContractError, models.ModelError) as error:
        raise InputError(str(error)) from None
    return Plan(
        request=request,
        participants=participants,
        model=model,
        sample_size=sample_size,
        eta0=request.eta0 if request.eta0 is not None else default_eta0(request, sample_size),
        noise_multiplier=noise_multiplier,
        charged_noise_multiplier=mechanism_for(noise_multiplier).charged_noise_multiplier(),
        noise_multiplier_max=noise_max,
        grid_exponent=g,
        max_examples_per_round=n_max,
        claim=claim,
    )


def default_eta0(request: Request, sample_size: int) -> float:
    """Returns a first step size that looks at no record; three significant digits.

    A version moves the model by about eta0 * s * n times a mean gradient. With the features in [0, 1] a record with its
    constant has a squared norm R^2 of about 1 + f/3, and the loss a curvature of at most R^2 / 4; the step is 6 / R^2,
    half as much again as the textbook's, because few records have that curvature (tried on three data sets). Without
    bounds the only public measure of scale is C, which people set near a typical gradient's norm; then it is 2 / C^2.
    """
    if request.kind not in ("logistic", "softmax"):
        raise InputError(f'there is no usual step size for model "{request.kind}"; give eta0')
    if request.options.get("feature_map"):
        scale = 6 / (1 + oriented_gradients.NORM**2)
    else:
        scale = 6 / (1 + request.features / 3) if request.bounded else 2 / request.clip_norm**2
    return float(f"{scale / (sample_size * request.clients):.3g}")


def _max_examples(request: Request, sample_size: int) -> int:
    """Returns n_max: the smallest of a coarse ladder whose tail costs next to nothing."""
    if request.sampler == "fixed":
        return sample_size
    allowed = math.log(BATCH_TAIL_SHARE * request.delta / request.rounds)
    n_max = sample_size
    while n_max < request.records + 1:
        n_max = min(math.ceil(1.1 * n_max) + 1, request.records + 1)
        if sampler.log_batch_tail(request.records, sample_size / request.records, n_max) <= allowed:
            break
    return n_max


def _grid_exponent(request: Request, model: models.Model, sigma: float) -> int:
    return grid.grid_exponent(
        clip_norm=request.clip_norm,
        noise_multiplier_min=sigma,
        parameters=sum(spec.size for spec in model.arrays),
    )


def _check(request: Request) -> tuple[str, ...]:
    """Returns the participants' names if every number is in its range."""
    counts = {
        "the number of clients": (request.clients, 10_000),
        "the number of records": (request.records, 10**12),
        "the number of rounds": (request.rounds, 10**6),
    }
    if request.sample_size is not None:
        counts["the sample size"] = (request.sample_size, request.records)
    for what, (count, largest) in counts.items():
        if not 1 <= count <= largest:
            raise InputError(f"{what} must be 1 to {largest}, found {count}")
    positive = {"epsilon": request.epsilon, "the clip norm": request.clip_norm}
    if request.eta0 is not None:
        positive["eta0"] = request.eta0
    for what, number in positive.items():
        if not 0 < number < math.inf:
            raise InputError(f"{what} must be finite and > 0, found {number}")
    if not 0 < request.delta < 1:
        raise InputError(f"delta must be above 0 and below 1, found {request.delta}")
    if not 0 <= request.beta < math.inf:
        raise InputError(f"beta must be finite and >= 0, found {request.beta}")
    try:
        names.check_name(request.name, what="the federation's name")
    except ContractError as error:
        raise InputError(str(error)) from None
    return tuple(f"client-{number}" for number in range(1, request.clients + 1))
