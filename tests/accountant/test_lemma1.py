"""Lemma 1, the exact moments and the moments accountant, against golden numbers and another way to compute them."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from hushgrad.accountant import AccountantError, RoundGroup, claims, moments
from scipy import integrate

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "accountant" / "theory.json").read_text())


@pytest.mark.parametrize("row", GOLDEN["lemma1"], ids=lambda row: f"sigma-{row['sigma']}-order-{row['lam']}")
def test_moment_and_its_bound_are_the_golden_numbers(row):
    exact = moments.log_moment(row["lam"], sampling_probability=row["s"] / row["N"], noise_multiplier=row["sigma"])
    bound = moments.lemma1_bound(row["lam"], sample_size=row["s"], records=row["N"], noise_multiplier=row["sigma"])

    assert exact == pytest.approx(row["alpha_exact"], rel=1e-10)
    if row["lemma1_bound"] is None:
        assert bound is None
    else:
        assert bound == pytest.approx(row["lemma1_bound"], rel=1e-10)


@pytest.mark.parametrize("row", GOLDEN["moments_accountant"], ids=lambda row: f"runs-{row['runs']}")
def test_moments_accountant_is_the_golden_number(row):
    groups = [RoundGroup(size / row["N"], sigma, rounds) for size, sigma, rounds in row["runs"]]
    phases = [(size, rounds, sigma) for size, sigma, rounds in row["runs"]]

    exact = moments.epsilon(groups, delta=row["delta"])
    bound = moments.epsilon_by_lemma1(phases, records=row["N"], delta=row["delta"])

    assert (exact.order, bound.order) == (row["lam_exact"], row["lam_lemma1"])
    assert exact.epsilon == pytest.approx(row["eps_exact"], rel=1e-8)
    assert bound.epsilon == pytest.approx(row["eps_lemma1"], rel=1e-8)


@pytest.mark.parametrize(("q", "sigma", "order"), [(0.01, 1.5, 3), (0.2, 2.0, 8), (0.5, 1.0, 2), (1.0, 3.0, 5)])
def test_moment_is_the_integral_that_defines_it(q, sigma, order):
    def density(x, mean):
        return math.exp(-((x - mean) ** 2) / (2 * sigma**2)) / (sigma * math.sqrt(2 * math.pi))

    def integrand(x):
        ratio = 1 - q + q * math.exp((2 * x - 1) / (2 * sigma**2))
        return density(x, 0) * ratio ** (order + 1)

    # The mass of the integrand lies within some standard deviations of 0 .. order + 1.
    moment, _ = integrate.quad(integrand, -12 * sigma, order + 1 + 12 * sigma, epsabs=0, epsrel=1e-12, limit=400)

    found = moments.log_moment(order, sampling_probability=q, noise_multiplier=sigma)
    assert found == pytest.approx(math.log(moment), rel=1e-8)


def test_no_integer_order_does_better():
    """The search is over a curve that falls and rises; here against every order up to 300."""
    groups = [RoundGroup(0.02, 3.0, 500), RoundGroup(0.05, 6.0, 100)]
    found = moments.epsilon(groups, delta=1e-6)

    def spent(order):
        total = sum(
            g.rounds
            * moments.log_moment(
                order, sampling_probability=g.sampling_probability, noise_multiplier=g.noise_multiplier
            )
            for g in groups
        )
        return (total + math.log(1e6)) / order

    every = [spent(order) for order in range(1, 301)]
    assert found.order == int(np.argmin(every)) + 1
    assert found.epsilon == min(every)


def test_moments_accountant_is_above_the_tight_number_and_below_lemma1():
    for size, rounds, sigma in ((26, 1924, 19.29962), (400, 125, 3.03241)):
        group = RoundGroup(size / 10_000, sigma, rounds)
        exact = moments.epsilon([group], delta=1e-4).epsilon
        bound = moments.epsilon_by_lemma1([(size, rounds, sigma)], records=10_000, delta=1e-4).epsilon
        tight = claims.from_schedule([group], sampling="poisson", adjacency="add-remove", delta=1e-4).epsilon

        assert tight < exact < bound


def test_lemma1_names_the_premise_that_fails():
    def failing(order, size, records, sigma):
        premises = moments.lemma1_premises(order, sample_size=size, records=records, noise_multiplier=sigma)
        return {premise.name for premise in premises if not premise.holds}

    assert failing(1, 26, 10_000, 19.3) == set()
    assert "sigma" in failing(1, 1, 10_000, 1.001)
    assert "order" in failing(2000, 26, 10_000, 19.3)
    assert "U1" in failing(1, 30, 100, 2.0)
    assert "U0" in failing(9, 30, 100, 3.0)
    assert {"r0", "order"} <= failing(1, 100, 100, 2.0)


def test_lemma1_gives_nothing_where_no_order_meets_its_premises():
    assert moments.epsilon_by_lemma1([(30, 10, 2.0)], records=100, delta=1e-5) is None


def test_nothing_released_costs_nothing():
    assert moments.epsilon([], delta=1e-5).epsilon == 0.0


@pytest.mark.parametrize(
    ("order", "q", "sigma"),
    [(0, 0.1, 1.0), (True, 0.1, 1.0), (2.0, 0.1, 1.0), (1, 0.0, 1.0), (1, 1.5, 1.0), (1, 0.1, 0.0), (2**18, 0.1, 1.0)],
)
def test_bad_numbers_are_refused(order, q, sigma):
    with pytest.raises(AccountantError):
        moments.log_moment(order, sampling_probability=q, noise_multiplier=sigma)
