"""Privacy loss distributions of composed rounds: from pairs and counts to epsilon at a delta.

Google's dp_accounting does the work; this file decides how fine its grid is, how large it may grow, and when its
answer cannot be trusted. It knows neither clip norms nor ledgers nor what a claim looks like.

In formulas: q the sampling probability of a record in one round, sigma the pair's standard deviation, T the number of
rounds.
"""

import functools
import importlib.metadata
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from hushgrad.accountant import pairs
from hushgrad.accountant.errors import RefusedError
from hushgrad.accountant.pairs import Pair

METHOD = "pld"

MAX_DISTINCT = 200
"""Above this many different (q, sigma), sampling probabilities are rounded up to a grid of 2 %."""

MAX_POINTS = 2**21
"""Largest grid of losses; a coarser grid costs tightness, never truth."""

SMALLEST_PROBABILITY = 1e-12
"""A smaller q is charged as this one."""

SMALLEST_NOISE_MULTIPLIER, LARGEST_NOISE_MULTIPLIER = 1e-3, 1e6
"""Less noise is refused: it protects nobody (epsilon is above 10^5). More noise is charged as the largest."""

MAX_ROUNDS = 10**7
"""No answer is given for more: the library's bounds of a composed range grow with their number, past any memory."""

_Q_GRID_RATIO = 1.02
_COARSEST_INTERVAL, _FINEST_INTERVAL = 1e-3, 1e-8
_MASS_NOISE = 1e-17
"""The library makes probabilities by differencing twice, so on a grid of step h and width R rounding errors add mass of
about this times R / h^2 to every round: harmless for the guarantee, but at T R / h^2 > 10^17 epsilon grows visibly."""

# Double-precision Fourier transforms: against the closed form of the plain Gaussian composed T = 10^2 .. 2 * 10^5 times
# the library's delta was too small by at most 1e-17 * T. Ten times that is set aside, plus the library's own truncation
# of 1e-15 for each group, and where this is not small against delta no answer is given.
_ERROR_PER_ROUND = 1e-16
_ERROR_PER_GROUP = 1e-15
_LARGEST_ERROR_SHARE = 0.1

Rounds = Mapping[tuple[float, float], int]
"""(q, sigma) -> number of rounds; every value checked by the caller."""


def method_version() -> str:
    """Returns what computed a number, so that it can be computed again: our method's version and the library's."""
    return f"1 (dp-accounting {importlib.metadata.version('dp-accounting')})"


@dataclass(frozen=True, slots=True)
class Curve:
    """The epsilon of composed rounds as a function of delta, an upper bound at every delta it answers for.

    Attributes:
        compose: composes the rounds when first called, one distribution for each grid; none if nothing is released.
        numerical_error: what is set aside of delta for double precision.
    """

    compose: Callable[[], tuple[Any, ...]]
    numerical_error: float

    @property
    def distributions(self) -> tuple[Any, ...]:
        """The composed distributions."""
        return self.compose()

    def epsilon(self, delta: float) -> float:
        """Returns an epsilon >= 0 such that the composed rounds are (epsilon, delta)-differentially private.

        It is the larger of two discretisations and, in each, of the two directions (record added, record removed).

        Raises:
            RefusedError: if double precision cannot answer at this delta, or no finite epsilon exists on the grid.
        """
        if self.numerical_error > _LARGEST_ERROR_SHARE * delta:
            raise RefusedError(
                f"delta {delta:.3g} is too small for a privacy loss distribution of this many rounds in double "
                f"precision; the smallest that can be answered is {self.numerical_error / _LARGEST_ERROR_SHARE:.1g}"
            )
        target = delta - self.numerical_error
        try:
            epsilon = max((float(pld.get_epsilon_for_delta(target)) for pld in self.distributions), default=0.0)
        except OverflowError:
            epsilon = math.inf
        if not math.isfinite(epsilon):
            raise RefusedError(
                f"the privacy loss distribution has no finite epsilon at delta {delta:.3g}; use more noise, fewer "
                "rounds or a larger delta"
            )
        return epsilon


