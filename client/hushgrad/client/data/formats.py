"""Files of records, read as they are: each format to values, labels and, where it has them, column names.

Nothing is scaled or checked here beyond what the format itself promises. Errors name files, lines and columns, never a
value.
"""

import bz2
import csv
import gzip
import math
import struct
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from hushgrad.client.data import labelling
from hushgrad.client.data.errors import DataError

_IDX_TYPES: Final = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
_LIBSVM: Final = (".libsvm", ".svm", ".svmlight", ".trn", ".tst")


@dataclass(frozen=True, slots=True)
class Read:
    """What a file holds.

    Attributes:
        values: shape (N, f).
        labels: numbers or texts.
        columns: names of the features.
        names: of the classes, where the source knows them.
    """

    values: npt.NDArray[Any]
    labels: npt.NDArray[Any]
    columns: list[str] | None = None
    names: list[str] | None = None


@dataclass(frozen=True, slots=True)
class Source:
    """What is asked for.

    Attributes:
        path: the file of the records.
        label: the label column, or the name of the label array.
        labels_path: the file of the labels, where they have one of their own.
        features: f, for formats that do not say it.
    """

    path: Path
    label: str
    labels_path: Path | None = None
    features: int | None = None


def read(source: Source) -> Read:
    """Reads a file by what its name says it is.

    Raises:
        DataError: if it is missing, or not what its name says.
    """
    reader = _reader(source.path)
    for path in (source.path, source.labels_path):
        if path is not None and not path.is_file():
            raise DataError(f"there is no data file {path}; check [data] file, --data or HUSHGRAD_DATA")
    try:
        return reader(source)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{source.path} cannot be read: {getattr(error, 'strerror', None) or error}") from error


def _reader(path: Path) -> Callable[[Source], Read]:
    name = path.name.lower().removesuffix(".gz").removesuffix(".bz2")
    compressed = name != path.name.lower()
    if "-idx" in name or name.endswith(".idx"):
        return _read_idx
    if name.endswith(_LIBSVM):
        return _read_libsvm
    plain = {".npz": _read_npz, ".csv": _read_csv, ".parquet": _read_parquet, ".npy": _read_npy}
    reader = plain.get(Path(name).suffix)
    if reader is None or compressed:
        raise DataError(
            f"a data file must be .npz, .npy, .csv, .parquet, LIBSVM ({', '.join(_LIBSVM)}) or IDX (-idx3-ubyte), the "
            f"last two also .gz or .bz2, found {path.name}"
        )
    return reader


def _read_npz(source: Source) -> Read:
    path, label = source.path, source.label
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
                return Read(file["X"], labels)
            bits, count, value = file["bits"], int(file["d"]), float(file["value"])
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{path} is not a readable .npz file without pickled objects") from error
    if bits.ndim != 2 or bits.dtype != np.uint8 or not 1 <= count <= 8 * bits.shape[1]:
        raise DataError(f"{path}: bits must be bytes of shape (N, at least {-(-count // 8)}), found {bits.shape}")
    return Read(np.unpackbits(bits, axis=1)[:, :count] * value, labels)


def _read_npy(source: Source) -> Read:
    """Maps values into memory: they stay on disk, and rows are read when they are chosen."""
    if source.labels_path is None:
        raise DataError(f"{source.path}: a .npy file holds one array; name the labels' own file as [data] labels_file")
    values, labels = (_mapped(path) for path in (source.path, source.labels_path))
    if values.ndim > 2:
        values = values.reshape(len(values), -1)
    return Read(values, np.array(labels))


def _mapped(path: Path) -> npt.NDArray[Any]:
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise DataError(f"{path} is not a readable .npy file without pickled objects") from error


def _read_csv(source: Source) -> Read:
    path, label = source.path, source.label
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
    values = np.array(rows, np.float64).reshape(len(rows), len(columns))
    return Read(values, np.array(labels, np.str_), columns)


