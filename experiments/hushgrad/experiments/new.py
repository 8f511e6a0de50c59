"""`hushgrad new`: writes the files that a federation on one's own data starts from."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
from hushgrad.experiments import files, folders, plan, source
from hushgrad.experiments.errors import InputError
from hushgrad.experiments.files import DataSource
from hushgrad.experiments.plan import Plan, Request
from hushgrad.experiments.tables import Table
from hushgrad.wire import arrays, terms_file

STRAGGLER_TIMEOUT_SECONDS = 300.0
LINGER_SECONDS = 60.0
KEEP_LAST = 100
RELEASE_INTERVAL_SECONDS = 0.2

LISTS = ("hidden", "image")
"""Settings of a model that are lists, even of one number."""


@dataclass(frozen=True, slots=True)
class Choice:
    """What a person chose on the command line; None is "work it out". See `plan.Request` for the numbers.

    Attributes:
        data: a table like the clients': path of a file, or the name of a built-in set.
        label: the .csv's label column, or the .npz's label array.
        bounds: declared (low, high) of all features.
        bounds_from: a public table whose features' ranges are the bounds.
        listen, server: host:port where the server listens, and where clients find it.
        accept_large_delta: whether a delta above 1/N is meant.
        options: further settings of the model, as in a client's [model] table.
    """

    kind: str
    data: str
    clients: int
    epsilon: float
    delta: float
    clip_norm: float
    records: int | None
    rounds: int
    sample_size: int | None
    eta0: float | None
    beta: float
    sampler: plan.Sampler
    label: str
    classes: int | None
    l2: float
    bounds: tuple[float, float] | None
    bounds_from: str | None
    name: str
    listen: str
    server: str
    accept_large_delta: bool
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Made:
    """What was written.

    Attributes:
        files: paths of the five files.
        plan: the numbers in them.
        records_counted: whether N came from the number of rows.
    """

    files: tuple[Path, ...]
    plan: Plan
    records_counted: bool

    def to_dict(self) -> dict[str, Any]:
        """Returns the result for JSON."""
        made = self.plan
        return {
            "files": [str(path) for path in self.files],
            "participants": list(made.participants),
            "parameters": made.parameters,
            "records": made.request.records,
            "records_counted": self.records_counted,
            "rounds": made.request.rounds,
            "sample_size": made.sample_size,
            "clip_norm": made.request.clip_norm,
            "noise_multiplier": made.noise_multiplier,
            "grid_exponent": made.grid_exponent,
            "eta0": made.eta0,
            "claim": made.claim.to_dict(),
        }


def make(folder: Path, choice: Choice) -> Made:
    """Writes terms.toml, server.toml, client.toml, evaluator.toml and initial.safetensors into a new folder.

    Of the table only the number of columns, the names of the classes and, where `records` is None, the number of rows
    are used.

    Raises:
        InputError: if something cannot be used; nothing was written.
        BudgetRefusedError: if no noise reaches epsilon; nothing was written.
    """
    folders.check_new(folder)
    _check_address("--listen", choice.listen, lowest_port=0)
    _check_address("--server", choice.server, lowest_port=1)
    table = source.read(choice.data, label=choice.label)
    classes = choice.classes if choice.classes is not None else len(table.class_names)
    if classes < len(table.class_names):
        raise InputError(
            f"--classes must be at least the {len(table.class_names)} classes in the data, found {classes}"
        )
    data = _data_source(choice, table)
    request = Request(
        name=choice.name,
        kind=choice.kind,
        features=table.features.shape[1],
        classes=classes,
        l2=choice.l2,
        clients=choice.clients,
        records=choice.records if choice.records is not None else -(-table.rows // max(1, choice.clients)),
        epsilon=choice.epsilon,
        delta=choice.delta,
        clip_norm=choice.clip_norm,
        rounds=choice.rounds,
        sample_size=choice.sample_size,
        eta0=choice.eta0,
        beta=choice.beta,
        sampler=choice.sampler,
        bounded=data.bounds is not None,
        options=choice.options,
    )
    made = plan.make(request, accept_large_delta=choice.accept_large_delta)
    return Made(files=_write(folder, made, choice, data), plan=made, records_counted=choice.records is None)


def options(settings: Iterable[str]) -> dict[str, Any]:
    """Returns settings of a model from NAME=VALUE: whole numbers, lists of them separated by commas, and words.

    Raises:
        InputError: if one has no name, no value, or comes twice.

    >>> options(["activation=tanh", "padding=2", "hidden=128,64"])
    {'activation': 'tanh', 'padding': 2, 'hidden': [128, 64]}
    """
    found: dict[str, Any] = {}
    for setting in settings:
        name, _, text = setting.partition("=")
        if not name or not text or name in found:
            raise InputError(f"a model's option must be NAME=VALUE, each name once, found {setting!r}")
        parts = text.split(",")
        if all(part.strip().lstrip("-").isdecimal() for part in parts):
            numbers = [int(part) for part in parts]
            found[name] = numbers if len(numbers) > 1 or name in LISTS else numbers[0]
        else:
            found[name] = text
    return found


def checked_terms(made: Plan, initial: npt.NDArray[np.float32], *, straggler_timeout_seconds: float) -> str:
    """Returns terms.toml after making terms of it, so that a server will take it.

    Raises:
        ContractError: if the plan makes no terms.
    """
    text = files.terms(made, straggler_timeout_seconds=straggler_timeout_seconds)
    terms_file.build(msgspec.toml.decode(text, type=terms_file.TermsFile), initial, bytes(16))
    return text


def save_initial(path: Path, made: Plan, initial: npt.NDArray[np.float32]) -> None:
    """Writes the initial model as .safetensors."""
    arrays.save_model(path, initial, made.model.arrays, {"federation": made.request.name, "version": "0"})


def _write(folder: Path, made: Plan, choice: Choice, data: DataSource) -> tuple[Path, ...]:
    initial = made.model.initial(0)
    texts = {
        "terms.toml": checked_terms(made, initial, straggler_timeout_seconds=STRAGGLER_TIMEOUT_SECONDS),
        "server.toml": files.server(
            listen=choice.listen,
            state="server",
            keep_sealed=False,
            keep_last=KEEP_LAST,
            linger_seconds=LINGER_SECONDS,
        ),
        "client.toml": files.client(
            made,
            participant="",
            server=choice.server,
            state="state",
            data=data,
            release_interval_seconds=RELEASE_INTERVAL_SECONDS,
        ),
        "evaluator.toml": files.evaluator(made, server=choice.server, output="curve.csv", data=data),
    }
    folders.make_new(folder)
    for name, text in texts.items():
        (folder / name).write_text(text)
    model = folder / "initial.safetensors"
    save_initial(model, made, initial)
    return (*(folder / name for name in texts), model)


def _data_source(choice: Choice, table: Table) -> DataSource:
    data = DataSource(label=choice.label, class_names=() if table.numbered else table.class_names)
    if choice.bounds is not None and choice.bounds_from is not None:
        raise InputError("give --bounds or --bounds-from, not both")
    if choice.bounds is not None:
        low, high = choice.bounds
        if not (np.isfinite([low, high]).all() and low < high):
            raise InputError(f"--bounds must be finite with low < high, found {low:g} {high:g}")
        return replace(data, bounds=(choice.bounds,) * table.features.shape[1])
    if choice.bounds_from is not None:
        public = source.read(choice.bounds_from, label=choice.label)
        if public.features.shape[1] != table.features.shape[1]:
            raise InputError(
                f"--bounds-from must have {table.features.shape[1]} features like --data, found "
                f"{public.features.shape[1]}"
            )
        return replace(data, bounds=source.bounds_of(public))
    return data


def _check_address(what: str, address: str, *, lowest_port: int) -> None:
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or not lowest_port <= int(port) <= 65535:
        raise InputError(f"{what} must be host:port with port {lowest_port} to 65535, found {address!r}")
