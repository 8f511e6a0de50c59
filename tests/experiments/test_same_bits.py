"""The simulator leaves out sockets, ledgers, receipts and checkpoints. Do they change a model?

A real server process and real clients, with their sessions, ledgers and outboxes, against the simulator: only the
source of the noise is replaced, by the simulator's seeded one. With a delay of 0 every round begins with the newest
model, so that both do the same rounds on the same models, whoever is faster.
"""

import hashlib
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hushgrad.client import commands
from hushgrad.client import config as client_config
from hushgrad.client.stream import RandomStream
from hushgrad.experiments.study import members, resolve, simulate, sources
from hushgrad.server import database
from hushgrad.server.database import Database
from hushgrad.server.folder import StateFolder

from tests.support import servers, studies

ROUNDS = 7
CLIENTS = ("client-1", "client-2", "client-3")


def simulated_versions(setup: resolve.Setup, records: sources.Records, monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Returns the published models of a simulation, version 1 first."""
    models: list[bytes] = []

    class Recorder(simulate.Scorer):
        def see(self, published: Any, seconds: float, updates: int) -> None:
            models.append(bytes(published.model[:]))
            super().see(published, seconds, updates)

    monkeypatch.setattr(simulate, "Scorer", Recorder)
    simulate.run(setup, records)
    return models


def real_versions(
    setup: resolve.Setup, records: sources.Records, folder: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> list[bytes]:
    """Returns the published models of a real server and real clients whose random bits are the simulator's."""
    monkeypatch.setenv("HUSHGRAD_HOME", str(folder / "home"))
    terms = setup.terms()
    state = StateFolder(folder / "server")
    state.make()
    database.create(state, terms, terms.to_bytes(), setup.initial())
    servers.configure(folder, improbable_updates="refuse", keep_last=0)
    trainer = commands._trainer

    def seeded(terms: Any, config: Any, model: Any, dataset: Any) -> Any:
        train = trainer(terms, config, model, dataset)
        number = CLIENTS.index(config.participant)
        keys = hashlib.sha256(f"hushgrad simulated noise {seed} {number}".encode()).digest()

        def round_(local: Any, i: int, stream: RandomStream) -> Any:
            del stream
            return train(local, i, RandomStream(hashlib.sha256(keys + i.to_bytes(8, "little")).digest()))

        return round_

    monkeypatch.setattr(commands, "_trainer", seeded)
    with servers.ServerProcess(folder) as server:
        threads = []
        for number, name in enumerate(CLIENTS):
            place = folder / name
            place.mkdir()
            table = records.table.take(records.parts[number])
            (place / "client.toml").write_bytes(members.client(setup, name, table))
            (place / "data.npz").write_bytes(members.records(table))
            config = client_config.load_client(place / "client.toml", {"server": server.address})
            commands.ledger_init(config, accept_new_budget=True)
            threads.append(threading.Thread(target=commands.run, args=(config,), kwargs={"accept_large_delta": False}))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    found = Database.open(state, read_only=True)
    try:
        published = [found.model(version) for version in range(1, ROUNDS + 1)]
    finally:
        found.close()
    return [bytes(model[0]) for model in published if model is not None]


def setup_for(seed: int) -> tuple[resolve.Setup, sources.Records]:
    experiment = studies.small(
        seeds=[seed],
        training__rounds=ROUNDS,
        training__sample_size={"kind": "polynomial", "q": 20.0, "p": 0.5},
        training__step_size={"kind": "inverse-sqrt", "eta0": 0.02, "beta": 0.05},
        training__delay={"kind": "max-delay", "max_delay": 0},
    )
    records = sources.load(experiment, seed)
    return resolve.resolve(experiment, features=68, classes=2), records


@pytest.mark.e2e
def test_the_simulator_publishes_what_a_server_process_and_real_clients_publish_bit_for_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    setup, records = setup_for(3)
    simulated = simulated_versions(setup, records, monkeypatch)
    real = real_versions(setup, records, tmp_path, 3, monkeypatch)
    assert len(simulated) == ROUNDS
    assert real == simulated
    # The twin: another seed's bits give other models, so equality means something.
    other_setup, _ = setup_for(4)
    other = simulated_versions(other_setup, records, monkeypatch)
    assert not any(
        np.array_equal(np.frombuffer(a, "<f4"), np.frombuffer(b, "<f4")) for a, b in zip(other, real, strict=True)
    )