def _numbers(cells: list[str], columns: list[str], path: Path, line: int) -> list[float]:
    try:
        return [float(cell) for cell in cells]
    except ValueError:
        pass
    column = next(name for cell, name in zip(cells, columns, strict=True) if not labelling.is_number(cell))
    raise DataError(f"{path}, line {line}, column {column!r}: expected a number; clean or remove the record")


def _read_parquet(source: Source) -> Read:
    path, label = source.path, source.label
    try:
        import pyarrow
        from pyarrow import parquet
    except ModuleNotFoundError:
        raise DataError(f"{path}: .parquet needs the package pyarrow: pip install 'hushgrad[parquet]'") from None
    try:
        table = parquet.read_table(path)
    except (pyarrow.ArrowException, ValueError) as error:
        raise DataError(f"{path} is not a readable .parquet file") from error
    if label not in table.column_names:
        raise DataError(f"{path}: there must be a column {label!r}, found {table.column_names[:20]}; set [data] label")
    columns = [name for name in table.column_names if name != label]
    values = np.empty((table.num_rows, len(columns)))
    for place, name in enumerate(columns):
        column = table.column(name)
        if column.null_count:
            raise DataError(f"{path}, column {name!r}: values are missing; clean or remove these records")
        kind = column.type
        if not (pyarrow.types.is_floating(kind) or pyarrow.types.is_integer(kind) or pyarrow.types.is_boolean(kind)):
            raise DataError(f"{path}, column {name!r}: expected numbers, found {kind}")
        values[:, place] = column.to_numpy()
    labels = table.column(label)
    if labels.null_count:
        raise DataError(f"{path}, column {label!r}: labels are missing; clean or remove these records")
    found = labels.to_numpy()
    return Read(values, found.astype(np.str_) if found.dtype.hasobject else found, columns)


def _read_libsvm(source: Source) -> Read:
    """Reads lines `label index:value ...` with indices from 1; what is not named is 0."""
    if source.features is None:
        raise DataError(
            f"{source.path}: a LIBSVM file does not say how many features there are, and the largest index in it "
            "depends on the records; declare [data] features (or say --features)"
        )
    from sklearn import datasets  # only those who ask for it wait for it

    try:
        values, labels = datasets.load_svmlight_file(
            str(source.path), n_features=source.features, zero_based=False, dtype=np.float64
        )
    except (ValueError, OverflowError) as error:
        raise DataError(
            f"{source.path} is not a readable LIBSVM file with indices from 1 to {source.features}, the declared "
            "number of features"
        ) from error
    return Read(values.toarray(), labels)


def _read_idx(source: Source) -> Read:
    """Reads images and, from the file beside it that is called alike, labels: the format that MNIST comes in."""
    labels_path = source.labels_path
    if labels_path is None:
        beside = source.path.name.replace("-images-idx3-", "-labels-idx1-").replace("-images.idx3-", "-labels.idx1-")
        labels_path = source.path.with_name(beside)
        if labels_path == source.path or not labels_path.is_file():
            raise DataError(f"{source.path}: the file of the labels is not beside it; name it as [data] labels_file")
    values, labels = _idx(source.path), _idx(labels_path)
    return Read(values.reshape(len(values), math.prod(values.shape[1:])), labels)


def _idx(path: Path) -> npt.NDArray[Any]:
    content = _content(path)
    bad = DataError(f"{path} is not an IDX file: its header and its {len(content)} bytes do not agree")
    if len(content) < 4 or content[:2] != b"\0\0" or content[2] not in _IDX_TYPES or not content[3]:
        raise bad
    kind, axes = np.dtype(_IDX_TYPES[content[2]]), content[3]
    begin = 4 + 4 * axes
    if len(content) < begin:
        raise bad
    shape = struct.unpack(f">{axes}I", content[4:begin])
    if len(content) - begin != math.prod(shape) * kind.itemsize:
        raise bad
    array = np.frombuffer(content, kind, offset=begin).reshape(shape)
    return array.astype(kind.newbyteorder("="), copy=False)


def _content(path: Path) -> bytes:
    if path.suffix == ".gz":
        return gzip.decompress(path.read_bytes())
    if path.suffix == ".bz2":
        return bz2.decompress(path.read_bytes())
    return path.read_bytes()
