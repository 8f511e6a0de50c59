"""Turns a frozen array into a published version: a small one in memory, a large one part by part into files.

A large version is never in memory beside the array that it was frozen as. Its files are durable when `publish` returns,
and nothing refers to them yet; the row that does is written by `database`.
"""

import hashlib
import os
from pathlib import Path
from typing import Final

import numpy as np
from hushgrad.server import folder as folder_module
from hushgrad.server.aggregation import Files, Frozen, Placed, Published
from hushgrad.server.stored import Mean, StoredBytes, StoredSums

LARGEST_IN_MEMORY_BYTES: Final = 2**20
"""Of an array of int64. Up to here one pass in memory costs less than three files."""


def publish(frozen: Frozen, arrays: Path) -> Published:
    """Publishes what was frozen. Slow for large arrays: call it off the event loop.

    Args:
        frozen: what was frozen.
        arrays: the folder for arrays that are too large for rows.

    Raises:
        OSError: if a file cannot be written; files that were begun may be left, under names that nothing refers to.
    """
    if frozen.array.nbytes <= LARGEST_IN_MEMORY_BYTES:
        return frozen.publish()
    has_average = frozen.is_averaged or frozen.average_sum is not None
    model, array = _Writer(arrays, "model", frozen.version), _Writer(arrays, "array", frozen.version)
    sums = _Writer(arrays, "average_sum", frozen.version) if has_average else None
    averaged = hashlib.sha256()
    try:
        for part in frozen.parts():
            model.write(part.model)
            array.write(part.array)
            if sums is not None and part.average_sum is not None and part.averaged is not None:
                sums.write(part.average_sum)
                averaged.update(part.averaged.data)
        named = [one.finish() for one in (model, array, *([sums] if sums else []))]
    finally:
        for one in (model, array, sums):
            if one is not None:
                one.close()
    folder_module.sync_directory(arrays)
    model_file, array_file, *sums_file = named
    kept = StoredSums(StoredBytes(arrays / sums_file[0].file)) if sums_file else None
    return Published(
        frozen.version,
        StoredBytes(arrays / model_file.file),
        model_file.sha256,
        frozen.array,
        kept,
        frozen.count,
        None if kept is None else Mean(kept, frozen.count),
        averaged.digest() if has_average else b"",
        Files(array_file, sums_file[0] if sums_file else None),
    )


class _Writer:
    """A file that is written part by part and gets its name, with its digest in it, when it is whole and durable."""

    def __init__(self, folder: Path, kind: str, version: int) -> None:
        self._final = folder / f"{kind}-{version}"
        self._temporary = folder / f"{kind}-{version}.new"
        self._file = open(self._temporary, "wb", buffering=0)  # noqa: SIM115 - `publish` closes it
        self._sha256 = hashlib.sha256()

    def write(self, part: np.ndarray) -> None:
        data = part.data.cast("B")
        self._sha256.update(data)
        while data:
            data = data[self._file.write(data) :]

    def finish(self) -> Placed:
        """Gives it its name, which is durable when its folder is."""
        os.fsync(self._file.fileno())
        digest = self._sha256.digest()
        path = self._final.with_name(f"{self._final.name}-{digest.hex()[:16]}")
        self._temporary.rename(path)
        return Placed(path.name, digest)

    def close(self) -> None:
        self._file.close()
