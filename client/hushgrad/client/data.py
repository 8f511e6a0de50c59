"""From a file of records to arrays. Nothing that is computed from several records is used to prepare them.

Errors name files, rows and columns, never a value.
"""

import csv
import hashlib
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import msgspec
import numpy as np
import numpy.typing as npt
from hushgrad.client.errors import InputError

if TYPE_CHECKING:
    from hushgrad.client.models.base import Model

BuiltIn = Literal["breast_cancer", "digits", "iris", "wine"]


_MAX_CLASSES: Final = 2**16


class DataError(InputError, ValueError):
    """The records cannot be used; the text says what was expected, what was found, where, and what to do."""


class DataConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The [data] table of a configuration file. Exactly one of `file` and `sklearn` must be given.

    Attributes:
        file: an .npz or .csv file.
            .npz: array X of shape (N, f), or bits (N, bytes) with d and value: f = d bits a row, each 0 or `value`;
            and an array of labels.
            .csv: a line of column names, then one record a line; every column but the labels' is a number.
        sklearn: the name of one of scikit-learn's built-in sets.
        label: the label column of a .csv file or the name of the label array of an .npz file.
        class_names: the classes in order, as labels are written; declared, hence public. Without it labels must be 0,
            1, 2, ..., or names, which are then numbered in sorted order. Clients that train together should all
            declare the same.
        bounds: public bounds, [low, high] for all features or one such pair for each. Values are clipped to them and
            scaled to [0, 1]. They come from knowledge of the domain, never from the records.
    """

    file: str | None = None
    sklearn: BuiltIn | None = None
    label: str = "y"
    class_names: list[str] | None = None
    bounds: list[float | list[float]] | None = None


@dataclass(frozen=True, slots=True)
class Dataset:
    """Records in memory.

    Attributes:
        features: float64, shape (N, f), finite, C-contiguous, after scaling to the declared bounds.
        labels: int64, shape (N,), from 0.
        fingerprint: SHA-256 in hexadecimal over shapes, types and contents of features (as read, before scaling) and
            labels: the same records in another file, in the same order, have the same.
        class_names: by label.
    """

    features: npt.NDArray[np.float64]
    labels: npt.NDArray[np.int64]
    fingerprint: str
    class_names: tuple[str, ...]

    def check_fits(self, model: "Model") -> None:
        """Refuses a model with another number of features or fewer classes.

        Raises:
            DataError: if so.
        """
        if self.features.shape[1] != model.features:
            raise DataError(
                f"the model has {model.features} features, the data have {self.features.shape[1]}; "
                "use the data the federation was made for"
            )
        if len(self.labels) and int(self.labels.max()) >= model.classes:
            raise DataError(
                f"the model has {model.classes} classes, so labels must be 0 to {model.classes - 1}; "
                "the data have others"
            )


def load(config: DataConfig, *, folder: Path = Path()) -> Dataset:
    """Reads, checks and scales records.

    Args:
        config: the [data] table.
        folder: what a relative `file` is relative to: the folder of the configuration file.

    Raises:
        DataError: if the file is missing or not readable as what its name says; a value is NaN, infinite or not a
            number (row and column are named); shapes do not fit; there is no record; or labels are not what
            `class_names` says.
    """
    if (config.file is None) == (config.sklearn is None):
        raise DataError('[data] must have exactly one of "file" and "sklearn"')
    if config.sklearn is not None:
        features, labels, names = _load_built_in(config.sklearn)
        where, columns = f"scikit-learn's {config.sklearn}", None
    else:
        path = folder / str(config.file)
        where, names = str(path), None
        features, labels, columns = _load_file(path, config.label)
    features = _checked_features(features, where, columns)
    if labels.ndim != 1 or len(labels) != len(features):
        raise DataError(f"{where}: expected {len(features)} labels, one for each row, found shape {labels.shape}")
    numbers, class_names = _numbered(labels, config.class_names or names, where)
    fingerprint = _fingerprint(features, numbers)
    if config.bounds is not None:
        features = _scaled(features, config.bounds)
    return Dataset(features=features, labels=numbers, fingerprint=fingerprint, class_names=class_names)


def dataset(
    features: npt.ArrayLike, labels: npt.ArrayLike, *, class_names: Sequence[str] | None = None, where: str = "the data"
) -> Dataset:
    """Makes a data set of arrays in memory, with the same checks as `load`.

    Raises:
        DataError: as `load`.

    >>> dataset([[0.5], [1.0]], [1, 0]).class_names
    ('0', '1')
    """
    checked = _checked_features(np.asarray(features), where, None)
    label_array = np.asarray(labels)
    if label_array.ndim != 1 or len(label_array) != len(checked):
        raise DataError(f"{where}: expected {len(checked)} labels, one for each row, found shape {label_array.shape}")
    numbers, names = _numbered(label_array, class_names, where)
    return Dataset(features=checked, labels=numbers, fingerprint=_fingerprint(checked, numbers), class_names=names)


def _load_file(path: Path, label: str) -> tuple[npt.NDArray, npt.NDArray, list[str] | None]:
    if not path.is_file():
        raise DataError(f"there is no data file {path}; check [data] file, --data or HUSHGRAD_DATA")
    readers: dict[str, Callable[[Path, str], tuple[npt.NDArray, npt.NDArray, list[str] | None]]]
    readers = {".npz": _load_npz, ".csv": _load_csv}
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise DataError(f"a data file must be .npz or .csv, found {path.name}")
    try:
        return reader(path, label)
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}") from error


def _load_npz(path: Path, label: str) -> tuple[npt.NDArray, npt.NDArray, None]:
    try:
        with np.load(path, allow_pickle=False) as file:
            names = set(file.files)
            packed = "X" not in names and {"bits", "d", "value"} <= names
            if not packed and "X" not in names:
                raise DataError(f"{path} must hold an array X (or bits, d and value), found {sorted(names)}")
            if label not in names:
                raise DataError(
                    f"{path} must hold an array {label!r} of labels, found {sorted(names)}; set [data] label"
                )
            labels = file[label]
            if not packed:
                return file["X"], labels, None
            bits, count, value = file["bits"], int(file["d"]), float(file["value"])
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{path} is not a readable .npz file without pickled objects") from error
    if bits.ndim != 2 or bits.dtype != np.uint8 or not 1 <= count <= 8 * bits.shape[1]:
        raise DataError(f"{path}: bits must be bytes of shape (N, at least {-(-count // 8)}), found {bits.shape}")
    return np.unpackbits(bits, axis=1)[:, :count] * value, labels, None


def _load_csv(path: Path, label: str) -> tuple[npt.NDArray, npt.NDArray, list[str]]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file)
            header = [name.strip() for name in next(reader, [])]
            if label not in header:
                raise DataError(
                    f"{path}: the first line must name a column {label!r}, found {header[:20]}; set [data] label"
                )
            place = header.index(label)
            columns = header[:place] + header[place + 1 :]
            rows: list[list[float]] = []
            labels: list[str] = []
            for line in reader:
                if not line:
                    continue
                if len(line) != len(header):
                    raise DataError(
                        f"{path}, line {reader.line_num}: expected {len(header)} columns, found {len(line)}"
                    )
                labels.append(line.pop(place).strip())
                rows.append(_numbers(line, columns, path, reader.line_num))
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path} is not a readable UTF-8 .csv file") from error
    return np.array(rows, np.float64).reshape(len(rows), len(columns)), np.array(labels, np.str_), columns


def _numbers(cells: list[str], columns: list[str], path: Path, line: int) -> list[float]:
    try:
        return [float(cell) for cell in cells]
    except ValueError:
        pass
    column = next(name for cell, name in zip(cells, columns, strict=True) if not _is_number(cell))
    raise DataError(f"{path}, line {line}, column {column!r}: expected a number; clean or remove the record")


def _load_built_in(name: BuiltIn) -> tuple[npt.NDArray, npt.NDArray, list[str]]:
    from sklearn import datasets  # only those who ask for it wait for it

    loaders = {
        "breast_cancer": datasets.load_breast_cancer,
        "digits": datasets.load_digits,
        "iris": datasets.load_iris,
        "wine": datasets.load_wine,
    }
    bunch = loaders[name]()
    names = [str(target) for target in bunch.target_names]
    return bunch.data, np.array(names, np.str_)[bunch.target], names


def _checked_features(features: npt.NDArray, where: str, columns: list[str] | None) -> npt.NDArray[np.float64]:
    if features.ndim != 2:
        raise DataError(f"{where}: features must have shape (N, f), found {features.shape}")
    if features.shape[0] < 1 or features.shape[1] < 1:
        raise DataError(f"{where}: expected at least one record and one feature, found shape {features.shape}")
    if features.dtype.kind not in "fiub":
        raise DataError(f"{where}: features must be numbers, found type {features.dtype}")
    checked = np.ascontiguousarray(features, np.float64)
    finite = np.isfinite(checked)
    if not finite.all():
        row, column = (int(index) for index in np.argwhere(~finite)[0])
        name = repr(columns[column]) if columns else str(column)
        raise DataError(
            f"{where}: record {row} (counted from 0), column {name} is NaN or infinite; clean or "
            "remove it and any other such record"
        )
    return checked


def _numbered(
    labels: npt.NDArray, class_names: Sequence[str] | None, where: str
) -> tuple[npt.NDArray[np.int64], tuple[str, ...]]:
    """Returns labels as 0, 1, ... and the classes' names."""
    texts = _as_text(labels, where)
    if class_names is not None:
        names = [str(name) for name in class_names]
        if len(set(names)) != len(names) or len(names) < 2:
            raise DataError(f"class_names must be at least 2 different names, found {names}")
    else:
        found = sorted({text.item() for text in np.unique(texts)})
        if all(text.isdecimal() for text in found):
            largest = max(int(text) for text in found)
            if largest >= _MAX_CLASSES:
                raise DataError(f"{where}: labels must be 0 to {_MAX_CLASSES - 1}; declare class_names for others")
            names = [str(number) for number in range(max(2, largest + 1))]
            texts = np.char.mod("%d", texts.astype(np.int64))
        elif any(_is_number(text) for text in found):
            raise DataError(f"{where}: labels must be 0, 1, 2, ... or names; declare class_names for other numbers")
        elif len(found) < 2:
            raise DataError(f"{where}: all labels are one name, which leaves their number open; declare class_names")
        else:
            names = found
    order = np.argsort(names)
    ordered = np.array(names, np.str_)[order]
    places = np.minimum(np.searchsorted(ordered, texts), len(names) - 1)
    wrong = np.flatnonzero(ordered[places] != texts)
    if len(wrong):
        raise DataError(
            f"{where}: record {int(wrong[0])} (counted from 0) has a label that is not in class_names; "
            "correct the label or the names"
        )
    return order[places].astype(np.int64), tuple(names)


