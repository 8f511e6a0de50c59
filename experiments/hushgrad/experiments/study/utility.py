"""Utility graphs: how much accuracy a good model keeps when Gaussian noise of deviation C sigma is put on it.

No training with privacy takes place, and nothing is claimed: the graph is about a model w* near the optimum of all
records in one place, and the paper uses it to choose C and sigma.

Reference: section 7.1 and appendix C.2 of the paper.
"""

import math
from dataclasses import dataclass

import numpy as np
from hushgrad.client import models
from hushgrad.experiments.errors import InputError
from hushgrad.experiments.study import file, sources
from hushgrad.experiments.tables import Table

SIGMAS = (2.0, 5.0, 8.0, 12.0, 16.0, 18.0, 20.0, 22.0, 26.0, 30.0)
CLIP_NORMS = (0.025, 0.05, 0.075, 0.1, 0.15, 0.2)
DRAWS = 60
_SEED = 1


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
    if objective == "non-convex":
        raise InputError("the utility graph of LeNet is not made: it needs a trained LeNet; see figure3c")
    parameters, how = _optimum(found.table, strongly=objective == "strongly convex")
    model = models.make("logistic", features=found.table.features.shape[1])
    rows, labels = model.prepare(found.test.features), found.test.labels

    def accuracy(at: np.ndarray) -> float:
        return float((model.predict(at, rows).argmax(axis=1) == labels).mean())

    best = accuracy(parameters)
    generator = np.random.default_rng(_SEED)
    directions = generator.standard_normal((DRAWS, len(parameters)))  # the same for each cell: differences are C sigma
    scale_to_fraction = {}
    for scale in sorted({clip * sigma for clip in CLIP_NORMS for sigma in SIGMAS}):
        scale_to_fraction[scale] = float(np.mean([accuracy(parameters + scale * n) for n in directions])) / best
    fractions = tuple(tuple(scale_to_fraction[clip * sigma] for sigma in SIGMAS) for clip in CLIP_NORMS)
    return Graph(SIGMAS, CLIP_NORMS, fractions, best, how)


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
