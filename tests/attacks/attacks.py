"""The attacks: for each, two neighbouring data sets, what the adversary's server sends, and how a run is scored.

Records are made so that clipped gradients are the worst there are. At the zero model the gradient of the logistic loss
is half of +-(x, 1), so a record with one large feature has, after clipping, a gradient of +C or -C along that feature,
by its label. The scores are logarithms of likelihood ratios of the claimed mechanism, the best test there is against
it, or what a particular mistake would show.

In formulas: q the sampling probability, sigma the noise multiplier, z an update along the record's feature, in units of
C.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from tests.attacks.pipeline import Records, World

FAR: Final = 1000.0
"""A feature so large that the bias has a thousandth of the gradient."""

Updates = npt.NDArray[np.int64]
Score = Callable[[list[Updates], World], float]
"""From the updates of a run, one array of shape (T, d) for each federation it took part in, to a number."""


@dataclass(frozen=True, slots=True)
class Attack:
    """One way to tell two neighbouring data sets apart.

    Attributes:
        name: a phrase.
        world: the federation.
        first, second: the data sets.
        score: larger for the second.
        weight: how much of the time it gets.
        offers: 0: a run is one federation, and ledgers serve many; else a run is a ledger's whole life, to which so
            many federations are offered, and the claim is the lifetime's.
    """

    name: str
    world: World
    first: Records
    second: Records
    score: Score
    weight: float = 1.0
    offers: int = 0


def along(axis: int, features: int = 2, label: int = 0) -> tuple[tuple[float, ...], int]:
    """Returns a record whose clipped gradient is +C along an axis, or -C with label 1."""
    return tuple(FAR if i == axis else 0.0 for i in range(features)), label


def _z(updates: Updates, world: World) -> npt.NDArray[np.float64]:
    return updates[:, 0] * math.ldexp(1 / world.clip_norm, world.grid)


def presence(updates: list[Updates], world: World) -> float:
    """Log-likelihood ratio of "+C with probability q, else nothing" against "nothing"."""
    q, sigma = _q(world), world.noise_multiplier
    z = np.concatenate([_z(found, world) for found in updates]) if updates else np.zeros(0)
    return float(_log_mixture(q, (2 * z - 1) / (2 * sigma**2)).sum())


def replacement(updates: list[Updates], world: World) -> float:
    """Log-likelihood ratio of "+C with probability q, else nothing" against "-C with probability q, else nothing"."""
    q, sigma = _q(world), world.noise_multiplier
    z = _z(updates[0], world)
    plus, minus = (_log_mixture(q, (sign * 2 * z - 1) / (2 * sigma**2)) for sign in (1, -1))
    return float((plus - minus).sum())


def among_opposites(updates: list[Updates], world: World) -> float:
    """Log-likelihood ratio of "s - 1 times -C and once +C, with probability q" against "s times -C"."""
    q, sigma = _q(world), world.noise_multiplier / 2
    z = (_z(updates[0], world) + world.sample_size) / 2
    return float(_log_mixture(q, (2 * z - 1) / (2 * sigma**2)).sum())


def size(updates: list[Updates], world: World) -> float:
    """Mean over rounds of what is seen along the record's feature."""
    return float(_z(updates[0], world).mean())


def difference(updates: list[Updates], world: World) -> float:
    """How close the first round is to the second one plus C: the record is seen in the first round only."""
    first, second = _z(updates[0], world)
    return -abs(float(first - second) - 1.0)


def spread_out(updates: list[Updates], world: World) -> float:
    """What is seen along the diagonal of all features."""
    found = updates[0][0, : world.features].sum() / math.sqrt(world.features)
    return float(found) * math.ldexp(1 / world.clip_norm, world.grid)


def _q(world: World) -> float:
    return min(1.0, world.sample_size / world.records)


def _log_mixture(q: float, exponent: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return np.log1p(q * np.expm1(exponent)) if q < 1 else exponent


_HALF: Final = World("poisson", records=20, sample_size=10, noise_multiplier=1.5, rounds=3)
_FIXED: Final = replace(_HALF, sampler="fixed", noise_multiplier=3.0)
_ALL: Final = World("poisson", records=2, sample_size=2, noise_multiplier=1.0, rounds=1)
_OTHER: Final = along(1)
_CROWD: Final = (_OTHER,) * 10
_OPPOSITES: Final = tuple(along(0, label=1) for _ in range(19))

ONE_LIFE: Final = 5
"""Federations that are offered to one ledger whose budget allows one."""

# Rounding where it matters: 10^4 coordinates on a grid of C / 205, so that G sqrt(d) is half of C. The contract refuses
# such terms (it allows a hundredth); the accountant would charge them rightly. Without the record each coordinate of
# the sum is 0.49 grid steps, with it 2.54: 0 and 3 after rounding, a distance of 1.46 C instead of C.
_COARSE: Final = World(
    "poisson",
    records=2,
    sample_size=2,
    noise_multiplier=1.3,
    rounds=1,
    features=9_999,
    clip_norm=3.203125,
    grid_exponent=-6,
)
_NEARLY_HALF: Final = ((2 * 0.49 * 2.0**-6,) * _COARSE.features, 0)
_EVERYWHERE: Final = ((FAR,) * _COARSE.features, 0)

ATTACKS: Final = (
    Attack("everybody takes part", _ALL, (_OTHER,), (_OTHER, along(0)), presence, 2),
    Attack("Poisson, record added", _HALF, _CROWD, (*_CROWD, along(0)), presence, 2),
    Attack(
        "Poisson, +C for -C",
        replace(_HALF, adjacency="replace-one"),
        (*_CROWD, along(0, label=1)),
        (*_CROWD, along(0)),
        replacement,
        2,
    ),
    Attack(
        "fixed, record added",
        _FIXED,
        (*_OPPOSITES, along(0, label=1)),
        (*_OPPOSITES, along(0, label=1), along(0)),
        among_opposites,
        2,
    ),
    Attack(
        "fixed, +C for -C",
        replace(_FIXED, adjacency="replace-one"),
        (*_OPPOSITES, along(0, label=1)),
        (*_OPPOSITES, along(0)),
        among_opposites,
        2,
    ),
    Attack(
        "Poisson, one among opposites", replace(_HALF, rounds=6), _OPPOSITES, (*_OPPOSITES, along(0)), among_opposites
    ),
    Attack("alone in a small batch", replace(_HALF, rounds=1), (_OTHER,), (_OTHER, along(0)), size),
    Attack("an outlier in a crowd", replace(_HALF, rounds=1), _CROWD, (*_CROWD, ((1e6 * FAR, 0.0), 0)), size),
    Attack(
        "one round minus another",
        World(
            "poisson",
            records=2,
            sample_size=2,
            noise_multiplier=2.0,
            rounds=2,
            models=((0.0, 0.0, 0.0), (-1.0, 0.0, 0.0)),
        ),
        (_OTHER,),
        (_OTHER, along(0)),
        difference,
    ),
    Attack(
        "many runs on one ledger",
        replace(_ALL, lifetime=(2.4, 0.01)),
        (_OTHER,),
        (_OTHER, along(0)),
        presence,
        offers=ONE_LIFE,
    ),
    Attack("every coordinate just rounds up", _COARSE, (_NEARLY_HALF,), (_NEARLY_HALF, _EVERYWHERE), spread_out),
)
BY_NAME: Final = {attack.name: attack for attack in ATTACKS}
