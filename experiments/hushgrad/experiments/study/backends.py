"""Backends with real members: all processes on this machine, or spread over the hosts of an inventory.

What a run gives is put together here: the evaluator's scores, the server's counts, and each ledger's own claim, summed
up where the ledger lies, which it never leaves.
"""

import contextlib
import json
import os
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from pathlib import Path
from typing import Any

from hushgrad.experiments import processes
from hushgrad.experiments.errors import ExperimentError
from hushgrad.experiments.study import conduct, machines, members, resolve, scores, sources, store
from hushgrad.experiments.study.conduct import Made
from hushgrad.experiments.study.federate import Federation, Place, Say
from hushgrad.experiments.study.inventory import Inventory
from hushgrad.experiments.study.journal import Journal, State
from hushgrad.experiments.study.machines import Here, There
from hushgrad.experiments.study.resolve import Setup
from hushgrad.experiments.study.scores import Point
from hushgrad.experiments.study.sweep import Run

WORK = "work"
"""The folder of what runs leave behind, in a folder of results: configuration, logs, state, ledgers."""

_ASK_SECONDS = 60.0
_LOOPBACK = "127.0.0.1:0"


class Processes:
    """Makes runs as processes of this machine, with their files in a folder of results.

    Args:
        folder: of the results.
        say: told in a few words where a run stands.
    """

    name = "processes"

    def __init__(self, folder: Path, say: Say) -> None:
        self._folder, self._say = folder, say

    def check(self, runs: list[Run]) -> None:
        """Refuses runs that cannot be made so.

        Raises:
            InputError: says why.
        """
        members.check(runs)

    def make(self, run: Run) -> Made:
        """Makes a run, or goes on with it.

        Raises:
            ExperimentError: if a process failed; what is there can be gone on with.
        """
        here = Here(self._folder / WORK)

        def place(state: State) -> Place:
            del state
            return Place(here, here, (here,) * run.experiment.clients.number, _folder(run, self.name), _LOOPBACK)

        return _make(run, self._folder, self.name, place, self._say)


class Hosts:
    """Makes runs on hosts; what is here are the results and the logs.

    Args:
        folder: of the results.
        inventory: of the hosts.
        say: told in a few words where a run stands.
    """

    name = "hosts"

    def __init__(self, folder: Path, inventory: Inventory, say: Say) -> None:
        self._folder, self._inventory, self._say = folder, inventory, say
        self._there = {host.name: There(host) for host in inventory.hosts}

    def check(self, runs: list[Run]) -> None:
        """Refuses runs that cannot be made so, and hosts that cannot be used.

        Raises:
            InputError: says why.
        """
        members.check(runs)
        for number in {run.experiment.clients.number for run in runs}:
            self._inventory.places(number)
        for machine in self._there.values():
            self._say(f"looking at {machine.name}")
            machines.check(machine, metadata.version("hushgrad"))

    def make(self, run: Run) -> Made:
        """Makes a run, or goes on with it.

        Raises:
            ExperimentError: if a process failed; what is there can be gone on with.
        """
        there, inventory = self._there, self._inventory

        def place(state: State) -> Place:
            return Place(
                server=there[inventory.server.host],
                evaluator=there[inventory.evaluator_host],
                clients=tuple(there[name] for name in inventory.places(run.experiment.clients.number)),
                folder=state.token,
                listen=f"0.0.0.0:{inventory.server.port}",
                address=inventory.address,
            )

        return _make(run, self._folder, self.name, place, self._say)


def summaries(
    names: list[str], of: Callable[[str], machines.Machine], folder: str, config: str
) -> dict[str, dict[str, Any]]:
    """Returns what each client's ledger says in sum, for those that can be reached."""

    def one(name: str) -> dict[str, Any] | None:
        with contextlib.suppress(machines.LostError):
            return machines.told(of(name), f"{folder}/{name}", "summary", config, seconds=_ASK_SECONDS)
        return None

    with ThreadPoolExecutor(8) as pool:
        found = dict(zip(names, pool.map(one, names), strict=True))
    return {name: summary for name, summary in found.items() if summary is not None}


def claim_of(claims: Mapping[str, Mapping[str, Any]]) -> dict[str, Any] | None:
    """Returns the largest of the clients' claims: it holds for the records of each of them."""
    if not claims:
        return None
    return dict(max(claims.values(), key=lambda claim: (float(claim["epsilon"]), float(claim["delta"]))))


