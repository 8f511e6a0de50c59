"""Claims beside the PRV accountant (prv-accountant 0.2.0), which shares no code with the library beneath ours."""

import pytest
from hushgrad import accountant
from prv_accountant import PoissonSubsampledGaussianMechanism, PRVAccountant


def _bounds(rounds, delta, error):
    """Returns the certified lower end, the estimate and the certified upper end of epsilon."""
    mechanisms = [PoissonSubsampledGaussianMechanism(noise_multiplier=s, sampling_probability=q) for q, s, _ in rounds]
    counts = [count for *_, count in rounds]
    library = PRVAccountant(prvs=mechanisms, max_self_compositions=counts, eps_error=error, delta_error=delta * 1e-3)
    return library.compute_epsilon(delta, counts)


@pytest.mark.parametrize(
    ("rounds", "delta", "error"),
    [
        ([(0.04, 3.03241, 125)], 1e-4, 0.01),
        ([(0.01, 1.0, 1000)], 1e-5, 0.03),
        ([(0.1, 8.0, 500)], 1e-7, 0.02),
        ([(0.3, 2.0, 20)], 1e-6, 0.05),
        ([(0.02, 2.0, 100), (0.05, 3.0, 50)], 1e-6, 0.02),
        ([(0.01, 1.5, 300), (0.02, 2.0, 200), (0.03, 4.0, 100)], 1e-5, 0.03),
    ],
)
def test_a_claim_lies_within_the_certified_bounds_and_near_the_estimate(rounds, delta, error):
    lower, estimate, upper = _bounds(rounds, delta, error)

    groups = [accountant.RoundGroup(*one) for one in rounds]
    claim = accountant.from_schedule(groups, sampling="poisson", adjacency="add-remove", delta=delta)

    assert lower <= claim.epsilon <= upper
    # Ours is rounded up to four digits and errs upwards by a few thousandths at most.
    assert estimate * (1 - 1e-3) <= claim.epsilon <= estimate * (1 + 3e-3)


def test_fixed_samples_agree_at_half_the_noise():
    lower, estimate, upper = _bounds([(0.04, 3.03241 / 2, 125)], 1e-4, 0.02)

    claim = accountant.from_schedule(
        [accountant.RoundGroup(0.04, 3.03241, 125)], sampling="fixed", adjacency="add-remove", delta=1e-4
    )

    assert lower <= claim.epsilon <= upper
    assert claim.epsilon == pytest.approx(estimate, rel=3e-3)


def test_a_claim_that_took_the_other_sampler_would_be_outside():
    """The twin."""
    lower, _, _ = _bounds([(0.04, 3.03241 / 2, 125)], 1e-4, 0.02)

    as_if_poisson = accountant.from_schedule(
        [accountant.RoundGroup(0.04, 3.03241, 125)], sampling="poisson", adjacency="add-remove", delta=1e-4
    )

    assert as_if_poisson.epsilon < 0.5 * lower
