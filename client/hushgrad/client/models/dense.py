"""Stacks of dense layers in float32 by book-keeping: one backward pass, norms without gradients, one weighted sum.

For a record with input a_0 and layers a_j = phi(a_{j-1} W_j + b_j), the last one without phi, the gradient of layer j
is (a_{j-1} (x) R_j, R_j), where R_j is the derivative of the loss at the layer's scores. Its squared norm is
(||a_{j-1}||^2 + 1) ||R_j||^2, and the sum over records of clipped gradients is A_{j-1}^T (c R_j): no gradient of a
single record is ever built.

Why a clipped gradient depends on its own record alone. The number of rows is a multiple of a fixed one, the last ones
zeros; products of rows with weights are `products.rowwise`; the rest is elementwise or goes along a row.

Why kappa = 2^-24. Norms are summed in float64 from the float32 numbers that the sum uses, so they are right to 2^-40
and better. A factor c = C / norm is lowered by 2^-23 before it is rounded to float32 (2^-24), and so is each number
c R_j (2^-24): the clipped gradient stays below C (1 + 2^-40), but for numbers that underflow. Each of them may gain
2^-150, times an input whose squared norm is a float32, hence below 2^64: together below 2^-86 sqrt(k) for each layer
of k outputs, which 2^-24 C covers, as C >= 2^-40 is asked for.

Rows travel with their squared norm in one more column, because inputs never change: it is computed once, in float64,
and rounded up to float32, which lengthens a norm by at most 2^-24 of itself.

Why m = r + 4 in e = n m u C, for blocks of r rows. Within a block a sum has r terms, each a rounded product: any order
of additions errs by less than (r + 1) u times the sum of their absolute values (Higham, section 3.1), for r u < 2^-12.
Blocks are added in float64; that there are n / r of them and not n / m, and underflow, are covered by the rest.
"""

import hashlib
import itertools
import math
from collections.abc import Sequence
from typing import Final, Literal, TypeVar

import numpy as np
import numpy.typing as npt
from hushgrad.client.models import products
from hushgrad.client.models.base import Floats, Labels, ModelError, Rows
from hushgrad.wire.arrays import ArraySpec

Singles = npt.NDArray[np.float32]
Layer = tuple[Singles, Singles]
"""Weights, shape (inputs, outputs), and biases, shape (outputs,)."""

_Float = TypeVar("_Float", bound=np.floating)

Activation = Literal["tanh", "relu"]
ACTIVATIONS: Final = ("tanh", "relu")

UNIT_ROUNDOFF: Final = 2.0**-24
CLIP_ERROR: Final = 2.0**-24
MIN_CLIP_NORM: Final = 2.0**-40
MAX_CLIP_NORM: Final = 2.0**40

_SHRINK: Final = 1.0 - 2.0**-23
_LARGEST_LAYER: Final = 2**24
_NORM_ROWS: Final = 1024


def check_widths(widths: Sequence[int], what: str) -> None:
    """Refuses widths that are not positive, or a layer too large to be meant.

    Raises:
        ModelError: if so.
    """
    for width in widths:
        if not 1 <= width <= _LARGEST_LAYER:
            raise ModelError(f"{what} must be 1 to {_LARGEST_LAYER}, found {width}")


def check_activation(activation: str) -> None:
    """Refuses an activation that is not known.

    Raises:
        ModelError: if so.
    """
    if activation not in ACTIVATIONS:
        raise ModelError(f"activation must be one of {', '.join(ACTIVATIONS)}, found {activation!r}")


def check_arguments(rows: Rows, labels: Labels, clip_norm: float, width: int) -> None:
    """Refuses what no float32 model can sum.

    Raises:
        ModelError: if shapes do not fit, or clip_norm is not 2^-40 to 2^40.
    """
    if not MIN_CLIP_NORM <= clip_norm <= MAX_CLIP_NORM:
        raise ModelError(f"clip_norm must be 2^-40 to 2^40 for a model in float32, found {clip_norm}")
    if rows.ndim != 2 or rows.shape[1] != width or labels.shape != rows.shape[:1]:
        raise ModelError(f"expected rows of shape (n, {width}) and n labels, found {rows.shape} and {labels.shape}")


