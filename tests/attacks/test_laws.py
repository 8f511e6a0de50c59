"""What is drawn has the law that is accounted: noise as it stands in sealed bytes, masks as rounds choose them.

Keys are fresh here as in the product, so each run of these tests draws anew; every check has a false alarm of at most
1e-7 (ALARM), and twins show which wrong laws it finds.
"""

from collections.abc import Callable
from typing import Final

import numpy as np
import numpy.typing as npt
import pytest
from hushgrad.client import dpsgd
from hushgrad.client.dpsgd import Recipe
from hushgrad.client.stream import RandomStream
from scipy import stats

from tests.attacks import pipeline
from tests.attacks.pipeline import World

ALARM: Final = 1e-7
Integers = npt.NDArray[np.int64]


def expected_count(found: int, trials: int, probability: float) -> bool:
    """Says whether a binomial count is one that chance allows; exact, each side at ALARM / 2."""
    low, high = stats.binom.cdf(found, trials, probability), stats.binom.sf(found - 1, trials, probability)
    return bool(min(low, high) > ALARM / 2)


def fits(counts: npt.NDArray[np.int64], probabilities: npt.NDArray[np.float64]) -> bool:
    """Says whether counts come from these probabilities, by the likelihood-ratio (G) test.

    With every expected count above 8 the statistic is close to chi-square; its limit is taken at ALARM / 10 for what
    the approximation leaves out.
    """
    expected = counts.sum() * probabilities
    assert expected.min() > 8
    seen = counts > 0
    g = 2 * float((counts[seen] * np.log(counts[seen] / expected[seen])).sum())
    return g < float(stats.chi2.isf(ALARM / 10, len(counts) - 1))


# Noise.

_QUIET: Final = World("poisson", records=2, sample_size=2, noise_multiplier=2.0, rounds=20, features=9_999)
_SCALE: Final = 2.0 / 2.0**_QUIET.grid


@pytest.fixture(scope="module")
def noise() -> Integers:
    """Sealed noise, shape (200,000,) or so: a record without features moves the bias alone."""
    with pipeline.client(_QUIET, [((0.0,) * _QUIET.features, 1)]) as made:
        made.life()
        return made.run()[:, :-1].ravel()


def noise_is_right(found: Integers) -> bool:
    z = found / _SCALE
    edges = stats.norm.ppf(np.linspace(0, 1, 101))
    body = fits(np.histogram(z, edges)[0], np.full(100, 0.01))
    tails = all(
        expected_count(int(part.sum()), len(z), float(stats.norm.sf(beyond)))
        for beyond in (2.5, 3.0, 3.5, 4.0, 4.5)
        for part in (z > beyond, z < -beyond)
    )
    digits = fits(np.bincount(found & 15, minlength=16), np.full(16, 1 / 16))
    neighbours = abs(float(np.corrcoef(z[1:], z[:-1])[0, 1])) < 5.4 / np.sqrt(len(z))  # 7e-8
    return body and tails and digits and neighbours


def test_sealed_noise_is_discrete_gaussian_in_body_tails_and_last_digits(noise: Integers) -> None:
    assert noise_is_right(noise)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda n: np.rint(1.02 * n).astype(np.int64),
        lambda n: np.clip(n, -int(3.4 * _SCALE), int(3.4 * _SCALE)),
        lambda n: np.rint(stats.logistic.ppf(stats.norm.cdf(n / _SCALE), scale=0.5513) * _SCALE).astype(np.int64),
        lambda n: n & ~1,
        lambda n: np.repeat(n[::2], 2),
    ],
    ids=["two percent wider", "tails cut at 3.4", "heavier tails of the same variance", "even only", "each one twice"],
)
def test_another_law_of_noise_is_found(noise: Integers, spoil: Callable[[Integers], Integers]) -> None:
    assert not noise_is_right(spoil(noise))


# Masks.

_RECIPE: Final = Recipe(
    sampler="poisson", records=200, sample_size=26, clip_norm=1.0, noise_multiplier=2.0, grid_exponent=-16
)
_ROUNDS: Final = 20_000


def masks(rounds: int = _ROUNDS) -> npt.NDArray[np.bool_]:
    """Who takes part, shape (rounds, N), each round with a key of its own."""
    draws = dpsgd.Draws(_RECIPE.records, 4)
    found = np.zeros((rounds, _RECIPE.records), bool)
    for row in found:
        row[draws.choose(_RECIPE, RandomStream())] = True
    return found


def masks_are_right(found: npt.NDArray[np.bool_]) -> bool:
    rounds, records = found.shape
    q = _RECIPE.sample_size / _RECIPE.records
    sizes = found.sum(axis=1)
    low, high = 16, 37  # outside: 1 % on either side; beyond, by exact counts
    classes = np.arange(low, high + 1)
    inner = stats.binom.pmf(classes, records, q)
    law = np.concatenate([[stats.binom.cdf(low - 1, records, q)], inner, [stats.binom.sf(high, records, q)]])
    body = fits(np.bincount(np.clip(sizes, low - 1, high + 1) - low + 1, minlength=len(law)), law)
    tails = all(
        expected_count(int((sizes <= few).sum()), rounds, float(stats.binom.cdf(few, records, q)))
        and expected_count(int((sizes >= many).sum()), rounds, float(stats.binom.sf(many - 1, records, q)))
        for few, many in ((12, 41), (10, 44), (8, 47))
    )
    rows = all(expected_count(int(count), rounds, q) for count in found.sum(axis=0))  # 200 rows: 2e-5 in all
    # Pairs that do not overlap, so that they are independent themselves.
    beside = expected_count(int((found[:, ::2] & found[:, 1::2]).sum()), rounds * records // 2, q * q)
    again = expected_count(int((found[::2] & found[1::2]).sum()), rounds // 2 * records, q * q)
    return body and tails and rows and beside and again


def test_masks_are_independent_coins_in_body_and_tails() -> None:
    """False alarm: 2e-5 for the rows together (200 of 1e-7), 1e-6 for the rest."""
    assert masks_are_right(masks())


def _fixed(found: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    order = np.random.default_rng(1).random(found.shape).argsort(axis=1)
    return order < _RECIPE.sample_size


@pytest.mark.parametrize(
    "spoil",
    [
        _fixed,
        lambda found: found & (np.random.default_rng(1).random(found.shape) < 0.98),
        lambda found: np.repeat(found[::2], 2, axis=0),
        lambda found: found | (np.roll(found, 1, axis=1) & (np.random.default_rng(1).random(found.shape) < 0.05)),
        lambda found: np.where(found.sum(axis=1, keepdims=True) > 40, False, found),
    ],
    ids=["batches of one size", "two percent too few", "each mask twice", "neighbours pull", "large batches dropped"],
)
def test_another_law_of_masks_is_found(spoil: Callable[[npt.NDArray[np.bool_]], npt.NDArray[np.bool_]]) -> None:
    found = np.random.default_rng(2).random((_ROUNDS, _RECIPE.records)) < _RECIPE.sample_size / _RECIPE.records
    assert not masks_are_right(spoil(found))
