"""A fixed feature map of images: how much the brightness rises, where, and in which of eight directions.

Nothing is learned and nothing is computed from more than one image, so it costs no privacy: it is part of the model,
like its shape. In front of softmax regression it does for small drawings what two layers of a network would have to
learn under noise, with a fraction of the parameters.

Of an image v in [0, 1] (zero around it), with dx and dy the differences of a pixel's right and left, lower and upper
neighbours: its length ||(dx, dy)|| is shared between the two nearest of eight directions, in proportion to the angle,
and between the four nearest cells of 4 x 4 pixels, in proportion to the distance from their centres. Of each cell's sum
the square root is taken, so that bold strokes do not drown fine ones. From each direction's map its mean over the cells
is taken away: what all drawings have in common says nothing about their class and would use up the length to which
gradients are clipped. The whole is scaled to norm 3, beside which the constant of the bias is small.

Reference:
    Dalal and Triggs, "Histograms of Oriented Gradients for Human Detection", CVPR 2005.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
from hushgrad.client.models.base import ModelError, Rows

CELL: Final = 4
DIRECTIONS: Final = 8

NORM: Final = 3.0
"""Of a mapped image."""

_ROWS: Final = 64
_SMALLEST: Final = 1e-3
"""Added to a norm: an image without any edge maps to zeros."""


def check(image: Sequence[int], features: int) -> None:
    """Refuses images that are not made of whole cells.

    Raises:
        ModelError: if so, or if the pixels are not as many as the features.
    """
    if len(image) != 2 or min(image) < CELL or any(side % CELL for side in image) or image[0] * image[1] != features:
        raise ModelError(
            f"for oriented gradients a record must be an image [height, width] of {features} pixels, the number of "
            f"features, both multiples of {CELL}; found {list(image)}; set [model] image"
        )


def count(image: Sequence[int]) -> int:
    """Returns the number of mapped features.

    >>> count((28, 28))
    392
    """
    return image[0] // CELL * (image[1] // CELL) * DIRECTIONS


def of(features: Rows, image: Sequence[int]) -> npt.NDArray[np.float32]:
    """Returns the map of each image, shape (n, count), in float32.

    Args:
        features: shape (n, height * width), pixels row by row, scaled to [0, 1].
        image: height and width.
    """
    found = np.empty((len(features), count(image)), np.float32)
    padded = np.zeros((_ROWS, image[0] + 2, image[1] + 2), np.float32)
    with np.errstate(all="ignore"):  # what is not finite stays so, and counts as zero later
        for start in range(0, len(features), _ROWS):
            part = features[start : start + _ROWS]
            padded[: len(part), 1:-1, 1:-1] = part.reshape(-1, *image)
            found[start : start + _ROWS] = _of_some(padded)[: len(part)]
    return found


def _of_some(padded: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Maps images with a border; every step is elementwise or goes along one image."""
    dx = padded[:, 1:-1, 2:] - padded[:, 1:-1, :-2]
    dy = padded[:, 2:, 1:-1] - padded[:, :-2, 1:-1]
    length = np.sqrt(dx * dx + dy * dy)
    turn = np.arctan2(dy, dx) * np.float32(DIRECTIONS / (2 * np.pi))  # -4 to 4
    maps = []
    for direction in range(DIRECTIONS):
        apart = np.abs(turn - direction)
        apart = np.minimum(apart, np.abs(apart - DIRECTIONS))
        maps.append(_by_cells(np.maximum(1 - apart, 0) * length))
    joined = np.sqrt(np.stack(maps, axis=1))
    joined -= joined.mean(axis=(2, 3), keepdims=True)
    flat = joined.reshape(len(padded), -1)
    norm = np.sqrt(np.vecdot(flat, flat))
    flat *= (np.float32(NORM) / (norm + np.float32(_SMALLEST)))[:, np.newaxis]
    return flat


def _by_cells(pixels: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Sums pixels into cells, each pixel into the two nearest along each side; beyond the last there is none."""
    return _along(_along(pixels).swapaxes(1, 2)).swapaxes(1, 2)


def _along(pixels: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """The same along axis 1. Pixel j of a cell lies (j + 1/2) / 4 - 1/2 cells from its centre."""
    n, height, width = pixels.shape
    cells = pixels.reshape(n, height // CELL, CELL, width)
    own = np.zeros((n, height // CELL, width), np.float32)
    for place in range(CELL):
        offset = (place + 0.5) / CELL - 0.5
        own += np.float32(1 - abs(offset)) * cells[:, :, place]
        if offset < 0:
            own[:, :-1] += np.float32(-offset) * cells[:, 1:, place]
        else:
            own[:, 1:] += np.float32(offset) * cells[:, :-1, place]
    return own
