"""What the server does to the model when an update comes: M <- M - e_i * U."""

from collections.abc import Iterator

import numpy as np
from hushgrad.server.aggregation import Aggregate

from benchmarks import harness
from benchmarks.harness import Row

PARAMETERS = 10**6

BAR = 8.0
"""The array is int64: 8 MB are read and written beside 4 MB read, which alone makes 2.5 copies; widening and
multiplying take the rest."""


def figures() -> Iterator[Row]:
    """Folds one update of a million parameters, against copying its bytes."""
    rng = np.random.default_rng(1)
    payload = rng.integers(-(2**31) + 1, 2**31, size=PARAMETERS, dtype=np.int64).astype("<i4").tobytes()
    update = np.frombuffer(payload, "<i4")
    target = np.empty_like(update)
    aggregate = Aggregate(np.zeros(PARAMETERS, np.int64), grid_exponent=-16, step_exponent=20, final_version=100)
    measured = harness.side_by_side(
        lambda: aggregate.fold(payload, 1000),
        lambda: np.copyto(target, update),
        ours_times=5,
        yardstick_times=20,
        repeats=31,
    )
    yield measured.row(
        name="fold an update of 1,000,000 parameters",
        value=measured.seconds * 1e3,
        unit="ms",
        against="np.copyto of its 4 MB",
        bar=BAR,
    )
