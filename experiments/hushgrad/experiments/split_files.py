"""`hushgrad split`: writes a test set and the clients' parts of a table into a new folder."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hushgrad.experiments import folders, source, split
from hushgrad.experiments.errors import InputError
from hushgrad.experiments.partition import Kind


@dataclass(frozen=True, slots=True)
class Written:
    """What was written.

    Attributes:
        files: paths of the parts, in order.
        test: path of the test set; None if there is none.
        rows: of each part, in order.
        test_rows: of the test set.
        left_out: rows in no file.
        class_names: what the numbers in y stand for.
    """

    files: tuple[Path, ...]
    test: Path | None
    rows: tuple[int, ...]
    test_rows: int
    left_out: int
    class_names: tuple[str, ...]


def write(
    name: str,
    folder: Path,
    *,
    label: str,
    clients: int,
    test_fraction: float,
    seed: int,
    kind: Kind = "disjoint",
    alpha: float | None = None,
    weights: Sequence[float] | None = None,
    features: int | None = None,
) -> Written:
    """Reads a table and writes client-1.npz, client-2.npz, ... and test.npz, each with X and an array of labels.

    The labels are called as in the table, so that one `label` setting fits all files.

    Raises:
        InputError: if the table, a number or the folder cannot be used; then nothing was written.
    """
    if label in ("X", "file", "allow_pickle"):  # taken by the features, and by numpy's writer
        raise InputError(f"a label column called {label!r} cannot be written into a .npz file; rename it")
    table = source.read(name, label=label, features=features)
    cut = split.split(
        table, clients=clients, test_fraction=test_fraction, seed=seed, kind=kind, alpha=alpha, weights=weights
    )
    folders.make_new(folder)
    files = tuple(folder / f"client-{number}.npz" for number in range(1, clients + 1))
    for path, rows in zip(files, cut.parts, strict=True):
        table.take(rows).save(path, label=label)
    test = folder / "test.npz" if len(cut.test) else None
    if test:
        table.take(cut.test).save(test, label=label)
    return Written(
        files=files,
        test=test,
        rows=tuple(map(len, cut.parts)),
        test_rows=len(cut.test),
        left_out=len(cut.left_out),
        class_names=table.class_names,
    )
