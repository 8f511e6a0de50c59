"""From a run's settings to its numbers: schedule, noise, grid, terms, and what it would claim. Draws nothing.

In formulas: N records of a client, s_i the sample sizes, q_i = s_i / N, T rounds, C the clip norm, n clients, d
parameters.
"""

import functools
import hashlib
import math
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from hushgrad import accountant
from hushgrad.accountant import moments, sampler
from hushgrad.accountant.calibration import LARGEST_NOISE_MULTIPLIER
from hushgrad.client import dpsgd, models
from hushgrad.experiments.errors import BudgetRefusedError, InputError
from hushgrad.experiments.plan import BATCH_TAIL_SHARE
from hushgrad.experiments.study.file import Experiment
from hushgrad.wire import grid, terms_file
from hushgrad.wire.errors import ContractError
from hushgrad.wire.terms import MAX_FINAL_VERSION, Terms
from hushgrad.wire.terms_file import SampleSize

Floats = npt.NDArray[np.float64]

NO_CLIPPING = 1e12
"""The clip norm of a run without clipping."""

_WIDEST_GRID_NOISE = 2**16 * 0.01
"""Without noise the grid is 0.01 C / sqrt(d): what the rule for terms gives for this / sqrt(d) as noise multiplier."""

_ROOM_AHEAD = 3
"""The window is so much longer than a max-delay asks for."""


@dataclass(frozen=True, slots=True)
class Setup:
    """All numbers of one run.

    Attributes:
        experiment: what they were made from.
        participants: names, client-1 first.
        model: the model.
        sample_sizes: s_0 .. s_{T-1}.
        noise_multiplier: sigma of the noise in the sum that is protected; None without noise.
        recipes: by sample size, what a client does in a round. Without noise its noise multiplier is a placeholder.
        terms_file: what `hushgrad-server init` would read.
        claim: what one client's whole run would cost a record; None without noise.
        record_claim: what it would cost a record that all clients hold; None unless clients share records.
    """

    experiment: Experiment
    participants: tuple[str, ...]
    model: models.Model
    sample_sizes: tuple[int, ...]
    noise_multiplier: float | None
    recipes: dict[int, dpsgd.Recipe]
    terms_file: terms_file.TermsFile
    claim: accountant.Claim | None
    record_claim: accountant.Claim | None

    @property
    def rounds(self) -> int:
        """T."""
        return len(self.sample_sizes)

    @property
    def parameters(self) -> int:
        """d."""
        return sum(spec.size for spec in self.model.arrays)

    def initial(self) -> npt.NDArray[np.float32]:
        """Returns the initial model, float32, shape (d,); the seed fixes it."""
        return self.model.initial(self.experiment.seeds[0])

    def terms(self) -> Terms:
        """Returns the terms, with an identity that follows from the settings.

        Raises:
            InputError: if the numbers do not fit together.
        """
        identity = hashlib.sha256(repr(self.experiment).encode()).digest()[:16]
        try:
            return terms_file.build(self.terms_file, self.initial(), identity)
        except ContractError as error:
            raise InputError(str(error)) from None


def resolve(experiment: Experiment, *, features: int, classes: int) -> Setup:
    """Works everything out.

    Args:
        experiment: of one run.
        features: f of the data set.
        classes: of the data set.

    Raises:
        InputError: if numbers do not fit together.
        BudgetRefusedError: if no noise reaches the epsilon that is asked for.
    """
    privacy, clients = experiment.privacy, experiment.clients
    section = experiment.model
    try:
        model = models.make(section.kind, features=features, classes=classes, l2=section.l2, **section.options())
    except models.ModelError as error:
        raise InputError(str(error)) from None
    sizes = sample_sizes(experiment)
    n_max = _max_examples(experiment, sizes)
    parameters = sum(spec.size for spec in model.arrays)
    noise, claim, record_claim = None, None, None
    if privacy.noise != "none":
        question = _Question(
            privacy.sampler,
            experiment.partition.records,
            sizes,
            privacy.clip_norm,
            privacy.delta,
            parameters,
            n_max,
            model.chunk_examples,
            model.unit_roundoff,
            model.clip_error,
        )
        try:
            accountant.check_delta(privacy.delta, question.records, accept_large=privacy.accept_large_delta)
            noise = privacy.noise_multiplier or _noise_for(question, float(privacy.epsilon or 0), privacy.accounting)
            claim = _claim(question, noise)
            if experiment.partition.kind in ("same", "iid") and clients.number > 1:
                record_claim = _record_claim(question, noise, clients.number)
        except accountant.RefusedError as error:
            raise BudgetRefusedError(str(error)) from None
        except (accountant.AccountantError, ContractError) as error:
            raise InputError(str(error)) from None
    drawn = noise if noise is not None else _WIDEST_GRID_NOISE / math.sqrt(parameters)
    if privacy.noise == "central":
        drawn /= math.sqrt(clients.number)  # n clients' shares add up to the server's noise
    participants = tuple(f"client-{number}" for number in range(1, clients.number + 1))
    file = _terms_file(experiment, model, participants, sizes, drawn, n_max)
    recipes = {
        size: dpsgd.Recipe(
            sampler=privacy.sampler,
            records=experiment.partition.records,
            sample_size=size,
            clip_norm=privacy.clip_norm,
            noise_multiplier=drawn,
            grid_exponent=int(file.grid_exponent or 0),
        )
        for size in sorted(set(sizes))
    }
    return Setup(experiment, participants, model, sizes, noise, recipes, file, claim, record_claim)


