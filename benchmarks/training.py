"""A client's round: sample, per-example gradients, clip, sum, round to the grid, draw noise, saturate."""

from collections.abc import Iterator

import numpy as np
from hushgrad.client import dpsgd, models, stream
from hushgrad.client.data import Dataset

from benchmarks import harness
from benchmarks.harness import Row

FEATURES = 68
RECORDS = 1768
SAMPLE_SIZE = 26

BAR = 100.0
"""Some forty numpy calls of a microsecond each, and the noise, beside one call: at this size the cost is Python, not
arithmetic. Carrying the round to the server costs more still."""


def figures() -> Iterator[Row]:
    """One whole private round of logistic regression, against one bare matrix-vector product of the same batch."""
    rng = np.random.default_rng(1)
    features = (rng.uniform(size=(RECORDS, FEATURES)) < 0.44).astype(np.float64)
    labels = rng.integers(0, 2, size=RECORDS)
    trainer = dpsgd.Trainer(
        models.make("logistic", features=FEATURES, classes=2, l2=0.0), Dataset(features, labels, "0" * 64, ("0", "1"))
    )
    recipe = dpsgd.Recipe(
        sampler="poisson",
        records=RECORDS,
        sample_size=SAMPLE_SIZE,
        clip_norm=0.5,
        noise_multiplier=2.1,
        grid_exponent=-16,
    )
    trainer.prepare(recipe)
    parameters = rng.normal(scale=0.1, size=FEATURES + 1)
    batch, weights = features[:SAMPLE_SIZE].copy(), parameters[:FEATURES].copy()
    measured = harness.side_by_side(
        lambda: trainer.round(parameters, recipe, stream.RandomStream(None)),
        lambda: batch @ weights,
        ours_times=100,
        yardstick_times=5000,
        repeats=31,
    )
    yield measured.row(
        name="a private round: 69 parameters, 26 records",
        value=measured.seconds * 1e6,
        unit="us",
        against="one bare numpy product X @ w of the batch",
        bar=BAR,
    )