def arrays(widths: Sequence[int]) -> tuple[ArraySpec, ...]:
    """Returns names and shapes of the parameters of a stack from widths[0] inputs to widths[-1] scores.

    >>> [spec.shape for spec in arrays((784, 128, 10))]
    [(784, 128), (128,), (128, 10), (10,)]
    """
    return tuple(
        spec
        for number, (inputs, outputs) in enumerate(itertools.pairwise(widths), 1)
        for spec in (ArraySpec(f"weights{number}", (inputs, outputs)), ArraySpec(f"bias{number}", (outputs,)))
    )


def size(widths: Sequence[int]) -> int:
    """Returns the number of parameters."""
    return sum((inputs + 1) * outputs for inputs, outputs in itertools.pairwise(widths))


def initial(widths: Sequence[int], activation: Activation, seed: int) -> Singles:
    """Returns weights drawn uniformly within `limit` and biases of zero, layer by layer, shape (d,)."""
    parts = []
    for number, (inputs, outputs) in enumerate(itertools.pairwise(widths), 1):
        parts.append(uniform(inputs * outputs, limit(inputs, activation), f"dense {number} of seed {seed}"))
        parts.append(np.zeros(outputs, np.float32))
    return np.concatenate(parts)


def limit(inputs: int, activation: Activation) -> float:
    """Returns the largest initial weight: what keeps the size of signals from layer to layer.

    Reference:
        LeCun, Bottou, Orr and Müller, "Efficient BackProp", 1998, for tanh; He et al., "Delving Deep into Rectifiers",
        ICCV 2015, for ReLU.
    """
    return math.sqrt((3 if activation == "tanh" else 6) / inputs)


def uniform(count: int, limit: float, name: str) -> Singles:
    """Returns numbers in (-limit, limit) that depend on their name alone, on any machine; no secret, no noise."""
    words = np.frombuffer(hashlib.shake_256(name.encode()).digest(4 * count), "<u4")
    return (((words.astype(np.float64) + 0.5) * 2.0**-31 - 1.0) * limit).astype(np.float32)


def single(parameters: Floats) -> Singles | None:
    """Returns the parameters in float32, or None if one of them is not finite there."""
    with np.errstate(over="ignore"):
        found = parameters.astype(np.float32)
    return found if np.isfinite(found).all() else None


def layers(
    parameters: npt.NDArray[_Float], widths: Sequence[int]
) -> list[tuple[npt.NDArray[_Float], npt.NDArray[_Float]]]:
    """Returns views of the parameters, layer by layer."""
    found, place = [], 0
    for inputs, outputs in itertools.pairwise(widths):
        end = place + inputs * outputs
        found.append((parameters[place:end].reshape(inputs, outputs), parameters[end : end + outputs]))
        place = end + outputs
    return found


def for_products(stack: Sequence[Layer]) -> list[Layer]:
    """Returns the layers with weights laid out column by column, as products of many blocks of rows want them."""
    return [(np.asfortranarray(weights), bias) for weights, bias in stack]


def forward(stack: Sequence[Layer], inputs: Singles, activation: Activation) -> list[Singles]:
    """Returns the inputs, the values of each hidden layer, and the scores: shapes (m, width), m a multiple of 16."""
    values = [inputs]
    for number, (weights, bias) in enumerate(stack, 1):
        scores = products.rowwise(values[-1], weights)
        scores += bias
        values.append(activate(scores, activation) if number < len(stack) else scores)
    return values


def activate(scores: npt.NDArray[_Float], activation: Activation) -> npt.NDArray[_Float]:
    """Applies phi in place."""
    if activation == "tanh":
        np.tanh(scores, out=scores)
    else:
        np.maximum(scores, 0, out=scores)
    return scores


