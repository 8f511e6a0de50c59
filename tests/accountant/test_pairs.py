"""The pairs of one round against integrals over the line: both directions, and one record replaced by another."""

import itertools
import math

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution
from hushgrad import accountant
from hushgrad.accountant import pairs
from scipy import integrate, optimize, stats

_ROUNDS = [(0.1, 1.0), (0.01, 0.6), (0.5, 2.0), (0.9, 0.8), (1.0, 1.5), (0.003, 8.0)]


def _mixture(q, mean, sigma):
    return lambda x: (1 - q) * stats.norm.pdf(x, 0, sigma) + q * stats.norm.pdf(x, mean, sigma)


def _hockey_stick(epsilon, upper, lower, sigma):
    """Integrates max(0, upper - e^epsilon lower) between the crossings, which one fine grid finds."""

    def excess(x):
        return upper(x) - math.exp(epsilon) * lower(x)

    grid = np.linspace(-1 - 12 * sigma, 1 + 12 * sigma, 6001)
    signs = excess(grid) > 0
    crossings = [
        optimize.brentq(excess, grid[i], grid[i + 1], xtol=1e-14) for i in np.flatnonzero(signs[1:] != signs[:-1])
    ]
    cuts = sorted([grid[0], grid[-1], *crossings, *np.linspace(-5 * sigma, 5 * sigma, 11)])
    parts = [(a, b) for a, b in itertools.pairwise(cuts) if b > a and excess((a + b) / 2) > 0]
    return sum(integrate.quad(excess, a, b, epsabs=0, epsrel=1e-11)[0] for a, b in parts)


@pytest.mark.parametrize(("q", "sigma"), _ROUNDS)
def test_both_curves_of_one_round_are_the_integrals(q, sigma):
    losses = np.array([0.0, 0.3 * q / sigma, q / sigma, 3 * q / sigma])
    sampled, plain = _mixture(q, 1, sigma), _mixture(q, 0, sigma)

    removed, added = pairs.removal_curve(losses, q, sigma), pairs.addition_curve(losses, q, sigma)

    for loss, one, other in zip(losses, removed, added, strict=True):
        assert one == pytest.approx(_hockey_stick(loss, sampled, plain, sigma), rel=1e-7, abs=1e-13)
        assert other == pytest.approx(_hockey_stick(loss, plain, sampled, sigma), rel=1e-7, abs=1e-13)


def test_the_curves_end_without_overflow():
    losses = np.array([0.0, 1.0, 50.0, 700.0, 1e4])

    assert pairs.removal_curve(losses, 1e-9, 0.1)[-1] == 0.0
    assert list(pairs.addition_curve(losses, 0.1, 1.0)[1:]) == [0.0] * 4  # nothing above -log(1 - q)


@pytest.mark.parametrize(("q", "sigma"), [(0.1, 1.0), (0.5, 2.0), (0.02, 0.8), (1.0, 3.0)])
@pytest.mark.parametrize("delta", [1e-3, 1e-6])
def test_one_replaced_record_of_a_poisson_round_is_exact(q, sigma, delta):
    """The two mixtures are mirror images, so both directions are one."""
    claim = accountant.from_schedule(
        [accountant.RoundGroup(q, sigma, 1)], sampling="poisson", adjacency="replace-one", delta=delta
    )

    upper, lower = _mixture(q, 1, sigma), _mixture(q, -1, sigma)
    assert _hockey_stick(claim.epsilon, upper, lower, sigma) <= delta
    assert _hockey_stick(0.99 * claim.epsilon, upper, lower, sigma) > delta


