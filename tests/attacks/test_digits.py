"""Attacks on the digits of noise win against floating point and Box-Muller, and gain nothing against the product."""

import numpy as np
import pytest
from hushgrad.client import noise

from tests.attacks import digits, precision
from tests.attacks.digits import Finding


@pytest.fixture(scope="module")
def findings() -> list[Finding]:
    return digits.findings(count=5_000, runs=400)


def test_every_attack_wins_against_its_wrong_sampler_and_gains_nothing_against_ours(findings: list[Finding]) -> None:
    """False alarm 1e-6 each. An exclusion is a proof: it never hits the data set that a release came from."""
    assert [finding for finding in findings if not finding.as_expected] == []
    wrong = [finding for finding in findings if finding.wrong]
    assert len(wrong) == 4
    assert {finding.excluded_of_own for finding in wrong} == {0.0}
    assert min(finding.epsilon for finding in wrong) > 3


def test_last_digits_of_floating_point_noise_exclude_a_quarter_of_the_releases_and_more(
    findings: list[Finding],
) -> None:
    """Near a quarter by the first digit that is lost (|y| < 1/4 loses two); 43 % measured with both neighbours."""
    for finding in findings[:2]:
        assert 0.25 < finding.excluded < 0.5


def test_sealed_bytes_exclude_nothing(findings: list[Finding]) -> None:
    """Multiples of one power of two add without rounding: not a statistical statement, so no false alarm at all."""
    sealed = findings[2:4]
    assert all("sealed" in finding.sampler for finding in sealed)
    assert [(finding.excluded, finding.excluded_of_own) for finding in sealed] == [(0.0, 0.0)] * 2


def test_a_rare_radius_of_53_bits_would_spend_more_than_delta_in_a_run() -> None:
    """d = 61,706 and 972 rounds: 30,853 pairs a round, each beyond 7.1 sigma with probability 1e5 * 2^-53."""
    generator = np.random.default_rng(3)
    pairs = precision.box_muller(generator, digits.FINE, 5_000, bits=53, below=digits.FAR)
    mean = np.array([int(digits.FINE / 4), 0])
    excluded = precision.radius_impossible(pairs, mean, digits.FINE, bits=53).mean()
    spent = 972 * 30_853 * digits.FAR * excluded
    assert spent > 1e-4, "delta of a federation with 60,000 records is 1e-6"


@pytest.mark.parametrize("scale", [2.0**16, 68812.8, digits.FINE])
def test_the_tables_give_every_large_value_with_the_ideal_probability(scale: float) -> None:
    """The exact law of the product's noise up to 8.5 s: so no function of large values tells more than the ideal does.

    Weights are rounded to 2^-80 and better; at 8.5 standard deviations of the wider table that is 1e-5 of a weight.
    """
    law = precision.ExactLaw(noise.GaussianTables(scale))
    generator = np.random.default_rng(5)
    values = (scale * generator.uniform(-8.5, 8.5, 20_000)).astype(np.int64)
    assert np.abs(law.log_probability(values) - law.ideal(values)).max() < 2e-5
    near = values[abs(values) < 5 * scale]
    assert np.abs(law.log_probability(near) - law.ideal(near)).max() < 1e-10


def test_a_scale_that_is_a_millionth_off_would_be_seen_there() -> None:
    """The twin: at 5 s the log-probability changes by 25e-6."""
    law = precision.ExactLaw(noise.GaussianTables(2.0**16 * (1 + 1e-6)))
    law.scale = 2.0**16
    values = np.array([5 * 2**16])
    assert np.abs(law.log_probability(values) - law.ideal(values)).max() > 1e-5
