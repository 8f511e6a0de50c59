"""Tables 2 to 5 of the paper: every printed cell under the published reading, the repaired numbers beside."""

import json
import math
from pathlib import Path

import pytest
from hushgrad.accountant import as_published, paper_tables, sizes, theorem2, theorem2_inverse

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "accountant" / "paper_tables.json").read_text())
_PAIRS = list(zip(paper_tables.ROWS, GOLDEN["rows"], strict=True))
_IDS = [f"table-{row.table}-epsilon-{row.epsilon}" for row in paper_tables.ROWS]


@pytest.mark.parametrize(("row", "golden"), _PAIRS, ids=_IDS)
def test_rows_are_the_printed_ones(row, golden):
    printed = golden["printed"]
    assert (row.table, row.records, row.grad_computations) == (golden["table"], golden["N"], golden["K"])
    assert (row.epsilon, row.sigma, row.sample_size) == (printed["eps"], printed["sigma"], printed["s"])
    assert float(row.delta) == pytest.approx(float(golden["delta_printed"]))


@pytest.mark.parametrize(("row", "golden"), _PAIRS, ids=_IDS)
def test_published_reading_gives_the_printed_digits(row, golden):
    found = paper_tables.cells(row)
    expected = golden["reading_that_reproduces"]

    assert found.published.gamma == pytest.approx(expected["gamma"], rel=1e-12)
    assert found.published.epsilon == pytest.approx(expected["eps"], rel=1e-12)
    assert found.published.noise_multiplier == pytest.approx(expected["sigma"], rel=1e-12)
    # All but the first row: its sigma belongs to no whole s (see the last test).
    assert (found.published_sigma == row.sigma) == expected["sigma_matches"]


def test_twelve_of_thirteen_sigmas_reproduce():
    matches = [paper_tables.cells(row).published_sigma == row.sigma for row in paper_tables.ROWS]

    assert matches == [False, *[True] * 12]


@pytest.mark.parametrize(("row", "golden"), _PAIRS, ids=_IDS)
def test_c4_with_12_as_printed_gives_other_numbers(row, golden):
    found = as_published.iterate(
        sizes.constant(row.sample_size, row.grad_computations),
        records=row.records,
        delta=1 / row.records,
        stop="signed",
    )
    expected = golden["c4_as_printed"]

    assert (found.gamma, found.gamma_new) == pytest.approx((expected["gamma"], expected["gamma_next"]), rel=1e-9)
    assert (found.epsilon, found.noise_multiplier) == pytest.approx((expected["eps"], expected["sigma"]), rel=1e-9)


@pytest.mark.parametrize(("row", "golden"), _PAIRS, ids=_IDS)
def test_repaired_numbers_and_what_theorem2_says_at_the_printed_ones(row, golden):
    found = paper_tables.cells(row)
    constant = sizes.constant(row.sample_size, row.grad_computations)
    printed = theorem2.evaluate(
        constant,
        records=row.records,
        epsilon=float(row.epsilon),
        delta=1 / row.records,
        noise_multiplier=float(row.sigma),
    )

    fixed_point = golden["fixed_point"]
    assert found.repaired == pytest.approx((fixed_point["eps"], fixed_point["sigma"]), rel=1e-9)
    assert found.epsilon_at_sigma == pytest.approx(golden["theorem2_min_eps_at_printed_sigma_s"], rel=1e-9)
    assert found.largest_sample_size == golden["max_s_theorem2_at_printed_eps"]
    assert list(found.failed) == golden["failed"] == ["12"]
    assert theorem2_inverse.epsilon_of_noise(float(row.sigma), 1 / row.records) == pytest.approx(
        golden["eq12_min_eps_at_printed_sigma"], rel=1e-9
    )
    assert printed.conditions[3].rhs == pytest.approx(golden["eq12_min_sigma_at_printed_eps"], rel=1e-9)
    assert (printed.gamma, printed.alpha_bar) == pytest.approx(
        (golden["gamma_at_printed"], golden["abar_at_printed"]), rel=1e-9
    )