@pytest.mark.parametrize(("q", "sigma"), [(0.1, 1.0), (0.5, 2.0), (0.02, 0.8), (0.3, 5.0)])
def test_one_replaced_record_of_a_fixed_round_is_within_the_symmetrised_pair(q, sigma):
    """Two worst cases: the others at -1 and the record at +1 or -1, or the others at 0 and the record at +1 or -1."""
    delta = 1e-5
    claim = accountant.from_schedule(
        [accountant.RoundGroup(q, sigma, 1)], sampling="fixed", adjacency="replace-one", delta=delta
    )

    others_opposite = _hockey_stick(claim.epsilon, _mixture(q, 2, sigma), _mixture(q, 0, sigma), sigma)
    others_zero = _hockey_stick(claim.epsilon, _mixture(q, 1, sigma), _mixture(q, -1, sigma), sigma)
    assert others_zero <= others_opposite <= delta
    # One round is attained: replacing a record by one like all others is removing it.
    assert _hockey_stick(0.99 * claim.epsilon, _mixture(q, 2, sigma), _mixture(q, 0, sigma), sigma) > delta


def test_replacing_costs_more_than_removing_and_fixed_more_than_poisson():
    group = accountant.RoundGroup(0.02, 2.0, 300)

    def epsilon(sampling, adjacency):
        return accountant.from_schedule([group], sampling=sampling, adjacency=adjacency, delta=1e-6).epsilon

    assert epsilon("poisson", "add-remove") < epsilon("poisson", "replace-one") < epsilon("fixed", "replace-one")
    assert epsilon("poisson", "add-remove") < epsilon("fixed", "add-remove") < epsilon("fixed", "replace-one")


def test_a_noise_multiplier_that_is_not_halved_would_be_noticed():
    """The twin: google/differential-privacy#378 takes noise/C for noise/2C, and gets less than add-or-remove-one."""
    group = accountant.RoundGroup(0.04, 3.03241, 125)
    taken_unhalved = accountant.RoundGroup(0.04, 2 * 3.03241, 125)

    right = accountant.from_schedule([group], sampling="fixed", adjacency="replace-one", delta=1e-4).epsilon
    wrong = accountant.from_schedule([taken_unhalved], sampling="fixed", adjacency="replace-one", delta=1e-4).epsilon

    assert right == pytest.approx(1.33558, rel=5e-3)
    assert wrong < 1.18242 < right


@pytest.mark.parametrize(("q", "sigma"), [(0.0026, 19.3), (0.01, 1.1), (0.5, 2.0), (0.9, 0.8), (1.0, 3.0), (0.2, 0.3)])
@pytest.mark.parametrize("pair", ["add-remove", "replace"])
def test_a_round_is_the_same_as_the_librarys_own(pair, q, sigma):
    """dp-accounting 0.6.0 builds these two itself, one loss at a time."""
    interval = 1e-3 * min(1.0, q / sigma * 10)
    relation = "REPLACE_ONE" if pair == "replace" else "ADD_OR_REMOVE_ONE"

    ours = pairs.one_round(pair, q, sigma, interval).self_compose(20)
    theirs = privacy_loss_distribution.from_gaussian_mechanism(
        sigma,
        sampling_prob=q,
        value_discretization_interval=interval,
        neighboring_relation=privacy_loss_distribution.NeighborRel[relation],
    ).self_compose(20)

    for delta in (1e-3, 1e-5, 1e-8):
        assert ours.get_epsilon_for_delta(delta) == pytest.approx(theirs.get_epsilon_for_delta(delta), rel=1e-5)


@pytest.mark.parametrize(("q", "sigma"), [one for one in _ROUNDS if one[0] < 1])
def test_the_curve_of_a_replaced_record_is_the_integral(q, sigma):
    losses = np.array([0.0, 0.5 * q / sigma, 2 * q / sigma, 5 * q / sigma])

    curve = pairs.replacement_curve(losses, q, sigma)

    for loss, found in zip(losses, curve, strict=True):
        expected = _hockey_stick(loss, _mixture(q, 1, sigma), _mixture(q, -1, sigma), sigma)
        assert found == pytest.approx(expected, rel=1e-7, abs=1e-13)
