"""Prepares the demo: cuts the packaged data into private parts and a public test set, and writes everybody's files.

The same files serve processes on one machine and containers.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from hushgrad.experiments import data, demo_settings, files, folders, new, plan, split
from hushgrad.experiments.files import DataSource
from hushgrad.experiments.plan import Plan
from hushgrad.experiments.tables import Table


@dataclass(frozen=True, slots=True)
class Prepared:
    """What was prepared.

    Attributes:
        plan: the numbers of the federation.
        train: all clients' records together; only the reference without privacy sees them so.
        test: the public test set.
    """

    plan: Plan
    train: Table
    test: Table


def prepare(
    folder: Path,
    *,
    seed: int,
    rounds: int = demo_settings.ROUNDS,
    listen: str = "127.0.0.1:0",
    server: str = "127.0.0.1:7443",
    states: str = "state",
    keep_sealed: bool = False,
    web_listen: str = "",
) -> Prepared:
    """Writes terms.toml, initial.safetensors, server.toml, client-1.toml ... client-5.toml, evaluator.toml and data/.

    Args:
        folder: new or empty.
        seed: fixes test set, parts and initial model; never noise or samples.
        rounds: of every client.
        listen: host:port of the server; port 0 picks a free one.
        server: host:port as clients reach it.
        states: folder of everybody's state, relative to the folder.
        keep_sealed: whether the server keeps the sealed bytes of every update.
        web_listen: host:port of the server's page, which then stays until it is stopped; empty: there is none.

    Raises:
        InputError: if the folder is not empty, or a number cannot be.
        BudgetRefusedError: if no noise makes so many rounds cheap enough.
    """
    folders.check_new(folder)
    table = data.phishing()
    cut = split.split(table, clients=demo_settings.CLIENTS, test_fraction=demo_settings.TEST_FRACTION, seed=seed)
    parts = [table.take(rows) for rows in cut.parts]
    made = plan.make(
        demo_settings.request(
            name="demo", features=table.features.shape[1], records=min(part.rows for part in parts), rounds=rounds
        )
    )
    initial = made.model.initial(seed)
    terms = new.checked_terms(made, initial, straggler_timeout_seconds=demo_settings.STRAGGLER_TIMEOUT_SECONDS)
    folders.make_new(folder)
    (folder / "data").mkdir()
    (folder / "terms.toml").write_text(terms)
    new.save_initial(folder / "initial.safetensors", made, initial)
    (folder / "server.toml").write_text(
        files.server(
            listen=listen,
            state=f"{states}/server",
            keep_sealed=keep_sealed,
            keep_last=0,
            # 0 is for ever: who looks at the page decides when it has been looked at.
            linger_seconds=0.0 if web_listen else demo_settings.LINGER_SECONDS,
            web_listen=web_listen,
        )
    )
    test = table.take(cut.test)
    test.save(folder / "data" / "test.npz")
    (folder / "evaluator.toml").write_text(
        files.evaluator(made, server=server, output=f"{states}/curve.csv", data=DataSource("data/test.npz"))
    )
    for number, (name, part) in enumerate(zip(made.participants, parts, strict=True), start=1):
        part.save(folder / "data" / f"{name}.npz")
        slow = number == demo_settings.SLOW_CLIENT
        tick = demo_settings.RELEASE_INTERVAL_SECONDS
        text = files.client(
            made,
            participant=name,
            server=server,
            state=f"{states}/{name}",
            data=DataSource(f"data/{name}.npz"),
            release_interval_seconds=tick,
            round_seconds=tick * demo_settings.SLOWDOWN if slow else 0.0,
        )
        (folder / f"{name}.toml").write_text(text)
    return Prepared(plan=made, train=table.take(np.concatenate(cut.parts)), test=test)
