"""Makes the state of a new federation from what people wrote, and tells what differs from a state that exists."""

import dataclasses
import hashlib
import os
from pathlib import Path

import numpy as np
import numpy.typing as npt
from hushgrad.server import database as database_module
from hushgrad.server.database import Database
from hushgrad.server.errors import InputError
from hushgrad.server.folder import StateFolder
from hushgrad.wire import arrays, grid, terms_file
from hushgrad.wire import terms as wire_terms
from hushgrad.wire.terms import Terms


@dataclasses.dataclass(frozen=True, slots=True)
class Initialized:
    """What `initialize` did. was_new: whether the state was made now."""

    terms: Terms
    terms_digest: bytes
    was_new: bool


def initialize(folder: StateFolder, terms_path: Path, initial_path: Path | None) -> Initialized:
    """Makes the state of a federation; on a state that exists, checks that it is the same federation.

    Args:
        initial_path: a .safetensors file with version 0; None for zeros.

    Raises:
        ContractError, InputError: if a file cannot be used, or the state exists with other terms; nothing is changed.
    """
    file = terms_file.load(terms_path)
    initial = _initial_model(file, initial_path)
    new_terms = terms_file.build(file, initial, os.urandom(16))
    if folder.database.exists():
        database = Database.open(folder, read_only=True)
        try:
            terms_bytes = database.terms_bytes()
        finally:
            database.close()
        terms = wire_terms.from_bytes(terms_bytes)
        refuse_changes(terms, new_terms, folder)
        return Initialized(terms, wire_terms.digest(terms_bytes), False)
    array = grid.initial_array(initial, grid_exponent=new_terms.grid_exponent, step_exponent=new_terms.step_exponent)
    published = grid.published_model(
        array, grid_exponent=new_terms.grid_exponent, step_exponent=new_terms.step_exponent
    )
    if hashlib.sha256(published.astype("<f4").tobytes()).digest() != new_terms.initial_model_sha256:
        raise InputError("the initial model and the terms' digest of it differ; this is a bug, report it")
    folder.make()
    folder.lock()
    try:
        if folder.database.exists():
            raise InputError(f"another process has just made a state in {folder.root}; run this command again")
        terms_bytes = new_terms.to_bytes()
        database_module.create(folder, new_terms, terms_bytes, initial)
    except OSError as error:
        raise InputError(f"the state cannot be written to {folder.root}: {error.strerror}") from error
    finally:
        folder.unlock()
    return Initialized(new_terms, wire_terms.digest(terms_bytes), True)


def check_terms_file(terms: Terms, terms_path: Path, folder: StateFolder) -> None:
    """Refuses a terms file that differs from the terms of a state. The initial model is taken as it is.

    Raises:
        ContractError, InputError: if the file cannot be used, or something differs.
    """
    file = terms_file.load(terms_path)
    database = Database.open(folder, read_only=True)
    try:
        found = database.model(0)
    finally:
        database.close()
    if found is None:
        raise InputError(f"{folder.database} lacks version 0; restore it from a backup")
    initial = np.frombuffer(found[0], "<f4")
    if initial.size != sum(arrays.ArraySpec(entry.name, tuple(entry.shape)).size for entry in file.arrays):
        initial = _initial_model(file, None)
    refuse_changes(terms, terms_file.build(file, initial, terms.federation_id), folder)


def refuse_changes(terms: Terms, asked: Terms, folder: StateFolder) -> None:
    """Raises InputError with every key that differs, the random federation id aside."""
    differing = differences(terms, asked)
    if differing:
        raise InputError(
            f"the terms of the state in {folder.root} cannot be changed: {'; '.join(differing)}; "
            "go on with the old terms, or make a new federation in another state folder"
        )


def differences(old: Terms, new: Terms) -> list[str]:
    """Returns one phrase per key in which two terms differ, the federation id aside."""
    phrases = []
    before, after = _flat(old), _flat(new)
    for key in before:
        if key != "federation_id" and before[key] != after[key]:
            phrases.append(f"{key} is {_shown(before[key])}, asked for {_shown(after[key])}")
    return phrases


def _initial_model(file: terms_file.TermsFile, path: Path | None) -> npt.NDArray[np.float32]:
    specs = [arrays.ArraySpec(entry.name, tuple(entry.shape)) for entry in file.arrays]
    if path is None:
        return np.zeros(sum(spec.size for spec in specs), np.float32)
    return arrays.load_model(path, specs)


def _flat(terms: Terms) -> dict[str, object]:
    flat: dict[str, object] = {}
    for key, value in dataclasses.asdict(terms).items():
        if isinstance(value, dict):
            flat.update({f"{key}.{inner}": inner_value for inner, inner_value in value.items()})
        else:
            flat[key] = value
    return flat


def _shown(value: object) -> str:
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, list | tuple) and len(value) > 4:
        return f"[{', '.join(map(str, value[:3]))}, ... {len(value)} entries]"
    return str(value)
