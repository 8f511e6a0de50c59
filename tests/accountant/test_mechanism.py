"""The bounds of one round's release, each against its exact value by another route."""

import math

import mpmath
import numpy as np
import pytest
from hushgrad.accountant import AccountantError, Mechanism, RefusedError, mechanism
from scipy import special

_SETTINGS = {
    "clip_norm": 0.5,
    "noise_multiplier": 2.1,
    "grid_exponent": -16,
    "parameters": 69,
    "max_examples_per_round": 400,
    "chunk_examples": 64,
    "unit_roundoff": 2.0**-53,
    "clip_error": 1e-12,
}


def _mechanism(**changes):
    return Mechanism(**{**_SETTINGS, **changes})


def test_sensitivity_is_clip_norm_grid_and_twice_the_summation_error():
    """By hand: C(1+kappa) + G sqrt(d) + 2 n_max m u C, here with float32 chunks, where every term counts."""
    found = _mechanism(unit_roundoff=2.0**-24, clip_error=1e-6).sensitivity()

    by_hand = 0.5 * (1 + 1e-6) + 2.0**-16 * math.sqrt(69) + 2 * 400 * 64 * 2.0**-24 * 0.5
    assert by_hand <= found <= by_hand * (1 + 1e-8)


@pytest.mark.parametrize("name", ["parameters", "max_examples_per_round", "chunk_examples", "clip_error"])
def test_sensitivity_grows_with_everything_that_can_go_wrong(name):
    larger = _SETTINGS[name] * 4
    assert _mechanism(**{name: larger}).sensitivity() > _mechanism().sensitivity()


def test_float32_sums_of_chunks_stay_within_the_summation_error():
    """Random gradients of norm C, 2000 in chunks of 64; a bound for the worst order covers numpy's."""
    generator = np.random.default_rng(3)
    gradients = generator.normal(size=(2000, 50)) + 1.0
    gradients *= 0.5 / np.linalg.norm(gradients, axis=1, keepdims=True)
    exact = np.array([math.fsum(column) for column in gradients.T])
    rounded = gradients.astype(np.float32)
    chunks = [rounded[start : start + 64].sum(axis=0, dtype=np.float32) for start in range(0, 2000, 64)]

    error = np.linalg.norm(np.sum(np.array(chunks, np.float64), axis=0) - exact)

    assert 0 < error <= 2000 * 64 * 2.0**-24 * 0.5


def test_the_charged_noise_multiplier_is_what_is_left_after_grid_and_rounding():
    charged = _mechanism().charged_noise_multiplier()

    s = 2.1 * 0.5 * 2.0**16
    assert charged == pytest.approx(math.sqrt(s**2 - 1 / 12) * 2.0**-16 / _mechanism().sensitivity(), rel=1e-15)
    assert 0.999 * 2.1 < charged < 2.1


def test_noise_that_is_narrow_against_its_grid_is_refused():
    narrow = _mechanism(grid_exponent=-7)  # s = 134

    with pytest.raises(RefusedError, match="256 grid steps"):
        narrow.charged_noise_multiplier()
    with pytest.raises(RefusedError, match="256 grid steps"):
        narrow.noise_distance()


def _discrete_gaussian(s, radius):
    k = np.arange(-radius, radius + 1)
    weights = np.exp(-(k**2) / (2 * s**2))
    return k, weights / weights.sum()


def _rounded_gaussian(k, sigma):
    upper, lower = (np.abs(k) - 0.5) / sigma, (np.abs(k) + 0.5) / sigma
    return special.ndtr(-upper) - special.ndtr(-lower)


@pytest.mark.parametrize("s", [2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 10.0, 20.0])
def test_discrete_and_rounded_gaussian_are_as_close_as_charged(s):
    """Exact sums over all integers within 12 s; the bound is not vacuous: it is within a factor of 2.5."""
    k, discrete = _discrete_gaussian(s, int(12 * s))

    distance = 0.5 * np.abs(discrete - _rounded_gaussian(k, math.sqrt(s**2 - 1 / 12))).sum()

    assert 0.4e-3 / s**4 < distance < mechanism.rounded_gaussian_distance(s)


