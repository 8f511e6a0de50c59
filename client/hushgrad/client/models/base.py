"""What a model must offer so that it can be trained with differential privacy."""

from typing import Protocol

import numpy as np
import numpy.typing as npt
from hushgrad.client.errors import InputError
from hushgrad.wire.arrays import ArraySpec

Floats = npt.NDArray[np.float64]
Labels = npt.NDArray[np.int64]


class ModelError(InputError, ValueError):
    """A model cannot be made or used as asked; the text says what was expected, found, and what to do."""


class Model(Protocol):
    """A loss, its clipped gradient, and the numbers that the accountant needs about how it is computed.

    A model is immutable and holds no parameters: they travel as one vector of shape (d,), the arrays joined in order.
    Every implementation passes `tests/conformance/model_suite.py`.
    """

    @property
    def name(self) -> str:
        """The kind, as configuration files name it."""

    @property
    def arrays(self) -> tuple[ArraySpec, ...]:
        """Names and shapes of the parameters, in the order of the vector; their sizes add up to d."""

    @property
    def features(self) -> int:
        """f, the number of features of one record."""

    @property
    def classes(self) -> int:
        """Number of classes; labels are 0 to classes - 1."""

    @property
    def chunk_examples(self) -> int:
        """m in the summation error e = n_max * m * u * C of `clipped_sum`, u the unit roundoff."""

    @property
    def unit_roundoff(self) -> float:
        """u of the arithmetic that clips and sums: 2**-53 for float64."""

    @property
    def clip_error(self) -> float:
        """kappa: no clipped gradient is longer than C * (1 + kappa), whatever the record and the parameters."""

    def initial(self, seed: int) -> npt.NDArray[np.float32]:
        """Returns an initial parameter vector, shape (d,), the same for the same seed."""

    def clipped_sum(self, parameters: Floats, features: Floats, labels: Labels, clip_norm: float) -> Floats:
        """Returns the sum over the records of their gradients, each clipped to L2 norm C.

        Args:
            parameters: shape (d,).
            features: shape (n, f), one row per record; n may be 0.
            labels: shape (n,), each from 0 to classes - 1.
            clip_norm: C > 0, in units of the loss.

        Returns:
            Shape (d,). It differs by at most n * m * u * C, in L2 norm, from the exact sum of one vector per record.
            That vector has L2 norm <= C * (1 + kappa) and depends, bit for bit, on that record, the parameters and C
            alone: not on the other records, nor on the record's place among them. A record with a value that is not
            finite, or whose features or gradient have a squared norm beyond float64, counts as zero. No record: zeros.
        """

    def predict(self, parameters: Floats, features: Floats) -> Floats:
        """Returns class probabilities, shape (n, classes), for features of shape (n, f)."""
