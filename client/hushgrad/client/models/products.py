"""Matrix products in which a row of the result depends, bit for bit, on the same row of the left factor alone.

A library for matrix products chooses another kernel, hence another order of additions, when the shape changes and at
the borders of blocks: in float32 the last rows of a product commonly have other bits than the same rows elsewhere. So
rows are multiplied in products of one fixed shape, and that a row's bits depend neither on its place nor on its
neighbours is checked on this machine, once for every shape, before it is relied on. The first of several ways that
passes is taken; where none does, each row is multiplied on its own.
"""

import functools
from typing import Final, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

_Float = TypeVar("_Float", bound=np.floating)

BLOCK: Final = 64
"""Rows come in multiples of it."""


class Way(NamedTuple):
    """One way to multiply: how many rows at a time, and whether as (W^T X^T)^T, which puts rows into vector lanes."""

    rows: int
    transposed: bool


WAYS: Final = (Way(64, False), Way(64, True), Way(32, True), Way(16, True), Way(8, True))
"""From the fastest to the slowest."""


def rowwise(rows: npt.NDArray[_Float], weights: npt.NDArray[_Float]) -> npt.NDArray[_Float]:
    """Returns rows @ weights, shape (n, k), C-contiguous, each row computed as if it were alone.

    Args:
        rows: shape (n, f), each row contiguous, n a multiple of 16; of 64 for speed. Always the same for one kind of
            record: another block is another rounding.
        weights: shape (f, k), of the same type.
    """
    f, k = weights.shape
    if k == 1:
        return np.vecdot(rows, np.ascontiguousarray(weights[:, 0]))[:, np.newaxis]
    way = chosen_way(min(BLOCK, len(rows) & -len(rows)), f, k, rows.dtype)
    if way is None:
        return (rows[:, np.newaxis, :] @ np.ascontiguousarray(weights))[:, 0, :]
    return _product(rows, weights, way)


def _product(rows: npt.NDArray[_Float], weights: npt.NDArray[_Float], way: Way) -> npt.NDArray[_Float]:
    f, k = weights.shape
    blocks = rows.reshape(-1, way.rows, f)
    if not way.transposed:
        return (blocks @ np.ascontiguousarray(weights)).reshape(-1, k)
    turned = np.ascontiguousarray(weights.T) @ blocks.transpose(0, 2, 1)
    # A copy, laid out alike however many blocks there are: sums along a row have an order that follows the layout.
    return np.ascontiguousarray(turned.transpose(0, 2, 1)).reshape(-1, k)


@functools.lru_cache(maxsize=256)
def chosen_way(block: int, f: int, k: int, dtype: npt.DTypeLike) -> Way | None:
    """Returns the first way, of at most `block` rows, whose rows are independent on this machine; None if none is."""
    return next((way for way in WAYS if block % way.rows == 0 and is_rowwise(way, f, k, dtype)), None)


def is_rowwise(way: Way, f: int, k: int, dtype: npt.DTypeLike) -> bool:
    """Says whether, in products of that shape on this machine, a row's bits depend on that row alone.

    Rows travel through every place of the product, and neighbours change; the results must travel with them.
    """
    m = way.rows
    rows = np.sin(np.arange(1.0, m * f + 1.0)).reshape(m, f).astype(dtype)
    weights = np.cos(np.arange(f * k) * 0.7).reshape(f, k).astype(dtype)
    expected = _product(rows, weights, way)
    turned = all(
        np.array_equal(_product(np.roll(rows, shift, axis=0), weights, way), np.roll(expected, shift, axis=0))
        for shift in range(1, m)
    )
    return turned and all(
        np.array_equal(_product(_only(rows, place), weights, way), _only(expected, place)) for place in range(m)
    )


def _only(rows: npt.NDArray[_Float], place: int) -> npt.NDArray[_Float]:
    kept = np.zeros_like(rows)
    kept[place] = rows[place]
    return kept
