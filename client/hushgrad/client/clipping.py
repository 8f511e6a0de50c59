"""Clips and sums per-example gradients that somebody else has computed, and says how exact that is.

Gradients come as rows of numbers, from any framework. What a row means, and which records it belongs to, is unknown
here; so is noise.

How exact. A submitted row g, shape (d,), is converted to float64 without error. Its vector is v = g min(1, C / t) with
t = ||g|| (1 + s) + z, a function of that row alone; s = 2u(d + 16) and z = 2^-500 sqrt(d) make t, as computed, never
smaller than the true norm (u = 2^-53; the dot product errs by at most a factor 1 + du, the root and the products by a
few u, and squares below 2^-1074 that vanish by less than z). So ||v|| <= C (1 + 4u). What is added is within
(d + 64) u C of v, in whatever order the dot product was computed, and adding n rows, in any order, errs by at most
n u times the sum of their norms.

What the caller's own arithmetic adds. A framework that computes gradients of many examples in one go may round one
example's gradient differently when the others change. `gradient_error` is the caller's bound of that: the largest L2
distance, in units of C, between clipped gradients of one record in two batches. It is charged like any summation
error, because it is one: for the others' rows in both of two neighbouring sums.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, cast

import numpy as np
import numpy.typing as npt
from hushgrad.client.errors import InputError
from hushgrad.client.models.base import ClippedSum, Floats
from hushgrad.wire.arrays import ArraySpec

CLIP_ERROR: Final = 2.0**-48
MAX_GRADIENT_ERROR: Final = 0.01
"""Above it something else than rounding is at work."""

_U: Final = 2.0**-53
_BLOCK_BYTES: Final = 2**22
_FLOATS: Final = (np.dtype(np.float16), np.dtype(np.float32), np.dtype(np.float64))


class ArrayLike(Protocol):
    """What numpy can read: its own arrays, tensors of PyTorch on the CPU that need no gradient, arrays of JAX."""

    def __array__(self, *arguments: Any, **keywords: Any) -> npt.NDArray[Any]:
        """See numpy."""


Chunk = ArrayLike | Mapping[str, ArrayLike]
"""Gradients of some examples, one row each: shape (n, d); or one array for each of the model's, shape (n, *shape)."""


class GradientError(InputError, ValueError):
    """Gradients cannot be used as they were submitted; nothing was drawn, sealed or sent for them."""


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """The numbers that the accountant needs about the sums made here; see the module's docstring.

    Attributes:
        parameters: d.
        gradient_error: >= 0, the caller's bound, in units of C.

    Raises:
        GradientError: at construction, if gradient_error is out of range.
    """

    parameters: int
    gradient_error: float

    def __post_init__(self) -> None:
        if not 0 <= self.gradient_error <= MAX_GRADIENT_ERROR:
            raise GradientError(
                f"gradient_error must be 0 to {MAX_GRADIENT_ERROR}, found {self.gradient_error}: it bounds what "
                "rounding does to one record's clipped gradient when other records change, in units of the clip norm; "
                "0 if each gradient is computed on its own"
            )

    @property
    def chunk_examples(self) -> int:
        """One: rows are added in float64, and each is off by at most `unit_roundoff` times C."""
        return 1

    @property
    def unit_roundoff(self) -> float:
        """How far what is added for one record may be from its vector, in units of C."""
        return self.gradient_error + (self.parameters + 64) * _U

    @property
    def clip_error(self) -> float:
        """kappa."""
        return CLIP_ERROR


def chunks_of(gradients: Chunk | Iterable[Chunk]) -> Iterable[Chunk]:
    """Returns the chunks of what was submitted: itself, if it is one."""
    if isinstance(gradients, Mapping) or hasattr(gradients, "__array__"):
        return (cast(Chunk, gradients),)
    return gradients


