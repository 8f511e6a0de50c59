"""What the verbs of `hushgrad-client` do, from a configuration to a value that is printed. Parsing is in `__main__`."""

import json
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import structlog
from hushgrad.client import (
    commitment,
    connection,
    data,
    ledger,
    models,
    overview,
    preparing,
    registry,
    report,
    standing,
    store,
    zeroed,
)
from hushgrad.client.config import OWN_LOOP, ClientConfig, EvaluatorConfig, ModelConfig
from hushgrad.client.data import Dataset
from hushgrad.client.errors import ClientError, InputError
from hushgrad.client.ledger import Ledger
from hushgrad.client.models.base import Model
from hushgrad.wire.terms import Terms


def run(config: ClientConfig, *, accept_large_delta: bool) -> dict[str, Any]:
    """Takes part in a federation until it has ended, or until SIGTERM or SIGINT.

    The lock of the ledger comes first: a second process on it is refused before it reads any data.

    Raises:
        ClientError: as its class says.
    """
    from hushgrad.client import runner  # the training path; the other verbs do without

    structlog.get_logger().info(
        "configuration",
        participant=config.participant,
        server=config.server,
        state=config.state,
        privacy=msgspec.structs.asdict(config.privacy),
    )
    warning = commitment.check_delta(config, accept_large=accept_large_delta)
    if warning:
        structlog.get_logger().warning("large_delta", why=warning)
    with _signals() as stopping, closing(Ledger(Path(config.state))) as book:
        book.check_owner(participant=config.participant)
        commitment.check_lifetime(config, book.init)
        dataset = data.load(config.data)
        book.check_owner(participant=config.participant, fingerprint=dataset.fingerprint)
        if book.init.accepted_new_budget:
            structlog.get_logger().warning(
                "second_ledger", why="this data had another ledger before; its budget is extra"
            )
        model = _model(config.model, dataset)
        with closing(connection.of(config)) as transport:
            found = preparing.get_terms(transport, config.terms_digest, config.connect_timeout_seconds, stopping.event)
            if found is None:
                return {"reason": "stopped", "rounds_sealed": 0, "version": None}
            terms, digest = found
            if config.terms_digest is None:
                commitment.check_federation(digest, book.runs(), transport.address)
            make_update = _trainer(terms, config, model, dataset)
            committed = preparing.commit(book, terms, digest, config, model)
            preparing.declare(transport, committed, config)
            worker = runner.Runner(
                transport=transport,
                ledger=book,
                committed=committed,
                terms=terms,
                make_update=_counting(make_update, zeroed.Count(Path(config.state), digest.hex())),
                facts=preparing.facts(terms, config),
            )
            stopping.call(worker.stop)
            outcome = worker.run()
    return {**asdict(outcome), "claim": dict(committed.claim), **report.notes(committed)}


def leave(config: ClientConfig) -> dict[str, Any]:
    """Sends what is sealed, leaves the federation, and waits until nothing that was accepted can be asked for again.

    Nobody waits for this participant any more; `run` takes part again.

    Raises:
        ClientError: as its class says.
    """
    from hushgrad.client import runner

    def never(*_: object) -> npt.NDArray[np.int32]:
        raise ClientError("a client that leaves begins no round; this is a mistake in the program")

    with _signals() as stopping, closing(Ledger(Path(config.state))) as book:
        book.check_owner(participant=config.participant)
        with closing(connection.of(config)) as transport:
            found = preparing.get_terms(transport, config.terms_digest, config.connect_timeout_seconds, stopping.event)
            if found is None:
                return {"reason": "stopped", "rounds_sealed": 0, "version": None}
            terms, digest = found
            committed = book.committed(digest)
            if committed is None:
                raise InputError(
                    "this ledger never committed to the federation at that address; there is nothing to leave"
                )
            worker = runner.Runner(
                transport=transport,
                ledger=book,
                committed=committed,
                terms=terms,
                make_update=never,
                facts=preparing.facts(terms, config),
                leaving=True,
            )
            stopping.call(worker.stop)
            return asdict(worker.run())


