"""The discrete Gaussian: exact contents of the tables, the bound of the convolution, and what draws look like."""

import math
import time
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from hushgrad.client import noise
from hushgrad.client.noise import GaussianTables, ScaleError
from hushgrad.client.stream import RandomStream

KEY = b"k" * 32
SCALES = [2.0**8, 257.0, 2.0**10, 2.0**16, 68812.8, 131071.5]


def _ideal(variance: Fraction, last: int, digits: int = 60) -> tuple[list[Decimal], Decimal]:
    """Returns exp(-j^2 / 2V) for j = 0 .. last and the sum over all integers, each by its own call of exp."""
    with localcontext() as context:
        context.prec = digits
        double = 2 * Decimal(variance.numerator) / Decimal(variance.denominator)
        powers = [(-Decimal(j * j) / double).exp() for j in range(last + 1)]
        total, j = powers[0] + 2 * sum(powers[1:]), last + 1
        while (term := (-Decimal(j * j) / double).exp()) > Decimal("1e-45"):
            total, j = total + 2 * term, j + 1
    return powers, total


def _distance(table: noise.AliasTable, variance: Fraction) -> Decimal:
    """Returns the total variation between what a table gives, reconstructed exactly, and the uncut ideal."""
    weights, scale = table.weights(), Decimal(2 ** (64 + table.cell_bits))
    weights = {value: weight for value, weight in weights.items() if weight}
    last = max(weights)
    powers, total = _ideal(variance, last)
    with localcontext() as context:
        context.prec = 60
        inside = sum(abs(Decimal(weight) / scale - powers[abs(value)] / total) for value, weight in weights.items())
        outside = 1 - (powers[0] + 2 * sum(powers[1:])) / total
        return (inside + outside) / 2


@pytest.mark.parametrize("scale", SCALES)
def test_each_table_is_within_its_bound_of_the_ideal(scale):
    """Tails P(|Z| > 9.3) = 1.4e-20 (mpmath: erfc(9.3 / sqrt 2) = 1.41e-20), rounding 2^-65 = 2.7e-20."""
    tables = GaussianTables(scale)
    _, x_variance, y_variance = noise.split(scale)
    for table, variance in ((tables.x, x_variance), (tables.y, y_variance)):
        assert sum(table.weights().values()) == 2 ** (64 + table.cell_bits)
        assert _distance(table, variance) < Decimal("1.5e-20") + Decimal(2) ** -65


def test_weights_of_the_largest_tables_are_the_nearest_to_the_ideal():
    """s = 2^22: 64,759 entries; every 97th is compared, so that the test stays short."""
    _, _, variance = noise.split(2.0**22)
    weights = noise.rounded_weights(variance)
    assert 2 * len(weights) - 1 == 64_759
    with localcontext() as context:
        context.prec = 60
        double = 2 * Decimal(variance.numerator) / Decimal(variance.denominator)
        # Poisson summation: the sum over all integers is sqrt(2 pi V) up to exp(-2 pi^2 V)
        pi = Decimal("3.14159265358979323846264338327950288419716939937510582097494")
        total = (pi * double).sqrt() * (1 - Decimal(math.erfc(9.3 / math.sqrt(2))))
        for j in range(1, len(weights), 97):
            ideal = (-Decimal(j * j) / double).exp() / total * 2**80
            assert abs(Decimal(weights[j]) - ideal) <= Decimal("0.5") + ideal * Decimal("1e-21")


def test_a_table_of_another_scale_is_far_outside_the_bound():
    """The twin: one part in a million more in scale is seen."""
    _, x_variance, _ = noise.split(2.0**10)
    table = noise.alias_table(noise.rounded_weights(x_variance * Fraction(1_000_002, 1_000_000)))
    assert _distance(table, x_variance) > Decimal("1e-8")


