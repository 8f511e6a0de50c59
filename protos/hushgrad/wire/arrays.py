"""Named arrays and the flat vector that travels: order, shapes, and .safetensors files."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import safetensors.numpy
from hushgrad.wire.errors import ContractError


@dataclass(frozen=True, slots=True)
class ArraySpec:
    """Name and shape of one array of a model. An empty shape is a single number."""

    name: str
    shape: tuple[int, ...]

    def __post_init__(self) -> None:
        if not 1 <= len(self.name) <= 200:
            raise ContractError(f"an array's name must have 1 to 200 characters, found {self.name!r}")
        if any(size < 1 for size in self.shape):
            raise ContractError(f"array {self.name!r}: every axis must be >= 1, found {list(self.shape)}")

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)


def flatten(arrays: Mapping[str, npt.ArrayLike], specs: Iterable[ArraySpec]) -> npt.NDArray[np.float32]:
    """Joins named arrays into one float32 vector of shape (d,), in the order of the specs.

    Raises:
        ContractError: if a name is missing or not expected, a shape differs, or a value is not finite.
    """
    specs = list(specs)
    expected, found = {spec.name for spec in specs}, set(arrays)
    if expected != found:
        raise ContractError(f"expected arrays {sorted(expected)}, found {sorted(found)}")
    parts = []
    for spec in specs:
        array = np.asarray(arrays[spec.name], dtype=np.float32)
        if array.shape != spec.shape:
            raise ContractError(f"array {spec.name!r} must have shape {list(spec.shape)}, found {list(array.shape)}")
        if not np.isfinite(array).all():
            raise ContractError(f"array {spec.name!r} must hold finite numbers, found NaN or infinity")
        parts.append(array.ravel())
    return np.concatenate(parts)


def unflatten(vector: npt.NDArray, specs: Iterable[ArraySpec]) -> dict[str, npt.NDArray]:
    """Cuts a vector of shape (d,) into named views in the order of the specs.

    Raises:
        ContractError: if the vector has another length.
    """
    specs = list(specs)
    parameters = sum(spec.size for spec in specs)
    if vector.shape != (parameters,):
        raise ContractError(f"expected a vector of {parameters} numbers, found shape {list(vector.shape)}")
    arrays, start = {}, 0
    for spec in specs:
        arrays[spec.name] = vector[start : start + spec.size].reshape(spec.shape)
        start += spec.size
    return arrays


def save_model(path: Path, vector: npt.NDArray, specs: Iterable[ArraySpec], metadata: Mapping[str, str]) -> None:
    """Writes a vector of shape (d,) as named float32 arrays into a .safetensors file."""
    # Copies, because safetensors writes the memory behind a view as it lies there.
    arrays = {name: np.array(array, dtype=np.float32, order="C") for name, array in unflatten(vector, specs).items()}
    safetensors.numpy.save_file(arrays, path, metadata=dict(metadata))


def load_model(path: Path, specs: Iterable[ArraySpec]) -> npt.NDArray[np.float32]:
    """Reads a .safetensors file into a vector of shape (d,).

    Raises:
        ContractError: if the file cannot be read or does not hold the expected arrays.
    """
    try:
        arrays = safetensors.numpy.load_file(path)
    except (OSError, ValueError, safetensors.SafetensorError) as error:
        raise ContractError(f"{path} must be a readable .safetensors file: {error}") from error
    return flatten(arrays, specs)
