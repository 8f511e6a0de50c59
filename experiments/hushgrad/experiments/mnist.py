"""`hushgrad mnist`: the paper's setting over real gRPC, five clients that all hold the same 60,000 digits.

The (epsilon, delta) of the paper is that of one client. A digit that sits at all five is protected less: the report
gives that number beside the other one. Test accuracy is measured on the 10,000 digits of MNIST's own test set; the
settings below were chosen on 10,000 of the training digits, in simulations of the same mechanism.
"""

import functools
import json
import os
import statistics
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from hushgrad import accountant
from hushgrad.accountant import lifetime, runs
from hushgrad.client import data as client_data
from hushgrad.experiments import display, fetch, files, folders, new, odometer, plan, plots, processes, summary
from hushgrad.experiments.board import Board, ClientView
from hushgrad.experiments.errors import ExperimentError, InputError
from hushgrad.experiments.files import DataSource
from hushgrad.experiments.plan import Plan, Request
from rich import box
from rich.console import Console
from rich.table import Table

Kind = Literal["features", "lenet"]

FOLDER_VARIABLE = "HUSHGRAD_DATA"
FILES = (
    "train-images-idx3-ubyte.gz",
    "train-labels-idx1-ubyte.gz",
    "t10k-images-idx3-ubyte.gz",
    "t10k-labels-idx1-ubyte.gz",
)
RECORDS, FEATURES, CLASSES, CLIENTS = 60_000, 28 * 28, 10, 5
EPSILON, DELTA = 0.15, 1e-5

SETUP_SECONDS = 300.0
ROUND_SECONDS = 60.0
"""Longest time for one round before something must be wrong."""

END_SECONDS = 60.0
POLL_SECONDS = 0.2
EVALUATOR_NICENESS = 10


@dataclass(frozen=True, slots=True)
class Setting:
    """The public numbers of one federation.

    Attributes:
        kind, options: of the model.
        rounds, sample_size, clip_norm: T, s, C.
        eta0, step_kind: of the step sizes, for sums.
        max_delay: how many rounds a client may be ahead.
        release_interval_seconds: longer than a round takes on a quiet machine.
        goal: the mean test accuracy to reach.
    """

    kind: str
    options: Mapping[str, Any]
    rounds: int
    sample_size: int
    clip_norm: float
    eta0: float
    step_kind: plan.StepKind
    max_delay: int
    release_interval_seconds: float
    goal: float


SETTINGS: dict[Kind, Setting] = {
    "features": Setting(
        kind="softmax",
        options={"feature_map": "oriented-gradients", "image": [28, 28]},
        rounds=160,
        sample_size=1500,
        clip_norm=0.5,
        eta0=0.004,
        step_kind="constant",
        max_delay=1,
        release_interval_seconds=0.1,
        goal=0.96,
    ),
    "lenet": Setting(
        kind="lenet",
        options={"activation": "tanh", "padding": 0},
        rounds=300,
        sample_size=700,
        clip_norm=0.5,
        eta0=0.0027,
        step_kind="linear",
        max_delay=1,
        release_interval_seconds=0.2,
        goal=0.945,
    ),
}


def run(kind: Kind, seeds: tuple[int, ...], folder: Path, console: Console) -> dict[str, Any]:
    """Runs one federation for each seed, one after the other, and returns what summary.json says.

    Args:
        kind: of the model.
        seeds: of initial models; noise and samples are secret and never the same.
        folder: new, for everything.
        console: for people.

    Raises:
        InputError: if the digits are not where HUSHGRAD_DATA says, or the folder exists.
        ExperimentError: if a process failed.
    """
    digits = find_digits()
    folders.make_new(folder)
    made = made_plan(kind)
    record = record_claim(made)
    spent = summary.claim_words(made.claim.to_dict())
    console.print(
        f"hushgrad mnist {kind}: one server and {CLIENTS} clients that each hold all {RECORDS:,} digits, in {folder}\n"
        f"{made.model.name}, {made.parameters:,} parameters; each client spends {spent}\n"
        f"a digit that all {CLIENTS} hold: epsilon {record.claim.epsilon:g} at the same delta",
        highlight=False,
        soft_wrap=True,
    )
    found = [_federation(kind, made, seed, digits, folder / f"seed-{seed}", console) for seed in seeds]
    result = {
        "model": made.model.name,
        "parameters": made.parameters,
        "goal": SETTINGS[kind].goal,
        "test_accuracy": statistics.fmean(one["test_accuracy"] for one in found),
        "test_accuracy_averaged": statistics.fmean(one["test_accuracy_averaged"] for one in found),
        "claim_per_client": made.claim.to_dict(),
        "claim_of_a_record_at_all_clients": record.claim.to_dict(),
        "rounds": made.request.rounds,
        "sample_size": made.sample_size,
        "noise_multiplier": made.noise_multiplier,
        "clip_norm": made.request.clip_norm,
        "eta0": made.eta0,
        "seeds": found,
    }
    (folder / "summary.json").write_text(json.dumps(result, indent=2) + "\n")
    plots.curves(
        folder / "accuracy.png",
        curves={f"seed {one['seed']}: {one['test_accuracy']:.2%}": _read_curve(folder, one["seed"]) for one in found},
        goal=SETTINGS[kind].goal,
        title=f"MNIST, {made.model.name}, {made.parameters:,} parameters, {CLIENTS} clients over gRPC",
        subtitle=f"epsilon {made.claim.epsilon:g} per client, {record.claim.epsilon:g} for a digit at all {CLIENTS}, "
        f"at delta {DELTA:g}; add-remove, Poisson, PLD",
    )
    return result


