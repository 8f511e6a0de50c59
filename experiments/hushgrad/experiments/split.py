"""Cuts one table into a public test set and disjoint parts for clients, to try a federation out on one machine."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from hushgrad.experiments.errors import InputError
from hushgrad.experiments.tables import Table


@dataclass(frozen=True, slots=True)
class Split:
    """Row numbers of a table; no row is in two places.

    Attributes:
        test: the public test set, shape (test rows,).
        parts: one array per client, all of one length.
        left_out: fewer rows than there are clients, so that the parts can have equal length.
    """

    test: npt.NDArray[np.int64]
    parts: tuple[npt.NDArray[np.int64], ...]
    left_out: npt.NDArray[np.int64]


def split(table: Table, *, clients: int, test_fraction: float, seed: int) -> Split:
    """Draws a test set and as many equally large parts as there are clients.

    The test set is a stratified sample: the records are put in order (by label, then by features, ties at random) and
    cut into as many runs of neighbours as the test set has rows, and one record is drawn from each. So each class, and
    each group of like records, is in the test set as often as in the whole. Every record has the same chance of being
    drawn; compared with a plain draw only the scatter between seeds is smaller. The rest is dealt out at random.

    Args:
        table: the records.
        clients: number of parts, >= 1.
        test_fraction: between 0 and 1; 0 draws no test set.
        seed: fixes everything. This is no privacy mechanism: whoever knows the seed knows the split.

    Raises:
        InputError: if a number is out of range, or a part would be empty.
    """
    if clients < 1:
        raise InputError(f"the number of clients must be >= 1, found {clients}")
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
    rest = generator.permutation(ordered[~drawn])
    return Split(
        test=ordered[drawn],
        parts=tuple(rest[i * rows_per_client : (i + 1) * rows_per_client] for i in range(clients)),
        left_out=rest[clients * rows_per_client :],
    )
