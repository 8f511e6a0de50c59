"""The model as one array of integers: adding updates to it, freezing it, and publishing what was frozen.

Knows nothing of participants, sessions or files. Names in formulas: M the array, U an update, e_i the step numerator
of round i, g and p the grid and step exponents, d the number of parameters.
"""

import hashlib
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from hushgrad.server.stored import Content, Sums
from hushgrad.wire import grid

INT32_MIN = -(2**31)
_CHUNK = 2**16
"""Elements per pass: the scratch array stays in the cache, and no temporary grows with d."""

InOrder = Callable[[Callable[[], None]], "Future[None] | None"]
"""Runs jobs one after the other in the order in which they are given: at once (None), or on another thread."""


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


class Placed(NamedTuple):
    """An array that lies durably in a file of the folder of arrays: its name there, and its SHA-256."""

    file: str
    sha256: bytes


class Files(NamedTuple):
    """Where the arrays of a published version lie already; its model is a `StoredBytes` then."""

    array: Placed
    average_sum: Placed | None


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
        averaged_sha256: digest of `averaged`, 32 bytes; empty before the second half.
        files: where all of it lies already; None: only here.
    """

    version: int
    model: Content
    sha256: bytes
    array: npt.NDArray[np.int64]
    average_sum: Sums | None
    average_count: int
    averaged: Content | None
    averaged_sha256: bytes = b""
    files: Files | None = None


class Part(NamedTuple):
    """A part of a version: some elements of each array, in memory that the next part takes over.

    Attributes:
        array: of M, int64.
        model: of the model, float32.
        average_sum: of the sum of the models in the running average, float64; None before the second half.
        averaged: of their mean, float32; None before the second half.
    """

    array: npt.NDArray[np.int64]
    model: npt.NDArray[np.float32]
    average_sum: npt.NDArray[np.float64] | None
    averaged: npt.NDArray[np.float32] | None


@dataclass(frozen=True, slots=True)
class Frozen:
    """A copy of the array at the moment of freezing, with all that publishing it needs.

    Attributes:
        array: the copy, int64, shape (d,).
        copying: resolves when it is one; None: it is.
        average_sum, average_count: the running average before this version.
        is_averaged: whether this version goes into it.
    """

    version: int
    array: npt.NDArray[np.int64]
    grid_exponent: int
    step_exponent: int
    is_averaged: bool
    average_sum: Sums | None
    average_count: int
    copying: "Future[None] | None" = None

    @property
    def count(self) -> int:
        """How many models are in the running average with this version."""
        return self.average_count + self.is_averaged

    def parts(self) -> Iterator[Part]:
        """Computes the version part by part: no temporary grows with d."""
        if self.copying is not None:
            self.copying.result()
        for start in range(0, self.array.size, _CHUNK):
            array = self.array[start : start + _CHUNK]
            model = grid.published_model(
                array, grid_exponent=self.grid_exponent, step_exponent=self.step_exponent
            ).astype("<f4", copy=False)
            total = None if self.average_sum is None else self.average_sum[start : start + _CHUNK]
            if self.is_averaged:
                total = model.astype(np.float64) if total is None else total + model
            averaged = None if total is None else (total / self.count).astype("<f4")
            yield Part(array, model, total, averaged)

    def publish(self) -> Published:
        """Computes the published version in memory. Pure, and the expensive part: it may run on another thread."""
        d = self.array.size
        has_average = self.is_averaged or self.average_sum is not None
        model = np.empty(d, "<f4")
        total = np.empty(d, np.float64) if has_average else None
        mean = np.empty(d, "<f4") if has_average else None
        start = 0
        for part in self.parts():
            stop = start + part.model.size
            model[start:stop] = part.model
            if total is not None and mean is not None:
                total[start:stop] = part.average_sum
                mean[start:stop] = part.averaged
            start = stop
        data, averaged = model.tobytes(), None if mean is None else mean.tobytes()
        return Published(
            self.version,
            data,
            hashlib.sha256(data).digest(),
            self.array,
            total,
            self.count,
            averaged,
            b"" if averaged is None else hashlib.sha256(averaged).digest(),
        )


def at_once(job: Callable[[], None]) -> None:
    """Runs a job before it returns; see `InOrder`."""
    job()


class Aggregate:
    """The array M, and the running average of the published models of the second half.

    Invariant: M is M_0 minus the sum of e_i * U over the updates folded, exactly modulo 2**64, whatever their order.

    Args:
        array: M to begin with, int64, shape (d,); copied.
        average_sum, average_count: the running average to begin with.
        in_order: runs what takes time. Where that is another thread, a payload must stay as it is until a job that was
            given after its fold has run.
        reuses_copies: a frozen array is written over after `published` has been called with it: nobody may keep one.
    """

    def __init__(
        self,
        array: npt.NDArray[np.int64],
        *,
        grid_exponent: int,
        step_exponent: int,
        final_version: int,
        average_sum: Sums | None = None,
        average_count: int = 0,
        in_order: InOrder = at_once,
        reuses_copies: bool = False,
    ) -> None:
        self._array = array.astype(np.int64, copy=True)
        self._scratch = np.empty(min(_CHUNK, array.size), np.int64)
        self._grid_exponent = grid_exponent
        self._step_exponent = step_exponent
        self._final_version = final_version
        self._average_sum = average_sum
        self._average_count = average_count
        self._in_order = in_order
        self._reuses_copies = reuses_copies
        self._spare: npt.NDArray[np.int64] | None = None

    def fold(self, payload: bytes | memoryview, step_numerator: int) -> None:
        """Does M <- M - e_i * U, in whole.

        Args:
            payload: d little-endian int32 in which `defect` finds nothing.
            step_numerator: e_i of the update's round.
        """
        elements = np.frombuffer(payload, "<i4")
        if elements.size != self._array.size:
            raise ValueError(f"expected {self._array.size} elements, found {elements.size}; call defect() before")
        self._in_order(lambda: self._fold(elements, np.int64(step_numerator)))

    def _fold(self, elements: npt.NDArray[np.int32], factor: np.int64) -> None:
        for start in range(0, elements.size, _CHUNK):
            part = elements[start : start + _CHUNK]
            product = self._scratch[: part.size]
            np.multiply(part, factor, out=product)
            target = self._array[start : start + _CHUNK]
            np.subtract(target, product, out=target)

    def freeze(self, version: int) -> Frozen:
        """Copies the array as the content of `version`; what is folded later is not in it."""
        copy, self._spare = np.empty_like(self._array) if self._spare is None else self._spare, None
        copying = self._in_order(lambda: np.copyto(copy, self._array))
        return Frozen(
            version=version,
            array=copy,
            grid_exponent=self._grid_exponent,
            step_exponent=self._step_exponent,
            is_averaged=2 * version > self._final_version,
            average_sum=self._average_sum,
            average_count=self._average_count,
            copying=copying,
        )

    def published(self, published: Published) -> None:
        """Takes over the running average of a version whose checkpoint is durable."""
        self._average_sum = published.average_sum
        self._average_count = published.average_count
        if self._reuses_copies:
            self._spare = published.array