def dry_run(config: ClientConfig, *, accept_large_delta: bool) -> dict[str, Any]:
    """Says what a run would cost and how many of its rounds are affordable. Draws nothing and writes nothing.

    Raises:
        ClientError: as its class says.
    """
    from hushgrad import accountant

    warning = commitment.check_delta(config, accept_large=accept_large_delta)
    snapshot = ledger.read(Path(config.state))
    _check_snapshot(snapshot, config)
    dataset = data.load(config.data)
    if not snapshot.is_for(dataset.fingerprint):
        raise InputError("the ledger belongs to other data than the one at hand; name the right state folder or data")
    model = _model(config.model, dataset)
    with _signals() as stopping, closing(connection.of(config)) as transport:
        found = preparing.get_terms(transport, config.terms_digest, config.connect_timeout_seconds, stopping.event)
    if found is None:
        raise InputError("stopped before the server answered")
    terms, digest = found
    commitment.check_terms(terms, config, model)
    proposal = commitment.propose(terms, digest, config, model)
    earlier = next((run for run in snapshot.runs if run.terms_digest == digest), None)
    left = commitment.budget(snapshot.init, snapshot.runs)
    left_epsilon, left_delta = left.left()
    cap = min(config.privacy.epsilon, left_epsilon)
    if earlier is not None:
        commitment.check_unchanged(earlier, proposal, config)
        claim, affordable = dict(earlier.claim), earlier.rounds
    else:
        claim = commitment.claim(proposal).to_dict()
        fits_delta = config.privacy.delta <= left_delta
        affordable = (
            accountant.affordable_rounds(proposal.run, epsilon=cap, delta=config.privacy.delta) if fits_delta else 0
        )
    return {
        "federation": terms.federation,
        "terms_digest": digest.hex(),
        "committed": earlier is not None,
        "rounds": terms.final_version,
        "rounds_affordable": affordable,
        "fits": affordable >= terms.final_version,
        "claim": claim,
        **report.notes(proposal.committed),
        "left": {"epsilon": left_epsilon, "delta": left_delta},
        "warning": warning,
    }


def status(config: ClientConfig) -> dict[str, Any]:
    """Checks the ledger's chain and says how it stands; works while a client runs.

    Raises:
        LedgerError: if there is no ledger to read, or a row of it does not fit.
    """
    return overview.status(standing.read(Path(config.state), check=True), now=time.time())


def page(config: ClientConfig, *, port: int, announce: Callable[[str], None]) -> None:
    """Serves a page that shows the ledger, on loopback, until SIGTERM or SIGINT; works while a client runs.

    Raises:
        InputError: if there is no ledger, or the port cannot be used.
    """
    from hushgrad.client.page import listener  # the web framework; the other verbs do without

    store.check_file(Path(config.state))
    with _signals() as stopping:
        listener.serve(Path(config.state), port, announce=announce, stopping=stopping.event)


def ledger_init(config: ClientConfig, *, accept_new_budget: bool, fingerprint: str | None = None) -> dict[str, Any]:
    """Makes a new ledger for the configured data, or for data with another fingerprint. The only way to get one.

    Raises:
        InputError: if there is one already, or this data had another one and that was not accepted.
    """
    folder = Path(config.state)
    if (folder / store.LEDGER_NAME).exists():
        raise InputError(f"there is a ledger in {folder} already; a ledger is never overwritten")
    fingerprint = data.load(config.data).fingerprint if fingerprint is None else fingerprint
    privacy = config.privacy
    with registry.registered(
        registry.home(), fingerprint=fingerprint, ledger=folder, accept_new_budget=accept_new_budget
    ) as had_another:
        init = ledger.create(
            folder,
            participant=config.participant,
            fingerprint=fingerprint,
            lifetime_epsilon=privacy.lifetime_epsilon,
            lifetime_delta=privacy.lifetime_delta,
            accepted_new_budget=had_another,
        )
    return {"ledger": str(folder / store.LEDGER_NAME), **asdict(init)}


def has_ledger(config: ClientConfig) -> bool:
    """Says whether there is a ledger in the configured state folder."""
    return (Path(config.state) / store.LEDGER_NAME).exists()


def ledger_show(config: ClientConfig) -> list[dict[str, Any]]:
    """Returns the rows of the ledger for a table."""
    return report.table(ledger.read(Path(config.state)))


def ledger_verify(config: ClientConfig) -> dict[str, Any]:
    """Checks the ledger from its first row to its last, and the payloads still held.

    Raises:
        LedgerError: names the first bad row.
    """
    snapshot = ledger.verify(Path(config.state))
    return {
        "ledger": config.state,
        "rows": len(snapshot.rows),
        "updates": sum(row.kind == "update" for row in snapshot.rows),
        "head": snapshot.rows[-1].head.hex(),
        "sound": True,
    }