def sample_sizes(experiment: Experiment) -> tuple[int, ...]:
    """Returns s_0 .. s_{T-1}; with grad_computations as many as are needed to reach it.

    Raises:
        InputError: if a size is not 1 to N, or there are too many rounds.
    """
    training, records = experiment.training, experiment.partition.records
    if training.rounds is not None:
        if training.rounds > MAX_FINAL_VERSION:
            raise InputError(f"training.rounds must be at most {MAX_FINAL_VERSION}, found {training.rounds}")
        sizes = _sizes(training.sample_size, training.rounds)
    else:
        sizes = _sizes_for(training.sample_size, training.grad_computations or 0)
    if not sizes or not 1 <= min(sizes) <= max(sizes) <= records:
        found = f"{min(sizes)} to {max(sizes)}" if sizes else "none"
        raise InputError(f"every sample size must be 1 to {records}, the records of a client, found {found}")
    return tuple(sizes)


def _sizes(section: SampleSize, rounds: int) -> list[int]:
    try:
        listed = terms_file.sample_sizes(section, rounds)
    except ContractError as error:
        raise InputError(str(error)) from None
    return [listed[min(i, len(listed) - 1)] for i in range(rounds)] if listed else []


def _sizes_for(section: SampleSize, grad_computations: int) -> list[int]:
    """Returns as many sizes as reach a number of gradients."""
    rounds = 64
    while True:
        sizes = _sizes(section, rounds)
        if not sizes or min(sizes) < 1:
            return sizes
        total = 0
        for i, size in enumerate(sizes):
            total += size
            if total >= grad_computations:
                return sizes[: i + 1]
        if rounds >= MAX_FINAL_VERSION:
            raise InputError(f"training.grad_computations needs more than {MAX_FINAL_VERSION} rounds; raise the sizes")
        rounds = min(2 * rounds, MAX_FINAL_VERSION)


def step_sizes(experiment: Experiment, sizes: tuple[int, ...]) -> list[float]:
    """Returns eta_0 .. eta_{T-1} as they are applied to each client's sum, scalings included.

    Raises:
        InputError: if they cannot be computed.
    """
    training = experiment.training
    try:
        steps = terms_file.step_sizes(training.step_size, list(sizes), len(sizes))
    except ContractError as error:
        raise InputError(str(error)) from None
    by_clients = experiment.clients.number if training.sum_over_clients == "mean" else 1
    by_batch = sizes if training.sum_over_batch == "mean" else (1,) * len(sizes)
    return [step / (by_clients * size) for step, size in zip(steps, by_batch, strict=True)]


@dataclass(frozen=True, slots=True)
class _Question:
    """What a claim depends on, but for the noise."""

    sampler: Any
    records: int
    sample_sizes: tuple[int, ...]
    clip_norm: float
    delta: float
    parameters: int
    max_examples: int
    chunk_examples: int
    unit_roundoff: float
    clip_error: float

    def mechanism(self, sigma: float) -> accountant.Mechanism:
        return accountant.Mechanism(
            clip_norm=self.clip_norm,
            noise_multiplier=sigma,
            grid_exponent=_grid_exponent(self.clip_norm, sigma, self.parameters),
            parameters=self.parameters,
            max_examples_per_round=self.max_examples,
            chunk_examples=self.chunk_examples,
            unit_roundoff=self.unit_roundoff,
            clip_error=self.clip_error,
        )

    def run(self, sigma: float) -> accountant.Run:
        return accountant.Run(self.sampler, self.records, self.sample_sizes, self.mechanism(sigma))