def find_digits() -> Path:
    """Returns the folder of MNIST's files.

    Raises:
        InputError: if HUSHGRAD_DATA does not name it.
    """
    named = os.environ.get(FOLDER_VARIABLE)
    if not named:
        raise InputError(f"{FOLDER_VARIABLE} must name the folder of the MNIST files ({FILES[0]} and three more)")
    folder = Path(named).resolve()
    missing = [name for name in FILES if not (folder / name).is_file()]
    if missing:
        raise InputError(f"{FOLDER_VARIABLE} names {folder}, which lacks {', '.join(missing)}")
    return folder


def made_plan(kind: Kind) -> Plan:
    """Returns all numbers of the federation: the smallest noise that keeps each client within (0.15, 1e-5)."""
    setting = SETTINGS[kind]
    return plan.make(
        Request(
            name=f"mnist-{kind}",
            kind=setting.kind,
            features=FEATURES,
            classes=CLASSES,
            l2=0.0,
            clients=CLIENTS,
            records=RECORDS,
            epsilon=EPSILON,
            delta=DELTA,
            clip_norm=setting.clip_norm,
            rounds=setting.rounds,
            sample_size=setting.sample_size,
            eta0=setting.eta0,
            beta=0.0,
            step_kind=setting.step_kind,
            options=setting.options,
            max_delay=setting.max_delay,
        )
    )


def record_claim(made: Plan) -> lifetime.RecordClaim:
    """Returns the claim for a record that all clients hold: all their rounds together, imperfections included."""
    model, request = made.model, made.request
    run_of_one = accountant.Run(
        request.sampler,
        request.records,
        (made.sample_size,) * request.rounds,
        accountant.Mechanism(
            clip_norm=request.clip_norm,
            noise_multiplier=made.noise_multiplier,
            grid_exponent=made.grid_exponent,
            parameters=made.parameters,
            max_examples_per_round=made.max_examples_per_round,
            chunk_examples=model.chunk_examples,
            unit_roundoff=model.unit_roundoff,
            clip_error=model.clip_error,
        ),
    )
    distance = len(made.participants) * runs.distances(run_of_one).total()
    # 1 + e^epsilon with an epsilon that is surely no smaller than the result: that of basic composition.
    charged = (1 + float(np.exp(len(made.participants) * request.epsilon))) * distance
    groups = runs.groups(run_of_one)
    return lifetime.of_record(
        dict.fromkeys(made.participants, groups),
        sampling=request.sampler,
        adjacency="add-remove",
        delta=request.delta,
        delta_charged=charged,
    )


def _federation(kind: Kind, made: Plan, seed: int, digits: Path, folder: Path, console: Console) -> dict[str, Any]:
    """Runs one federation and returns what came out."""
    started = time.monotonic()
    configuration = folder / "configuration"
    for part in (folder, configuration, folder / "logs", folder / "state"):
        part.mkdir()
    _write_configuration(kind, made, seed, digits, configuration)
    group = processes.Group(folder / "logs", processes.environment(folder / "state" / "home"))
    try:
        with processes.interruptible():
            outcome = _federate(made, configuration, group, console)
    finally:
        group.stop()
    test = client_data.load(client_data.DataConfig(file=str(digits / FILES[2]), bounds=[0.0, 255.0]))
    rows = test.prepare(made.model)

    def accuracy(model: np.ndarray) -> float:
        return float((made.model.predict(model.astype(np.float64), rows).argmax(axis=1) == test.labels).mean())

    found = {
        "seed": seed,
        "test_accuracy": accuracy(outcome.final),
        "test_accuracy_averaged": accuracy(outcome.averaged),
        "updates_accepted": outcome.updates_accepted,
        "wall_seconds": round(time.monotonic() - started, 1),
    }
    console.print(
        f"seed {seed}: {found['test_accuracy']:.2%}, averaged model {found['test_accuracy_averaged']:.2%}, "
        f"{outcome.updates_accepted} updates in {found['wall_seconds']:.0f} s",
        highlight=False,
    )
    return found