def test_the_twelfth_is_needed():
    """The twin: without taking 1/12 from the variance the distance is far above the charge."""
    k, discrete = _discrete_gaussian(4.0, 60)

    distance = 0.5 * np.abs(discrete - _rounded_gaussian(k, 4.0)).sum()

    assert distance > 100 * mechanism.rounded_gaussian_distance(4.0)


def test_the_distance_tends_to_the_mean_of_the_fourth_hermite_polynomial():
    """E|He4(Z)| / 5760, by quadrature: below half the constant that is charged."""
    limit = mpmath.quad(
        lambda x: abs(x**4 - 6 * x**2 + 3) * mpmath.npdf(x), [-12, -2.3344, -0.7420, 0.7420, 2.3344, 12]
    )

    k, discrete = _discrete_gaussian(20.0, 240)
    distance = 0.5 * np.abs(discrete - _rounded_gaussian(k, math.sqrt(400 - 1 / 12))).sum()

    assert float(limit) / 5760 < 0.5e-3
    assert distance * 20.0**4 == pytest.approx(float(limit) / 5760, rel=0.01)


@pytest.mark.parametrize("s", [256.0, 257.0, 300.0])
def test_two_small_gaussians_add_up_to_a_large_one_within_the_bound(s):
    """P[b X + Y = n] summed with 60 digits, at points over 12 s: the largest relative deviation bounds 2 TV."""
    with mpmath.workdps(60):
        b = 2 ** math.ceil(math.log2(s) / 2)
        y_variance = mpmath.mpf("2.89") * b**2
        x_variance = (mpmath.mpf(s) ** 2 - y_variance) / b**2
        reach = int(18 * math.sqrt(x_variance))
        ratios = []
        for n in [*range(b + 1), *range(100, int(6 * s), 97)]:
            total = mpmath.fsum(
                mpmath.exp(-(mpmath.mpf(x) ** 2) / (2 * x_variance) - mpmath.mpf(n - b * x) ** 2 / (2 * y_variance))
                for x in range(-reach, reach + 1)
            )
            ratios.append(total / mpmath.exp(-(mpmath.mpf(n) ** 2) / (2 * mpmath.mpf(s) ** 2)))
        spread = (max(ratios) - min(ratios)) / min(ratios)

    assert 0 < spread < 2 * 6e-24


def test_tails_and_rounding_of_two_tables_fit_into_the_constant():
    tails = 2 * 2 * mpmath.ncdf(mpmath.mpf("-9.3"))
    convolution = 6e-24
    rounding = 2.0**-63

    share = (tails + convolution + rounding) / mechanism.NOISE_TABLES_TOTAL_VARIATION
    assert 0.5 < share < 1


@pytest.mark.parametrize(
    ("name", "value"),
    [("clip_norm", value) for value in (0, -1, math.inf, math.nan, None)]
    + [("noise_multiplier", value) for value in (0.0, math.inf, True, "1")]
    + [("grid_exponent", value) for value in (1.5, True, 5000)]
    + [("parameters", value) for value in (0, 1.0, True)]
    + [("max_examples_per_round", value) for value in (0, 2.5)]
    + [("chunk_examples", value) for value in (0, None)]
    + [("unit_roundoff", value) for value in (0, math.nan)]
    + [("clip_error", value) for value in (-1e-9, math.inf)],
)
def test_settings_that_make_no_sense_are_refused_by_name(name, value):
    with pytest.raises(AccountantError, match=name):
        _mechanism(**{name: value})


def test_chunks_that_are_too_long_for_their_precision_are_refused():
    with pytest.raises(AccountantError, match="at most 4096"):
        _mechanism(chunk_examples=4097, unit_roundoff=2.0**-24)