def _as_text(labels: npt.NDArray, where: str) -> npt.NDArray[np.str_]:
    kind = labels.dtype.kind
    if kind == "U":
        return labels
    if kind in "iub":
        return np.char.mod("%d", labels.astype(np.int64))
    if kind == "f":
        if not np.isfinite(labels).all():
            row = int(np.flatnonzero(~np.isfinite(labels))[0])
            raise DataError(
                f"{where}: the label of record {row} (counted from 0) is NaN or infinite; clean or remove it"
            )
        whole = labels == np.rint(labels)
        if whole.all() and (np.abs(labels) < 2**53).all():
            return np.char.mod("%d", labels.astype(np.int64))
        return labels.astype(np.str_)
    raise DataError(f"{where}: labels must be whole numbers or text, found type {labels.dtype}")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _scaled(features: npt.NDArray[np.float64], bounds: list[float | list[float]]) -> npt.NDArray[np.float64]:
    """Clips to the bounds and scales to [0, 1]: a function of each value alone."""
    width = features.shape[1]
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
    return np.ascontiguousarray((np.clip(features, low, high) - low) / span)


def _fingerprint(features: npt.NDArray[np.float64], labels: npt.NDArray[np.int64]) -> str:
    digest = hashlib.sha256()
    for array in (features.astype("<f8", copy=False), labels.astype("<i8", copy=False)):
        digest.update(f"{array.dtype.str}{array.shape};".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()
