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
from hushgrad.client import commands, delay, dpsgd
from hushgrad.client import config as client_config
from hushgrad.client.data import Dataset
from hushgrad.client.stream import RandomStream
from hushgrad.experiments.study import members, resolve, simulate, sources
from hushgrad.server import database
from hushgrad.server.aggregation import Aggregate
from hushgrad.server.database import Database
from hushgrad.server.folder import StateFolder
from hushgrad.wire import grid

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


Rounds = dict[tuple[int, int], tuple[np.ndarray, np.ndarray]]
"""By client's number and round, the local model that a real client began with, and its update."""


def key_of(seed: int, number: int, round_: int) -> bytes:
    """Returns the simulator's key for the noise of a client's round."""
    keys = hashlib.sha256(f"hushgrad simulated noise {seed} {number}".encode()).digest()
    return hashlib.sha256(keys + round_.to_bytes(8, "little")).digest()


def real_versions(
    setup: resolve.Setup, records: sources.Records, folder: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> tuple[list[bytes], Rounds, dict[tuple[int, int], int]]:
    """Returns what a real server and real clients made whose random bits are the simulator's.

    Returns:
        The published models, version 1 first; the clients' rounds; and by round the version that first held it.
    """
    rounds: Rounds = {}
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

        def round_(local: Any, i: int, stream: RandomStream) -> Any:
            del stream
            update = train(local, i, RandomStream(key_of(seed, number, i)))
            rounds[number, i] = (local.copy(), update.copy())
            return update

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
        included = {
            (CLIENTS.index(one.participant), one.round): one.included_in
            for one in found.receipts()
            if one.included_in is not None
        }
    finally:
        found.close()
    return [bytes(model[0]) for model in published if model is not None], rounds, included


def setup_for(seed: int, max_delay: int = 0) -> tuple[resolve.Setup, sources.Records]:
    experiment = studies.small(
        seeds=[seed],
        training__rounds=ROUNDS,
        training__sample_size={"kind": "polynomial", "q": 20.0, "p": 0.5},
        training__step_size={"kind": "inverse-sqrt", "eta0": 0.02, "beta": 0.05},
        training__delay={"kind": "max-delay", "max_delay": max_delay},
    )
    records = sources.load(experiment, seed)
    return resolve.resolve(experiment, features=68, classes=2), records


@pytest.mark.e2e
def test_the_simulator_publishes_what_a_server_process_and_real_clients_publish_bit_for_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    setup, records = setup_for(3)
    simulated = simulated_versions(setup, records, monkeypatch)
    real, _, _ = real_versions(setup, records, tmp_path, 3, monkeypatch)
    assert len(simulated) == ROUNDS
    assert real == simulated
    # The twin: another seed's bits give other models, so equality means something.
    other_setup, _ = setup_for(4)
    other = simulated_versions(other_setup, records, monkeypatch)
    assert not any(
        np.array_equal(np.frombuffer(a, "<f4"), np.frombuffer(b, "<f4")) for a, b in zip(other, real, strict=True)
    )


@pytest.mark.e2e
def test_an_asynchronous_history_replayed_in_the_simulators_parts_gives_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who is ahead of whom cannot be repeated, so what a real federation did is done again: same rounds, same bits."""
    setup, records = setup_for(5, max_delay=2)
    real, rounds, included = real_versions(setup, records, tmp_path, 5, monkeypatch)
    assert len(real) == ROUNDS
    assert set(included) == set(rounds)
    terms = setup.terms()
    may_begin = delay.of(terms)
    g, p = terms.grid_exponent, terms.step_exponent
    array = grid.initial_array(setup.initial(), grid_exponent=g, step_exponent=p)
    models = [grid.published_model(array, grid_exponent=g, step_exponent=p).astype(np.float64)]
    models += [np.frombuffer(model, "<f4").astype(np.float64) for model in real]
    updates = {}
    for number in range(len(CLIENTS)):
        table = records.table.take(records.parts[number])
        make = simulate.update_maker(
            setup, Dataset(table.features, table.labels, "", table.class_names), terms.sample_size
        )
        ahead = np.empty(0)  # the local model with its own rounds since the last version
        for i in range(ROUNDS):
            local, update = rounds[number, i]
            bases = [k for k, model in enumerate(models) if np.array_equal(model, local)]
            assert bases or np.array_equal(local, ahead)
            assert all(may_begin.permits(k, i) for k in bases)
            updates[number, i] = make(local, i, RandomStream(key_of(5, number, i)))
            assert np.array_equal(updates[number, i], update)
            ahead = dpsgd.apply(local, update, step_numerator=terms.step_numerator(i), step_exponent=p, grid_exponent=g)
    aggregate = Aggregate(array, grid_exponent=g, step_exponent=p, final_version=ROUNDS)
    for version in range(1, ROUNDS + 1):
        for (number, i), update in updates.items():
            if included[number, i] == version:
                aggregate.fold(update.data, terms.step_numerator(i))
        published = aggregate.freeze(version).publish()
        aggregate.published(published)
        assert bytes(published.model[:]) == real[version - 1]
