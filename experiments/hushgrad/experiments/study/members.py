"""From a run's numbers to the files of its server, clients and evaluator. Values in, files out; nothing is drawn."""

import io
from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np
import safetensors.numpy
import tomli_w
from hushgrad.client.config import ClientConfig, EvaluatorConfig, ModelConfig, PrivacyConfig
from hushgrad.client.data import DataConfig
from hushgrad.experiments.errors import InputError
from hushgrad.experiments.study.file import Experiment
from hushgrad.experiments.study.resolve import Setup
from hushgrad.experiments.study.sweep import Run
from hushgrad.experiments.tables import Table
from hushgrad.server.config import ServerConfig, TlsConfig
from hushgrad.wire import arrays

SERVER, EVALUATOR = "server", "evaluator"
NOWHERE = "127.0.0.1:1"
"""The server's address in files that are made before it is known."""

CONNECT_SECONDS = 300.0
LINGER_SECONDS = 20.0

Files = dict[str, bytes]


def check(runs: list[Run]) -> None:
    """Refuses runs that real members of a federation cannot make.

    Raises:
        InputError: names the first of them and the key.
    """
    for run in runs:
        experiment = run.experiment
        where = f"run {run.number}" + (f" ({', '.join(f'{k} = {v}' for k, v in run.axes.items())})" if run.axes else "")
        if experiment.privacy.noise != "local":
            raise InputError(
                f'{where} has privacy.noise = "{experiment.privacy.noise}"; real clients always add their own noise: '
                "take it out of the sweep, or use --backend simulate"
            )
        if experiment.faults.loss or experiment.faults.pauses:
            raise InputError(
                f"{where} has faults.loss or faults.pauses, which only --backend simulate makes; crashes are made by "
                "all backends"
            )


def not_applied(experiment: Experiment) -> list[str]:
    """Returns the settings that only the simulator follows: real clients take the time that they take."""
    return ["clients.compute_seconds", "clients.latency_seconds"] + (
        ["clients.slowdown"] if experiment.clients.slowdown else []
    )


def server(setup: Setup, *, listen: str, secure: bool) -> Files:
    """Returns terms, initial model and configuration of the server.

    Args:
        listen: host:port.
        secure: with certificates from an authority of its own, beside the configuration.
    """
    tls = None
    if secure:
        tls = TlsConfig(
            ca="certificates/ca.crt", certificate="certificates/server.crt", key="certificates/server.key",
            denied="certificates/denied.txt", authority="certificates",
        )  # fmt: skip
    config = ServerConfig(listen=listen, state="state", keep_last=2, linger_seconds=LINGER_SECONDS, tls=tls)
    named = arrays.unflatten(setup.initial(), setup.model.arrays)
    # Copies, because safetensors writes the memory behind a view as it lies there.
    initial = safetensors.numpy.save({name: np.array(array, np.float32, order="C") for name, array in named.items()})
    return {"terms.toml": _toml(setup.terms_file), "initial.safetensors": initial, "server.toml": _toml(config)}


def client(setup: Setup, name: str, table: Table) -> bytes:
    """Returns the configuration of a client. What its run may cost is exactly what it will cost.

    Args:
        name: of the client.
        table: its records; only their classes are looked at.
    """
    privacy, claim = setup.experiment.privacy, setup.claim
    if claim is None or setup.noise_multiplier is None:
        raise InputError("a real client needs local noise")
    return _toml(
        ClientConfig(
            participant=name,
            server=NOWHERE,
            state="state",
            connect_timeout_seconds=CONNECT_SECONDS,
            data=_data("data.npz", table),
            model=_model(setup, table),
            privacy=PrivacyConfig(
                records=setup.experiment.partition.records,
                clip_norm=privacy.clip_norm,
                noise_multiplier=setup.noise_multiplier,
                sampler=privacy.sampler,
                epsilon=claim.epsilon,
                delta=privacy.delta,
                lifetime_epsilon=claim.epsilon,
                lifetime_delta=privacy.delta,
            ),
        )
    )


def evaluator(setup: Setup, test: Table) -> bytes:
    """Returns the configuration of the evaluator."""
    return _toml(
        EvaluatorConfig(
            name=EVALUATOR,
            server=NOWHERE,
            output="curve.csv",
            connect_timeout_seconds=CONNECT_SECONDS,
            data=_data("data.npz", test),
            model=_model(setup, test),
        )
    )


def records(table: Table) -> bytes:
    """Returns records as a .npz file."""
    content = io.BytesIO()
    y = table.labels if table.numbered else np.array(table.class_names, np.str_)[table.labels]
    np.savez_compressed(content, X=table.features, y=y)
    return content.getvalue()


def _data(file: str, table: Table) -> DataConfig:
    return DataConfig(file=file, class_names=None if table.numbered else list(table.class_names))


def _model(setup: Setup, table: Table) -> ModelConfig:
    section = setup.experiment.model
    return ModelConfig(kind=section.kind, l2=section.l2, classes=len(table.class_names), **section.options())


def _toml(struct: msgspec.Struct) -> bytes:
    return tomli_w.dumps(_without_none(msgspec.to_builtins(struct))).encode()


def _without_none(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_none(inner) for key, inner in value.items() if inner is not None}
    return [_without_none(inner) for inner in value] if isinstance(value, list | tuple) else value
