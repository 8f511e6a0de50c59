"""From a file of records, or a name, to arrays. Nothing that is computed from several records is used to prepare one.

Errors name files, rows and columns, never a value.
"""

from pathlib import Path

import msgspec
from hushgrad.client.data import formats, named, records
from hushgrad.client.data.errors import DataError
from hushgrad.client.data.named import BuiltIn
from hushgrad.client.data.records import Dataset, Scaling, dataset, fingerprint_of

__all__ = ["BuiltIn", "DataConfig", "DataError", "Dataset", "Scaling", "dataset", "fingerprint_of", "load"]


class DataConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The [data] table of a configuration file. Exactly one of `file`, `sklearn` and `openml` must be given.

    Attributes:
        file: read as its name says.
            .npz: array X of shape (N, f), or bits (N, bytes) with d and value: f = d bits a row, each 0 or `value`;
            and an array of labels.
            .csv: a line of column names, then one record a line; every column but the labels' is a number.
            .parquet: columns of numbers, and one of labels; needs the extra `parquet`.
            .libsvm, .svm, .svmlight, .trn, .tst, also .gz or .bz2: lines `label index:value ...`, indices from 1.
            -idx3-ubyte, also .gz: images of MNIST's format, with the labels' file beside it.
            .npy: one array (N, ...), which stays on disk; rows are read when they are chosen.
        labels_file: the file of the labels, for .npy and IDX.
        sklearn: the name of one of scikit-learn's built-in sets.
        openml: the name of a set of OpenML, fetched once over the network.
        openml_version: its version.
        label: the label column of a .csv or .parquet file or the name of the label array of an .npz file.
        features: f, the number of features; needed for LIBSVM, which does not say it. A check for all others.
        class_names: the classes in order, as labels are written; declared, hence public. Without it labels must be 0,
            1, 2, ..., or names, which are then numbered in sorted order. Clients that train together should all
            declare the same.
        bounds: public bounds, [low, high] for all features or one such pair for each. Values are clipped to them and
            scaled to [0, 1]. They come from knowledge of the domain, never from the records.
    """

    file: str | None = None
    labels_file: str | None = None
    sklearn: BuiltIn | None = None
    openml: str | None = None
    openml_version: int | None = None
    label: str = "y"
    features: int | None = None
    class_names: list[str] | None = None
    bounds: list[float | list[float]] | None = None


def load(config: DataConfig, *, folder: Path = Path()) -> Dataset:
    """Reads and checks records.

    Args:
        config: the [data] table.
        folder: what relative files are relative to: the folder of the configuration file.

    Raises:
        DataError: if the file is missing or not readable as what its name says; a value is NaN, infinite or not a
            number (row and column are named); shapes do not fit; there is no record; or labels are not what
            `class_names` says.
    """
    if sum(name is not None for name in (config.file, config.sklearn, config.openml)) != 1:
        raise DataError('[data] must have exactly one of "file", "sklearn" and "openml"')
    if config.sklearn is not None:
        read, where = named.built_in(config.sklearn), f"scikit-learn's {config.sklearn}"
    elif config.openml is not None:
        read, where = named.openml(config.openml, config.openml_version), f"OpenML's {config.openml}"
    else:
        path = folder / str(config.file)
        labels_path = None if config.labels_file is None else folder / config.labels_file
        read, where = formats.read(formats.Source(path, config.label, labels_path, config.features)), str(path)
    if config.features is not None and read.values.ndim == 2 and read.values.shape[1] != config.features:
        raise DataError(
            f"{where}: [data] features declares {config.features} features, the data have {read.values.shape[1]}"
        )
    return records.make(
        read.values,
        read.labels,
        where=where,
        class_names=config.class_names or read.names,
        columns=read.columns,
        bounds=config.bounds,
    )
