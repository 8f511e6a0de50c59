"""Claims against routes that use no privacy loss distribution: integrals, closed forms, a plain Fourier transform."""

import itertools
import math

import numpy as np
import pytest
from hushgrad import accountant
from scipy import integrate, optimize, stats

from tests.support import independent_pld


def _hockey_stick(epsilon, q, sigma, *, record_removed):
    """Integrates max(0, P - e^epsilon Q) over the line, P and Q the densities of one round."""

    def mixture(x):
        return (1 - q) * stats.norm.pdf(x, 0, sigma) + q * stats.norm.pdf(x, 1, sigma)

    def plain(x):
        return stats.norm.pdf(x, 0, sigma)

    with_record, without = (mixture, plain) if record_removed else (plain, mixture)

    def excess(x):
        return with_record(x) - math.exp(epsilon) * without(x)

    # The ratio of the densities is monotone, so the positive part lies beyond one crossing.
    grid = np.linspace(-40 * sigma, 1 + 40 * sigma, 4001)
    positive = np.flatnonzero(excess(grid) > 0)
    if not len(positive):
        return 0.0
    lower, upper = grid[positive[0]], grid[positive[-1]]
    if positive[0] > 0:
        lower = optimize.brentq(excess, grid[positive[0] - 1], lower)
    if positive[-1] < len(grid) - 1:
        upper = optimize.brentq(excess, upper, grid[positive[-1] + 1])
    cuts = sorted({lower, upper, *(x for x in np.linspace(-10 * sigma, 1 + 10 * sigma, 9) if lower < x < upper)})
    return sum(integrate.quad(excess, a, b, epsabs=0, epsrel=1e-10)[0] for a, b in itertools.pairwise(cuts))


@pytest.mark.parametrize(
    ("q", "sigma", "delta"),
    [(0.1, 1.0, 1e-3), (0.1, 0.5, 1e-5), (0.5, 2.0, 1e-4), (0.02, 0.7, 1e-6), (0.9, 0.8, 1e-3)],
)
def test_one_round_holds_in_both_directions_and_is_tight_in_the_worse(q, sigma, delta):
    group = accountant.RoundGroup(q, sigma, 1)

    epsilon = accountant.from_schedule([group], sampling="poisson", adjacency="add-remove", delta=delta).epsilon

    removed, added = (_hockey_stick(epsilon, q, sigma, record_removed=removed) for removed in (True, False))
    assert max(removed, added) <= delta
    slightly_less = max(_hockey_stick(0.995 * epsilon, q, sigma, record_removed=removed) for removed in (True, False))
    assert slightly_less > delta


def test_the_two_directions_differ_so_that_taking_one_would_be_noticed():
    """The twin: at a claim's epsilon the better direction is far below delta."""
    epsilon = accountant.from_schedule(
        [accountant.RoundGroup(0.1, 0.5, 1)], sampling="poisson", adjacency="add-remove", delta=1e-5
    ).epsilon

    removed, added = (_hockey_stick(epsilon, 0.1, 0.5, record_removed=removed) for removed in (True, False))

    assert removed > 10 * added


@pytest.mark.parametrize("delta", [1e-3, 1e-5, 1e-9])
def test_one_fixed_round_is_the_poisson_round_of_half_the_noise(delta):
    """Attained when the record's gradient is +C u and all others are -C u: the sum moves by 2 C."""
    epsilon = accountant.from_schedule(
        [accountant.RoundGroup(0.1, 2.0, 1)], sampling="fixed", adjacency="add-remove", delta=delta
    ).epsilon

    assert max(_hockey_stick(epsilon, 0.1, 1.0, record_removed=removed) for removed in (True, False)) <= delta
    assert _hockey_stick(0.99 * epsilon, 0.1, 1.0, record_removed=True) > delta


@pytest.mark.parametrize("rounds", [1, 100, 10_000, 200_000])
@pytest.mark.parametrize("delta", [1e-4, 1e-6, 1e-9])
def test_unsampled_rounds_follow_the_closed_form_of_the_gaussian(rounds, delta):
    """Balle and Wang, arXiv 1805.06530, theorem 8: delta = Phi(mu/2 - eps/mu) - e^eps Phi(-mu/2 - eps/mu)."""
    mu = 0.7
    epsilon = accountant.from_schedule(
        [accountant.RoundGroup(1.0, math.sqrt(rounds) / mu, rounds)],
        sampling="poisson",
        adjacency="add-remove",
        delta=delta,
    ).epsilon

    def delta_at(value):
        tail = math.exp(value + stats.norm.logcdf(-mu / 2 - value / mu))
        return stats.norm.cdf(mu / 2 - value / mu) - tail

    assert delta_at(epsilon) <= delta < delta_at(0.997 * epsilon)


def test_many_rounds_of_a_tiny_probability_are_not_inflated_by_the_grid():
    """Against the central limit, mu = q sqrt(T (e^(1/sigma^2) - 1)), which is a little below: Bu et al., 1911.11607."""
    mu = 1e-5 * math.sqrt(1e6 * math.expm1(1.0))

    group = accountant.RoundGroup(1e-5, 1.0, 10**6)
    epsilon = accountant.from_schedule([group], sampling="poisson", adjacency="add-remove", delta=1e-8).epsilon

    limit = optimize.brentq(
        lambda value: (
            stats.norm.cdf(mu / 2 - value / mu) - math.exp(value + stats.norm.logcdf(-mu / 2 - value / mu)) - 1e-8
        ),
        1e-6,
        1.0,
    )
    assert limit < epsilon < 1.03 * limit


def test_a_schedule_of_different_rounds_lies_between_bounds_by_fourier_transform_alone():
    rows = [(200 / 1768, 7.0)] * 40 + [(100 / 1768, 5.0)] * 30 + [(50 / 1768, 4.0)] * 10
    groups = [
        accountant.RoundGroup(200 / 1768, 7.0, 40),
        accountant.RoundGroup(100 / 1768, 5.0, 30),
        accountant.RoundGroup(50 / 1768, 4.0, 10),
    ]

    epsilon = accountant.from_schedule(groups, sampling="poisson", adjacency="add-remove", delta=1e-5).epsilon

    lower, upper = independent_pld.epsilon_bounds(rows, 1e-5)
    assert lower <= epsilon <= 1.005 * upper
    assert upper < 1.01 * lower