def times_slope(derivatives: Singles, values: Singles, activation: Activation) -> Singles:
    """Multiplies by the derivative of phi, known from its values, in place."""
    if activation == "tanh":
        slope = values * values
        np.subtract(1, slope, out=slope)
        derivatives *= slope
    else:
        derivatives *= values > 0
    return derivatives


def probabilities(scores: npt.NDArray[_Float]) -> npt.NDArray[_Float]:
    """Returns exp(z) / sum exp(z) for each row, without overflow, in the type of the scores."""
    powers: npt.NDArray[_Float] = np.exp(scores - scores.max(axis=1, keepdims=True))
    powers /= powers.sum(axis=1, keepdims=True)
    return powers


def residuals(scores: Singles, labels: Labels) -> Singles:
    """Returns the derivative of -log p_y at the scores: p - onehot(y); rows beyond the labels are zero."""
    found = probabilities(scores)
    found[np.arange(len(labels)), labels] -= 1
    found[len(labels) :] = 0
    return found


def backward(
    stack: Sequence[Layer],
    values: Sequence[Singles],
    last: Singles,
    activation: Activation,
    *,
    to_inputs: bool,
) -> list[Singles]:
    """Returns R_1, ..., R_L, shapes (m, outputs); with `to_inputs` before them the derivative at the inputs."""
    found = [last]
    for number in range(len(stack) - 1, 0 if not to_inputs else -1, -1):
        derivatives = products.rowwise(found[0], stack[number][0].T)
        found.insert(0, times_slope(derivatives, values[number], activation) if number else derivatives)
    return found


def squares(rows: Rows) -> Floats:
    """Returns the squared norm of each row, shape (m,), in float64."""
    wide = rows.astype(np.float64)
    return np.vecdot(wide, wide)


def with_norms(features: Rows) -> Singles:
    """Returns rows in float32 with their squared norm, rounded up, as one more column: shape (n, f + 1)."""
    n, f = features.shape
    found = np.empty((n, f + 1), np.float32)
    with np.errstate(all="ignore"):
        for start in range(0, n, _NORM_ROWS):
            part = found[start : start + _NORM_ROWS]
            part[:, :f] = features[start : start + _NORM_ROWS]
            part[:, f] = np.nextafter(squares(part[:, :f]).astype(np.float32), np.float32(np.inf))
    return found


def squared_norms(
    values: Sequence[Singles], derivatives: Sequence[Singles], squared_inputs: npt.NDArray[np.floating] | None = None
) -> Floats:
    """Returns the squared norm of each record's gradient, shape (m,), in float64.

    Args:
        values, derivatives: of the layers.
        squared_inputs: of values[0], where known.
    """
    found = np.zeros(len(values[0]))
    for number, (inputs, at_scores) in enumerate(zip(values, derivatives, strict=False)):
        known = squared_inputs if number == 0 and squared_inputs is not None else squares(inputs)
        found += (known.astype(np.float64) + 1.0) * squares(at_scores)
    return found


def factors(squared: Floats, clip_norm: float) -> Singles:
    """Returns min(1, C / norm) rounded towards zero, shape (m,); 0 where the norm is not finite."""
    norm = np.sqrt(squared)
    found = np.minimum(1.0, clip_norm * _SHRINK / norm)
    found[norm <= clip_norm] = 1.0
    found[~np.isfinite(norm)] = 0.0
    return found.astype(np.float32)


def add_sums(
    total: Floats, values: Sequence[Singles], derivatives: Sequence[Singles], scale: Singles, block: int
) -> None:
    """Adds the sum over the rows of scale times gradient to the total, shape (d,), layer by layer.

    The derivatives are multiplied by their row's scale in place. At most `block` rows are summed in float32.
    """
    place = 0
    for inputs, at_scores in zip(values, derivatives, strict=False):
        f, k = inputs.shape[1], at_scores.shape[1]
        at_scores *= scale[:, np.newaxis]
        weights = total[place : place + f * k].reshape(f, k)
        for start in range(0, len(inputs), block):
            weights += inputs[start : start + block].T @ at_scores[start : start + block]
        place += f * k
        total[place : place + k] += at_scores.sum(axis=0, dtype=np.float64)
        place += k
