"""Clipped sums of gradients of generalised linear models, in closed form, and how exact they are.

The gradient of a record (x, y) with scores z = x W + b is g = (x (x) R + lambda W, R), where R = dloss/dz is its
residual, shape (k,), and (x) the outer product. No such gradient is ever materialised, because its norm has a closed
form,

    ||g||^2 = ||R||^2 (||x||^2 + 1) + 2 lambda sum_k R_k (x.W_k) + lambda^2 ||W||^2,

and the sum of clipped gradients is X^T (c R) + (sum c) lambda W with c = min(1, C / ||g||).

Why a clipped gradient depends on its own record alone. Everything up to c R is computed row by row: `vecdot` makes one
dot product per row, the rest is elementwise. Products of rows with several columns are matrix products of one fixed
shape, (64, f) times (f, k), the last one padded with zero rows; that a row's bits do not depend on its place in it nor
on the other rows is checked on this machine before it is used (`products`), and where it is not so, each row is
multiplied on its own.

Why kappa = 2^-48. With u = 2^-53, t^2 the first term and omega^2 the last, rounding changes the closed form by at most
(fk + 2f + 2k + 32) u (t^2 + omega^2): dot products of f, k and fk terms in any order, and 2 t omega <= t^2 + omega^2
for the cross term, which may cancel the others. Twice that is added before the root is taken, so the norm used is
never below the true one by more than a few u. What then exceeds C is the rounding of the root, of C / norm and of c R:
at most (4 + ||(x,1)|| ||cR|| / C) u <= 7 u, see below; 2^-48 = 32 u.

Why m = 2048 in e = n m u C. The record's vector is v = ((cR) (x) x + c lambda W, cR) with the floating-point c and cR.
While omega <= 2 C, its two parts have norms <= 3 C (1 + kappa) and 2 C, and no term passes more than 3 + 256 + 2
log2(n / 256) roundings (one product, the sum over a block of 256 rows, the tree over blocks, the penalty): below 330
for n < 2^40, and 5 * 330 < 2048. When omega > 2 C (a penalty whose gradient alone exceeds the clip norm twice),
cancellation could make the parts much larger than C; then each gradient is built in full, one at a time, and summed
the same way. The choice depends on parameters and C only, so neighbouring data sets always take the same road.

| edge | result |
| --- | --- |
| no record | zeros |
| norm zero | c = 1, contributes zero |
| NaN or infinity in a record, or the squared norm of x or of g above 1e308 | the record counts as zero |
| NaN or infinity in the parameters | every record counts as zero |
"""

from collections.abc import Callable
from typing import Final

import numpy as np
from hushgrad.client.models import products
from hushgrad.client.models.base import ClippedSum, Floats, Labels, ModelError, Rows

UNIT_ROUNDOFF: Final = 2.0**-53
CLIP_ERROR: Final = 2.0**-48
CHUNK_EXAMPLES: Final = 2048
"""m of the error bound, not the number of rows in a product."""

ROWS: Final = products.BLOCK
"""Rows of one matrix product; shorter ones are padded."""

BLOCK_ROWS: Final = 4 * ROWS
"""Rows that are summed before the tree: large enough to spread numpy's overhead, small enough for the cache."""

MAX_PENALTY: Final = 2.0
"""Largest omega / C, omega = ||lambda W||, for which the closed form is used."""

Residuals = Callable[[Floats, Labels], Floats]
"""From scores (n, k), bias included, and labels (n,) to dloss/dscores (n, k), row by row."""


def check(features: int, classes: int, l2: float) -> None:
    """Refuses numbers no linear model can have.

    Raises:
        ModelError: unless features >= 1, classes >= 2 and l2 is finite and >= 0.
    """
    if features < 1:
        raise ModelError(f"a model must have at least 1 feature, found {features}")
    if classes < 2:
        raise ModelError(f"a model must have at least 2 classes, found {classes}")
    if not 0 <= l2 < float("inf"):
        raise ModelError(f"l2 must be finite and >= 0, found {l2}")