def _write_configuration(kind: Kind, made: Plan, seed: int, digits: Path, folder: Path) -> None:
    initial = made.model.initial(seed)
    (folder / "terms.toml").write_text(new.checked_terms(made, initial, straggler_timeout_seconds=600.0))
    new.save_initial(folder / "initial.safetensors", made, initial)
    (folder / "server.toml").write_text(
        files.server(
            listen="127.0.0.1:0", state="../state/server", keep_sealed=False, keep_last=10, linger_seconds=30.0
        )
    )
    pixels = ((0.0, 255.0),)
    test = DataSource(str(digits / FILES[2]), bounds=pixels)
    (folder / "evaluator.toml").write_text(
        files.evaluator(made, server="127.0.0.1:1", output="../state/curve.csv", data=test)
    )
    for name in made.participants:
        text = files.client(
            made,
            participant=name,
            server="127.0.0.1:1",
            state=f"../state/{name}",
            data=DataSource(str(digits / FILES[0]), bounds=pixels),
            release_interval_seconds=SETTINGS[kind].release_interval_seconds,
            connect_timeout_seconds=SETUP_SECONDS,
        )
        (folder / f"{name}.toml").write_text(text)


def _federate(made: Plan, configuration: Path, group: processes.Group, console: Console) -> fetch.Outcome:
    """Starts everybody, shows what happens, and returns how it ended."""
    participants = made.participants
    board = Board(made.request.rounds, {name: ClientView() for name in participants})
    json_log = ["--log-format", "json"]

    def config(name: str) -> list[str]:
        return ["--config", str(configuration / f"{name}.toml")]

    terms = ["--terms", str(configuration / "terms.toml"), "--initial", str(configuration / "initial.safetensors")]
    group.start("server-init", "hushgrad.server", ["init", *config("server"), *terms])
    for name in participants:
        # Five organisations that hold the same digits: on one machine, each of them must say that it means it.
        group.start(f"{name}-ledger", "hushgrad.client", ["ledger", "init", *config(name), "--accept-new-budget"])
        group.wait([f"{name}-ledger"], SETUP_SECONDS)
    group.wait(["server-init"], SETUP_SECONDS)
    group.start("server", "hushgrad.server", ["run", *config("server"), *json_log])
    deadline = time.monotonic() + SETUP_SECONDS
    while board.address is None:
        for source, event in group.events(POLL_SECONDS):
            board.apply(source, event)
        group.check()
        if time.monotonic() > deadline:
            raise ExperimentError("the server did not say where it listens; see its log")
    at = ["--server", board.address]
    evaluator = group.start("evaluator", "hushgrad.client", ["evaluate", *config("evaluator"), *at, *json_log])
    os.setpriority(os.PRIO_PROCESS, evaluator.process.pid, EVALUATOR_NICENESS)  # it would slow everybody down
    for name in participants:
        group.start(name, "hushgrad.client", ["run", *config(name), *at, *json_log])
    watcher = fetch.Watcher(board.address, "mnist")
    version, moved = -1, time.monotonic()
    with display.Display(board, console, functools.partial(_used, made), lambda: None) as screen:
        while set(group.running()) & {*participants, "evaluator"}:
            for source, event in group.events(POLL_SECONDS):
                board.apply(source, event)
            group.check()
            screen.update()
            if board.version != version:
                version, moved = board.version, time.monotonic()
            if time.monotonic() - moved > SETUP_SECONDS + ROUND_SECONDS:
                raise ExperimentError(f"nothing has moved since version {version}; see the logs")
        group.finish()
    group.check()
    return watcher.outcome(END_SECONDS)


def _used(made: Plan, view: ClientView) -> float | None:
    """Reads what a client's sealed rounds have cost; for the display alone, every tenth round anew."""
    if view.epsilon is None:
        return None
    rounds = view.rounds_sealed // 10 * 10
    if rounds == 0:
        return 0.0
    request, one = made.request, (made.sample_size / made.request.records, made.charged_noise_multiplier)
    reading = odometer.reading(((one, rounds),), sampling=request.sampler, delta=request.delta)
    return min(reading, view.epsilon)


def _read_curve(folder: Path, seed: int) -> tuple[list[int], list[float]]:
    rows = summary.read_curve(folder / f"seed-{seed}" / "state" / "curve.csv")
    return [row.version for row in rows], [row.accuracy for row in rows]


def show(console: Console, found: Mapping[str, Any]) -> None:
    """Prints the table that ends the command."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in ("seed", "test accuracy", "averaged model", "seconds"):
        table.add_column(column, justify="right")
    for one in found["seeds"]:
        table.add_row(
            str(one["seed"]),
            f"{one['test_accuracy']:.2%}",
            f"{one['test_accuracy_averaged']:.2%}",
            f"{one['wall_seconds']:.0f}",
        )
    table.add_row("mean", f"{found['test_accuracy']:.2%}", f"{found['test_accuracy_averaged']:.2%}", "", style="bold")
    console.print(table)
    reached = "reached" if found["test_accuracy"] >= found["goal"] else "NOT reached"
    console.print(
        f"The goal of {found['goal']:.1%} is {reached}.\n"
        f"Each client's whole run costs its records {summary.claim_words(found['claim_per_client'])}.\n"
        f"A record that all {CLIENTS} clients hold: "
        f"{summary.claim_words(found['claim_of_a_record_at_all_clients'])}.",
        highlight=False,
        soft_wrap=True,
    )
