"""Renyi divergences against two other routes: dp-accounting's own and integrals over the line."""

import math

import numpy as np
import pytest
from dp_accounting import dp_event
from dp_accounting.rdp import rdp_privacy_accountant
from hushgrad import accountant
from hushgrad.accountant import RefusedError, RoundGroup, pairs, pld, rdp
from scipy import stats

_ROUNDS = [(0.0026, 19.29962), (0.01, 1.1), (0.2, 1.0), (1e-6, 0.5), (0.5, 4.0), (1.0, 2.0)]


@pytest.mark.parametrize(("q", "sigma"), _ROUNDS)
def test_divergences_are_those_of_another_library(q, sigma):
    """dp-accounting 0.6.0 at the same orders; relative to its rounding where its value is above 1e-9."""
    library = rdp_privacy_accountant.RdpAccountant(rdp.ORDERS)
    library.compose(dp_event.PoissonSampledDpEvent(q, dp_event.GaussianDpEvent(sigma)))

    expected, found = np.array(library._rdp), rdp.divergences("add-remove", q, sigma)

    large = expected > 1e-9
    assert np.allclose(found[large], expected[large], rtol=1e-6)
    assert (found[~large] >= 0).all()


def _moment(q, sigma, upper_mean, lower_mean, order):
    """Integrates P^a Q^(1-a) by the trapezoidal rule, exact to rounding for such smooth tails."""
    x = np.linspace(-14 * sigma - order, 14 * sigma + order, 400_001)

    def log_mixture(mean):
        plain = math.log1p(-q) + stats.norm.logpdf(x, 0, sigma)
        return np.logaddexp(plain, math.log(q) + stats.norm.logpdf(x, mean, sigma))

    exponent = order * log_mixture(upper_mean) + (1 - order) * log_mixture(lower_mean)
    return float(np.trapezoid(np.exp(exponent), x))


@pytest.mark.parametrize(("q", "sigma"), [(0.0026, 19.3), (0.01, 1.1), (0.2, 1.0), (0.5, 4.0)])
@pytest.mark.parametrize("order", [2, 5, 9])
def test_a_replaced_record_is_bounded_and_not_by_far_where_sigma_is_large(q, sigma, order):
    exact = math.log(_moment(q, sigma, 1, -1, order)) / (order - 1)

    bound = rdp.divergences("replace", q, sigma)[rdp.ORDERS.index(order)]

    assert bound >= exact * (1 - 1e-9)
    assert sigma < 10 or bound < 1.1 * exact


@pytest.mark.parametrize(("q", "sigma"), [(0.003, 9.6), (0.01, 1.1), (0.3, 1.0), (0.05, 3.0)])
def test_the_symmetrised_moment_is_the_integral_of_its_curve(q, sigma):
    """By a fine midpoint rule in log y, which errs to either side; both halves, from the definition."""
    order = 8
    losses = (np.arange(1_000_000) + 0.5) * (pairs.loss_range("symmetrised", q, sigma) / 2e6)
    curve = pairs.removal_curve(losses, q, sigma)
    weights = np.exp((order - 1) * losses) + np.exp(-order * losses)
    moment = 1 + order * (order - 1) * float((weights * curve).sum()) * (losses[1] - losses[0])

    found = rdp.divergences("symmetrised", q, sigma)[rdp.ORDERS.index(order)]

    assert found == pytest.approx(math.log(moment) / (order - 1), rel=2e-3)
    assert found > rdp.divergences("add-remove", q, sigma)[rdp.ORDERS.index(order)]


