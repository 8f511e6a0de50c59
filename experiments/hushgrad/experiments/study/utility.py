"""Utility graphs: how much accuracy a good model keeps when Gaussian noise of deviation C sigma is put on it.

No training with privacy takes place, and nothing is claimed: the graph is about a model w* near the optimum of all
records in one place, and the paper uses it to choose C and sigma.

Reference: section 7.1 and appendix C.2 of the paper.
"""

import math
from dataclasses import dataclass

import numpy as np
from hushgrad.client import models
from hushgrad.client.models import Model
from hushgrad.experiments.study import file, sources
from hushgrad.experiments.tables import Table

SIGMAS = (2.0, 5.0, 8.0, 12.0, 16.0, 18.0, 20.0, 22.0, 26.0, 30.0)
CLIP_NORMS = (0.025, 0.05, 0.075, 0.1, 0.15, 0.2)
DRAWS = 60
LENET_SIGMAS = (2.0, 4.0, 6.0, 8.0, 10.0, 12.0, 16.0, 20.0)
LENET_CLIP_NORMS = (0.0025, 0.005, 0.01, 0.025, 0.05)
LENET_DRAWS = 10
_SEED = 1
_EPOCHS, _BATCH, _STEP, _MOMENTUM = 4, 64, 0.05, 0.9
_UNCLIPPED = 1e12


@dataclass(frozen=True, slots=True)
class Graph:
    """One utility graph.

    Attributes:
        sigmas, clip_norms: the grid.
        fractions: by clip norm and sigma, mean accuracy of w* + n over that of w*.
        accuracy: of w*.
        remark: how w* was found.
    """

    sigmas: tuple[float, ...]
    clip_norms: tuple[float, ...]
    fractions: tuple[tuple[float, ...], ...]
    accuracy: float
    remark: str


def graph(objective: str, data: str) -> Graph:
    """Returns the graph of an objective on a data set.

    Raises:
        InputError: if the data set is not at hand.
    """
    kind = "iid" if data != "phishing" else "same"
    records = {"phishing": 10_000, "ijcnn1": 49_990, "mnist": 60_000}[data]
    found = sources.load_for(
        file.Data(set=data, test_records=1055 if data == "phishing" else 0),
        file.Partition(kind="same" if kind == "same" else "iid", records=records),
        clients=1,
        seed=_SEED,
    )
    is_lenet = objective == "non-convex"
    if is_lenet:
        model: Model = models.make("lenet", features=found.table.features.shape[1], classes=10, activation="tanh",
                                   padding=0, image=[28, 28])  # fmt: skip
        parameters, how = _trained(model, found.table)
    else:
        model = models.make("logistic", features=found.table.features.shape[1])
        parameters, how = _optimum(found.table, strongly=objective == "strongly convex")
    sigmas, clip_norms = (LENET_SIGMAS, LENET_CLIP_NORMS) if is_lenet else (SIGMAS, CLIP_NORMS)
    draws = LENET_DRAWS if is_lenet else DRAWS
    rows, labels = model.prepare(found.test.features), found.test.labels

    def accuracy(at: np.ndarray) -> float:
        return float((model.predict(at, rows).argmax(axis=1) == labels).mean())

    best = accuracy(parameters)
    generator = np.random.default_rng(_SEED)
    directions = generator.standard_normal((draws, len(parameters)))  # the same for each cell: differences are C sigma
    scale_to_fraction = {}
    for scale in sorted({clip * sigma for clip in clip_norms for sigma in sigmas}):
        scale_to_fraction[scale] = float(np.mean([accuracy(parameters + scale * n) for n in directions])) / best
    fractions = tuple(tuple(scale_to_fraction[clip * sigma] for sigma in sigmas) for clip in clip_norms)
    return Graph(sigmas, clip_norms, fractions, best, how)


def _trained(model: Model, table: Table) -> tuple[np.ndarray, str]:
    """Returns a LeNet that was trained without privacy, and how."""
    generator = np.random.default_rng(_SEED)
    rows, labels = model.prepare(table.features), table.labels
    parameters = model.initial(_SEED).astype(np.float64)
    speed = np.zeros_like(parameters)
    for _ in range(_EPOCHS):
        order = generator.permutation(len(labels))
        for start in range(0, len(order), _BATCH):
            chosen = order[start : start + _BATCH]
            total = model.clipped_sum(parameters, rows.take(chosen, axis=0), labels.take(chosen), _UNCLIPPED).total
            speed = _MOMENTUM * speed + total / len(chosen)
            parameters = parameters - _STEP * speed
    return parameters, (
        f"w* is a LeNet with tanh after {_EPOCHS} epochs of SGD (batches of {_BATCH}, step {_STEP}, momentum "
        f"{_MOMENTUM}) on all records in one place; {LENET_DRAWS} draws of n for each cell, the same directions "
        "everywhere, mean accuracy on the test set. The paper reads off its figure that C = 0.025 with sigma up to 12 "
        "costs at most 10 % of the accuracy. With this w* it costs most of it, and C sigma = 0.12 a tenth already. The "
        "paper does not give its w*; larger weights would bear more. A private run is another matter: it goes on "
        "learning with the noise that it carries."
    )


def _optimum(table: Table, *, strongly: bool) -> tuple[np.ndarray, str]:
    """Returns w* and how it was found."""
    from sklearn.linear_model import LogisticRegression  # slow to import

    # scikit-learn minimises |w|^2 / 2 + C sum of losses: C = 1 / (lambda N) = 1 for lambda = 1 / N.
    strength = 1.0 if strongly else math.inf
    model = LogisticRegression(C=strength, max_iter=3000, tol=1e-6).fit(table.features, table.labels)
    what = "lambda = 1/N" if strongly else "no penalty"
    return np.append(model.coef_[0], model.intercept_), (
        f"w* minimises the logistic loss of all records in one place ({what}, scikit-learn); {DRAWS} draws of n for "
        "each cell, the same directions everywhere, mean accuracy on the test set. What remains depends on C sigma "
        "alone. The paper does not say how near its w* is to the optimum: a w* with larger weights keeps more."
    )
