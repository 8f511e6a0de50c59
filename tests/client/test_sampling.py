"""Masks: the law of the sampler, exactly where it can be computed, by statistics where not."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hushgrad.client import sampling
from hushgrad.client.sampling import SamplingError
from hushgrad.client.stream import RandomStream

KEY = b"s" * 32
WORD = 2**64


@pytest.mark.parametrize(
    ("sample_size", "records"), [(1, 2), (26, 10_000), (1, 3), (999, 1000), (200, 1768), (2**22 - 1, 2**22), (3, 10**7)]
)
def test_thresholds_are_the_nearest_64_bit_numbers(sample_size, records):
    """1 - (1 - q)^j in exact fractions, at most 2^-65 away."""
    table = sampling.poisson_table(sample_size, records)
    assert 1 <= len(table.thresholds) <= min(records, 2**16)
    miss = Fraction(records - sample_size, records)
    for j in {1, 2, len(table.thresholds) // 2, min(len(table.thresholds), 2000)} - {0}:
        if j <= len(table.thresholds):
            exact = 1 - miss**j
            assert abs(Fraction(int(table.thresholds[j - 1]), WORD) - exact) <= Fraction(1, 2**65) + Fraction(j, 2**150)


def _law(thresholds: list[int], rows: int) -> dict[tuple[int, ...], Fraction]:
    """Returns the exact law of the chosen set, walking every path that words can take through the table."""
    length = len(thresholds)
    edges = [0, *thresholds, WORD]
    law: dict[tuple[int, ...], Fraction] = {}

    def walk(end: int, chosen: tuple[int, ...], probability: Fraction) -> None:
        if end >= rows - 1:
            kept = tuple(row for row in chosen if row < rows)
            law[kept] = law.get(kept, Fraction(0)) + probability
            return
        for gap in range(length + 1):
            step = Fraction(edges[gap + 1] - edges[gap], WORD) * probability
            if gap < length:
                walk(end + gap + 1, (*chosen, end + gap + 1), step)
            else:
                walk(end + length, chosen, step)

    walk(-1, (), Fraction(1))
    return law


def _distance_to_ideal(law: dict[tuple[int, ...], Fraction], q: Fraction, rows: int) -> Fraction:
    distance = Fraction(0)
    for size in range(rows + 1):
        for chosen in itertools.combinations(range(rows), size):
            ideal = q**size * (1 - q) ** (rows - size)
            distance += abs(law.get(chosen, Fraction(0)) - ideal)
    return distance / 2


@pytest.mark.parametrize(
    ("sample_size", "records", "rows"), [(2, 6, 6), (1, 7, 7), (5, 7, 7), (3, 7, 9), (2, 3, 10), (6, 7, 8)]
)
def test_the_law_of_a_mask_is_within_what_the_accountant_charges(sample_size, records, rows):
    """8 N 2^-64 in total variation over all 2^rows sets, exactly; q = s / N is not a 64-bit number in any case here."""
    table = sampling.poisson_table(sample_size, records)
    q = Fraction(sample_size, records)
    distance = _distance_to_ideal(_law(table.thresholds.tolist(), rows), q, rows)
    assert 0 < distance <= Fraction(8 * records, WORD)


def test_a_threshold_that_is_a_billionth_off_is_far_outside_that():
    """The twin of the test above."""
    thresholds = sampling.poisson_table(2, 6).thresholds.tolist()
    thresholds[0] += WORD // 10**9
    assert _distance_to_ideal(_law(thresholds, 6), Fraction(1, 3), 6) > Fraction(1, 10**10)


def test_the_bound_holds_for_every_size_of_table():
    """(rows + J) q J / (2 (1 - (1-q)^J)) <= 8 N, from the docstring, with rows = 4 N and the J that is used."""
    for records in (1, 2, 3, 10, 999, 10_000, 10**6):
        for sample_size in {1, 2, 3, 26, records // 3, records // 2, records - 2, records - 1}:
            if 1 <= sample_size < records:
                q, length = sample_size / records, len(sampling.poisson_table(sample_size, records).thresholds)
                words_times_error = (4 * records + length) * q * length / 2 / -math.expm1(length * math.log1p(-q))
                assert words_times_error <= 8 * records


def test_a_mask_is_what_the_table_says_of_the_same_words():
    """Word for word against a loop over Python integers."""
    records, table, source = 1000, sampling.poisson_table(37, 1000), RandomStream(KEY)
    thresholds, expected, end = table.thresholds.tolist(), [], -1
    while end < records - 1:
        word = int(source.uint64("mask", 1)[0])
        gap = sum(threshold <= word for threshold in thresholds)
        end += min(gap + 1, len(thresholds))
        if gap < len(thresholds) and end < records:
            expected.append(end)
    found = sampling.poisson(RandomStream(KEY), table, records)
    assert found.dtype == np.int64
    assert found.tolist() == expected


def _masks(sample_size: int, records: int, rows: int, rounds: int) -> np.ndarray:
    table, source, masks = (
        sampling.poisson_table(sample_size, records),
        RandomStream(KEY),
        np.zeros((rounds, rows), bool),
    )
    for mask in masks:
        mask[sampling.poisson(source, table, rows)] = True
    return masks


@pytest.mark.parametrize(("claimed", "accepted"), [(26 / 500, True), (27 / 500, False), (25 / 500, False)])
def test_each_row_takes_part_with_probability_q_and_no_other(claimed, accepted):
    """The total of 500 rows * 8000 rounds within 5 standard deviations (6e-7), each row's within 6 (500 * 2e-9)."""
    masks = _masks(26, 500, 500, 8000)
    deviation = math.sqrt(claimed * (1 - claimed))
    total = abs(masks.sum() - masks.size * claimed) / (deviation * math.sqrt(masks.size))
    rows = abs(masks.sum(axis=0) - 8000 * claimed) / (deviation * math.sqrt(8000))
    assert (total < 5 and rows.max() < 6) == accepted


