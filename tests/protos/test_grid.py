"""The integer arithmetic of both sides against Python's fractions."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hushgrad.wire import grid
from hushgrad.wire.errors import ContractError

SEED = 20260711


def nearest_even(value: Fraction, bits: int, smallest_exponent: int) -> Fraction:
    """Rounds to a binary floating-point number with so many significant bits, ties to even, by integers alone."""
    if value == 0:
        return value
    exponent = math.floor(math.log2(abs(value.numerator)) - math.log2(value.denominator))
    while abs(value) >= Fraction(2) ** (exponent + 1):
        exponent += 1
    while abs(value) < Fraction(2) ** exponent:
        exponent -= 1
    unit = Fraction(2) ** max(exponent - bits + 1, smallest_exponent)
    return round(value / unit) * unit


# Worked by hand: min(sigma C / 2^16, 0.01 C / sqrt(d)), then the power of two below it.
@pytest.mark.parametrize(
    ("clip_norm", "noise_multiplier_min", "parameters", "exponent"),
    [
        (0.5, 2.0, 69, -16),  # demo: 2^-16 against 6.0e-4
        (0.5, 2.1, 69, -16),
        (0.5, 2.0, 44_426, -16),  # LeNet: 2^-16 = 1.53e-5 against 2.37e-5
        (0.5, 8.0, 44_426, -16),  # ... where the second bound, 2^-15.4, takes over
        (1.0, 4.0, 10**7, -19),  # 2^-14 against 3.2e-6 = 2^-18.3
        (1.0, 1.0, 1, -16),
        (1.0, 2**20, 1, -7),  # 0.01 = 2^-6.6
    ],
)
def test_grid_exponent_has_the_worked_values(clip_norm, noise_multiplier_min, parameters, exponent):
    found = grid.grid_exponent(clip_norm=clip_norm, noise_multiplier_min=noise_multiplier_min, parameters=parameters)
    assert found == exponent


def test_grid_exponent_is_the_largest_that_keeps_both_bounds():
    rng = np.random.default_rng(SEED)
    for _ in range(500):
        clip_norm, sigma = (float(value) for value in np.exp(rng.uniform(-9, 9, size=2)))
        parameters = int(10 ** rng.uniform(0, 8))
        g = grid.grid_exponent(clip_norm=clip_norm, noise_multiplier_min=sigma, parameters=parameters)

        def holds(exponent, c=Fraction(clip_norm), sigma=Fraction(sigma), d=parameters):
            step = Fraction(2) ** exponent
            return step <= sigma * c / 2**16 and step**2 * d <= (c / 100) ** 2

        assert holds(g)
        assert not holds(g + 1)


@pytest.mark.parametrize(("clip_norm", "sigma"), [(1e-320, 1e-5), (1e-70, 1.0), (1e300, 1e300), (5e-324, 1.0)])
def test_grid_beyond_all_reason_is_refused(clip_norm, sigma):
    with pytest.raises(ContractError, match="outside"):
        grid.grid_exponent(clip_norm=clip_norm, noise_multiplier_min=sigma, parameters=1)


def test_sums_fit_up_to_the_bound_and_not_beyond():
    # 2^31 * 2^-16 = 32768 = (n_max + 9 * 4) * 0.5  <=>  n_max = 65500
    common = {"grid_exponent": -16, "clip_norm": 0.5, "noise_multiplier_max": 4.0}
    grid.check_sums_fit(**common, max_examples_per_round=65_500)
    with pytest.raises(ContractError, match="max_examples_per_round"):
        grid.check_sums_fit(**common, max_examples_per_round=65_501)


def test_step_numerators_round_to_nearest_even():
    assert grid.step_numerators([0.5, 1.5, 2.5, 1.75], 0) == [0, 2, 2, 2]
    rng = np.random.default_rng(SEED)
    steps = np.exp(rng.uniform(-12, 2, size=300)).tolist()
    for p in (0, 13, 30):
        assert grid.step_numerators(steps, p) == [round(Fraction(step) * 2**p) for step in steps]


def fits(steps, p, initial_max, g, participants):
    """The bound of the contract, in fractions: |M_0| + participants * (2^31-1) * sum e_i < 2^63."""
    numerators = [round(Fraction(step) * Fraction(2) ** p) for step in steps]
    start = abs(round(Fraction(initial_max) * Fraction(2) ** (p - g)))
    return start + participants * (2**31 - 1) * sum(numerators) < 2**63


def test_step_exponent_is_the_largest_that_fits():
    rng = np.random.default_rng(SEED)
    for _ in range(300):
        rounds = int(rng.integers(1, 60))
        steps = (rng.uniform(0.2, 1.0, size=rounds) * math.exp(rng.uniform(-6, 1))).tolist()
        g = int(rng.integers(-24, -8))
        initial_max = float(np.float32(rng.choice([0.0, 1.0, 2.0**20]) * rng.uniform()))
        participants = int(rng.integers(1, 100))
        arguments = {"initial_max": initial_max, "grid_exponent": g, "participants": participants}
        p = grid.step_exponent(steps, **arguments)
        assert fits(steps, p, initial_max, g, participants)
        assert not any(fits(steps, higher, initial_max, g, participants) for higher in range(p + 1, p + 4))
        assert min(grid.step_numerators(steps, p)) >= 256


def test_step_exponent_of_a_power_of_two_uses_the_last_bit():
    # 4 * (2^31-1) * 2^p < 2^63  <=>  p <= 30, because 2^33 - 4 < 2^33.
    assert grid.step_exponent([1.0], initial_max=0.0, grid_exponent=-16, participants=4) == 30
    # With any start the last bit is gone: 2^63 - 2^32 + 2^46 > 2^63.
    assert grid.step_exponent([1.0], initial_max=1.0, grid_exponent=-16, participants=4) == 29


@pytest.mark.parametrize(
    ("steps", "initial_max", "message"),
    [
        ([1.0, 1e-9], 0.0, "below 256"),
        ([1e12], 0.0, "step exponent"),
        ([1e308, 1e308], 0.0, "finite"),
        ([0.0], 0.0, "> 0"),
        ([-1.0], 0.0, "> 0"),
        ([1.0, float("nan")], 0.0, "finite"),
        ([float("inf")], 0.0, "finite"),
        ([1.0], float("nan"), "finite"),
        ([1.0], 1e30, "step exponent"),
    ],
)
def test_steps_that_no_exponent_holds_are_refused(steps, initial_max, message):
    with pytest.raises(ContractError, match=message):
        grid.step_exponent(steps, initial_max=initial_max, grid_exponent=-16, participants=5)


def test_initial_array_rounds_to_nearest_even():
    rng = np.random.default_rng(SEED)
    model = (rng.normal(size=2000) * 10.0 ** rng.integers(-6, 3, size=2000)).astype(np.float32)
    for g, p in ((-16, 26), (-3, 0), (4, 1)):  # the last two leave halves and quarters to round
        array = grid.initial_array(model, grid_exponent=g, step_exponent=p)
        assert array.tolist() == [round(Fraction(float(value)) * Fraction(2) ** (p - g)) for value in model]
    ties = np.array([0.5, 1.5, 2.5, -0.5, -1.5], np.float32)
    assert grid.initial_array(ties, grid_exponent=0, step_exponent=0).tolist() == [0, 2, 2, 0, -2]


def test_published_model_rounds_to_nearest_even_twice():
    rng = np.random.default_rng(SEED)
    array = rng.integers(-(2**63), 2**63, size=3000, dtype=np.int64) >> rng.integers(0, 63, size=3000)
    for g, p in ((-16, 26), (-19, 24), (-60, 100)):  # the last one reaches float32's subnormal numbers
        published = grid.published_model(array, grid_exponent=g, step_exponent=p)
        expected = []
        for value in array.tolist():
            as_double = nearest_even(Fraction(value), bits=53, smallest_exponent=-1074)
            expected.append(nearest_even(as_double * Fraction(2) ** (g - p), bits=24, smallest_exponent=-149))
        assert [Fraction(float(value)) for value in published] == expected


def test_published_model_differs_from_rounding_once():
    # 2^62 + 2^38 + 1 is above the middle of two float32 numbers; the way through float64 drops the 1, then the tie
    # goes to even. Whoever writes a client or a server in another language has to take the same two steps.
    array = np.array([2**62 + 2**38 + 1], np.int64)
    published = grid.published_model(array, grid_exponent=0, step_exponent=0)
    assert float(published[0]) == 2.0**62
    assert nearest_even(Fraction(2**62 + 2**38 + 1), bits=24, smallest_exponent=-149) == 2**62 + 2**39


def test_models_with_short_mantissas_are_published_as_they_were():
    model = np.random.default_rng(SEED).normal(size=500).astype(np.float32)
    array = grid.initial_array(model, grid_exponent=-16, step_exponent=40)
    published = grid.published_model(array, grid_exponent=-16, step_exponent=40)
    np.testing.assert_array_equal(published, model)
