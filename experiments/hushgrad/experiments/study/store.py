"""A folder of results: the resolved experiment, one JSON file and one file of rows for each finished run.

    experiment.toml       the experiment with every setting filled in; `hushgrad run` reads it as it reads any other
    runs/00007-KEY.json   one run: settings, claim, versions, scores; nothing in it depends on the machine's speed
    runs/00007-KEY.csv    its scored versions; or .parquet
    measured/...          processor and wall time, apart because it is never the same again

A run's file appears whole or not at all, and only when the run is done: what is there need not be run again.
"""

import csv
import functools
import hashlib
import io
import json
import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

import msgspec
import tomli_w
from hushgrad.experiments.errors import InputError
from hushgrad.experiments.study.file import Experiment
from hushgrad.experiments.study.scores import Point
from hushgrad.experiments.study.sweep import Run

FORMAT = 1
PACKAGES = ("hushgrad", "numpy", "cryptography", "dp-accounting", "scipy", "scikit-learn")
SIMULATE = "simulate"
Rows = Literal["csv", "parquet"]
COLUMNS = ("version", "seconds", "updates", "accuracy", "log_loss", "accuracy_averaged")


class Store:
    """The results of one experiment.

    Args:
        folder: new, empty, or with results of the same experiment.
        experiment: whose results.
        rows: format of the rows that are saved.

    Raises:
        InputError: if the folder holds anything else, or rows cannot be written so. Nothing was changed.
    """

    def __init__(self, folder: Path, experiment: Experiment, rows: Rows = "csv") -> None:
        self.folder = folder
        self._rows: Rows = rows
        if rows == "parquet":
            _parquet()
        resolved = resolved_toml(experiment)
        path = folder / "experiment.toml"
        if path.exists():
            if path.read_text() != resolved:
                raise InputError(
                    f"{folder} holds results of another experiment than this one (its {path.name} differs); name "
                    "another folder with --out"
                )
        elif folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise InputError(f"{folder} exists and holds no results; name another folder with --out")
        for name in ("runs", "measured"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        if not path.exists():
            _write(path, resolved)

    def missing(self, runs: Iterable[Run], backend: str) -> list[Run]:
        """Returns the runs that are not done, in order. What a power cut left torn is not done."""
        return [run for run in runs if not _is_whole(self._path(run, backend))]

    def save(
        self, run: Run, backend: str, result: dict[str, Any], points: Sequence[Point], measured: dict[str, Any]
    ) -> None:
        """Writes a finished run. The JSON file comes last: it says that the others are whole."""
        path = self._path(run, backend)
        _write(self.folder / "measured" / path.name, json.dumps(measured, indent=1) + "\n")
        rows = path.with_suffix(f".{self._rows}")
        content = encoded([[getattr(point, name) for name in COLUMNS] for point in points], COLUMNS, self._rows)
        _write(rows, content)
        whole = {"format": FORMAT, "backend": backend, **result, "rows": rows.name, "rows_sha256": _digest(content)}
        _write(path, json.dumps(whole, indent=1) + "\n")

    def _path(self, run: Run, backend: str) -> Path:
        suffix = "" if backend == SIMULATE else f"-{backend}"
        return self.folder / "runs" / f"{run.number:05d}-{run.key}{suffix}.json"


def read(folder: Path) -> list[dict[str, Any]]:
    """Returns the finished runs of a folder, in order of their numbers.

    Raises:
        InputError: if there are none, or a file is none of ours.
    """
    if not (folder / "runs").is_dir():
        raise InputError(f"{folder} holds no results: there is no folder {folder / 'runs'}")
    found = [read_run(path) for path in sorted((folder / "runs").glob("*.json"))]
    if not found:
        raise InputError(f"{folder} holds no finished run yet")
    return found


def read_run(path: Path) -> dict[str, Any]:
    """Returns one run, its scored versions under "points".

    Raises:
        InputError: if the file is none of ours.
    """
    try:
        run = json.loads(path.read_text())
        found = run["format"]
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError):
        raise InputError(f"{path} is no result of a run") from None
    if found != FORMAT:
        raise InputError(f"{path} has format {found}, this program reads {FORMAT}")
    run["path"] = str(path)
    run["points"] = read_points(_rows_of(path, run))
    return dict(run)