def ledger_export(config: ClientConfig) -> dict[str, Any]:
    """Returns the verified ledger as a document that anybody can re-check.

    Raises:
        LedgerError: if it does not verify.
    """
    return report.export(ledger.verify(Path(config.state)))


def evaluate(config: EvaluatorConfig) -> dict[str, Any] | None:
    """Watches a federation and scores its versions until it has ended; returns the last score.

    Raises:
        ClientError: as its class says.
    """
    from hushgrad.client.evaluator import Evaluator

    dataset = data.load(config.data)
    model = _model(config.model, dataset)
    with _signals() as stopping, closing(connection.of(config)) as transport:
        found = preparing.get_terms(transport, None, config.connect_timeout_seconds, stopping.event)
        if found is None:
            return None
        terms, _ = found
        commitment.check_model(terms, model)
        evaluator = Evaluator(
            transport=transport,
            model=model,
            dataset=dataset,
            output=Path(config.output),
            final_version=terms.final_version,
            report=config.report,
        )
        stopping.call(evaluator.stop)
        last = evaluator.run()
    return None if last is None else asdict(last)


def _check_snapshot(snapshot: ledger.Snapshot, config: ClientConfig) -> None:
    if snapshot.init.participant != config.participant:
        raise InputError(
            f"the ledger in {config.state} belongs to participant {snapshot.init.participant!r}, the configuration "
            f"says {config.participant!r}; name the right state folder"
        )
    commitment.check_lifetime(config, snapshot.init)


def _model(config: ModelConfig, dataset: Dataset) -> Model:
    if config.kind == OWN_LOOP:
        raise InputError(
            f"[model] kind is {OWN_LOOP!r}: such a client is a program of yours that calls hushgrad.client.connect"
        )
    model = models.make(
        config.kind,
        features=dataset.width,
        classes=config.classes,
        l2=config.l2,
        **config.options(),
    )
    dataset.check_fits(model)
    return model


MakeUpdate = Callable[[npt.NDArray[np.float64], int, Any], npt.NDArray[np.int32]]
"""What trains one round: from the local model, the round and its random stream to an update."""


def _trainer(terms: Terms, config: ClientConfig, model: Model, dataset: Dataset) -> MakeUpdate:
    """Checks the terms, builds all tables, and returns what trains one round. Draws nothing."""
    from hushgrad.client import dpsgd

    commitment.check_terms(terms, config, model)
    trainer = dpsgd.Trainer(model, dataset)
    recipe = preparing.recipes(trainer, terms, config)

    class Training:
        """Trains one round, and knows how many records counted as zero."""

        def __call__(self, parameters: npt.NDArray[np.float64], round_: int, stream: Any) -> npt.NDArray[np.int32]:
            return trainer.round(parameters, recipe(round_), stream)

        @property
        def zeroed(self) -> int:
            return trainer.zeroed

    return Training()


def _counting(make_update: MakeUpdate, count: zeroed.Count) -> MakeUpdate:
    """Returns what trains one round and then notes, for the owner alone, how many records counted as zero."""

    def counted(parameters: npt.NDArray[np.float64], round_: int, stream: Any) -> npt.NDArray[np.int32]:
        update = make_update(parameters, round_, stream)
        count.write(getattr(make_update, "zeroed", 0))
        return update

    return counted


class _Stopping:
    """Remembers that somebody asked to stop, and passes it on to whoever listens."""

    def __init__(self) -> None:
        self.event = threading.Event()
        self._listeners: list[Callable[[], None]] = []

    def call(self, listener: Callable[[], None]) -> None:
        """Calls the listener when a signal comes; at once if one has come."""
        self._listeners.append(listener)
        if self.event.is_set():
            listener()

    def set(self, number: int, frame: object) -> None:
        """Handles a signal."""
        del number, frame
        self.event.set()
        for listener in self._listeners:
            listener()


@contextmanager
def _signals() -> Iterator[_Stopping]:
    """Turns SIGTERM and SIGINT into a wish to stop, in the main thread; elsewhere signals are somebody else's."""
    stopping = _Stopping()
    if threading.current_thread() is not threading.main_thread():
        yield stopping
        return
    before = {number: signal.signal(number, stopping.set) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stopping
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def dumps(document: object) -> str:
    """Returns a document as the JSON that --json prints."""
    return json.dumps(document, indent=2, allow_nan=False)
