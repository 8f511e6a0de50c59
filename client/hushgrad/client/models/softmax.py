"""Softmax (multinomial logistic) regression, on features as they are or on a fixed feature map of them."""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
from hushgrad.client.models import dense, linear, mlp, oriented_gradients
from hushgrad.client.models.base import ClippedSum, Floats, Labels, ModelError, Rows
from hushgrad.wire.arrays import ArraySpec


@dataclass(frozen=True, slots=True)
class Softmax:
    """Loss -log p_y + lambda/2 ||W||^2 with p = softmax(x W + b), for labels y from 0 to classes - 1.

    Attributes:
        features: f >= 1, of one record.
        classes: k >= 2.
        l2: lambda >= 0.
        precision: of clipping and summing. "float32" takes half the time, raises the sensitivity that is charged by
            8e-6 C for each record of the largest batch, and knows no l2.
        feature_map: "oriented-gradients": x is that of the record, an image, see `oriented_gradients`. None: x is the
            record itself.
        image: height and width of a record; None: a square. Only with a feature map.

    Raises:
        ModelError: at construction, if a number is out of range, or settings do not fit each other.
    """

    features: int
    classes: int
    l2: float = 0.0
    precision: Literal["float64", "float32"] = "float64"
    feature_map: Literal["oriented-gradients"] | None = None
    image: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        linear.check(self.features, self.classes, self.l2)
        if self.precision not in ("float64", "float32"):
            raise ModelError(f'precision must be "float64" or "float32", found {self.precision!r}')
        if self.l2 and self.precision == "float32":
            raise ModelError(f'l2 needs precision "float64", found l2 = {self.l2} with "float32"')
        if self.feature_map not in (None, "oriented-gradients"):
            raise ModelError(f'feature_map must be "oriented-gradients" or left out, found {self.feature_map!r}')
        if self.feature_map is None:
            if self.image is not None:
                raise ModelError(f"image is for feature maps alone, found {list(self.image)}; leave it out")
            return
        side = math.isqrt(self.features)
        object.__setattr__(self, "image", (side, side) if self.image is None else tuple(self.image))
        oriented_gradients.check(self.image or (), self.features)

    @property
    def mapped(self) -> int:
        """Number of features that the weights meet."""
        return self.features if self.image is None else oriented_gradients.count(self.image)

    @property
    def name(self) -> str:
        """See `Model`."""
        return "softmax" if self.feature_map is None else f"softmax-{self.feature_map}"

    @property
    def arrays(self) -> tuple[ArraySpec, ...]:
        """See `Model`."""
        return ArraySpec("weights", (self.mapped, self.classes)), ArraySpec("bias", (self.classes,))

    @property
    def chunk_examples(self) -> int:
        """See `Model`; derived in `linear` and in `dense`."""
        return linear.CHUNK_EXAMPLES if self.precision == "float64" else mlp.ROWS + 4

    @property
    def unit_roundoff(self) -> float:
        """See `Model`."""
        return linear.UNIT_ROUNDOFF if self.precision == "float64" else dense.UNIT_ROUNDOFF

    @property
    def clip_error(self) -> float:
        """See `Model`; derived in `linear` and in `dense`."""
        return linear.CLIP_ERROR if self.precision == "float64" else dense.CLIP_ERROR

    def initial(self, seed: int) -> npt.NDArray[np.float32]:
        """Returns zeros whatever the seed: the loss is convex, and zero favours no class."""
        del seed
        return np.zeros((self.mapped + 1) * self.classes, np.float32)

    def prepare(self, features: Rows) -> Rows:
        """Returns the features as they are, or mapped; with norms for float32. A batch becomes float64 when used."""
        rows = features if self.image is None else oriented_gradients.of(features, self.image)
        return rows if self.precision == "float64" else dense.with_norms(rows)

    def clipped_sum(self, parameters: Floats, rows: Rows, labels: Labels, clip_norm: float) -> ClippedSum:
        """See `Model`."""
        if self.precision == "float32":
            widths = (self.mapped, self.classes)
            return mlp.clipped_sum(parameters, rows, labels, clip_norm, widths=widths, activation="tanh")
        return linear.clipped_sum(
            parameters, rows, labels, clip_norm, outputs=self.classes, l2=self.l2, residuals=_residuals
        )

    def predict(self, parameters: Floats, rows: Rows) -> Floats:
        """See `Model`."""
        weights = parameters[: -self.classes].reshape(self.mapped, self.classes)
        scores: Floats = rows[:, : self.mapped] @ weights + parameters[-self.classes :]
        return dense.probabilities(scores)


def _residuals(scores: Floats, labels: Labels) -> Floats:
    """Returns dloss/dscores = p - onehot(y), shape (n, k)."""
    residuals = dense.probabilities(scores)
    residuals[np.arange(len(labels)), labels] -= 1.0
    return residuals
