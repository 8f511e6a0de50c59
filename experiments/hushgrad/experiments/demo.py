"""`hushgrad demo`: a server, five clients and an evaluator as processes on this machine, and what came out of it."""

import contextlib
import json
import socket
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from hushgrad.client import errors as client_errors
from hushgrad.client import ledger, report
from hushgrad.experiments import (
    chaos,
    demo_files,
    demo_settings,
    display,
    fetch,
    folders,
    odometer,
    plots,
    processes,
    reference,
    summary,
)
from hushgrad.experiments.board import Board, ClientView
from hushgrad.experiments.demo_files import Prepared
from hushgrad.experiments.errors import ExperimentError, InputError
from hushgrad.experiments.summary import Scores
from hushgrad.wire import arrays, names
from hushgrad.wire.errors import ContractError
from rich.console import Console

SETUP_SECONDS = 60.0
RUN_SECONDS = 300.0
END_SECONDS = 30.0
POLL_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Options:
    """What a person chose.

    Attributes:
        seed: fixes test set, parts and initial model; never noise or samples.
        rounds: of every client.
        runs: folder of all runs.
        name: of this run; empty: made from the time.
        keep_sealed: whether the server keeps the sealed bytes of every update.
        chaos: whether processes are killed and calls lost and repeated on the way; see `chaos`.
        page: whether the server shows a page of what happens.
    """

    seed: int
    rounds: int
    runs: Path
    name: str
    keep_sealed: bool
    chaos: bool = False
    page: bool = False


def run(options: Options, console: Console) -> tuple[Path, dict[str, Any]]:
    """Runs the demo.

    Returns:
        The folder of the run, and what its summary.json says.

    Raises:
        InputError: if an option cannot be used; nothing was started.
        ExperimentError: if a process failed; it says which, and where its log is.
    """
    started = time.monotonic()
    folder = _new_folder(options)
    prepared = demo_files.prepare(
        folder / "configuration",
        seed=options.seed,
        rounds=options.rounds,
        states="../state",
        keep_sealed=options.keep_sealed or options.chaos,
        web_listen=_page_address() if options.page else "",
    )
    for name in ("logs", "ledgers", "state"):
        (folder / name).mkdir()
    console.print(
        f"hushgrad demo: one server, {len(prepared.plan.participants)} clients and an evaluator, in {folder}\n"
        "Each client adds its own noise before anything leaves it, and keeps its own ledger.",
        highlight=False,
        soft_wrap=True,
    )
    group = processes.Group(folder / "logs", processes.environment(folder / "state" / "home"))
    with processes.interruptible(), _ended_together(group):
        outcome, reference_accuracy, trouble = _federate(folder, prepared, group, console, with_chaos=options.chaos)
    scores = Scores(
        final=_accuracy(prepared, outcome.final),
        averaged=_accuracy(prepared, outcome.averaged),
        reference=reference_accuracy,
    )
    found = _conclude(folder, options, prepared, outcome, scores, started)
    if trouble is not None:
        _audit(folder, prepared, outcome, group, trouble, found, console)
    return folder, found


def _new_folder(options: Options) -> Path:
    if not 1 <= options.rounds <= 10_000:
        raise InputError(f"the number of rounds must be 1 to 10000, found {options.rounds}")
    name = options.name or time.strftime("demo-%Y%m%d-%H%M%S")
    try:
        names.check_name(name, what="the name of a run")
    except ContractError as error:
        raise InputError(str(error)) from None
    folder, number = options.runs / name, 1
    while not options.name and folder.exists():
        number += 1
        folder = options.runs / f"{name}-{number}"
    folders.make_new(folder)
    return folder


@contextlib.contextmanager
def _ended_together(group: processes.Group) -> Iterator[None]:
    """Ends all processes when the block ends, however it ends."""
    try:
        yield
    finally:
        group.stop()


def _audit(
    folder: Path,
    prepared: Prepared,
    outcome: fetch.Outcome,
    group: processes.Group,
    trouble: chaos.Plan,
    found: dict[str, Any],
    console: Console,
) -> None:
    """Shows that chaos changed nothing, and adds the sums to the summary."""
    counts = next((event for source, event in group.events(1.0) if event.get("event") == "counts"), {})
    audit = chaos.audit(folder, prepared.plan.participants, outcome.terms)
    chaos.write(folder / "audit.csv", audit)
    chaos.show(console, audit, trouble.killed, counts)
    calls = {key: value for key, value in counts.items() if key != "event"}
    found["chaos"] = {**audit.to_dict(), "killed": trouble.killed, "calls": calls}
    (folder / "summary.json").write_text(json.dumps(found, indent=2) + "\n")


