"""The bounds against closed forms, and a small audit. `make audit` runs the whole one."""

import math
from pathlib import Path

import numpy as np
import pytest
from hushgrad.accountant.claims import RoundGroup
from scipy import stats

from tests.attacks import __main__ as audit
from tests.attacks import bounds, collect, planted
from tests.attacks.attacks import BY_NAME
from tests.attacks.bounds import Claimed, Limits
from tests.faults.planted import plant


def gaussian_epsilon(distance: float, delta: float) -> float:
    """The epsilon of two normals of variance 1, by bisection of the closed form of delta(epsilon).

    Balle and Wang, "Improving the Gaussian Mechanism", ICML 2018, theorem 5.
    """
    low, high = 0.0, 50.0
    for _ in range(100):
        middle = (low + high) / 2
        a, b = distance / 2 - middle / distance, -distance / 2 - middle / distance
        spent = stats.norm.cdf(a) - math.exp(middle) * stats.norm.cdf(b)
        low, high = (middle, high) if spent > delta else (low, middle)
    return high


def claimed(noise_multiplier: float) -> Claimed:
    group = RoundGroup(sampling_probability=1.0, noise_multiplier=noise_multiplier, rounds=1)
    epsilon = gaussian_epsilon(1 / noise_multiplier, 0.01)
    return Claimed(epsilon, 0.01, "add-remove", "poisson", (group,))


def test_limits_of_no_wrong_guess_have_their_closed_form() -> None:
    """(1 - p)^n = ALARM / 2."""
    assert bounds.limits_of(0, 0, 1000).alpha == pytest.approx(1 - (5e-7) ** (1 / 1000), rel=1e-9)


def test_limits_are_exceeded_as_rarely_as_they_say() -> None:
    """The binomial law, summed: with p the upper limit of k, P[Binomial(n, p) <= k] is ALARM / 2."""
    for count in (1, 10, 400):
        limit = bounds.limits_of(count, 0, 1000).alpha
        assert stats.binom.cdf(count, 1000, limit) == pytest.approx(5e-7, rel=1e-6)


@pytest.mark.parametrize(("distance", "at"), [(0.3, 1.5), (1.0, 0.0), (2.5, 1.25)])
def test_exact_errors_of_a_gaussian_never_prove_more_than_its_epsilon(distance: float, at: float) -> None:
    limits = Limits(float(stats.norm.sf(at)), float(stats.norm.cdf(at - distance)))
    truth = gaussian_epsilon(distance, 0.01)
    assert bounds.of_any(limits, 0.01) <= truth + 1e-9
    # The family's bound is exact up to its bisection (0.4 % of the noise) and the accountant's grid (0.5 %).
    assert bounds.of_family(limits, claimed(1 / distance)) == pytest.approx(truth, rel=0.01)


def test_the_best_threshold_proves_the_whole_epsilon() -> None:
    """Where the likelihood ratio is e^epsilon: x = 1/2 + epsilon."""
    truth = gaussian_epsilon(1.0, 0.01)
    limits = Limits(float(stats.norm.sf(0.5 + truth)), float(stats.norm.cdf(truth - 0.5)))
    assert bounds.of_any(limits, 0.01) == pytest.approx(truth, abs=1e-6)


@pytest.mark.parametrize(("noise", "broken"), [(1.0, False), (0.5, True)])
def test_scores_of_the_claimed_noise_pass_and_of_half_of_it_do_not(noise: float, broken: bool) -> None:
    """Simulated; false alarm 2e-6, and the seed is fixed."""
    generator = np.random.default_rng(7)
    first, second = generator.normal(0, noise, 20_000), generator.normal(1, noise, 20_000)
    verdict = bounds.judge(first, second, claimed(1.0))
    assert verdict.broken == broken
    # 15,000 counted runs leave 0.085 of the distance 1 / noise open, and epsilon is about proportional to it.
    assert 0.8 < verdict.family / gaussian_epsilon(1 / noise, 0.01) < 1.0
    assert verdict.any < verdict.any_cap


def test_scores_that_always_tell_prove_the_most_that_the_runs_can_show() -> None:
    verdict = bounds.judge(np.zeros(1000), np.ones(1000), claimed(1.0), in_family=False)
    assert verdict.any == verdict.any_cap == pytest.approx(math.log((1 - 0.01 - 0.0192) / 0.0192), abs=0.01)


def test_the_client_spends_no_more_than_it_claims() -> None:
    """The smallest audit: 1200 runs of the whole client with each data set; false alarm 2e-6.

    900 of them are counted; limits and chance take 0.43 + 5 * 0.06 of the distance 1, and 0.27 has epsilon above 0.3.
    """
    scores, found = collect.collect(BY_NAME["everybody takes part"], runs=1200, seconds=60)
    verdict = bounds.judge(*scores, found)
    assert found.epsilon == pytest.approx(gaussian_epsilon(1.0, 0.01), rel=0.005)
    assert not verdict.broken
    assert verdict.family > 0.3, "the attack works: it proves a good part of what is claimed"
    assert verdict.any_cap > found.epsilon, "with so many runs more than the claim could have been shown"


@pytest.mark.parametrize(("name", "runs"), [("key reused", 250), ("clipping per batch", 500)])
def test_a_planted_bug_spends_more_than_is_claimed(name: str, runs: int, tmp_path: Path) -> None:
    """Two that few runs show; the others are `make audit`'s."""
    bug = next(bug for bug in planted.BUGS if bug.name == name)
    row = audit.perform(audit.Job(planted.BUGS[bug], bug, 1.0), 60.0, tmp_path / "job", runs=runs, in_family=False)
    assert row["any"] > row["claimed"], row


def test_every_bug_can_be_planted() -> None:
    """A changed line in the client asks for the bug to be planted anew."""
    for bug in planted.BUGS:
        assert (plant.ROOT / bug.path).read_text().count(bug.old) == 1, bug.name
