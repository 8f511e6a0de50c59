"""The records of a run: its data set, the public test set, and the parts that the clients hold."""

import bz2
import functools
import gzip
import io
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from hushgrad.experiments import data as packaged
from hushgrad.experiments import partition as partitions
from hushgrad.experiments import source
from hushgrad.experiments.errors import InputError
from hushgrad.experiments.study.file import Data, Experiment, Partition
from hushgrad.experiments.tables import Table

FOLDER_VARIABLE = "HUSHGRAD_DATA"

_MNIST = (
    ("train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz"),
    ("t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz"),
)
_IJCNN1 = ("ijcnn1.trn.bz2", "ijcnn1.tst.bz2")
_IJCNN1_FEATURES = 22


@dataclass(frozen=True, slots=True)
class Records:
    """What a run works on.

    Attributes:
        table: all training records.
        test: the public test set.
        parts: by client, row numbers of `table`; clients may share rows, and share the array if they have the same.
    """

    table: Table
    test: Table
    parts: tuple[npt.NDArray[np.int64], ...]


def load(experiment: Experiment, seed: int) -> Records:
    """Returns the records of a run; the seed fixes the test set and the parts.

    Raises:
        InputError: if the data are not there, or too few.
    """
    return load_for(experiment.data, experiment.partition, clients=experiment.clients.number, seed=seed)


def load_for(data: Data, partition: Partition, *, clients: int, seed: int) -> Records:
    """As `load`, from its parts."""
    generator = np.random.default_rng([seed, 1])
    table, test = _tables(data, generator)
    return Records(table, test, _parts(table, partition, clients, generator))


def _tables(data: Data, generator: np.random.Generator) -> tuple[Table, Table]:
    if data.set in ("mnist", "ijcnn1"):
        if data.test_records:
            raise InputError(f"data.test_records must be 0 for {data.set}, which has a test file")
        return _mnist() if data.set == "mnist" else _ijcnn1()
    whole = _phishing() if data.set == "phishing" else source.read(data.set, label=data.label)
    if not 0 < data.test_records < whole.rows:
        raise InputError(f"data.test_records must be 1 to {whole.rows - 1} for this set, found {data.test_records}")
    order = generator.permutation(whole.rows)
    return whole.take(order[data.test_records :]), whole.take(order[: data.test_records])


def _parts(
    table: Table, partition: Partition, clients: int, generator: np.random.Generator
) -> tuple[npt.NDArray[np.int64], ...]:
    needed = partition.records * (1 if partition.kind in ("same", "iid") else clients)
    if needed > table.rows:
        raise InputError(
            f'partition.records = {partition.records} with kind = "{partition.kind}" and {clients} clients needs '
            f"{needed} records, the training set has {table.rows}"
        )
    if partition.kind == "same":
        return (np.arange(partition.records),) * clients
    return partitions.partition(
        table.labels,
        partition.kind,
        clients=clients,
        generator=generator,
        records=partition.records,
        alpha=partition.alpha,
    )


@functools.cache
def _phishing() -> Table:
    return packaged.phishing()


def _data_file(name: str) -> bytes:
    folder = os.environ.get(FOLDER_VARIABLE)
    if not folder:
        raise InputError(
            f"{name} comes not with the package: set {FOLDER_VARIABLE} to a folder that has it (docs/experiments.md "
            "says where from)"
        )
    path = Path(folder) / name
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}; {FOLDER_VARIABLE} is {folder}") from None


@functools.cache
def _mnist() -> tuple[Table, Table]:
    """Returns the training and test sets; pixels are scaled to [0, 1]."""
    names = tuple(str(digit) for digit in range(10))
    found = []
    for images, labels in _MNIST:
        pixels = np.frombuffer(gzip.decompress(_data_file(images)), np.uint8, offset=16).reshape(-1, 28 * 28)
        digits = np.frombuffer(gzip.decompress(_data_file(labels)), np.uint8, offset=8)
        found.append(Table(pixels / 255.0, digits.astype(np.int64), names))
    return found[0], found[1]


@functools.cache
def _ijcnn1() -> tuple[Table, Table]:
    """Returns the training set (with LIBSVM's validation set) and the test set; label 1 is the rare class."""
    from sklearn.datasets import load_svmlight_file  # slow to import

    found = []
    for name in _IJCNN1:
        text = io.BytesIO(bz2.decompress(_data_file(name)))
        features, labels = load_svmlight_file(text, n_features=_IJCNN1_FEATURES)
        found.append(Table(features.toarray(), (labels > 0).astype(np.int64), ("0", "1")))
    return found[0], found[1]