@functools.lru_cache(maxsize=256)
def _claim(question: _Question, sigma: float) -> accountant.Claim:
    return accountant.claim(question.run(sigma), delta=question.delta)


@functools.lru_cache(maxsize=256)
def _record_claim(question: _Question, sigma: float, clients: int) -> accountant.Claim:
    """Returns the claim for a record that all clients hold: all their rounds, one after the other."""
    run = question.run(sigma)
    everybody = accountant.Run(run.sampling, run.records, run.sample_sizes * clients, run.mechanism)
    return accountant.claim(everybody, delta=question.delta)


@functools.lru_cache(maxsize=256)
def _noise_for(question: _Question, epsilon: float, accounting: str) -> float:
    """Returns the noise multiplier that an epsilon asks for; for "tight" by the claim itself."""
    if accounting == "tight":
        return accountant.noise_multiplier(
            mechanism_for=question.mechanism,
            sampling=question.sampler,
            records=question.records,
            sample_sizes=question.sample_sizes,
            epsilon=epsilon,
            delta=question.delta,
        )
    if question.sampler != "poisson":
        raise InputError('privacy.accounting = "moments" holds for sampler = "poisson" only')

    def spent(sigma: float) -> float:
        counts = Counter(question.sample_sizes)
        groups = [accountant.RoundGroup(size / question.records, sigma, rounds) for size, rounds in counts.items()]
        return moments.epsilon(groups, delta=question.delta).epsilon

    low, high = 1e-2, 1.0
    while spent(high) > epsilon:
        low, high = high, 2 * high
        if high > LARGEST_NOISE_MULTIPLIER:
            raise accountant.RefusedError(f"the moments accountant finds no noise that reaches epsilon {epsilon:g}")
    while high / low > 1.0001:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if spent(middle) > epsilon else (low, middle)
    return accountant.rounded_up(high)


def _max_examples(experiment: Experiment, sizes: tuple[int, ...]) -> int:
    """Returns n_max: the smallest of a coarse ladder whose tail costs next to nothing."""
    privacy, records, largest = experiment.privacy, experiment.partition.records, max(sizes)
    if privacy.sampler == "fixed":
        return largest
    allowed = math.log(BATCH_TAIL_SHARE * privacy.delta / len(sizes))
    n_max = largest
    while n_max < records + 1:
        n_max = min(math.ceil(1.1 * n_max) + 1, records + 1)
        if sampler.log_batch_tail(records, largest / records, n_max) <= allowed:
            break
    return n_max


def _grid_exponent(clip_norm: float, sigma: float, parameters: int) -> int:
    return grid.grid_exponent(clip_norm=clip_norm, noise_multiplier_min=sigma, parameters=parameters)


def _terms_file(
    experiment: Experiment,
    model: models.Model,
    participants: tuple[str, ...],
    sizes: tuple[int, ...],
    noise_multiplier: float,
    n_max: int,
) -> terms_file.TermsFile:
    training, privacy = experiment.training, experiment.privacy
    delay = training.delay
    rounds = len(sizes)
    ahead = delay.max_delay if delay.kind == "max-delay" else rounds
    listed = terms_file.StepSize("list", values=_shortened(step_sizes(experiment, sizes)))
    parameters = sum(spec.size for spec in model.arrays)
    return terms_file.TermsFile(
        federation=experiment.name,
        model=model.name,
        arrays=[terms_file.ArrayEntry(spec.name, list(spec.shape)) for spec in model.arrays],
        final_version=rounds,
        window=training.window or ahead + _ROOM_AHEAD,
        straggler_timeout_seconds=training.straggler_timeout_seconds,
        step_size=listed,
        sample_size=SampleSize("list", values=_shortened(list(sizes))),
        delay=delay,
        privacy=terms_file.PrivacySection(
            clip_norm=privacy.clip_norm,
            noise_multiplier_min=noise_multiplier,
            noise_multiplier_max=noise_multiplier,
            samplers=[privacy.sampler],
            max_examples_per_round=n_max,
        ),
        grid_exponent=_grid_exponent(privacy.clip_norm, noise_multiplier, parameters),
        publish_every=training.publish_every,
        participants=list(participants),
    )


def _shortened(values: list[Any]) -> list[Any]:
    """Returns the values without repeats of the last one, which holds for all later rounds."""
    end = len(values)
    while end > 1 and values[end - 2] == values[-1]:
        end -= 1
    return values[:end]
