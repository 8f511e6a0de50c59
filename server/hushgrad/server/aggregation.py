"""The model as one array of integers: adding updates to it, freezing it, and publishing what was frozen.

Knows nothing of participants, sessions or files. Names in formulas: M the array, U an update, e_i the step numerator
of round i, g and p the grid and step exponents, d the number of parameters.
"""

import hashlib
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from hushgrad.wire import grid

INT32_MIN = -(2**31)
_CHUNK = 2**16
"""Elements per pass: the scratch array stays in the cache, and no temporary grows with d."""


def defect(payload: bytes | memoryview, parameters: int) -> str | None:
    """Says why a payload cannot be folded: its size, or the element -2**31. None when it can.

    >>> defect(bytes(8), 2) is None
    True
    >>> defect(bytes(8), 3)
    'the payload must have 12 bytes (3 int32), found 8'
    """
    if len(payload) != 4 * parameters:
        return f"the payload must have {4 * parameters} bytes ({parameters} int32), found {len(payload)}"
    elements = np.frombuffer(payload, "<i4")
    if elements.min() == INT32_MIN:
        at = int(np.argmin(elements))
        return f"every element must be in -(2^31-1) .. 2^31-1, found -2^31 at position {at}; saturate before sealing"
    return None


@dataclass(frozen=True, slots=True)
class Published:
    """One published version: what watchers get, and the state that its checkpoint keeps.

    Attributes:
        version: the version.
        model: little-endian float32, 4*d bytes.
        sha256: digest of `model`, 32 bytes.
        array: M as it was frozen, int64, shape (d,).
        average_sum: sum of the models in the running average, float64, shape (d,); None before the second half.
        average_count: how many models that is.
        averaged: their mean as little-endian float32, 4*d bytes; None before the second half.
    """

    version: int
    model: bytes
    sha256: bytes
    array: npt.NDArray[np.int64]
    average_sum: npt.NDArray[np.float64] | None
    average_count: int
    averaged: bytes | None


@dataclass(frozen=True, slots=True)
class Frozen:
    """A copy of the array at the moment of freezing, with all that publishing it needs."""

    version: int
    array: npt.NDArray[np.int64]
    grid_exponent: int
    step_exponent: int
    is_averaged: bool
    average_sum: npt.NDArray[np.float64] | None
    average_count: int

    def publish(self) -> Published:
        """Computes the published version. Pure, and the expensive part: it may run on another thread."""
        model = grid.published_model(self.array, grid_exponent=self.grid_exponent, step_exponent=self.step_exponent)
        model_bytes = model.astype("<f4", copy=False).tobytes()
        total, count = self.average_sum, self.average_count
        if self.is_averaged:
            total = model.astype(np.float64) if total is None else total + model
            count += 1
        averaged = None if total is None else mean(total, count)
        digest = hashlib.sha256(model_bytes).digest()
        return Published(self.version, model_bytes, digest, self.array, total, count, averaged)


def mean(average_sum: npt.NDArray[np.float64], average_count: int) -> bytes:
    """Returns the running average as little-endian float32, 4*d bytes."""
    return (average_sum / average_count).astype("<f4").tobytes()


class Aggregate:
    """The array M, and the running average of the published models of the second half.

    Invariant: M is M_0 minus the sum of e_i * U over the updates folded, exactly modulo 2**64, whatever their order.
    """

    def __init__(
        self,
        array: npt.NDArray[np.int64],
        *,
        grid_exponent: int,
        step_exponent: int,
        final_version: int,
        average_sum: npt.NDArray[np.float64] | None = None,
        average_count: int = 0,
    ) -> None:
        self._array = array.astype(np.int64, copy=True)
        self._scratch = np.empty(min(_CHUNK, array.size), np.int64)
        self._grid_exponent = grid_exponent
        self._step_exponent = step_exponent
        self._final_version = final_version
        self._average_sum = average_sum
        self._average_count = average_count

    def fold(self, payload: bytes | memoryview, step_numerator: int) -> None:
        """Does M <- M - e_i * U, in whole.

        Args:
            payload: d little-endian int32 in which `defect` finds nothing.
            step_numerator: e_i of the update's round.
        """
        elements = np.frombuffer(payload, "<i4")
        if elements.size != self._array.size:
            raise ValueError(f"expected {self._array.size} elements, found {elements.size}; call defect() before")
        factor = np.int64(step_numerator)
        for start in range(0, elements.size, _CHUNK):
            part = elements[start : start + _CHUNK]
            product = self._scratch[: part.size]
            np.multiply(part, factor, out=product)
            target = self._array[start : start + _CHUNK]
            np.subtract(target, product, out=target)

    def freeze(self, version: int) -> Frozen:
        """Copies the array as the content of `version`; what is folded later is not in it."""
        return Frozen(
            version=version,
            array=self._array.copy(),
            grid_exponent=self._grid_exponent,
            step_exponent=self._step_exponent,
            is_averaged=2 * version > self._final_version,
            average_sum=self._average_sum,
            average_count=self._average_count,
        )

    def published(self, published: Published) -> None:
        """Takes over the running average of a version whose checkpoint is durable."""
        self._average_sum = published.average_sum
        self._average_count = published.average_count
