"""Multilayer perceptrons, and softmax regression as the one without a hidden layer, in float32."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from hushgrad.client.models import dense, products
from hushgrad.client.models.base import ClippedSum, Floats, Labels, ModelError, Rows
from hushgrad.wire.arrays import ArraySpec

ROWS: Final = products.BLOCK
"""Rows that are summed in float32."""

CHUNK_ROWS: Final = 4 * ROWS
"""Records that go through together, to spread numpy's overhead."""

_PREDICTED_ROWS: Final = 1024


@dataclass(frozen=True, slots=True)
class Mlp:
    """Loss -log p_y with p = softmax of the last of several dense layers; the theory is in `dense`.

    Attributes:
        features: f >= 1.
        classes: k >= 2.
        hidden: widths of the hidden layers.
        activation: "tanh" or "relu", of the hidden layers.

    Raises:
        ModelError: at construction, if a number is out of range.
    """

    features: int
    classes: int
    hidden: tuple[int, ...]
    activation: dense.Activation

    def __post_init__(self) -> None:
        object.__setattr__(self, "hidden", tuple(self.hidden))
        dense.check_widths((self.features,), "the number of features")
        dense.check_widths(self.hidden, "hidden widths")
        dense.check_activation(self.activation)
        if self.classes < 2:
            raise ModelError(f"a model must have at least 2 classes, found {self.classes}")

    @property
    def widths(self) -> tuple[int, ...]:
        """Inputs, hidden layers, classes."""
        return (self.features, *self.hidden, self.classes)

    @property
    def name(self) -> str:
        """See `Model`."""
        return f"mlp-{self.activation}"

    @property
    def arrays(self) -> tuple[ArraySpec, ...]:
        """See `Model`."""
        return dense.arrays(self.widths)

    @property
    def chunk_examples(self) -> int:
        """See `Model`; derived in `dense`."""
        return ROWS + 4

    @property
    def unit_roundoff(self) -> float:
        """See `Model`."""
        return dense.UNIT_ROUNDOFF

    @property
    def clip_error(self) -> float:
        """See `Model`; derived in `dense`."""
        return dense.CLIP_ERROR

    def initial(self, seed: int) -> dense.Singles:
        """See `dense.initial`."""
        return dense.initial(self.widths, self.activation, seed)

    def prepare(self, features: Rows) -> Rows:
        """Returns the features in float32 and their squared norms, see `dense.with_norms`."""
        return dense.with_norms(features)

    def clipped_sum(self, parameters: Floats, rows: Rows, labels: Labels, clip_norm: float) -> ClippedSum:
        """See `Model`."""
        return clipped_sum(parameters, rows, labels, clip_norm, widths=self.widths, activation=self.activation)

    def predict(self, parameters: Floats, rows: Rows) -> Floats:
        """See `Model`; in float64."""
        stack = dense.layers(parameters, self.widths)
        found = np.empty((len(rows), self.classes))
        for start in range(0, len(rows), _PREDICTED_ROWS):
            values = np.asarray(rows[start : start + _PREDICTED_ROWS, :-1], np.float64)
            for number, (weights, bias) in enumerate(stack, 1):
                values = values @ weights + bias
                if number < len(stack):
                    values = dense.activate(values, self.activation)
            found[start : start + _PREDICTED_ROWS] = dense.probabilities(values)
        return found


def clipped_sum(
    parameters: Floats,
    rows: Rows,
    labels: Labels,
    clip_norm: float,
    *,
    widths: tuple[int, ...],
    activation: dense.Activation,
) -> ClippedSum:
    """Returns the sum of clipped gradients of a stack of dense layers, with the guarantees of `Model.clipped_sum`."""
    dense.check_arguments(rows, labels, clip_norm, widths[0] + 1)
    total = np.zeros(len(parameters))
    single = dense.single(parameters)
    if single is None or not len(rows):
        return ClippedSum(total, len(rows))
    stack, zeroed = dense.for_products(dense.layers(single, widths)), 0
    with np.errstate(all="ignore"):  # what is not finite is found by its norm
        for start in range(0, len(rows), CHUNK_ROWS):
            used = min(CHUNK_ROWS, len(rows) - start)
            chunk = padded(rows[start : start + used], ROWS)
            values = dense.forward(stack, chunk[:, :-1], activation)
            at_scores = dense.residuals(values[-1], labels[start : start + used])
            derivatives = dense.backward(stack, values, at_scores, activation, to_inputs=False)
            squared = dense.squared_norms(values, derivatives, chunk[:, -1])
            finite = np.isfinite(squared)
            if not finite.all():
                zeroed += used - int(finite[:used].sum())
                values[0] = values[0].copy()  # it may be the caller's
                for array in (*values, *derivatives):
                    array[~finite] = 0
            dense.add_sums(total, values, derivatives, dense.factors(squared, clip_norm), ROWS)
    return ClippedSum(total, zeroed)


def padded(rows: Rows, block: int) -> dense.Singles:
    """Returns the rows in float32, and rows of zeros up to a multiple of block; the rows themselves if they will do."""
    count = -(-len(rows) // block) * block
    if count == len(rows) and rows.dtype == np.float32 and rows.flags.c_contiguous:
        return rows
    found = np.zeros((count, rows.shape[1]), np.float32)
    found[: len(rows)] = rows
    return found