@pytest.mark.parametrize("scale", [256.0, 300.0])
def test_the_convolution_is_within_its_bound_of_the_ideal(scale):
    """P(b X + Y = n) summed in integers of 2^-130 for every n up to 12 s."""
    b, x_variance, y_variance = noise.split(scale)
    bits = 130

    def fixed_point(variance: Fraction, last: int) -> list[int]:
        powers, total = _ideal(variance, last)
        with localcontext() as context:
            context.prec = 60
            return [int(power / total * 2**bits) for power in powers]

    x_last, y_last, n_last = (math.ceil(13 * s) for s in (float(x_variance) ** 0.5, float(y_variance) ** 0.5, scale))
    px, py = fixed_point(x_variance, x_last), fixed_point(y_variance, y_last)
    ideal = fixed_point(Fraction(scale) ** 2, n_last)
    distance = 0
    for n in range(n_last + 1):
        first, last = max(-x_last, -((y_last - n) // b)), min(x_last, (n + y_last) // b)
        found = sum(px[abs(x)] * py[abs(n - b * x)] for x in range(first, last + 1)) >> bits
        distance += (1 if n else 0.5) * abs(found - ideal[n])
    total_variation = distance / 2**bits
    assert noise.convolution_bound(scale) / 10 < total_variation < noise.convolution_bound(scale)


def test_the_bounds_add_up_to_what_the_accountant_charges():
    """2e-19 per coordinate: convolution, two tails, two roundings; the worst ratio b / s is just above a power of 4."""
    for exponent in range(8, 22):
        for scale in (2.0**exponent, math.nextafter(2.0**exponent, math.inf), 1.5 * 2.0**exponent):
            convolution = noise.convolution_bound(scale)
            assert convolution < (4e-25 if scale >= 2**12 else 6e-24)
            assert convolution + 2 * 1.5e-20 + 2.0**-63 < noise.TOTAL_VARIATION


def test_an_alias_cell_that_is_full_always_gives_its_own_value():
    """Its threshold would be 2^64, which no word holds. By hand: four cells for 1.5, 1 and 1.5 cells' worth."""
    table = noise.alias_table([2**64, 3 * 2**63])
    full = table.own == table.other
    assert full.any()
    weights = {value: weight for value, weight in table.weights().items() if weight}
    assert weights == {-1: 3 * 2**63, 0: 2**64, 1: 3 * 2**63}


def test_weights_that_do_not_add_up_are_refused():
    with pytest.raises(ValueError, match="add up"):
        noise.alias_table([2**64, 2**64])


def test_a_draw_is_the_cells_value_as_the_definition_has_it():
    """Word for word against a loop over Python integers, from the same bits."""
    scale, count = 1000.0, 500
    tables = GaussianTables(scale)
    found = tables.draw(RandomStream(KEY), count)
    source = RandomStream(KEY)
    words, cells = source.uint64("noise", 2 * count).tolist(), source.uint16("noise", 2 * count).tolist()

    def one(table: noise.AliasTable, word: int, cell: int) -> int:
        cell %= 2**table.cell_bits
        return int(table.own[cell] if word < int(table.threshold[cell]) else table.other[cell])

    expected = [
        tables.stride * one(tables.x, words[i], cells[i]) + one(tables.y, words[count + i], cells[count + i])
        for i in range(count)
    ]
    assert found.tolist() == expected


def test_draws_beyond_one_block_go_on_where_the_block_ended():
    tables = GaussianTables(2.0**16)
    source = RandomStream(KEY)
    parts = [tables.draw(source, count) for count in (8192, 8192, 100)]
    np.testing.assert_array_equal(tables.draw(RandomStream(KEY), 16_484), np.concatenate(parts))


def _chi_square(draws: np.ndarray, scale: float, bins: int = 64) -> float:
    """Returns the statistic over bins that are equally likely under a Gaussian of that scale."""
    from scipy.special import ndtr

    places = np.minimum((ndtr((draws + 0.5) / scale) * bins).astype(int), bins - 1)
    counts = np.bincount(places, minlength=bins)
    # What the integers make of the bins' edges: at most 1 / s of a bin's own probability, invisible at s = 2^16.
    return float(((counts - len(draws) / bins) ** 2).sum() / (len(draws) / bins))


@pytest.mark.parametrize(("factor", "accepted"), [(1.0, True), (1.01, False), (0.99, False)])
def test_draws_have_the_shape_of_the_scale_and_of_no_other(factor, accepted):
    """63 degrees of freedom; above 130 by chance: 1.4e-6. A scale 1 % off adds about 1.5e6 * 1e-4 = 150."""
    draws = GaussianTables(2.0**16).draw(RandomStream(KEY), 1_500_000)
    assert (_chi_square(draws, factor * 2.0**16) < 130) == accepted


def test_tails_are_as_heavy_as_a_gaussians():
    """P(|Z| > 4) = 6.334e-5: 127 of 2,000,000 expected, 5 sigma is 56; uniform or cut noise would have none beyond."""
    draws = GaussianTables(2.0**16).draw(RandomStream(KEY), 2_000_000)
    beyond = int((abs(draws) > 4 * 2**16).sum())
    assert abs(beyond - 126.7) < 56


def test_moments_are_those_of_the_scale_at_both_ends_of_the_range():
    """Variance within 5 sqrt(2 / n), mean within 5 / sqrt(n): false alarms below 1e-6 each. Neighbours uncorrelated."""
    count = 400_000
    for scale in (256.0, 2.0**22):
        draws = GaussianTables(scale).draw(RandomStream(KEY), count) / scale
        assert abs(draws.mean()) < 5 / math.sqrt(count)
        assert abs(draws.var() - 1) < 5 * math.sqrt(2 / count)
        assert abs((draws[1:] * draws[:-1]).mean()) < 5 / math.sqrt(count)


@pytest.mark.parametrize("scale", [0.0, -1.0, 255.9, 2.0**22 + 1, math.inf, math.nan])
def test_a_scale_that_no_table_serves_is_refused(scale):
    with pytest.raises(ScaleError, match=r"2\^8 to 2\^22"):
        GaussianTables(scale)


def test_tables_are_built_quickly():
    """Bars of 0.2 s and 2 s in CPU time, which loaded machines stretch little; measured 0.01 s and 0.06 s."""
    for scale, bar in ((2.0**16, 0.2), (2.0**22, 2.0)):
        start = time.process_time()
        GaussianTables(scale)
        assert time.process_time() - start < bar