def curve(rounds: Rounds, *, pair: Pair = "add-remove", quick: bool = False) -> Curve:
    """Composes rounds of one pair.

    Every rounding on the way is towards a larger epsilon: losses (pessimistic connect-the-dots), tails,
    and q where there are more than MAX_DISTINCT pairs (a record that is sampled less often can be simulated from one
    that is sampled more often).

    Args:
        rounds: (q, sigma) -> T with 0 < q <= 1, sigma > 0 and T >= 1. Empty: nothing is released, epsilon is 0.
        pair: of every round.
        quick: leave out the finer of the two discretisations: a quarter of the time, never a larger epsilon. For
            searches, not for claims.

    Edges:
        q = 1: plain Gaussian rounds, composed in closed form: one Gaussian with 1/sigma^2 summed.
        q or sigma beyond the constants above: charged as the constant, or refused.

    Raises:
        RefusedError: if a noise multiplier is below SMALLEST_NOISE_MULTIPLIER.

    Reference:
        Doroshenko et al., "Connect the Dots", arXiv 2207.04380; Koskela et al., "Computing Tight Differential Privacy
        Guarantees Using FFT", arXiv 1906.03049.
    """
    prepared = _with_unsampled_joined(_with_few_probabilities(_within_limits(rounds)))
    if not prepared:
        return Curve(lambda: (), 0.0)
    rounds_in_all = sum(prepared.values())
    interval = _interval(prepared, pair)
    floor = _finest_interval(prepared, pair)
    # The two agree within a fraction of a percent where the grid is fine enough; the larger is reported.
    intervals = {max(interval, floor)} if quick else {max(interval, floor), max(interval / 3, floor)}
    return Curve(
        functools.cache(lambda: tuple(_compose(prepared, pair, step) for step in sorted(intervals))),
        _ERROR_PER_GROUP * (len(prepared) + 1) + _ERROR_PER_ROUND * rounds_in_all
        if rounds_in_all <= MAX_ROUNDS
        else math.inf,
    )


def within_limits(q: float, sigma: float) -> tuple[float, float]:
    """Returns the (q, sigma) that a round is charged as.

    Raises:
        RefusedError: if sigma is below SMALLEST_NOISE_MULTIPLIER.
    """
    if sigma < SMALLEST_NOISE_MULTIPLIER:
        raise RefusedError(
            f"a noise multiplier must be at least {SMALLEST_NOISE_MULTIPLIER:g} to be accounted, found {sigma:.3g}"
        )
    return max(q, SMALLEST_PROBABILITY), min(sigma, LARGEST_NOISE_MULTIPLIER)


def _within_limits(rounds: Rounds) -> dict[tuple[float, float], int]:
    merged: dict[tuple[float, float], int] = {}
    for (q, sigma), count in rounds.items():
        key = within_limits(q, sigma)
        merged[key] = merged.get(key, 0) + count
    return merged


def _with_few_probabilities(rounds: Rounds) -> dict[tuple[float, float], int]:
    if len(rounds) <= MAX_DISTINCT:
        return dict(rounds)
    merged: dict[tuple[float, float], int] = {}
    for (q, sigma), count in rounds.items():
        up = _Q_GRID_RATIO ** math.ceil(math.log(q) / math.log(_Q_GRID_RATIO))
        key = (min(1.0, max(q, up)), sigma)
        merged[key] = merged.get(key, 0) + count
    return merged


def _with_unsampled_joined(rounds: dict[tuple[float, float], int]) -> dict[tuple[float, float], int]:
    precision = sum(count / sigma**2 for (q, sigma), count in rounds.items() if q == 1)
    if not precision:
        return rounds
    sampled = {key: count for key, count in rounds.items() if key[0] < 1}
    return {(1.0, 1 / math.sqrt(precision)): 1, **sampled}


def _interval(rounds: Rounds, pair: Pair) -> float:
    """Returns min(1e-3, scale / 10), scale the mean over rounds of a loss's size q/sigma, weighted by (q/sigma)^2.

    A round's loss has standard deviation about q/sigma; a grid that is coarse against it inflates a small epsilon.
    """
    weights = {(q, sigma): (q / sigma) ** 2 * count for (q, sigma), count in rounds.items()}
    scale = sum(weight * pairs.scale(pair, *key) for key, weight in weights.items()) / sum(weights.values())
    return min(_COARSEST_INTERVAL, scale / 10)


def _finest_interval(rounds: Rounds, pair: Pair) -> float:
    """Returns the interval below which a grid would not fit into MAX_POINTS or would drown in rounding errors."""
    widest, variance, summed = 0.0, 0.0, 0.0
    for (q, sigma), count in rounds.items():
        one_round = pairs.loss_range(pair, q, sigma)
        loss_variance = one_round**2 / 4
        if sigma > 0.2:
            # A loss between two sampled records is at most the sum of two losses of one.
            factor = 1 if pair == "add-remove" else 4
            loss_variance = min(loss_variance, factor * q**2 * math.expm1(1 / sigma**2))
        variance += count * loss_variance
        summed += count * one_round
        # The library bounds a composed range by Chernoff's method with orders up to 20 / points.
        widest = max(widest, 3.5 * one_round)
    return max((widest + 34 * math.sqrt(variance)) / MAX_POINTS, math.sqrt(_MASS_NOISE * summed), _FINEST_INTERVAL)


def _compose(rounds: Rounds, pair: Pair, interval: float) -> Any:
    composed = None
    for (q, sigma), count in rounds.items():
        many = pairs.one_round(pair, q, sigma, interval).self_compose(count)
        composed = many if composed is None else composed.compose(many)
    return composed
