"""What attacks on the digits of noise find: against wrong samplers, and against the product's noise."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
from hushgrad.client import noise
from hushgrad.client.stream import RandomStream

from tests.attacks import bounds, pipeline, precision
from tests.attacks.attacks import BY_NAME
from tests.attacks.precision import Integers

FINE: Final = 2.0**21
"""Grid steps of noise where a federation of 10^7 parameters with C = 1 and sigma = 4 has them."""

FAR: Final = 1e5 * 2.0**-53
"""Radii beyond 7.1 standard deviations."""

_SHIFT: Final = 0.25
"""How far one record moves the sum, in standard deviations: sigma = 4."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One sampler under one attack.

    Attributes:
        attack, sampler: what was tried on what.
        wrong: whether the sampler is one of the wrong ones.
        releases: how many of each data set.
        excluded: share of the first data set's releases that cannot come from the second.
        excluded_of_own: share of the first data set's releases that cannot come from the first.
        epsilon: what must be spent at least, with probability 1 - 1e-6, at delta 1e-5, if nothing but these releases
            were seen.
    """

    attack: str
    sampler: str
    wrong: bool
    releases: int
    excluded: float
    excluded_of_own: float
    epsilon: float

    @property
    def as_expected(self) -> bool:
        """Says whether the wrong sampler is told apart and ours is not."""
        return (self.epsilon > 3) == self.wrong and (self.wrong or self.epsilon == 0)


def line(finding: Finding) -> str:
    """Returns a finding as text."""
    return (
        f"{finding.attack:24} {finding.sampler:34} {finding.releases:8d} releases, excluded {finding.excluded:7.2%}, "
        f"wrongly {finding.excluded_of_own:7.2%}, epsilon >= {finding.epsilon:.2f}"
        f"{'' if finding.as_expected else '  <-- not as it should be'}"
    )


def findings(count: int = 20_000, runs: int = 2_000) -> list[Finding]:
    """Returns all of them.

    Args:
        count: releases of each data set.
        runs: of the client, of each data set; a run gives several releases.
    """
    generator = np.random.default_rng(20_261_130)
    found = [_floats(generator, count, np.float64), _floats(generator, count, np.float32)]
    found += [_sealed(runs, np.float64), _sealed(runs, np.float32)]
    tables = noise.GaussianTables(FINE)
    law = precision.ExactLaw(tables)
    found.append(
        _radii("Box-Muller, 53 bits", True, lambda: precision.box_muller(generator, FINE, count, bits=53, below=FAR))
    )
    found.append(_radii("the product's tables", False, lambda: law.far_pairs(generator, count, FAR)))
    found.append(_near_radii("Box-Muller, 24 bits", True, lambda: _drawn_24(generator)))
    found.append(_near_radii("the product's draws", False, _drawn_by_us))
    return found


def _floats(generator: np.random.Generator, count: int, precision_: type[np.floating]) -> Finding:
    first = precision.float_release(generator, 0.0, count, precision_)
    second = precision.float_release(generator, 1.0, count, precision_)
    name = f"{precision_.__name__} normal noise"
    return _finding("last digits", name, True, *(precision.impossible(found, 1.0) for found in (first, second)))


def _sealed(runs: int, precision_: type[np.floating]) -> Finding:
    """Reads sealed bytes of the whole client as floating-point numbers; one record adds exactly 1."""
    attack = BY_NAME["everybody takes part"]
    releases = []
    for records in (attack.first, attack.second):
        with pipeline.client(attack.world, records) as made:
            values = []
            for number in range(runs):
                if number % 90 == 0:
                    made.life()
                values.append(made.run(ask_the_budget=False).ravel())
        releases.append(np.ldexp(np.concatenate(values).astype(precision_), attack.world.grid))
    name = f"sealed updates, as {precision_.__name__}"
    return _finding("last digits", name, False, *(precision.impossible(found, 1.0) for found in releases))


def _finding(
    attack: str, sampler: str, wrong: bool, excluded: npt.NDArray[np.bool_], own: npt.NDArray[np.bool_]
) -> Finding:
    """Args: excluded, of either data set, which releases cannot be of the second one; `own` of the second itself."""
    n = min(len(excluded), len(own))
    # Guess "first" when the second is impossible: a false guess is an excluded release of the second.
    limits = bounds.limits_of(int(own[:n].sum()), n - int(excluded[:n].sum()), n)
    return Finding(attack, sampler, wrong, n, float(excluded.mean()), float(own.mean()), bounds.of_any(limits, 1e-5))


def _radii(sampler: str, wrong: bool, draw: Callable[[], Integers], scale: float = FINE, bits: int = 53) -> Finding:
    mean = np.array([int(_SHIFT * scale), 0])
    first, second = draw(), draw() + mean
    attack = f"radii beyond {math.sqrt(-2 * math.log(FAR)):.1f} sigma"
    excluded, own = (precision.radius_impossible(found, mean, scale, bits=bits) for found in (first, second))
    return _finding(attack, sampler, wrong, excluded, own)


_NEAR_SCALE: Final = 2.0**16
_NEAR: Final = 4.3


def _near_radii(sampler: str, wrong: bool, draw: Callable[[], Integers]) -> Finding:
    """The same attack where draws really come by: 24 random bits run out at 4.3 standard deviations already."""
    mean = np.array([int(_SHIFT * _NEAR_SCALE), 0])
    found = []
    for shift in (np.zeros(2, np.int64), mean):
        pairs = np.concatenate([draw() for _ in range(2)]) + shift
        far = np.square((pairs - mean).astype(np.float64)).sum(axis=1) > (_NEAR * _NEAR_SCALE) ** 2
        found.append(precision.radius_impossible(pairs[far], mean, _NEAR_SCALE, bits=24))
    return _finding(f"radii beyond {_NEAR} sigma", sampler, wrong, *found)


def _drawn_24(generator: np.random.Generator, pairs: int = 2_000_000) -> Integers:
    return precision.box_muller(generator, _NEAR_SCALE, pairs, bits=24)


def _drawn_by_us(pairs: int = 2_000_000) -> Integers:
    return noise.GaussianTables(_NEAR_SCALE).draw(RandomStream(), 2 * pairs).reshape(-1, 2)