def test_delta_is_exactly_one_over_n():
    """With the printed 1.667e-5 the first sigma of table 5 would be 12.10872, not 12.10881."""
    row = next(row for row in paper_tables.ROWS if row.table == 5)
    found = [
        as_published.iterate(
            sizes.constant(row.sample_size, row.grad_computations),
            records=row.records,
            delta=delta,
            stop="signed",
            noise_of=as_published.dropped_noise,
        )
        for delta in (1 / row.records, float(row.delta))
    ]

    assert [paper_tables.cut(iteration.noise_multiplier) for iteration in found] == ["12.10881", "12.10872"]


@pytest.mark.parametrize("table", [2, 3])
def test_tables_with_one_sigma_and_many_sample_sizes(table):
    golden = [row for row in GOLDEN["batch_lists"] if row["table"] == table]
    rows = paper_tables.rows(table)
    assert [row.sample_size for row in rows] == [row["s"] for row in golden]

    for row, expected in zip(rows, golden, strict=True):
        found = paper_tables.cells(row)
        frontier = expected["theorem2_frontier"]
        # epsilon is printed cut to five decimals, from sigma without epsilon in (12).
        assert paper_tables.cut(found.published.epsilon) == f"{float(row.epsilon):.5f}"
        assert found.epsilon_at_sigma == pytest.approx(expected["theorem2_eps"], rel=1e-9)
        assert found.repaired == pytest.approx((frontier["eps"], frontier["sigma"]), rel=1e-9)


@pytest.mark.parametrize("table", [2, 3])
def test_tight_epsilons_of_those_tables(table):
    golden = [row for row in GOLDEN["batch_lists"] if row["table"] == table]
    for row, expected in list(zip(paper_tables.rows(table), golden, strict=True))[::2]:
        beside = paper_tables.beside(row)
        assert beside["rounds"] == expected["T"]
        assert beside["claim_poisson"]["epsilon"] == pytest.approx(expected["eps_poisson_ar"], rel=5e-3)
        assert beside["claim_fixed"]["epsilon"] == pytest.approx(expected["eps_fixed_ar"], rel=5e-3)


def test_the_first_sigma_of_table_4_belongs_to_no_whole_sample_size():
    """19.29962 goes with s = 29.617 after one update; s = 31 is the largest for what Theorem 2 gives at it."""
    (other,) = GOLDEN["other"]

    def published_sigma(size):
        return as_published.table_reading(sizes.constant(size, 50_000), records=10_000).noise_multiplier

    assert published_sigma(30) < 19.29962 < published_sigma(29)
    epsilon = theorem2_inverse.epsilon_of_noise(19.29962, 1e-4)
    largest = theorem2_inverse.largest_sample_size(
        records=10_000, grad_computations=50_000, epsilon=epsilon, delta=1e-4, noise_multiplier=19.29962
    )
    assert largest[0] == other["largest_sample_size_at_what_theorem2_gives"]
    assert theorem2_inverse.epsilon_of_noise(19.2, 1e-4) == pytest.approx(other["epsilon_for_sigma_19.2"], rel=1e-9)
    assert math.isclose(float(paper_tables.ROWS[0].sigma), 19.29962)


def test_the_page_about_the_paper_shows_these_numbers():
    """Every row of docs/paper.md's table, from the same functions; the tight columns by the golden numbers above."""
    page = (Path(__file__).parents[2] / "docs" / "paper.md").read_text()
    for row in paper_tables.ROWS:
        found = paper_tables.cells(row)
        cells = (
            f"| {row.table} | {row.sample_size} | {row.epsilon} | {row.sigma} | {found.published.epsilon:.5f} | "
            f"{found.published_sigma} | {found.epsilon_at_sigma:.5f} | {found.repaired[0]:.5f} | "
            f"{found.repaired[1]:.4f} | {found.largest_sample_size} | "
        )
        assert cells in page