@pytest.mark.parametrize(
    ("q", "sigma", "rounds", "delta", "epsilon"),
    [
        # golden: dp-accounting 0.6.0 with a wide list of orders (2 to 2048 and fractions)
        (0.0026, 19.29962, 1924, 1e-4, 0.012546781874680538),
        (0.0055, 13.06742, 910, 1e-4, 0.030779522589337045),
        (0.04, 3.03241, 125, 1e-4, 0.5239633154817452),
        (370 / 60000, 12.10881, 973, 1 / 60000, 0.04913513408930037),
        (0.1, 8.0, 500, 1e-7, 1.4444351078184867),
        # microsoft/prv_accountant#17: another library answers 3.8 at this delta
        (0.00033, 4.0, 10_000, 1.13e-18, 0.15486489579873436),
        # microsoft/prv_accountant#36 and #42, meta-pytorch/opacus#186
        (0.125, 0.8, 1000, 1e-6, 65.15338832939653),
        (0.2, 1.0, 10, 1e-5, 5.756126429047578),
        (1024 / 50_000, 1.54, 1464, 1e-5, 2.6082515806910367),
    ],
)
def test_epsilons_are_the_golden_ones_and_never_below_the_distribution(q, sigma, rounds, delta, epsilon):
    found = rdp.curve({(q, sigma): rounds}, pair="add-remove").epsilon(delta)

    # Our orders are denser than that list where they are large, and lack its fractions below 4.
    assert 0.95 * epsilon < found < 1.08 * epsilon
    if delta > 1e-12:
        assert found >= pld.curve({(q, sigma): rounds}).epsilon(delta)


@pytest.mark.parametrize("pair", ["add-remove", "replace", "symmetrised"])
@pytest.mark.parametrize(("q", "sigma", "rounds", "delta"), [(0.01, 2.0, 500, 1e-6), (0.2, 4.0, 50, 1e-5)])
def test_both_methods_bound_the_same_thing(pair, q, sigma, rounds, delta):
    by_distribution = pld.curve({(q, sigma): rounds}, pair=pair).epsilon(delta)
    by_divergences = rdp.curve({(q, sigma): rounds}, pair=pair).epsilon(delta)

    assert by_distribution <= by_divergences < (2.5 if pair == "replace" else 1.5) * by_distribution


def test_orders_that_end_at_63_would_be_noticed():
    """The twin: meta-pytorch/opacus#670, 0.0668 where the wide list gives 0.0125."""
    total = 1924 * rdp.divergences("add-remove", 0.0026, 19.29962) + rdp.conversions(1e-4)

    assert total[: rdp.ORDERS.index(63) + 1].min() == pytest.approx(0.06683, rel=1e-3)
    assert total.min() < 0.013


def test_nothing_released_and_almost_nothing_released_cost_nothing():
    assert rdp.curve({}, pair="add-remove").epsilon(1e-9) == 0.0
    assert rdp.curve({(1e-5, 10.0): 1}, pair="add-remove").epsilon(1e-3) == 0.0  # total variation is below delta


def test_extremes_neither_overflow_nor_vanish():
    for q, sigma in [(1e-300, 1e200), (0.999999, 2e-3), (1.0, 2e-3), (1e-12, 2e-3)]:
        for pair in ("add-remove", "replace", "symmetrised"):
            found = rdp.divergences(pair, q, sigma)
            assert np.isfinite(found).all()
            assert (np.diff(found) >= -1e-12 * found[1:]).all()
    with pytest.raises(RefusedError, match="noise multiplier"):
        rdp.divergences("add-remove", 0.1, 9e-4)


def test_a_claim_says_that_it_is_renyi_where_the_distribution_has_no_answer():
    """microsoft/prv_accountant#17: double precision ends near 1e-15."""
    group = RoundGroup(0.00033, 4.0, 10_000)

    claim = accountant.from_schedule([group], sampling="poisson", adjacency="add-remove", delta=1.13e-18)

    assert claim.method == "rdp"
    assert "RDP" in claim.describe()
    assert claim.epsilon == pytest.approx(0.14753, rel=1e-3)  # dp-accounting 0.6.0's RdpAccountant at rdp.ORDERS
    assert accountant.Claim.from_dict(claim.to_dict()) == claim
    usual = accountant.from_schedule([group], sampling="poisson", adjacency="add-remove", delta=1e-6)
    assert usual.method == "pld"