def _federate(
    folder: Path, prepared: Prepared, group: processes.Group, console: Console, *, with_chaos: bool
) -> tuple[fetch.Outcome, float, chaos.Plan | None]:
    """Starts everybody, shows what happens, and returns how it ended, the accuracy without privacy, and what was done
    to the processes on purpose."""
    participants = prepared.plan.participants
    configuration = folder / "configuration"
    board = Board(prepared.plan.request.rounds, {name: ClientView() for name in participants})
    json_log = ["--log-format", "json"]

    def config(name: str) -> list[str]:
        return ["--config", str(configuration / f"{name}.toml")]

    terms = ["--terms", str(configuration / "terms.toml"), "--initial", str(configuration / "initial.safetensors")]
    group.start("server-init", "hushgrad.server", ["init", *config("server"), *terms])
    for name in participants:
        group.start(f"{name}-ledger", "hushgrad.client", ["ledger", "init", *config(name)])
    group.wait(["server-init"], SETUP_SECONDS)
    group.start("server", "hushgrad.server", ["run", *config("server"), *json_log])
    address = _await_address(group, board)
    watched = address
    if with_chaos:
        group.start("chaos", "hushgrad.experiments.chaos_proxy", ["--upstream", address, *chaos.RATES])
        board.address = None
        watched = _await_address(group, board)
    if board.page is not None:
        console.print(f"Look at it: {board.page}", highlight=False, soft_wrap=True)
    at = ["--server", watched]
    group.start("evaluator", "hushgrad.client", ["evaluate", *config("evaluator"), *at, *json_log])
    group.wait([f"{name}-ledger" for name in participants], SETUP_SECONDS)
    for name in participants:
        group.start(name, "hushgrad.client", ["run", *config(name), *at, *json_log])
    trouble: chaos.Plan | None = None
    if with_chaos:
        again = {
            chaos.VICTIM: ("hushgrad.client", ["run", *config(chaos.VICTIM), *at, *json_log]),
            "server": ("hushgrad.server", ["run", *config("server"), "--listen", address, *json_log]),
        }
        trouble = chaos.Plan(group, again, prepared.plan.request.rounds)
    watcher = fetch.Watcher(address, "demo")
    reference_accuracy: float | None = None
    meter = _Odometer(prepared)
    deadline = time.monotonic() + RUN_SECONDS + prepared.plan.request.rounds
    with display.Display(board, console, meter.reading, lambda: reference_accuracy) as screen:
        while (waiting := set(group.running()) & {*participants, "evaluator"}) or (trouble and trouble.away):
            if trouble is not None:
                trouble.act(board.version)
            for source, event in group.events(POLL_SECONDS):
                board.apply(source, event)
            group.check()
            for view in board.clients.values():
                meter.reading(view)  # remembered, so that neither display nor picture has to wait for it
            screen.update()
            if reference_accuracy is None and board.version > 0:
                reference_accuracy = reference.accuracy(prepared.train, prepared.test)
            if time.monotonic() > deadline:
                raise ExperimentError(f"{', '.join(sorted(waiting))} did not end in time; see {folder / 'logs'}")
        group.finish()
        for source, event in group.events(0.0):
            board.apply(source, event)
    group.check()
    outcome = watcher.outcome(END_SECONDS)
    if reference_accuracy is None:
        reference_accuracy = reference.accuracy(prepared.train, prepared.test)
    return outcome, reference_accuracy, trouble


def hold_page(folder: Path, console: Console) -> None:
    """Serves the page of a run that is over, until somebody ends it by Ctrl-C."""
    group = processes.Group(folder / "logs", processes.environment(folder / "state" / "home"))
    with processes.interruptible(), _ended_together(group), contextlib.suppress(KeyboardInterrupt):
        config = str(folder / "configuration" / "server.toml")
        group.start("server-page", "hushgrad.server", ["run", "--config", config, "--log-format", "json"])
        board = Board(0, {})
        while group.running():
            for source, event in group.events(POLL_SECONDS):
                board.apply(source, event)
                if event.get("event") == "listening_for_web":
                    console.print(f"The page stays at {board.page} until you press Ctrl-C.", soft_wrap=True)
            group.check()