def _folder(run: Run, backend: str) -> str:
    return f"{run.number:05d}-{run.key}-{backend}"


def _make(run: Run, folder: Path, backend: str, place_of: Callable[[State], Place], say: Say) -> Made:
    began = time.monotonic()
    experiment = run.experiment
    records = sources.load(experiment, run.seed)
    setup = resolve.resolve(
        experiment, features=records.table.features.shape[1], classes=len(records.table.class_names)
    )
    with contextlib.closing(Journal(folder / WORK / _folder(run, backend), run)) as journal:
        place = place_of(journal.state)
        group = processes.Group(journal.folder / "logs", dict(os.environ))
        with processes.interruptible():
            try:
                Federation(setup, records, place, journal, group, say).run()
            finally:
                group.stop()
        say("collecting summaries and claims")
        result, points = _concluded(run, setup, place, journal)
        measured = {"wall_seconds": time.monotonic() - began, "starts": journal.state.starts}
        return Made(result, points, measured)


def _concluded(run: Run, setup: Setup, place: Place, journal: Journal) -> tuple[dict[str, Any], tuple[Point, ...]]:
    state = journal.state
    at = dict(zip(setup.participants, place.clients, strict=True))
    config = f"{place.client_config}client.toml"
    found = summaries(list(at), at.__getitem__, place.folder, config)
    (journal.folder / "summaries.json").write_text(json.dumps(found, indent=1) + "\n")
    published = machines.told(place.server, f"{place.folder}/server", "outcome", "server.toml")
    rows = machines.told(place.evaluator, f"{place.folder}/evaluator", "curve", ".")
    points = _points(setup, state, rows, dict(published["updates"]))
    last = points[-1]
    if last.version != setup.rounds:
        raise ExperimentError(f"the last version was never scored; see {journal.folder / 'logs'}")
    claims = {name: one["claim"] for name, one in found.items() if one["claim"]}
    missing = [name for name in at if name not in found]
    told = claims | {name: state.claims[name] for name in missing if name in state.claims}
    as_planned = setup.claim is not None and all(claim == setup.claim.to_dict() for claim in told.values())
    shared = setup.record_claim if as_planned else None
    return {
        **store.run_facts(run),
        **conduct.facts(setup),
        "noise": "secure",
        "claim": claim_of(told),
        "claim_for_shared_record": None if shared is None else shared.to_dict(),
        "would_claim": None,
        "would_claim_for_shared_record": None,
        "claims_not_collected": missing,
        "accuracy": last.accuracy,
        "accuracy_averaged": last.accuracy_averaged,
        "log_loss": last.log_loss,
        "seconds": last.seconds,
        "updates": last.updates,
        "suspensions": state.suspensions,
        "bytes_up": conduct.BYTES_PER_ELEMENT * setup.parameters * last.updates,
        "model_sha256": published["sha256"],
        "dispositions": published["dispositions"],
        "participants": {name: {**found.get(name, {}), "host": machine.name} for name, machine in at.items()},
        "lost": state.lost,
        "crashes": [{"client": client, "round": round_} for client, round_ in state.crashes],
        "not_applied": members.not_applied(run.experiment),
    }, points


def _points(
    setup: Setup, state: State, rows: Mapping[str, list[dict[str, str]]], updates: Mapping[int, int]
) -> tuple[Point, ...]:
    """Returns the scored versions nearest to those wanted; seconds since the first start, interruptions included."""
    scored: dict[int, Point] = {}
    for start, lines in sorted(rows.items(), key=lambda item: int(item[0])):
        offset = state.started[int(start) - 1] - state.started[0]
        for row in lines:
            version = int(row["version"])
            averaged = row["accuracy_averaged"]
            point = Point(
                version, offset + float(row["seconds"]), updates.get(version, 0), float(row["accuracy"]),
                float(row["log_loss"]), float(averaged) if averaged else None,
            )  # fmt: skip
            if version > 0:
                scored.setdefault(version, point)
    chosen: dict[int, Point] = {}
    there = sorted(scored)
    for wanted in sorted(scores.versions(setup.rounds, setup.experiment.evaluation.points)):
        nearest = next((one for one in there if one >= wanted), None)
        if nearest is not None:
            chosen[nearest] = scored[nearest]
    if not chosen:
        raise ExperimentError("the evaluator scored nothing; see its log")
    return tuple(chosen[version] for version in sorted(chosen))
