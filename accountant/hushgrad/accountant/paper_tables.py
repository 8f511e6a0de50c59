"""The cells of the paper's tables 2 to 5, and the same settings as published, repaired, and tight.

In formulas: N records, K gradient computations, s the constant sample size, delta = 1/N.
"""

import dataclasses
import math
from dataclasses import dataclass
from typing import get_args

from hushgrad.accountant import as_published, claims, sizes, theorem2, theorem2_inverse
from hushgrad.accountant.claims import RoundGroup, Sampling


@dataclass(frozen=True, slots=True)
class Row:
    """One row; epsilon, sigma and delta are text because their digits are what is checked."""

    table: int
    records: int
    grad_computations: int
    sample_size: int
    epsilon: str
    sigma: str
    delta: str


@dataclass(frozen=True, slots=True)
class Cells:
    """What comes out for a row.

    Attributes:
        published: the reading under which the table reproduces.
        published_sigma: its sigma as printed, cut (not rounded) to five decimals.
        repaired: the smallest (epsilon, sigma) of Theorem 2 at this s, (12) with equality.
        epsilon_at_sigma: the smallest epsilon that Theorem 2 allows at the printed sigma.
        largest_sample_size: the largest s that Theorem 2 allows at the printed epsilon.
        failed: the conditions that fail at the printed epsilon and sigma.
    """

    published: as_published.TableReading
    published_sigma: str
    repaired: tuple[float, float]
    epsilon_at_sigma: float
    largest_sample_size: int
    failed: tuple[str, ...]


_DELTAS = {4: "0.0001", 5: "1.667e-5"}
_SETTINGS = {4: (10_000, 50_000), 5: (60_000, 360_000)}
ROWS = tuple(
    Row(table, *_SETTINGS[table], size, epsilon, sigma, _DELTAS[table])
    for table, size, epsilon, sigma in (
        (4, 26, "0.04945", "19.29962"),
        (4, 55, "0.1", "13.06742"),
        (4, 103, "0.25", "8.59143"),
        (4, 168, "0.5", "6.05868"),
        (4, 265, "1.0", "4.27273"),
        (4, 400, "2.0", "3.03241"),
        (5, 370, "0.15007", "12.10881"),
        (5, 460, "0.2", "10.48452"),
        (5, 543, "0.25", "9.37379"),
        (5, 889, "0.5", "6.63120"),
        (5, 1168, "0.75", "5.41887"),
        (5, 1409, "1.0", "4.69244"),
        (5, 2159, "2.0", "3.31648"),
    )
)
"""Tables 4 and 5. Table 2 is the first row's sigma with other s, table 3 the seventh's."""

SAMPLE_SIZES = {2: (1, 5, 10, 15, 20, 26), 3: (10, 25, 50, 100, 200, 300, 370)}
"""The constant sample sizes of tables 2 and 3."""


def rows(table: int) -> tuple[Row, ...]:
    """Returns the rows of table 2, 3, 4 or 5; in tables 2 and 3 epsilon and sigma are the same in every row."""
    if table in SAMPLE_SIZES:
        first = rows(table + 2)[0]
        return tuple(dataclasses.replace(first, table=table, sample_size=size) for size in SAMPLE_SIZES[table])
    return tuple(row for row in ROWS if row.table == table)


def cells(row: Row) -> Cells:
    """Returns what the row's (N, K, s) gives, as published and repaired."""
    constant = sizes.constant(row.sample_size, row.grad_computations)
    delta, epsilon, sigma = 1 / row.records, float(row.epsilon), float(row.sigma)
    published = as_published.table_reading(
        constant, records=row.records, noise_multiplier=sigma if row.table in SAMPLE_SIZES else None
    )
    repaired = theorem2_inverse.at_equality(constant, records=row.records, delta=delta)
    largest = theorem2_inverse.largest_sample_size(
        records=row.records, grad_computations=row.grad_computations, epsilon=epsilon, delta=delta
    )
    if repaired is None or largest is None:
        raise ArithmeticError(f"table {row.table} has no solution at s = {row.sample_size}")
    printed = theorem2.evaluate(constant, records=row.records, epsilon=epsilon, delta=delta, noise_multiplier=sigma)
    return Cells(
        published,
        cut(published.noise_multiplier),
        repaired,
        theorem2_inverse.smallest_epsilon(constant, records=row.records, delta=delta, noise_multiplier=sigma),
        largest[0],
        tuple(condition.name for condition in printed.failed),
    )


def beside(row: Row) -> dict[str, object]:
    """Returns the row as printed, as published, repaired, and with the tight claims at the printed sigma.

    The keys are those of `hushgrad-accountant tables --json`.
    """
    found = cells(row)
    rounds = -(-row.grad_computations // row.sample_size)
    group = RoundGroup(row.sample_size / row.records, float(row.sigma), rounds)
    tight = {
        sampling: claims.from_schedule([group], sampling=sampling, adjacency="add-remove", delta=1 / row.records)
        for sampling in get_args(Sampling)
    }
    return {
        "sample_size": row.sample_size,
        "rounds": rounds,
        "printed_epsilon": row.epsilon,
        "printed_sigma": row.sigma,
        "published_epsilon": found.published.epsilon,
        "published_sigma": found.published_sigma,
        "failed": list(found.failed),
        "repaired_epsilon": found.repaired[0],
        "repaired_sigma": found.repaired[1],
        "paper_epsilon_at_printed_sigma": found.epsilon_at_sigma,
        "largest_sample_size": found.largest_sample_size,
        "claim_poisson": tight["poisson"].to_dict(),
        "claim_fixed": tight["fixed"].to_dict(),
    }


def cut(value: float) -> str:
    """Returns a number cut to five decimals, as the tables print sigma.

    >>> cut(6.631202788), cut(3.316489782)
    ('6.63120', '3.31648')
    """
    return f"{math.floor(value * 1e5) / 1e5:.5f}"