def _page_address() -> str:
    """Returns where the page is: always the same place, unless somebody is there already."""
    for port in (demo_settings.PAGE_PORT, 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return f"127.0.0.1:{probe.getsockname()[1]}"
    raise InputError("no port of this machine is free for the page; leave out --page")


def _await_address(group: processes.Group, board: Board) -> str:
    deadline = time.monotonic() + SETUP_SECONDS
    while board.address is None:
        for source, event in group.events(POLL_SECONDS):
            board.apply(source, event)
        group.check()
        if time.monotonic() > deadline:
            raise ExperimentError("the server did not say where it listens; see its log")
    return board.address


class _Odometer:
    """Reads what a client's sealed rounds have cost, for the display."""

    def __init__(self, prepared: Prepared) -> None:
        plan = prepared.plan
        self._round = (plan.sample_size / plan.request.records, plan.charged_noise_multiplier)
        self._plan = plan

    def reading(self, view: ClientView) -> float | None:
        """Returns epsilon at the run's delta; None before the schedule is committed."""
        if view.epsilon is None:
            return None
        if view.rounds_sealed == 0:
            return 0.0
        reading = odometer.reading(
            ((self._round, view.rounds_sealed),),
            sampling=self._plan.request.sampler,
            delta=self._plan.request.delta,
        )
        return min(reading, view.epsilon)


def _accuracy(prepared: Prepared, model: np.ndarray) -> float:
    """Returns the share of the test set that a model gets right."""
    probabilities = prepared.plan.model.predict(model.astype(np.float64), prepared.test.features)
    return float((probabilities.argmax(axis=1) == prepared.test.labels).mean())


def _conclude(
    folder: Path,
    options: Options,
    prepared: Prepared,
    outcome: fetch.Outcome,
    scores: Scores,
    started: float,
) -> dict[str, Any]:
    """Writes models, ledgers, history, pictures and the summary."""
    for name, model in (("final", outcome.final), ("averaged", outcome.averaged)):
        arrays.save_model(
            folder / f"{name}.safetensors",
            model,
            outcome.terms.arrays,
            {"federation": outcome.terms.federation, "version": str(outcome.version), "kind": name},
        )
    exports = {name: _verified_export(folder, name) for name in prepared.plan.participants}
    runs = {name: export["runs"][0] for name, export in exports.items()}
    claims: dict[str, Mapping[str, Any]] = {name: run["claim"] for name, run in runs.items()}
    history = summary.read_curve(folder / "state" / "curve.csv")
    summary.write_history(folder / "history.csv", history)
    largest = max(claims.values(), key=lambda claim: float(claim["epsilon"]))
    plots.accuracy(
        folder / "accuracy.png",
        versions=[row.version for row in history],
        last=[row.accuracy for row in history],
        averaged=[row.accuracy_averaged for row in history],
        reference=scores.reference,
        claim=f"{summary.claim_words(largest)}, for each client's whole run",
    )
    plots.privacy(
        folder / "epsilon.png",
        curves={name: _curve(export) for name, export in exports.items()},
        claims={name: float(claim["epsilon"]) for name, claim in claims.items()},
        delta=float(largest["delta"]),
    )
    found = summary.summarise(
        outcome=outcome,
        scores=scores,
        claims=claims,
        noise_multipliers={
            name: min(group["noise_multiplier"] for group in run["schedule"]) for name, run in runs.items()
        },
        ledgers_verified=True,  # else we would not be here
        seed=options.seed,
        wall_seconds=time.monotonic() - started,
    )
    (folder / "summary.json").write_text(json.dumps(found, indent=2) + "\n")
    return found


def _verified_export(folder: Path, name: str) -> dict[str, Any]:
    """Checks a client's ledger, and writes what `hushgrad-client ledger export` says.

    Raises:
        ExperimentError: if it does not verify.
    """
    try:
        snapshot = ledger.verify(folder / "state" / name)
    except client_errors.ClientError as error:
        raise ExperimentError(f"the ledger of {name} does not verify: {error}") from None
    export = report.export(snapshot)
    (folder / "ledgers" / f"{name}.json").write_text(json.dumps(export, indent=1) + "\n")
    return export


def _curve(export: Mapping[str, Any]) -> list[float]:
    """Returns the odometer over the sealed rounds of a ledger, in the order of its rows."""
    run = export["runs"][0]
    rounds = [
        (float(row["sampling_probability"]), float(row["charged_noise_multiplier"]))
        for row in export["rows"]
        if row["kind"] == "update"
    ]
    return odometer.curve(
        rounds, sampling=run["sampling"], delta=float(run["delta"]), claimed=float(run["claim"]["epsilon"])
    )