def amend(path: Path, changes: Mapping[str, Any]) -> None:
    """Completes the file of a finished run with what was known too late; its rows stay.

    Raises:
        InputError: if it is none of ours.
    """
    read_run(path)
    _write(path, json.dumps({**json.loads(path.read_text()), **changes}, indent=1) + "\n")


def read_points(path: Path) -> list[Point]:
    """Returns the scored versions of a run, from .csv or .parquet; none if there is no file.

    Raises:
        InputError: if the package for .parquet is not installed.
    """
    if not path.exists():
        return []
    if path.suffix == ".parquet":
        found = _parquet().read_table(path).to_pylist()
    else:
        with path.open(newline="") as file:
            found = list(csv.DictReader(file))
    return [
        Point(
            int(row["version"]),
            float(row["seconds"]),
            int(row["updates"]),
            float(row["accuracy"]),
            float(row["log_loss"]),
            float(row["accuracy_averaged"]) if row["accuracy_averaged"] not in ("", None) else None,
        )
        for row in found
    ]


def encoded(rows: Sequence[Sequence[Any]], columns: Sequence[str], how: Rows) -> bytes:
    """Returns rows as the bytes of a .csv or .parquet file; None is an empty cell, or null.

    Raises:
        InputError: if the package for .parquet is not installed.
    """
    if how == "parquet":
        import pyarrow

        table = pyarrow.table({name: [row[i] for row in rows] for i, name in enumerate(columns)})
        target = pyarrow.BufferOutputStream()
        _parquet().write_table(table, target)
        return bytes(target.getvalue().to_pybytes())
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(columns)
    for row in rows:
        writer.writerow(["" if value is None else value if isinstance(value, str) else repr(value) for value in row])
    return file.getvalue().encode()


def _parquet() -> Any:
    try:
        from pyarrow import parquet
    except ModuleNotFoundError:
        raise InputError("Parquet needs the package pyarrow: pip install 'hushgrad[parquet]'") from None
    return parquet


def resolved_toml(experiment: Experiment) -> str:
    """Returns the experiment as a file with every setting filled in."""
    return tomli_w.dumps(_without_none(msgspec.to_builtins(experiment)))


def run_facts(run: Run) -> dict[str, Any]:
    """Returns what is known of a run before it is made."""
    return {
        "name": run.experiment.name,
        "number": run.number,
        "key": run.key,
        "seed": run.seed,
        "axes": run.axes,
        "labels": dict(run.experiment.labels),
        "configuration": _without_none(msgspec.to_builtins(run.experiment)),
        "versions": _versions(),
    }


@functools.cache
def _versions() -> dict[str, str]:
    return {"python": platform.python_version(), **{name: metadata.version(name) for name in PACKAGES}}


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _rows_of(path: Path, run: Mapping[str, Any]) -> Path:
    """Returns the file of a run's rows. Files of an earlier time do not name it: it was .csv."""
    return path.with_name(Path(str(run.get("rows", path.with_suffix(".csv").name))).name)


def _is_whole(path: Path) -> bool:
    try:
        run = json.loads(path.read_text())
        return bool(run["rows_sha256"] == _digest(_rows_of(path, run).read_bytes()))
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_none(inner) for key, inner in value.items() if inner is not None}
    return [_without_none(inner) for inner in value] if isinstance(value, list | tuple) else value


def _write(path: Path, content: str | bytes) -> None:
    """Writes a file so that it is there whole or not at all, unless the power fails: see `_is_whole`."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    temporary.write_bytes(content.encode() if isinstance(content, str) else content)
    temporary.rename(path)