def test_rows_take_part_independently():
    """Correlations of rows 1, 2 and 299 apart within 5.5 / sqrt(n) (4e-8); sizes vary as a binomial's."""
    masks = _masks(60, 300, 300, 6000)
    q = 0.2
    centred = (masks - q) / math.sqrt(q * (1 - q))
    for apart in (1, 2, 299):
        products = centred[:, apart:] * centred[:, :-apart]
        assert abs(products.mean()) < 5.5 / math.sqrt(products.size)
    sizes = masks.sum(axis=1)
    # Var of a sample variance: 2 / n relative; 5 standard deviations. A fixed size would have variance 0.
    assert abs(sizes.var() / (300 * q * (1 - q)) - 1) < 5 * math.sqrt(2 / 6000)


def test_an_empty_mask_occurs_as_often_as_it_should():
    """(1 - 1/50)^50 = 0.3642 of 4000 rounds, within 5 standard deviations."""
    empty = int((_masks(1, 50, 50, 4000).sum(axis=1) == 0).sum())
    p = (1 - 1 / 50) ** 50
    assert abs(empty - 4000 * p) < 5 * math.sqrt(4000 * p * (1 - p))


def test_probability_comes_from_the_declared_records_not_from_the_rows():
    """500 rows, 1000 declared: 52 / 1000 each, 26 on average; 5 standard deviations of the mean of 2000 rounds."""
    sizes = _masks(52, 1000, 500, 2000).sum(axis=1)
    assert abs(sizes.mean() - 26) < 5 * math.sqrt(26 / 2000)


def test_a_sample_size_of_all_records_or_more_takes_everybody():
    for sample_size in (10, 11):
        table = sampling.poisson_table(sample_size, 10)
        assert sampling.poisson(RandomStream(KEY), table, 9).tolist() == list(range(9))
    assert sampling.probability(11, 10) == 1
    assert sampling.probability(1, 3) == Fraction(1, 3)


def test_more_rows_than_the_bound_covers_are_refused():
    table = sampling.poisson_table(1, 10)
    sampling.poisson(RandomStream(KEY), table, 10)
    with pytest.raises(SamplingError, match="at least as many records"):
        sampling.poisson(RandomStream(KEY), table, 11)


@pytest.mark.parametrize(("sample_size", "rows"), [(2, 5), (4, 5), (1, 3), (3, 6)])
def test_fixed_sets_are_uniform(sample_size, rows):
    """Chi-square over all sets, 20,000 draws; the bar is 2e-7 or rarer by chance (at most 19 degrees of freedom)."""
    source, counts = RandomStream(KEY), {}
    for _ in range(20_000):
        chosen = tuple(sampling.fixed(source, sample_size, rows, rows).tolist())
        counts[chosen] = counts.get(chosen, 0) + 1
    sets = list(itertools.combinations(range(rows), sample_size))
    assert set(counts) == set(sets)
    expected = 20_000 / len(sets)
    assert sum((counts[chosen] - expected) ** 2 for chosen in sets) / expected < 65


def test_chi_square_would_see_a_set_that_is_a_tenth_too_frequent():
    """The twin: with 10 sets of 2000, one at 2200 and the rest at 1978 adds 22 to an average of 9, at 2500 adds 139."""
    counts = np.full(10, 2000 - 500 / 9)
    counts[0] = 2500
    assert ((counts - 2000) ** 2).sum() / 2000 > 65


def test_fixed_sets_have_the_size_and_no_repeats_at_any_share():
    source = RandomStream(KEY)
    for sample_size in (1, 2, 100, 499, 500, 501, 998, 999):
        chosen = sampling.fixed(source, sample_size, 1000, 1000)
        assert len(np.unique(chosen)) == len(chosen) == sample_size
        assert (np.diff(chosen) > 0).all()
        assert chosen.min() >= 0
        assert chosen.max() < 1000


def test_words_beyond_the_last_whole_interval_are_thrown_away():
    """rows = 3: floor(2^64 / 3) = (2^64 - 1) / 3, so the word 2^64 - 1 belongs to no row."""

    class Words(RandomStream):
        def __init__(self, words: list[int]) -> None:
            super().__init__(KEY)
            self.words = words

        def uint64(self, lane, count):
            taken, self.words = self.words[:count], self.words[count:]
            return np.array(taken + [0] * (count - len(taken)), np.uint64)

    interval = (WORD - 1) // 3
    assert sampling.fixed(Words([WORD - 1, interval, 0]), 1, 3, 3).tolist() == [1]
    assert sampling.fixed(Words([interval - 1, 2 * interval]), 1, 3, 3).tolist() == [0]
    assert sampling.fixed(Words([3 * interval - 1]), 1, 3, 3).tolist() == [2]


@pytest.mark.parametrize(
    ("sample_size", "records", "rows", "message"),
    [(0, 5, 5, ">= 1"), (5, 5, 5, "below the declared"), (6, 5, 9, "below the declared"), (2, 6, 5, "declare fewer")],
)
def test_fixed_numbers_that_the_accounting_does_not_cover_are_refused(sample_size, records, rows, message):
    with pytest.raises(SamplingError, match=message):
        sampling.fixed(RandomStream(KEY), sample_size, records, rows)


def test_work_is_of_the_order_of_the_mask_not_of_the_rows():
    """A mask of about 26 from a million rows takes words for at most some 200 draws."""
    table, source = sampling.poisson_table(26, 10**6), RandomStream(KEY)
    before = source._left["mask"]
    sampling.poisson(source, table, 10**6)
    assert before - source._left["mask"] <= 200 * 8
