"""Two convolutions with pooling, record by record, and the gradient of each record: what is special about LeNet-5.

A convolution 5 x 5 is a product of its weights with patches. Here patches are "wide": output rows keep the pitch of the
input's rows, so that the patches of all outputs, for one place in the window, are one contiguous piece of the flattened
input, copied as a whole. The few columns at the right end of each row that are no outputs are computed along; nothing
reads them, and their derivatives are zero.

An activation that never falls commutes with the largest of four, so pooling comes first: a quarter of the work. Of
equal values in a window the left one of the upper row counts, then the right one, then the lower row.

Each record has products of its own, of one shape, and the rest is elementwise on arrays of one shape: what is computed
for a record does not depend on the others. Records of convolutions have gradients of a few thousand numbers; they are
built, because no norm is had more cheaply (Goodfellow's trick costs the square of the number of outputs).
"""

import threading
from dataclasses import dataclass
from typing import Final

import numpy as np
from hushgrad.client.models import dense
from hushgrad.client.models.base import ModelError
from hushgrad.client.models.dense import Activation, Singles
from numpy.lib.stride_tricks import as_strided

WINDOW: Final = 5
"""Height and width of a convolution's window."""

CHANNELS: Final = (1, 6, 16)

_FIRST: Final = CHANNELS[1], CHANNELS[0] * WINDOW**2 + 1
"""Shape of the first convolution's weights as a matrix; the last column is the bias."""

_SECOND: Final = CHANNELS[2], CHANNELS[1] * WINDOW**2 + 1
_TAIL: Final = WINDOW - 1
"""How far the last wide patch of an image reaches beyond its last row."""

GRADIENT_SIZE: Final = _FIRST[0] * _FIRST[1] + _SECOND[0] * _SECOND[1]


@dataclass(frozen=True, slots=True)
class Geometry:
    """Sizes that follow from the image and its padding.

    Attributes:
        height, width: of the image.
        padding: zeros on all four sides.

    Raises:
        ModelError: at construction, unless both padded sides are multiples of 4 and at least 16.
    """

    height: int
    width: int
    padding: int

    def __post_init__(self) -> None:
        if self.height < 1 or self.width < 1 or self.padding < 0:
            raise ModelError(
                f"an image must have at least one row and column and padding >= 0, found {self.height} x {self.width} "
                f"and {self.padding}"
            )
        for side in (self.padded_height, self.padded_width):
            if side < 16 or side % 4 or side > 1024:
                raise ModelError(
                    "height and width, padding included, must be multiples of 4 from 16 to 1024, so that two windows "
                    f"of 5 and two poolings fit; found {self.height} x {self.width} with padding {self.padding}"
                )

    @property
    def padded_height(self) -> int:
        """Rows of the first convolution's input."""
        return self.height + 2 * self.padding

    @property
    def padded_width(self) -> int:
        """Pitch of its rows."""
        return self.width + 2 * self.padding

    @property
    def pooled(self) -> tuple[int, int]:
        """Rows of the first pooling's output, and their pitch, of which the last two columns are none."""
        return (self.padded_height - _TAIL) // 2, self.padded_width // 2

    @property
    def last(self) -> tuple[int, int, int]:
        """Rows of the second pooling's output, their columns, and their pitch."""
        rows, pitch = self.pooled
        return (rows - _TAIL) // 2, (pitch - 2 - _TAIL) // 2, pitch // 2

    @property
    def outputs(self) -> int:
        """Numbers that leave the second pooling, for one record."""
        rows, columns, _ = self.last
        return CHANNELS[2] * rows * columns


