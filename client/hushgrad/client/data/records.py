"""Records as values: their numbers as they were read, their labels, and what makes them the same data as before.

Nothing that is computed from several records is used to prepare one.
"""

import hashlib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
from hushgrad.client.data import labelling
from hushgrad.client.data.errors import DataError

if TYPE_CHECKING:
    from hushgrad.client.models.base import Model, Rows

Numbers = npt.NDArray[Any]
"""Numbers in any type that float64 holds exactly enough: floats, integers, booleans."""

_BLOCK_BYTES: Final = 2**24


@dataclass(frozen=True, slots=True)
class Scaling:
    """Public bounds of each feature: values are clipped to them and scaled to [0, 1], each value by itself.

    Attributes:
        low, span: float64, shape (f,); span > 0.
    """

    low: npt.NDArray[np.float64]
    span: npt.NDArray[np.float64]

    @classmethod
    def of(cls, bounds: Sequence[float | list[float]], width: int) -> "Scaling":
        """Returns the scaling for [low, high], or for one such pair for each feature.

        Raises:
            DataError: if there are not as many pairs as features, or a pair is not finite with low < high.
        """
        pairs = [pair for pair in bounds if isinstance(pair, list)]
        if not pairs and len(bounds) == 2:
            pairs = [[float(bound) for bound in bounds if not isinstance(bound, list)]] * width
        elif len(pairs) != len(bounds) or len(pairs) != width or any(len(pair) != 2 for pair in pairs):
            raise DataError(
                f"bounds must be [low, high], or {width} such pairs, one for each feature, found {len(bounds)} entries"
            )
        low, high = np.array(pairs, np.float64).T
        if not (np.isfinite(low).all() and np.isfinite(high).all() and (low < high).all()):
            raise DataError("every pair of bounds must be finite numbers with low < high")
        with np.errstate(over="ignore"):
            span = high - low
        if not np.isfinite(span).all():
            raise DataError("every pair of bounds must have a finite difference")
        return cls(low, span)

    def apply(self, features: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Returns features in [0, 1], same shape."""
        return np.ascontiguousarray((np.clip(features, self.low, self.low + self.span) - self.low) / self.span)


@dataclass(frozen=True, slots=True)
class Dataset:
    """Records in memory, or on disk behind a memory map.

    Attributes:
        values: shape (N, f), finite, as they were read: of any real type, not scaled.
        labels: int64, shape (N,), from 0.
        fingerprint: SHA-256 in hexadecimal over shapes and contents of values (as float64, before scaling) and labels:
            the same records in another file, in the same order, have the same.
        class_names: by label.
        scaling: to declared bounds; None: values are used as they are.
    """

    values: Numbers
    labels: npt.NDArray[np.int64]
    fingerprint: str
    class_names: tuple[str, ...]
    scaling: Scaling | None = None

    @property
    def mapped(self) -> bool:
        """Whether the values are on disk."""
        return isinstance(self.values, np.memmap)

    @property
    def width(self) -> int:
        """f, the number of features."""
        return int(self.values.shape[1])

    @property
    def features(self) -> npt.NDArray[np.float64]:
        """All records as float64, C-contiguous, scaled; in memory, whatever their size."""
        return self._prepared(self.values)

    def take(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """Returns these records as float64, shape (n, f), C-contiguous, scaled."""
        return self._prepared(self.values[rows])

    def prepare(self, model: "Model") -> "Rows":
        """Returns all records as the model prepares them, without a second copy of all of them on the way."""
        if self.scaling is None and self.values.dtype == np.float64 and not self.mapped:
            return model.prepare(self.features)
        parts = (model.prepare(self._prepared(block)) for block in blocks(self.values))
        first = next(parts)
        if len(first) == len(self.values):
            return first
        prepared, end = np.empty((len(self.values), *first.shape[1:]), first.dtype), 0
        for part in itertools.chain([first], parts):
            prepared[end : end + len(part)] = part
            end += len(part)
        return prepared

    def check_fits(self, model: "Model") -> None:
        """Refuses a model with another number of features or fewer classes.

        Raises:
            DataError: if so.
        """
        if self.width != model.features:
            raise DataError(
                f"the model has {model.features} features, the data have {self.width}; "
                "use the data the federation was made for"
            )
        if len(self.labels) and int(self.labels.max()) >= model.classes:
            raise DataError(
                f"the model has {model.classes} classes, so labels must be 0 to {model.classes - 1}; "
                "the data have others"
            )

    def _prepared(self, values: Numbers) -> npt.NDArray[np.float64]:
        features = np.ascontiguousarray(values, np.float64)
        return features if self.scaling is None else self.scaling.apply(features)


def make(
    values: Numbers,
    labels: Numbers,
    *,
    where: str,
    class_names: Sequence[str] | None = None,
    columns: list[str] | None = None,
    bounds: Sequence[float | list[float]] | None = None,
) -> Dataset:
    """Checks records and makes a data set of them.

    Args:
        values: shape (N, f).
        labels: shape (N,), numbers or texts.
        where: what errors call the data.
        class_names: in order; None: see `labelling.numbered`.
        columns: the features' names, for errors.
        bounds: see `Scaling.of`.

    Raises:
        DataError: if a shape or type does not fit, a value is NaN or infinite, there is no record, or a label is wrong.
    """
    _check_values(values, where, columns)
    if labels.ndim != 1 or len(labels) != len(values):
        raise DataError(f"{where}: expected {len(values)} labels, one for each row, found shape {labels.shape}")
    numbers, names = labelling.numbered(labels, class_names, where)
    scaling = None if bounds is None else Scaling.of(bounds, values.shape[1])
    return Dataset(values, numbers, _fingerprint(values, numbers), names, scaling)


def dataset(
    features: npt.ArrayLike,
    labels: npt.ArrayLike,
    *,
    class_names: Sequence[str] | None = None,
    bounds: Sequence[float | list[float]] | None = None,
    where: str = "the data",
) -> Dataset:
    """Makes a data set of arrays, with the same checks as `load`. A memory-mapped array stays on disk.

    Raises:
        DataError: as `load`.

    >>> dataset([[0.5], [1.0]], [1, 0]).class_names
    ('0', '1')
    """
    values = features if isinstance(features, np.memmap) else np.asarray(features)
    return make(values, np.asarray(labels), where=where, class_names=class_names, bounds=bounds)


def fingerprint_of(arrays: Mapping[str, Numbers]) -> tuple[int, str]:
    """Returns the number of records and the fingerprint of arrays that have one row per record, in any form.

    Names, types, shapes and contents count: the same records in another form have another fingerprint.

    Raises:
        DataError: if there is no array, they differ in their number of rows, or one holds Python objects.
    """
    if not arrays:
        raise DataError("the data must be at least one array with one row per record, found none")
    digest, lengths = hashlib.sha256(), set()
    for name in sorted(arrays):
        array = np.asanyarray(arrays[name])
        if array.dtype.hasobject:
            raise DataError(f"array {name!r} holds Python objects; give numbers, or texts of fixed width")
        if array.ndim < 1 or len(array) < 1:
            raise DataError(f"array {name!r} must have one row per record and at least one, found {array.shape}")
        lengths.add(len(array))
        kind = array.dtype.newbyteorder("<")
        digest.update(f"{name!r}:{kind.str}{array.shape};".encode())
        for block in blocks(array):
            digest.update(np.ascontiguousarray(block, kind).tobytes())
    if len(lengths) != 1:
        raise DataError(f"all arrays must have as many rows, one per record, found {sorted(lengths)}")
    return lengths.pop(), digest.hexdigest()


def blocks(array: Numbers) -> Iterator[Numbers]:
    """Yields consecutive rows, a few megabytes at a time: what is on disk never has to be in memory at once."""
    row_bytes = 8 * max(1, array.size // max(1, len(array)))
    step = max(1, _BLOCK_BYTES // row_bytes)
    for start in range(0, len(array), step):
        yield array[start : start + step]


def _check_values(values: Numbers, where: str, columns: list[str] | None) -> None:
    if values.ndim != 2:
        raise DataError(f"{where}: features must have shape (N, f), found {values.shape}")
    if values.shape[0] < 1 or values.shape[1] < 1:
        raise DataError(f"{where}: expected at least one record and one feature, found shape {values.shape}")
    if values.dtype.kind not in "fiub":
        raise DataError(f"{where}: features must be numbers, found type {values.dtype}")
    if values.dtype.kind != "f":
        return
    begin = 0
    for block in blocks(values):
        with np.errstate(over="ignore"):
            finite = np.isfinite(np.asarray(block, np.float64))
        if not finite.all():
            row, column = (int(index) for index in np.argwhere(~finite)[0])
            name = repr(columns[column]) if columns else str(column)
            raise DataError(
                f"{where}: record {begin + row} (counted from 0), column {name} is NaN or infinite; clean or "
                "remove it and any other such record"
            )
        begin += len(block)


def _fingerprint(values: Numbers, labels: npt.NDArray[np.int64]) -> str:
    digest = hashlib.sha256()
    for array, kind in ((values, np.dtype("<f8")), (labels, np.dtype("<i8"))):
        digest.update(f"{kind.str}{array.shape};".encode())
        for block in blocks(array):
            digest.update(np.ascontiguousarray(block, kind).data)
    return digest.hexdigest()
