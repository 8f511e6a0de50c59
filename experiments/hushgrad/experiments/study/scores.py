"""Scores the versions of a run on the public test set: some on the way, evenly spread, and always the last."""

import time
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from hushgrad.client.models import Model
from hushgrad.experiments.study.resolve import Setup
from hushgrad.experiments.tables import Table
from hushgrad.server.aggregation import Published

_SMALLEST = 1e-12


@dataclass(frozen=True, slots=True)
class Point:
    """One scored version.

    Attributes:
        version: which.
        seconds: simulated, or since the start, when it was published.
        updates: that were in the model.
        accuracy: share of the test set that it gets right.
        log_loss: mean of -log of the probability of the right class.
        accuracy_averaged: of the running average of the second half's models; None before.
    """

    version: int
    seconds: float
    updates: int
    accuracy: float
    log_loss: float
    accuracy_averaged: float | None


class Scorer:
    """Scores versions as they come.

    Attributes:
        points: so far.
        cpu_seconds: processor time that scoring took.
    """

    def __init__(self, setup: Setup, test: Table) -> None:
        self._model = setup.model
        self._rows = setup.model.prepare(test.features)
        self._labels = test.labels
        every = setup.experiment.training.publish_every
        wanted = versions(setup.rounds, setup.experiment.evaluation.points)
        self._wanted = {min(-(-version // every) * every, setup.rounds) for version in wanted}
        self.points: list[Point] = []
        self.cpu_seconds = 0.0

    def see(self, published: Published, seconds: float, updates: int) -> None:
        """Scores a version if it is one of those wanted."""
        if published.version not in self._wanted:
            return
        began = time.process_time()
        accuracy, log_loss = score(self._model, published.model[:], self._rows, self._labels)
        averaged = None
        if published.averaged is not None:
            averaged, _ = score(self._model, published.averaged[:], self._rows, self._labels)
        self.points.append(Point(published.version, seconds, updates, accuracy, log_loss, averaged))
        self.cpu_seconds += time.process_time() - began


def versions(last: int, points: int) -> frozenset[int]:
    """Returns which versions to score.

    >>> sorted(versions(10, 4))
    [2, 5, 7, 10]
    """
    return frozenset(max(1, last * i // points) for i in range(1, points + 1))


def score(
    model: Model, parameters: bytes, rows: npt.NDArray[np.floating], labels: npt.NDArray[np.int64]
) -> tuple[float, float]:
    """Returns accuracy and mean log loss of a published model, little-endian float32."""
    probabilities = model.predict(np.frombuffer(parameters, "<f4").astype(np.float64), rows)
    right = probabilities[np.arange(len(labels)), labels]
    loss = -np.log(np.maximum(right, _SMALLEST)).mean()
    return float((probabilities.argmax(axis=1) == labels).mean()), float(loss)