class Convolutions:
    """The two convolutions on up to n records at once, with the memory that they use again and again.

    Not for several threads at once; `shared` gives each thread its own.

    Args:
        geometry: of the images.
        records: n.
    """

    def __init__(self, geometry: Geometry, records: int) -> None:
        n = records
        self._geometry: Final = geometry
        self._records: Final = n
        rows, pitch = geometry.pooled
        last_rows, columns, last_pitch = geometry.last
        self._columns: Final = columns
        first, second = (geometry.padded_height - _TAIL) * geometry.padded_width, (rows - _TAIL) * pitch
        self._input: Final = _zeros(n, geometry.padded_height * geometry.padded_width + _TAIL)
        self._middle: Final = _zeros(n, CHANNELS[1] * rows * pitch + _TAIL)
        self._patches1: Final = _ones(n, _FIRST[1], first)
        self._patches2: Final = _ones(n, _SECOND[1], second)
        self._scores1: Final = _zeros(n, CHANNELS[1], first)
        self._scores2: Final = _zeros(n, CHANNELS[2], second)
        self._halves1: Final = _zeros(n, CHANNELS[1], rows, 2, pitch)
        self._halves2: Final = _zeros(n, CHANNELS[2], last_rows, 2, last_pitch)
        self._maxima2: Final = _zeros(n, CHANNELS[2], last_rows, last_pitch)
        self._out: Final = _zeros(n, CHANNELS[2], last_rows, columns)
        self._at_maxima2: Final = _zeros(n, CHANNELS[2], last_rows, last_pitch)
        self._at_scores1: Final = _zeros(n, CHANNELS[1], first)
        self._at_scores2_padded: Final = _zeros(n, CHANNELS[2], _TAIL + second + _TAIL)
        self._at_scores2: Final = self._at_scores2_padded[..., _TAIL:-_TAIL]
        self._shifted: Final = _zeros(n, CHANNELS[2], WINDOW, second + _TAIL)
        self._at_rows: Final = _zeros(n, CHANNELS[1], WINDOW, second + _TAIL)
        self._at_middle: Final = _zeros(n, CHANNELS[1], rows * pitch + _TAIL)
        self._gradients: Final = _zeros(n, GRADIENT_SIZE)

    def forward(self, images: Singles, first: Singles, second: Singles, activation: Activation) -> Singles:
        """Returns what leaves the second pooling, shape (n, outputs); valid until the next call.

        Args:
            images: shape (up to n, height * width); records that are lacking are zeros.
            first, second: weights with the bias as last column.
            activation: after each pooling.
        """
        g, n = self._geometry, self._records
        p = g.padding
        rows, pitch = g.pooled
        padded = self._input[:, :-_TAIL].reshape(n, g.padded_height, g.padded_width)
        inside = padded[:, p : p + g.height, p : p + g.width]
        inside[: len(images)] = images.reshape(-1, g.height, g.width)
        inside[len(images) :] = 0
        _take_patches(self._input, 1, g.padded_width, self._patches1)
        np.matmul(first, self._patches1, out=self._scores1)
        middle = self._middle[:, :-_TAIL].reshape(n, CHANNELS[1], rows, pitch)
        _pool(self._scores1, self._halves1, middle)
        dense.activate(middle, activation)
        _take_patches(self._middle, CHANNELS[1], pitch, self._patches2)
        np.matmul(second, self._patches2, out=self._scores2)
        _pool(self._scores2, self._halves2, self._maxima2)
        np.copyto(self._out, self._maxima2[..., : self._columns])
        return dense.activate(self._out, activation).reshape(n, -1)

    def gradients(self, at_outputs: Singles, second: Singles, activation: Activation) -> Singles:
        """Returns each record's gradient at the weights of both, biases as last columns: shape (n, GRADIENT_SIZE).

        For the records of the last `forward`; valid until the next call.

        Args:
            at_outputs: the loss's derivatives at what `forward` returned, shape (n, outputs).
            second: the second weights, as given there.
            activation: as given there.
        """
        g, n = self._geometry, self._records
        rows, pitch = g.pooled
        at_scores = dense.times_slope(at_outputs.reshape(self._out.shape), self._out, activation)
        self._at_maxima2[..., : self._columns] = at_scores
        _unpool(self._at_maxima2, self._halves2, self._scores2, self._at_scores2)
        split = _FIRST[0] * _FIRST[1]
        into_second = self._gradients[:, split:].reshape(n, *_SECOND)
        into_second[...] = self._at_scores2 @ self._patches2.transpose(0, 2, 1)
        self._hand_back(second, pitch)
        at_middle = self._at_middle[:, :, :-_TAIL].reshape(n, CHANNELS[1], rows, pitch)
        middle = self._middle[:, :-_TAIL].reshape(n, CHANNELS[1], rows, pitch)
        _unpool(dense.times_slope(at_middle, middle, activation), self._halves1, self._scores1, self._at_scores1)
        into_first = self._gradients[:, :split].reshape(n, *_FIRST)
        into_first[...] = self._at_scores1 @ self._patches1.transpose(0, 2, 1)
        return self._gradients

    def _hand_back(self, second: Singles, pitch: int) -> None:
        """Computes derivatives at the second convolution's input from those at its scores.

        Place q of the input meets weight (dy, dx) of the score at q - dy * pitch - dx. Scores shifted by each dx stand
        below each other, so that one product sums over scores and dx; what remains is to add five pieces, one per dy.
        """
        padded, length = self._at_scores2_padded, self._shifted.shape[-1]
        step = padded.itemsize
        view = as_strided(
            padded[..., _TAIL:],
            self._shifted.shape,
            (*padded.strides[:2], -step, step),
            writeable=False,
        )
        np.copyto(self._shifted, view)
        weights = second[:, :-1].reshape(CHANNELS[2], CHANNELS[1], WINDOW, WINDOW).transpose(1, 2, 0, 3)
        np.matmul(
            weights.reshape(CHANNELS[1] * WINDOW, CHANNELS[2] * WINDOW),
            self._shifted.reshape(self._records, CHANNELS[2] * WINDOW, length),
            out=self._at_rows.reshape(self._records, CHANNELS[1] * WINDOW, length),
        )
        self._at_middle.fill(0)
        for dy in range(WINDOW):
            self._at_middle[:, :, dy * pitch : dy * pitch + length] += self._at_rows[:, :, dy]


