"""The bounds of the samplers, each against its exact value by another route."""

import itertools
import math
from fractions import Fraction

import pytest
from hushgrad.accountant import sampler
from scipy import stats


@pytest.mark.parametrize(
    ("records", "q", "n_max"),
    [(1768, 200 / 1768, 300), (1768, 200 / 1768, 400), (100, 0.5, 60), (10**6, 1e-4, 200), (10**8, 1e-3, 102_000)],
)
def test_the_tail_of_the_batch_size_is_bounded_from_above_and_closely(records, q, n_max):
    """Against scipy's incomplete beta function; at 1e8 records the bound carries the slack of lgamma, 1e-5."""
    found = sampler.log_batch_tail(records, q, n_max)

    exact = stats.binom.logsf(n_max, records + 1, q)
    assert exact - 1e-9 * abs(exact) <= found <= exact + 0.2


def test_the_neighbour_with_one_record_more_is_what_the_tail_counts():
    assert sampler.log_batch_tail(10, 0.5, 10) == pytest.approx(11 * math.log(0.5), rel=1e-9)
    assert sampler.log_batch_tail(10, 0.5, 11) == -math.inf


@pytest.mark.parametrize(("q", "n_max"), [(1.0, 100), (0.5, 40), (0.999, 99)])
def test_no_tail_is_claimed_where_large_batches_are_usual(q, n_max):
    assert sampler.log_batch_tail(100, q, n_max) > math.log(0.5)


@pytest.mark.parametrize(("records", "sample_size"), [(1768, 200), (50, 1), (7, 3), (1000, 999), (10_000, 10)])
def test_masks_from_rounded_thresholds_stay_within_their_bound(records, sample_size):
    """One word's distance from exact rationals, times the mean number of words for the largest set of 4 N records."""
    q = Fraction(sample_size, records)
    length = min(records, math.ceil(2 / q))
    survival = [Fraction(1)]
    for _ in range(length):
        # Kept to 200 bits: the rationals would grow without end, and 2^-200 is nothing here.
        survival.append(Fraction(int(survival[-1] * (1 - q) * 2**200), 2**200))
    exact = [1 - c for c in survival] + [Fraction(1)]
    rounded = [Fraction(round(value * 2**64), 2**64) for value in exact]

    steps = zip(itertools.pairwise(exact), itertools.pairwise(rounded), strict=True)
    one_word = sum(abs((b - a) - (d - c)) for (a, b), (c, d) in steps) / 2
    words = (4 * records + length) * q / (1 - survival[-1])

    assert one_word <= length * Fraction(1, 2**65)
    assert float(one_word * words) < sampler.mask_distance("poisson", records)


def test_fixed_masks_are_exact():
    assert sampler.mask_distance("fixed", 10**9) == 0.0
