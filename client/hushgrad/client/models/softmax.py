"""Softmax (multinomial logistic) regression, with and without an L2 penalty."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from hushgrad.client.models import linear
from hushgrad.client.models.base import ClippedSum, Floats, Labels, Rows
from hushgrad.wire.arrays import ArraySpec


@dataclass(frozen=True, slots=True)
class Softmax:
    """Loss -log p_y + lambda/2 ||W||^2 with p = softmax(x W + b), for labels y from 0 to classes - 1.

    Attributes:
        features: f >= 1.
        classes: k >= 2.
        l2: lambda >= 0.

    Raises:
        ModelError: at construction, if a number is out of range.
    """

    features: int
    classes: int
    l2: float = 0.0

    def __post_init__(self) -> None:
        linear.check(self.features, self.classes, self.l2)

    @property
    def name(self) -> str:
        """See `Model`."""
        return "softmax"

    @property
    def arrays(self) -> tuple[ArraySpec, ...]:
        """See `Model`."""
        return ArraySpec("weights", (self.features, self.classes)), ArraySpec("bias", (self.classes,))

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
        return np.zeros((self.features + 1) * self.classes, np.float32)

    def prepare(self, features: Rows) -> Rows:
        """Returns the features as they are; a batch becomes float64 when it is used."""
        return features

    def clipped_sum(self, parameters: Floats, rows: Rows, labels: Labels, clip_norm: float) -> ClippedSum:
        """See `Model`."""
        return linear.clipped_sum(
            parameters, rows, labels, clip_norm, outputs=self.classes, l2=self.l2, residuals=_residuals
        )

    def predict(self, parameters: Floats, rows: Rows) -> Floats:
        """See `Model`."""
        weights = parameters[: -self.classes].reshape(self.features, self.classes)
        return _softmax(rows @ weights + parameters[-self.classes :])


def _residuals(scores: Floats, labels: Labels) -> Floats:
    """Returns dloss/dscores = p - onehot(y), shape (n, k)."""
    residuals = _softmax(scores)
    residuals[np.arange(len(labels)), labels] -= 1.0
    return residuals


def _softmax(scores: Floats) -> Floats:
    """Returns exp(z) / sum exp(z) for each row, without overflow."""
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)