def clipped_sum(chunks: Iterable[Chunk], *, arrays: Sequence[ArraySpec], examples: int, clip_norm: float) -> ClippedSum:
    """Returns the sum of rows, each clipped to L2 norm C, and how many were zeroed.

    Args:
        chunks: together one row for each example; none at all is right for no example.
        arrays: of the model, in order; their sizes add up to d.
        examples: how many rows there must be.
        clip_norm: C > 0.

    Returns:
        The sum, shape (d,), zeros for no example. A row with a NaN or an infinity, or whose squared norm is beyond
        float64, counts as zero: whether a gradient is finite depends on a private record, so it must not decide
        whether a round is sent.

    Raises:
        GradientError: if shapes, types or the number of rows are wrong.
    """
    names, d = [spec.name for spec in arrays], sum(spec.size for spec in arrays)
    total, seen, zeroed = np.zeros(d), 0, 0
    slack, tiny = 1.0 + 2 * _U * (d + 16), math.ldexp(math.sqrt(d), -500)
    for chunk in chunks:
        rows = _matrix(chunk, arrays, names, d)
        seen += len(rows)
        if seen > examples:
            raise GradientError(f"expected {_rows(examples)}, one for each chosen row of the data, found more")
        for block in _blocks(rows, d):
            with np.errstate(all="ignore"):  # what is not finite is found by its norm
                norms = np.sqrt(np.vecdot(block, block)) * slack + tiny
                bad = ~np.isfinite(norms)
                if bad.any():
                    block[bad], norms[bad] = 0.0, tiny
                    zeroed += int(bad.sum())
                total += np.minimum(1.0, clip_norm / norms) @ block
    if seen != examples:
        raise GradientError(f"expected {_rows(examples)}, one for each chosen row of the data, found {seen}")
    return ClippedSum(total, zeroed)


def checked_total(
    total: Chunk, *, arrays: Sequence[ArraySpec], examples: int, clip_norm: float, gradient_error: float
) -> Floats:
    """Returns a sum that the caller says is one of clipped gradients, if it can be.

    Args:
        total: shape (d,), or one array for each of the model's.
        arrays: of the model, in order.
        examples: n, how many rows were chosen.
        clip_norm: C > 0.
        gradient_error: as in `Arithmetic`.

    Raises:
        GradientError: if it has another shape, is not finite, or is longer than n C (1 + gradient_error): no sum of n
            clipped gradients is.
    """
    names, d = [spec.name for spec in arrays], sum(spec.size for spec in arrays)
    if isinstance(total, Mapping):
        rows = _matrix({name: np.asarray(value)[np.newaxis] for name, value in total.items()}, arrays, names, d)
    else:
        vector = _floats(total)
        if vector.shape != (d,):
            raise GradientError(f"a sum of gradients must have shape ({d},), found {vector.shape}")
        rows = vector[np.newaxis]
    vector = rows[0].astype(np.float64)
    largest = examples * clip_norm * (1 + gradient_error)
    norm = float(np.linalg.norm(vector))
    if not norm <= largest * (1 + 2 * _U * (d + 16)):
        raise GradientError(
            f"a sum of {examples} gradients of norm at most {clip_norm:g} has norm at most {largest:g}, found "
            f"{norm:g}: a gradient was not clipped, or records beyond the chosen rows were summed"
        )
    return vector


def _matrix(chunk: Chunk, arrays: Sequence[ArraySpec], names: list[str], d: int) -> npt.NDArray[np.floating]:
    """Returns a chunk as rows, shape (n, d), in a precision of the caller's."""
    if not isinstance(chunk, Mapping):
        rows = _floats(chunk)
        if rows.ndim != 2 or rows.shape[1] != d:
            raise GradientError(f"per-example gradients must have shape (n, {d}), found {rows.shape}")
        return rows
    if set(chunk) != set(names):
        raise GradientError(f"gradients must be named {names}, as the model's arrays are, found {sorted(chunk)}")
    parts, found = [], set()
    for spec in arrays:
        part = _floats(chunk[spec.name])
        if part.ndim < 1 or part.shape[1:] != spec.shape:
            expected = ", ".join(["n", *map(str, spec.shape)])
            raise GradientError(
                f"per-example gradients of {spec.name!r} must have shape ({expected}), found {part.shape}"
            )
        found.add(len(part))
        parts.append(part.reshape(len(part), spec.size))
    if len(found) != 1:
        raise GradientError(f"all arrays of a chunk must have gradients of as many examples, found {sorted(found)}")
    return np.concatenate(parts, axis=1)


def _floats(values: ArrayLike) -> npt.NDArray[np.floating]:
    try:
        array = np.asarray(values)
    except (TypeError, ValueError, RuntimeError) as error:
        raise GradientError(
            f"gradients must be numbers that numpy can read; of a tensor, .detach().cpu() can be read ({error})"
        ) from None
    if array.dtype not in _FLOATS:
        raise GradientError(f"gradients must be float16, float32 or float64, found {array.dtype}; convert them")
    return array


def _blocks(rows: npt.NDArray[np.floating], d: int) -> Iterator[Floats]:
    """Yields copies of consecutive rows in float64, a few megabytes at a time."""
    step = max(1, _BLOCK_BYTES // (8 * d))
    for start in range(0, len(rows), step):
        yield np.array(rows[start : start + step], np.float64, order="C")


def _rows(examples: int) -> str:
    return f"{examples} gradient{'s' if examples != 1 else ''}"
