"""Logistic regression for two classes, with and without an L2 penalty."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from hushgrad.client.models import linear
from hushgrad.client.models.base import ClippedSum, Floats, Labels, Rows
from hushgrad.wire.arrays import ArraySpec


@dataclass(frozen=True, slots=True)
class Logistic:
    """Loss log(1 + exp(-m)) + lambda/2 ||w||^2 with m = (2y - 1)(w.x + b), for labels y in {0, 1}.

    Attributes:
        features: f >= 1.
        l2: lambda >= 0.

    Raises:
        ModelError: at construction, if a number is out of range.
    """

    features: int
    l2: float = 0.0

    def __post_init__(self) -> None:
        linear.check(self.features, self.classes, self.l2)

    @property
    def name(self) -> str:
        """See `Model`."""
        return "logistic"

    @property
    def arrays(self) -> tuple[ArraySpec, ...]:
        """See `Model`."""
        return ArraySpec("weights", (self.features,)), ArraySpec("bias", ())

    @property
    def classes(self) -> int:
        """See `Model`."""
        return 2

    @property
    def chunk_examples(self) -> int:
        """See `Model`; derived in `linear`."""
        return linear.CHUNK_EXAMPLES

    @property
    def unit_roundoff(self) -> float:
        """See `Model`."""
        return linear.UNIT_ROUNDOFF

    @property
    def clip_error(self) -> float:
        """See `Model`; derived in `linear`."""
        return linear.CLIP_ERROR

    def initial(self, seed: int) -> npt.NDArray[np.float32]:
        """Returns zeros whatever the seed: the loss is convex, and zero favours no class."""
        del seed
        return np.zeros(self.features + 1, np.float32)

    def prepare(self, features: Rows) -> Rows:
        """Returns the features as they are; a batch becomes float64 when it is used."""
        return features

    def clipped_sum(self, parameters: Floats, rows: Rows, labels: Labels, clip_norm: float) -> ClippedSum:
        """See `Model`."""
        return linear.clipped_sum(parameters, rows, labels, clip_norm, outputs=1, l2=self.l2, residuals=_residuals)

    def predict(self, parameters: Floats, rows: Rows) -> Floats:
        """See `Model`."""
        scores = rows @ parameters[:-1] + parameters[-1]
        first = _sigmoid(-scores)
        return np.stack([first, 1.0 - first], axis=1)


def _residuals(scores: Floats, labels: Labels) -> Floats:
    """Returns dloss/dscore = -(2y - 1) sigmoid(-(2y - 1) score), shape (n, 1); accurate however small it is."""
    sign = (2 * labels - 1).astype(np.float64)[:, np.newaxis]
    return -sign * _sigmoid(-sign * scores)


def _sigmoid(values: Floats) -> Floats:
    """Returns 1 / (1 + exp(-v)) without overflow."""
    small = np.exp(-np.abs(values))
    return np.where(values < 0, small, 1.0) / (1.0 + small)
