"""LeNet-5 for images of one channel, in float32, by book-keeping.

One backward pass to the scores of every layer gives all that is needed: norms of dense layers without their gradients
(`dense`), gradients of the two convolutions record by record (`convolution`), and one weighted sum. Everything that
`dense` says about bits, kappa and m holds: a record's gradient of the convolutions is, as computed, part of its vector;
it is multiplied by the record's factor inside the sum.
"""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from hushgrad.client.models import convolution, dense
from hushgrad.client.models.base import ClippedSum, Floats, Labels, ModelError, Rows
from hushgrad.wire.arrays import ArraySpec

ROWS: Final = 16
"""Records that go through together: few enough for the cache."""

HIDDEN: Final = (120, 84)

_SPLIT: Final = 6 * 26


@dataclass(frozen=True, slots=True)
class LeNet:
    """Two convolutions 5 x 5 with 6 and 16 channels, each with 2 x 2 max pooling, and dense layers of 120, 84, classes.

    Loss -log p_y, p = softmax of the scores; the activation after each pooling and each hidden layer.

    Attributes:
        features: height * width.
        classes: k >= 2.
        activation: "tanh" or "relu".
        padding: zeros around the image: 2 gives the 61,706 parameters of the textbook for 28 x 28 and 10 classes, 0
            gives 44,426.
        image: height and width; None: a square.

    Raises:
        ModelError: at construction, if two windows of 5 and two poolings do not fit the image.
    """

    features: int
    classes: int
    activation: dense.Activation
    padding: int
    image: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        dense.check_activation(self.activation)
        if self.classes < 2:
            raise ModelError(f"a model must have at least 2 classes, found {self.classes}")
        side = math.isqrt(max(0, self.features))
        image = (side, side) if self.image is None else tuple(self.image)
        if len(image) != 2 or image[0] * image[1] != self.features:
            raise ModelError(
                f"image must be [height, width] with {self.features} pixels, the number of features, found "
                f"{list(image)}"
            )
        object.__setattr__(self, "image", image)
        convolution.Geometry(*image, self.padding)

    @property
    def geometry(self) -> convolution.Geometry:
        """Sizes of what is convolved."""
        height, width = self.image or (0, 0)
        return convolution.Geometry(height, width, self.padding)

    @property
    def widths(self) -> tuple[int, ...]:
        """Of the dense layers, from the flattened second pooling to the classes."""
        return (self.geometry.outputs, *HIDDEN, self.classes)

    @property
    def name(self) -> str:
        """See `Model`; two paddings of two images could have the same arrays, so the padding is part of it."""
        return f"lenet-{self.activation}-{self.padding}"

    @property
    def arrays(self) -> tuple[ArraySpec, ...]:
        """Convolutions as (channels out, channels in, 5, 5), dense layers as (inputs, outputs)."""
        return (
            ArraySpec("convolution1", (6, 1, 5, 5)),
            ArraySpec("convolution_bias1", (6,)),
            ArraySpec("convolution2", (16, 6, 5, 5)),
            ArraySpec("convolution_bias2", (16,)),
            *dense.arrays(self.widths),
        )

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
        """See `dense.initial`; a convolution has as many inputs as a window has numbers."""
        return np.concatenate(
            [
                dense.uniform(150, dense.limit(25, self.activation), f"convolution 1 of seed {seed}"),
                np.zeros(6, np.float32),
                dense.uniform(2400, dense.limit(150, self.activation), f"convolution 2 of seed {seed}"),
                np.zeros(16, np.float32),
                dense.initial(self.widths, self.activation, seed),
            ]
        )

    def prepare(self, features: Rows) -> Rows:
        """Returns the pixels in float32."""
        with np.errstate(over="ignore"):
            return np.ascontiguousarray(features, np.float32)

    def clipped_sum(self, parameters: Floats, rows: Rows, labels: Labels, clip_norm: float) -> ClippedSum:
        """See `Model`."""
        dense.check_arguments(rows, labels, clip_norm, self.features)
        total = np.zeros(len(parameters))
        single = dense.single(parameters)
        if single is None or not len(rows):
            return ClippedSum(total, len(rows))
        first, second, stack = self._unpacked(single)
        of_convolutions = np.zeros(convolution.GRADIENT_SIZE)
        shared, zeroed = convolution.shared(self.geometry, ROWS), 0
        with np.errstate(all="ignore"):  # what is not finite is found by its norm
            for start in range(0, len(rows), ROWS):
                used = min(ROWS, len(rows) - start)
                images = np.ascontiguousarray(rows[start : start + used], np.float32)
                usable = np.isfinite(np.vecdot(images, images))
                if not usable.all():
                    images = np.where(usable[:, np.newaxis], images, np.float32(0))
                values = dense.forward(stack, shared.forward(images, first, second, self.activation), self.activation)
                at_scores = dense.residuals(values[-1], labels[start : start + used])
                at_outputs, *derivatives = dense.backward(stack, values, at_scores, self.activation, to_inputs=True)
                gradients = shared.gradients(at_outputs, second, self.activation)
                squared = dense.squared_norms(values, derivatives) + dense.squares(gradients)
                squared[:used][~usable] = np.inf
                finite = np.isfinite(squared)
                if not finite.all():
                    zeroed += used - int(finite[:used].sum())
                    for array in (*values, *derivatives, gradients):
                        array[~finite] = 0
                factors = dense.factors(squared, clip_norm)
                of_convolutions += factors @ gradients
                dense.add_sums(total[convolution.GRADIENT_SIZE :], values, derivatives, factors, ROWS)
        self._pack(of_convolutions, total)
        return ClippedSum(total, zeroed)

    def predict(self, parameters: Floats, rows: Rows) -> Floats:
        """See `Model`; scores in float32."""
        first, second, stack = self._unpacked(parameters.astype(np.float32))
        shared = convolution.shared(self.geometry, ROWS)
        found = np.empty((len(rows), self.classes))
        for start in range(0, len(rows), ROWS):
            used = min(ROWS, len(rows) - start)
            images = np.ascontiguousarray(rows[start : start + used], np.float32)
            values = dense.forward(stack, shared.forward(images, first, second, self.activation), self.activation)
            found[start : start + used] = dense.probabilities(values[-1][:used].astype(np.float64))
        return found

    def _unpacked(self, single: dense.Singles) -> tuple[dense.Singles, dense.Singles, list[dense.Layer]]:
        """Returns both convolutions with their bias as last column, and the dense layers."""
        one, two = single[:_SPLIT], single[_SPLIT : convolution.GRADIENT_SIZE]
        return (
            np.column_stack([one[:150].reshape(6, 25), one[150:]]),
            np.column_stack([two[:2400].reshape(16, 150), two[2400:]]),
            dense.for_products(dense.layers(single[convolution.GRADIENT_SIZE :], self.widths)),
        )

    def _pack(self, gradient: Floats, total: Floats) -> None:
        """Writes a gradient of both convolutions, bias as last column, into its places in the whole."""
        one, two = gradient[:_SPLIT].reshape(6, 26), gradient[_SPLIT:].reshape(16, 151)
        total[:150], total[150:_SPLIT] = one[:, :25].ravel(), one[:, 25]
        total[_SPLIT : _SPLIT + 2400] = two[:, :150].ravel()
        total[_SPLIT + 2400 : convolution.GRADIENT_SIZE] = two[:, 150]
