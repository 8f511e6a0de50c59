"""A run of a participant as it is committed before round 0, and the claim that covers all of it.

It puts the mechanism, the sampler and the composition together; what a budget makes of the claim is not known here.

In formulas: N the declared number of records, s_i the nominal sample size of round i, q_i = s_i / N, T rounds.
"""

import math
from collections import Counter
from dataclasses import dataclass, fields
from typing import get_args

from hushgrad.accountant import _validate, claims, sampler
from hushgrad.accountant.claims import Adjacency, Claim, RoundGroup, Sampling
from hushgrad.accountant.curve import Curve
from hushgrad.accountant.errors import AccountantError, RefusedError
from hushgrad.accountant.mechanism import Mechanism


@dataclass(frozen=True, slots=True)
class Run:
    """A whole run: which records, how they are sampled, and what each round releases.

    Attributes:
        sampling: "poisson" (each record with probability s_i / N) or "fixed" (exactly s_i records, s_i < N).
        records: N >= 1, declared and public; never the length of a private data set.
        sample_sizes: s_0 .. s_{T-1}, one for each round, each 1 to N. Empty: nothing is released.
        mechanism: of every round.
        adjacency: "add-remove" or "replace-one".
    """

    sampling: Sampling
    records: int
    sample_sizes: tuple[int, ...]
    mechanism: Mechanism
    adjacency: Adjacency = "add-remove"

    def __post_init__(self) -> None:
        _validate.choice("sampling", self.sampling, get_args(Sampling))
        _validate.choice("adjacency", self.adjacency, get_args(Adjacency))
        _validate.count("records", self.records)
        largest = self.records if self.sampling == "poisson" else self.records - 1
        for size in set(self.sample_sizes):
            if _validate.count("every sample size", size) > largest:
                raise AccountantError(
                    f"every sample size must be at most {largest} with {self.sampling} sampling from {self.records} "
                    f"records, found {size}"
                )
        if self.sampling == "fixed" and max(self.sample_sizes, default=0) > self.mechanism.max_examples_per_round:
            raise AccountantError(
                f"max_examples_per_round must be at least the largest sample size {max(self.sample_sizes)}, found "
                f"{self.mechanism.max_examples_per_round}"
            )


@dataclass(frozen=True, slots=True)
class Distances:
    """Total variation between a run as it is drawn and the run that is accounted, by cause, over all rounds.

    Attributes:
        noise: table noise against a rounded Gaussian.
        masks: the sampler's random words against ideal choices.
        batch_tail: the probability that some round draws more than n_max records.
    """

    noise: float
    masks: float
    batch_tail: float

    def total(self) -> float:
        """Returns the sum; distances of adaptively composed rounds add up."""
        return self.noise + self.masks + self.batch_tail


def groups(run: Run) -> list[RoundGroup]:
    """Returns the rounds of a run, those of one sample size together, with the noise multiplier as charged.

    Raises:
        RefusedError: if the mechanism's noise is too narrow for its grid.
    """
    charged = run.mechanism.charged_noise_multiplier()
    return [RoundGroup(size / run.records, charged, rounds) for size, rounds in sorted(_rounds_by_size(run).items())]


def distances(run: Run) -> Distances:
    """Returns how far the run as drawn is from the run as accounted."""
    n_max = run.mechanism.max_examples_per_round
    masks, batch_tail = 0.0, 0.0
    for size, rounds in _rounds_by_size(run).items():
        q = size / run.records
        masks += rounds * sampler.mask_distance(run.sampling, run.records)
        if run.sampling == "poisson":
            batch_tail += rounds * math.exp(sampler.log_batch_tail(run.records, q, n_max))
    noise = len(run.sample_sizes) * run.mechanism.noise_distance() if run.sample_sizes else 0.0
    return Distances(noise, masks, batch_tail)


def claim(run: Run, *, delta: float) -> Claim:
    """Returns the claim for a whole run; `delta` is what it says, everything included.

    If a release is within total variation v of an (epsilon, delta')-private one, for each of two neighbours, it is
    (epsilon, delta' + (1 + e^epsilon) v)-private: v is lost on the left of the definition, e^epsilon v on the right.
    So the distribution is asked at delta - (1 + e^epsilon) v. The epsilon in that factor is the one at 0.99 delta,
    which is no smaller than the final one because at most 1 % of delta may be lost this way.

    Raises:
        AccountantError: if a value is not allowed.
        RefusedError: if the imperfections cost more than 1 % of delta, the noise is too narrow for its grid, or no
            epsilon can be computed.

    >>> mechanism = Mechanism(clip_norm=0.5, noise_multiplier=6.0, grid_exponent=-16, parameters=69,
    ...     max_examples_per_round=500, chunk_examples=64, unit_roundoff=2**-53, clip_error=1e-12)
    >>> claim(Run("poisson", 1768, (200,) * 80, mechanism), delta=1e-5).epsilon < 0.8
    True
    """
    curve, charged = _curve_and_charge(run, delta, quick=False)
    return claims.from_curve(curve, sampling=run.sampling, adjacency=run.adjacency, delta=delta, delta_charged=charged)


def quick_epsilon(run: Run, *, delta: float) -> float:
    """Returns an epsilon that is never above that of `claim`, most often equal, in a quarter of its time.

    For searches that end with `claim`. Raises what `claim` raises.
    """
    curve, charged = _curve_and_charge(run, delta, quick=True)
    return curve.epsilon(delta - charged)


def _curve_and_charge(run: Run, delta: float, *, quick: bool) -> tuple[Curve, float]:
    _validate.delta("delta", delta)
    curve = claims.privacy_curve(groups(run), sampling=run.sampling, adjacency=run.adjacency, quick=quick)
    parts = distances(run)
    share = claims.MAX_CHARGED_SHARE
    # With epsilon = 0 first, so that a hopeless n_max is named before epsilon is asked for.
    factor = 2.0
    if factor * parts.total() <= share * delta:
        factor = _one_plus_exp(curve.epsilon((1 - share) * delta))
    charged = factor * parts.total()
    if charged > share * delta:
        what, cost = max(((f.name, getattr(parts, f.name)) for f in fields(parts)), key=lambda item: item[1])
        raise RefusedError(
            f"imperfections cost {charged:.3g} of delta, more than {share:.0%} of {delta:.3g}; most of it, "
            f"{factor * cost:.3g}, is {_REMEDIES[what]}"
        )
    return curve, charged


_REMEDIES = {
    "noise": "the noise: use fewer rounds or parameters, a finer grid, a smaller epsilon or a larger delta",
    "masks": "the choice of records: use fewer rounds, a smaller epsilon or a larger delta",
    "batch_tail": "batches above max_examples_per_round: raise it",
}


def _rounds_by_size(run: Run) -> Counter[int]:
    return Counter(run.sample_sizes)


def _one_plus_exp(epsilon: float) -> float:
    return 1 + math.exp(epsilon) if epsilon < 700 else math.inf
