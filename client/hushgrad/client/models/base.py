"""What a model must offer so that it can be trained with differential privacy."""

from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
from hushgrad.client.errors import InputError
from hushgrad.wire.arrays import ArraySpec

Floats = npt.NDArray[np.float64]
Rows = npt.NDArray[np.floating]
"""Prepared records, shape (n, whatever the model makes of a record), in the precision that the model computes in."""
Labels = npt.NDArray[np.int64]


class ModelError(InputError, ValueError):
    """A model cannot be made or used as asked; the text says what was expected, found, and what to do."""


class ClippedSum(NamedTuple):
    """What `Model.clipped_sum` returns.

    Attributes:
        total: shape (d,), the sum of the clipped gradients.
        zeroed: how many records counted as zero because something of theirs was not finite. It depends on private
            data: it stays in this process, and a round with such records costs what any round costs.
    """

    total: Floats
    zeroed: int


class Model(Protocol):
    """A loss, its clipped gradient, and the numbers that the accountant needs about how it is computed.

    A model is immutable and holds no parameters: they travel as one vector of shape (d,), the arrays joined in order.
    Every implementation, a third party's too, passes `hushgrad.conformance.model_suite`.
    """

    @property
    def name(self) -> str:
        """The kind with whatever the arrays do not show, as the terms name it: "lenet-tanh". Clients compare it."""

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
        """u of the arithmetic that sums clipped gradients: 2**-53 for float64, 2**-24 for float32."""

    @property
    def clip_error(self) -> float:
        """kappa: no clipped gradient is longer than C * (1 + kappa), whatever the record and the parameters."""

    def initial(self, seed: int) -> npt.NDArray[np.float32]:
        """Returns an initial parameter vector, shape (d,), the same for the same seed."""

    def prepare(self, features: Rows) -> Rows:
        """Returns what the model makes of records once, before any training: shape (n, p) for features (n, f).

        A change of type, a fixed feature map, or the argument itself. Row i depends, bit for bit, on record i alone:
        nothing is computed from several records. `clipped_sum` and `predict` take what this returns.
        """

    def clipped_sum(self, parameters: Floats, rows: Rows, labels: Labels, clip_norm: float) -> ClippedSum:
        """Returns the sum over the records of their gradients, each clipped to L2 norm C.

        Args:
            parameters: shape (d,).
            rows: shape (n, p), prepared records; n may be 0.
            labels: shape (n,), each from 0 to classes - 1.
            clip_norm: C > 0, in units of the loss.

        Returns:
            The sum, shape (d,), and the number of records that counted as zero. The sum differs by at most n m u C, in
            L2 norm, from the exact sum of one vector per record. That vector has L2 norm <= C * (1 + kappa) and
            depends, bit for bit, on that record, the parameters and C alone: not on the other records, nor on the
            record's place among them. A record with a value that is not finite, or whose row or gradient has a squared
            norm beyond the model's precision, counts as zero. No record: zeros.
        """

    def predict(self, parameters: Floats, rows: Rows) -> Floats:
        """Returns class probabilities, shape (n, classes), for prepared records of shape (n, p)."""
