"""What must hold for every schedule: more exposure never costs less, and the order of rounds does not matter."""

import numpy as np
import pytest
from hushgrad import accountant
from hushgrad.accountant import RoundGroup, pld

_DISCRETISATION = 1e-3
"""Relative; two grids of losses may differ by about so much."""


def _epsilon(groups, *, sampling="poisson", adjacency="add-remove", delta=1e-5):
    return accountant.from_schedule(groups, sampling=sampling, adjacency=adjacency, delta=delta).epsilon


def _random_rounds(seed):
    generator = np.random.default_rng(seed)
    q = float(np.exp(generator.uniform(np.log(0.005), np.log(0.3))))
    sigma = float(np.exp(generator.uniform(np.log(1.5), np.log(10.0))))
    return q, sigma, int(generator.integers(1, 300))


@pytest.mark.parametrize("seed", range(4))
def test_more_exposure_never_costs_less(seed):
    q, sigma, rounds = _random_rounds(seed)
    base = _epsilon([RoundGroup(q, sigma, rounds)])

    worse = {
        "more rounds": _epsilon([RoundGroup(q, sigma, 2 * rounds)]),
        "a larger q": _epsilon([RoundGroup(min(1.0, 1.3 * q), sigma, rounds)]),
        "a smaller sigma": _epsilon([RoundGroup(q, 0.8 * sigma, rounds)]),
        "a smaller delta": _epsilon([RoundGroup(q, sigma, rounds)], delta=1e-6),
        "one round more": _epsilon([RoundGroup(q, sigma, rounds + 1)]),
        "fixed sampling": _epsilon([RoundGroup(q, sigma, rounds)], sampling="fixed"),
        "another group": _epsilon([RoundGroup(q, sigma, rounds), RoundGroup(0.3 * q, 2 * sigma, 5)]),
    }

    for what, epsilon in worse.items():
        assert epsilon >= base * (1 - _DISCRETISATION), what


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("adjacency", ["add-remove", "replace-one"])
@pytest.mark.parametrize("sampling", ["poisson", "fixed"])
def test_the_same_holds_in_every_mode(sampling, adjacency, seed):
    q, sigma, rounds = _random_rounds(100 + seed)
    mode = {"sampling": sampling, "adjacency": adjacency}
    base = _epsilon([RoundGroup(q, sigma, rounds)], **mode)

    worse = [
        _epsilon([RoundGroup(q, sigma, rounds + max(1, rounds // 10))], **mode),
        _epsilon([RoundGroup(min(0.9, 1.1 * q), sigma, rounds)], **mode),
        _epsilon([RoundGroup(q, 0.9 * sigma, rounds)], **mode),
        _epsilon([RoundGroup(q, sigma, rounds)], **mode, delta=2e-6),
    ]

    for epsilon in worse:
        assert epsilon >= base * (1 - _DISCRETISATION)


@pytest.mark.parametrize("seed", range(4))
def test_fixed_is_never_below_poisson_and_replaced_never_below_removed(seed):
    q, sigma, rounds = _random_rounds(200 + seed)
    group = [RoundGroup(q, sigma, rounds)]
    poisson, fixed = (_epsilon(group, sampling=sampling) for sampling in ("poisson", "fixed"))
    poisson_replaced, fixed_replaced = (
        _epsilon(group, sampling=sampling, adjacency="replace-one") for sampling in ("poisson", "fixed")
    )

    low = 1 - _DISCRETISATION
    assert fixed >= low * poisson
    assert fixed_replaced >= low * poisson_replaced >= low**2 * poisson
    assert fixed_replaced >= low * fixed


@pytest.mark.parametrize("adjacency", ["add-remove", "replace-one"])
@pytest.mark.parametrize("sampling", ["poisson", "fixed"])
def test_splitting_merging_and_reordering_change_nothing_but_the_last_digits(sampling, adjacency):
    q, sigma = 0.05, 2.0
    other = RoundGroup(0.1, 4.0, 20)
    mode = {"sampling": sampling, "adjacency": adjacency}
    whole = _epsilon([RoundGroup(q, sigma, 100), other], **mode)

    split = [RoundGroup(q, sigma, 1), other, RoundGroup(q, sigma, 60), RoundGroup(q, sigma, 39)]

    assert _epsilon(split, **mode) == pytest.approx(whole, rel=_DISCRETISATION)
    assert _epsilon(split[::-1], **mode) == pytest.approx(whole, rel=_DISCRETISATION)


def test_nothing_released_costs_nothing():
    assert _epsilon([]) == 0.0


def test_unsampled_rounds_of_different_noise_are_one_gaussian():
    """1/sigma^2 adds up: 3 rounds at sigma = 6 and one at 2 are one at (3/36 + 1/4)^(-1/2) = sqrt(3)."""
    many = _epsilon([RoundGroup(1.0, 6.0, 3), RoundGroup(1.0, 2.0, 1)])

    assert many == pytest.approx(_epsilon([RoundGroup(1.0, 3**0.5, 1)]), rel=1e-9)


def test_many_different_sizes_are_rounded_up_and_stay_within_a_few_percent():
    """210 sizes; against the mean size, which costs a little less (epsilon is convex in q), and the largest."""
    sizes = range(100, 310)
    groups = [RoundGroup(size / 10_000, 4.0, 2) for size in sizes]
    assert len(groups) > pld.MAX_DISTINCT

    epsilon = _epsilon(groups)

    mean = sum(sizes) / len(sizes)
    assert _epsilon([RoundGroup(mean / 10_000, 4.0, 420)]) < epsilon < _epsilon([RoundGroup(309 / 10_000, 4.0, 420)])
    merged = pld._with_few_probabilities({(g.sampling_probability, 4.0): 2 for g in groups})
    assert sum(merged.values()) == 420
    assert len(merged) < 70


def test_probabilities_are_only_ever_rounded_up_and_by_at_most_two_percent():
    rounds = {(q, 2.0): 1 for q in np.linspace(1e-6, 1.0, 1001)}

    rounded = sorted(q for (q, _), count in pld._with_few_probabilities(rounds).items() for _ in range(count))

    for before, after in zip(sorted(q for q, _ in rounds), rounded, strict=True):
        assert before <= after <= min(1.0, before * 1.02 * (1 + 1e-9))


def test_a_tiny_sampling_probability_keeps_its_grid_in_memory_and_an_upper_bound():
    """q = 1e-6 at sigma = 0.5 asks for a grid of 10^8 losses; a coarser one still bounds the round from above."""
    curve = pld.curve({(1e-6, 0.5): 10}, quick=True)

    assert all(distribution._pmf_remove.size <= 2 * pld.MAX_POINTS for distribution in curve.distributions)
    # Ten times the total variation of one round is the delta at epsilon = 0; at that delta epsilon must be about 0.
    assert 0.0 <= curve.epsilon(1.1 * 10 * 1e-6 * 0.6827) < 1e-3


def test_the_quick_curve_is_never_above_the_full_one():
    for seed in range(4):
        q, sigma, rounds = _random_rounds(seed)
        key = {(q, sigma): rounds}
        assert pld.curve(key, quick=True).epsilon(1e-5) <= pld.curve(key).epsilon(1e-5)
