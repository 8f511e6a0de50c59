"""Cuts one table into a public test set and parts for clients, to try a federation out on one machine."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from hushgrad.experiments import partition
from hushgrad.experiments.errors import InputError
from hushgrad.experiments.partition import Kind
from hushgrad.experiments.tables import Table


@dataclass(frozen=True, slots=True)
class Split:
    """Row numbers of a table; no row of the test set is in a part.

    Attributes:
        test: the public test set, shape (test rows,).
        parts: one array per client; see `partition` for how long they are and whether they overlap.
        left_out: rows in no part.
    """

    test: npt.NDArray[np.int64]
    parts: tuple[npt.NDArray[np.int64], ...]
    left_out: npt.NDArray[np.int64]


def split(
    table: Table,
    *,
    clients: int,
    test_fraction: float,
    seed: int,
    kind: Kind = "disjoint",
    alpha: float | None = None,
    weights: Sequence[float] | None = None,
) -> Split:
    """Draws a test set, and a part of the rest for each client.

    The test set is a stratified sample: the records are put in order (by label, then by features, ties at random) and
    cut into as many runs of neighbours as the test set has rows, and one record is drawn from each. So each class, and
    each group of like records, is in the test set as often as in the whole. Every record has the same chance of being
    drawn; compared with a plain draw only the scatter between seeds is smaller. The rest is dealt out as `kind` says.

    Args:
        table: the records.
        clients: number of parts, >= 1.
        test_fraction: between 0 and 1; 0 draws no test set.
        seed: fixes everything. This is no privacy mechanism: whoever knows the seed knows the split.
        kind, alpha, weights: see `partition`.

    Raises:
        InputError: if a number is out of range, or a part would be empty.
    """
    partition.check(kind, clients=clients, alpha=alpha, weights=weights)
    if not 0 <= test_fraction < 1:
        raise InputError(f"the test fraction must be >= 0 and < 1, found {test_fraction}")
    if seed < 0:
        raise InputError(f"the seed must be >= 0, found {seed}")
    test_rows = round(table.rows * test_fraction)
    rows_per_client = (table.rows - test_rows) // clients
    if rows_per_client < 1 or (test_fraction > 0 and test_rows < 1):
        raise InputError(
            f"{table.rows} records are too few for a test set of {test_fraction:g} and {clients} clients; give more "
            "records, fewer clients, or another test fraction"
        )
    generator = np.random.default_rng(seed)
    shuffled = generator.permutation(table.rows)
    columns = [table.features[shuffled, column] for column in reversed(range(table.features.shape[1]))]
    ordered = shuffled[np.lexsort([*columns, table.labels[shuffled]])]
    borders = np.arange(test_rows + 1) * table.rows // max(test_rows, 1)
    picks = generator.integers(borders[:-1], borders[1:])
    drawn = np.zeros(table.rows, dtype=bool)
    drawn[picks] = True
    rest = ordered[~drawn]
    found = partition.partition(
        table.labels[rest], kind, clients=clients, generator=generator, alpha=alpha, weights=weights
    )
    return Split(
        test=ordered[drawn],
        parts=tuple(rest[rows] for rows in found),
        left_out=np.delete(rest, np.unique(np.concatenate(found))),
    )