def clipped_sum(
    parameters: Floats,
    features: Rows,
    labels: Labels,
    clip_norm: float,
    *,
    outputs: int,
    l2: float,
    residuals: Residuals,
) -> ClippedSum:
    """Returns the sum of clipped gradients, with the guarantees of `Model.clipped_sum`.

    Args:
        parameters: shape (f * k + k,): weights (f, k) in row-major order, then biases (k,).
        features: shape (n, f).
        labels: shape (n,).
        clip_norm: C > 0.
        outputs: k, the number of scores; 1 for two classes.
        l2: lambda >= 0.
        residuals: the derivative of the loss.
    """
    k = outputs
    weights, bias = parameters[:-k].reshape(-1, k), parameters[-k:]
    if not 0 < clip_norm < np.inf:
        raise ModelError(f"clip_norm must be finite and > 0, found {clip_norm}")
    if features.ndim != 2 or features.shape[1] != weights.shape[0] or labels.shape != features.shape[:1]:
        raise ModelError(
            f"expected features of shape (n, {weights.shape[0]}) and n labels, found {features.shape} "
            f"and {labels.shape}"
        )
    if not len(features) or not np.isfinite(parameters).all():
        return ClippedSum(np.zeros_like(parameters), len(features))
    with np.errstate(all="ignore"):  # what is not finite is found by its norm
        penalty = l2 * weights if l2 else None
        omega = float(np.linalg.norm(penalty)) if penalty is not None else 0.0
        block_sum = _block_sum if omega <= MAX_PENALTY * clip_norm else _block_sum_in_full
        tree: list[Floats] = []
        zeroed = 0
        for start in range(0, len(features), BLOCK_ROWS):
            rows, row_labels = _padded(features[start : start + BLOCK_ROWS], labels[start : start + BLOCK_ROWS])
            scores = products.rowwise(rows, weights)
            block_residuals = residuals(scores + bias, row_labels)
            used = min(BLOCK_ROWS, len(features) - start)
            total, bad = block_sum(rows, block_residuals, scores, used, clip_norm, l2, penalty, omega)
            zeroed += bad
            _add_to_tree(tree, total, start // BLOCK_ROWS)
        while len(tree) > 1:
            tree.append(tree.pop() + tree.pop())
    return ClippedSum(tree[0], zeroed)


def _add_to_tree(tree: list[Floats], leaf: Floats, index: int) -> None:
    """Adds the leaf of that index so that any term passes O(log n) additions; the list is a binary counter."""
    while index & 1:
        leaf = tree.pop() + leaf
        index >>= 1
    tree.append(leaf)


def _padded(features: Rows, labels: Labels) -> tuple[Floats, Labels]:
    """Copies rows into arrays whose number of rows is a multiple of ROWS, the rest zero."""
    rows = -(-len(features) // ROWS) * ROWS
    padded, padded_labels = np.zeros((rows, features.shape[1])), np.zeros(rows, np.int64)
    padded[: len(features)] = features
    padded_labels[: len(labels)] = labels
    return padded, padded_labels


def _slack(features: int, outputs: int) -> float:
    """Returns what is added to the squared norm, relative to t^2 + omega^2; see the module's docstring."""
    return 2 * UNIT_ROUNDOFF * (features * outputs + 2 * features + 2 * outputs + 32)


def _block_sum(
    rows: Floats,
    residuals: Floats,
    scores: Floats,
    used: int,
    clip_norm: float,
    l2: float,
    penalty: Floats | None,
    omega: float,
) -> ClippedSum:
    f, k = rows.shape[1], residuals.shape[1]
    norm = _norms(rows, residuals, scores, l2, omega)
    factors = np.minimum(1.0, clip_norm / norm)
    factors[used:] = 0.0
    zeroed = 0
    if not np.isfinite(norm).all():
        bad = ~np.isfinite(norm)
        rows[bad], residuals[bad], factors[bad] = 0.0, 0.0, 0.0
        zeroed = int(bad[:used].sum())
    coefficients = factors[:, np.newaxis] * residuals
    slices = coefficients.reshape(-1, ROWS, k).transpose(0, 2, 1) @ rows.reshape(-1, ROWS, f)
    total = np.empty(f * k + k)
    by_weight = total[:-k].reshape(f, k)
    np.add.reduce(slices, axis=0, out=by_weight.T)
    if penalty is not None:
        by_weight += factors.sum() * penalty
    total[-k:] = coefficients.sum(axis=0)
    return ClippedSum(total, zeroed)


def _norms(rows: Floats, residuals: Floats, scores: Floats, l2: float, omega: float) -> Floats:
    """Returns each row's gradient norm, shape (n,), never below the true one by more than a few u."""
    f, k = rows.shape[1], residuals.shape[1]
    length = np.abs(residuals[:, 0]) if k == 1 else np.sqrt(np.vecdot(residuals, residuals))
    t = length * np.sqrt(np.vecdot(rows, rows) + 1.0)
    if not omega:
        return t * (1.0 + _slack(f, k))
    cross = residuals[:, 0] * scores[:, 0] if k == 1 else np.vecdot(residuals, scores)
    squares = t * t + omega * omega
    return np.sqrt(np.maximum(squares + 2.0 * l2 * cross, 0.0) + _slack(f, k) * squares)


def _block_sum_in_full(
    rows: Floats,
    residuals: Floats,
    scores: Floats,
    used: int,
    clip_norm: float,
    l2: float,
    penalty: Floats | None,
    omega: float,
) -> ClippedSum:
    """The same with every gradient built in full: slow, and exact however much the penalty cancels the rest."""
    del scores, l2, omega
    f, k = rows.shape[1], residuals.shape[1]
    total, gradient = np.zeros(f * k + k), np.empty(f * k + k)
    usable = np.isfinite(np.vecdot(rows, rows))
    usable[used:] = False
    added = 0
    for row, residual in zip(rows[usable], residuals[usable], strict=True):
        np.multiply(row[:, np.newaxis], residual, out=gradient[:-k].reshape(f, k))
        gradient[:-k].reshape(f, k)[...] += penalty
        gradient[-k:] = residual
        norm = float(np.sqrt(np.vecdot(gradient, gradient))) * (1.0 + _slack(f, k))
        if not np.isfinite(norm):
            continue
        added += 1
        total += gradient if norm <= clip_norm else (clip_norm / norm) * gradient
    return ClippedSum(total, used - added)