_local: Final = threading.local()


def shared(geometry: Geometry, records: int) -> Convolutions:
    """Returns this thread's convolutions of that geometry; one at a time is kept."""
    key = (geometry, records)
    if getattr(_local, "key", None) != key:
        _local.convolutions, _local.key = Convolutions(geometry, records), key
    found: Convolutions = _local.convolutions
    return found


def _zeros(*shape: int) -> Singles:
    return np.zeros(shape, np.float32)


def _ones(*shape: int) -> Singles:
    return np.ones(shape, np.float32)


def _take_patches(source: Singles, channels: int, pitch: int, patches: Singles) -> None:
    """Copies patches; the last row of each record's, which meets the bias, stays 1."""
    n, wide = len(source), patches.shape[-1]
    channel = (source.shape[1] - _TAIL) // channels
    step = source.itemsize
    view = as_strided(
        source,
        (n, channels, WINDOW, WINDOW, wide),
        (source.strides[0], channel * step, pitch * step, step, step),
        writeable=False,
    )
    np.copyto(patches[:, :-1].reshape(n, channels, WINDOW, WINDOW, wide), view)


def _pool(scores: Singles, halves: Singles, maxima: Singles) -> None:
    """Takes the larger of left and right into halves, and of upper and lower half into maxima."""
    np.maximum(scores[..., 0::2], scores[..., 1::2], out=halves.reshape(*scores.shape[:-1], -1))
    np.maximum(halves[..., 0, :], halves[..., 1, :], out=maxima)


def _unpool(at_maxima: Singles, halves: Singles, scores: Singles, at_scores: Singles) -> None:
    """Hands derivatives back to the scores that were the largest; the others get zero."""
    at_halves = np.empty_like(halves)
    upper, lower = at_halves[..., 0, :], at_halves[..., 1, :]
    np.multiply(at_maxima, halves[..., 0, :] >= halves[..., 1, :], out=upper)
    np.subtract(at_maxima, upper, out=lower)
    flat = at_halves.reshape(*scores.shape[:-1], -1)
    left, right = at_scores[..., 0::2], at_scores[..., 1::2]
    np.multiply(flat, scores[..., 0::2] >= scores[..., 1::2], out=left)
    np.subtract(flat, left, out=right)
