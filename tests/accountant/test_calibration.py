"""The smallest noise and the largest number of rounds: verified by the claim, and tight."""

import math
import time
from dataclasses import replace

import pytest
from hushgrad import accountant
from hushgrad.accountant import AccountantError, Claim, Mechanism, RefusedError, Run, calibration


def _mechanism_for(sigma):
    return Mechanism(
        clip_norm=0.5,
        noise_multiplier=sigma,
        grid_exponent=-16,
        parameters=69,
        max_examples_per_round=420,
        chunk_examples=64,
        unit_roundoff=2.0**-53,
        clip_error=1e-12,
    )


@pytest.mark.parametrize(
    ("sampling", "rounds", "epsilon", "delta"),
    [("poisson", 80, 0.5, 1e-5), ("fixed", 80, 0.5, 1e-5), ("poisson", 1, 3.0, 1e-6), ("poisson", 400, 0.05, 1e-7)],
)
def test_the_noise_suffices_and_a_little_less_does_not(sampling, rounds, epsilon, delta):
    sizes = (200,) * rounds

    sigma = accountant.noise_multiplier(
        mechanism_for=_mechanism_for, sampling=sampling, records=1768, sample_sizes=sizes, epsilon=epsilon, delta=delta
    )

    assert accountant.claim(Run(sampling, 1768, sizes, _mechanism_for(sigma)), delta=delta).epsilon <= epsilon
    assert accountant.claim(Run(sampling, 1768, sizes, _mechanism_for(0.995 * sigma)), delta=delta).epsilon > epsilon
    assert float(f"{sigma:.3e}") == sigma


def test_a_hundred_rounds_of_one_size_take_less_than_two_seconds():
    start = time.perf_counter()
    accountant.noise_multiplier(
        mechanism_for=_mechanism_for,
        sampling="poisson",
        records=1768,
        sample_sizes=(200,) * 100,
        epsilon=0.5,
        delta=1e-5,
    )
    assert time.perf_counter() - start < 2.0


@pytest.mark.parametrize("epsilon", [1e-3, 0.02, 0.5, 1.0, 7.0, 300.0])
def test_the_search_finds_the_smallest_number_of_four_digits(epsilon):
    """On a toy whose answer is known: a claim of epsilon = 1 / sigma."""
    calls = []

    def claim_for(sigma):
        calls.append(sigma)
        return Claim(1 / sigma, 1e-5, "add-remove", "poisson", method_version="toy")

    sigma, claim = accountant.smallest_noise_multiplier(claim_for, epsilon=epsilon)

    one_less = calibration._from_index(calibration._to_index(sigma) - 1)
    assert claim.epsilon <= epsilon or sigma == calibration.SMALLEST_NOISE_MULTIPLIER
    if sigma > calibration.SMALLEST_NOISE_MULTIPLIER:
        assert accountant.rounded_up(1 / one_less) > epsilon
    assert len(calls) < 30


def test_a_quick_epsilon_that_is_too_low_is_corrected_by_the_claim():
    def claim_for(sigma):
        return Claim(1 / sigma, 1e-5, "add-remove", "poisson", method_version="toy")

    sigma, claim = accountant.smallest_noise_multiplier(
        claim_for, epsilon=0.5, quick_epsilon_for=lambda sigma: 0.998 / sigma
    )

    assert claim.epsilon <= 0.5
    assert 2.0 <= sigma < 2.02


def test_refusals_at_little_noise_do_not_stop_the_search():
    def claim_for(sigma):
        if sigma < 3:
            raise RefusedError("too loud")
        return Claim(1 / sigma, 1e-5, "add-remove", "poisson", method_version="toy")

    assert accountant.smallest_noise_multiplier(claim_for, epsilon=10.0)[0] == 3.0


def test_an_unreachable_epsilon_ends_with_the_reason():
    def mechanism_for(sigma):
        return replace(_mechanism_for(sigma), max_examples_per_round=210)

    with pytest.raises(RefusedError, match=r"no noise multiplier up to 1e\+07.*max_examples_per_round"):
        accountant.noise_multiplier(
            mechanism_for=mechanism_for, sampling="poisson", records=1768, sample_sizes=(200,), epsilon=1.0, delta=1e-5
        )


@pytest.mark.parametrize("epsilon", [0, -1, None, math.inf, math.nan, True])
def test_a_target_must_be_a_finite_number_above_zero(epsilon):
    with pytest.raises(AccountantError, match="epsilon"):
        accountant.noise_multiplier(
            mechanism_for=_mechanism_for,
            sampling="poisson",
            records=1768,
            sample_sizes=(9,),
            epsilon=epsilon,
            delta=1e-5,
        )


def test_no_rounds_need_no_noise_and_are_refused():
    with pytest.raises(AccountantError, match="sample sizes"):
        accountant.noise_multiplier(
            mechanism_for=_mechanism_for, sampling="poisson", records=1768, sample_sizes=(), epsilon=1.0, delta=1e-5
        )


def test_affordable_rounds_are_the_last_that_fit():
    run = Run("poisson", 1768, (200,) * 200, _mechanism_for(6.0))

    rounds = accountant.affordable_rounds(run, epsilon=0.5, delta=1e-5)

    def cost(count):
        return accountant.claim(replace(run, sample_sizes=run.sample_sizes[:count]), delta=1e-5).epsilon

    assert cost(rounds) <= 0.5 < cost(rounds + 1)
    assert accountant.affordable_rounds(run, epsilon=100.0, delta=1e-5) == 200
    assert accountant.affordable_rounds(run, epsilon=0.0, delta=1e-5) == 0


def test_four_digit_numbers_and_their_places_correspond():
    for value in (0.01, 0.9999, 1.0, 1.001, 7.315, 9.999, 10.0, 14.63, 1e7):
        assert calibration._from_index(calibration._to_index(value)) == value
    assert [calibration._from_index(index) for index in (-1, 0, 1, 8999, 9000)] == [0.9999, 1.0, 1.001, 9.999, 10.0]
