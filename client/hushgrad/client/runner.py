"""Runs a session: a training thread, a sending thread and a watching thread around the core, and the ledger between.

All decisions are the core's; all bytes that leave come from the ledger. The main thread owns the core: whatever happens
reaches it through one queue, and it carries the core's actions out in order.
"""

import queue
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import structlog
from hushgrad.client import commitment, dpsgd, events, watcher
from hushgrad.client.errors import ClientError, ConflictError, LedgerError, PayloadUnreadableError
from hushgrad.client.events import Call, Event
from hushgrad.client.ledger import Ledger
from hushgrad.client.retry import Backoff, Outage
from hushgrad.client.rows import Committed
from hushgrad.client.session import Facts, Session
from hushgrad.client.stream import RandomStream
from hushgrad.client.transport import FaultError, RetryableError, SubmitAnswer, Transport
from hushgrad.wire.terms import Terms

_LAST_SEAL_SECONDS = 30.0

MakeUpdate = Callable[[npt.NDArray[np.float64], int, RandomStream], npt.NDArray[np.int32] | None]
"""From local parameters, shape (d,), a round and fresh random bits to a noised update, shape (d,); None: given up,
allowed only while the round is not wanted."""


class RoundListener(Protocol):
    """Somebody who must know what becomes of a round in training."""

    def wanted(self, wanted: bool) -> None:
        """A round begins (True), or the one in training is not wanted any more (False). Main thread."""

    def settled(self, round_: int, sealed: bool) -> None:
        """The round in training is sealed, durably, or was dropped and spent nothing. Training thread."""


class _Nobody:
    def wanted(self, wanted: bool) -> None:
        del wanted

    def settled(self, round_: int, sealed: bool) -> None:
        del round_, sealed


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended at this client.

    Attributes:
        reason: "ended" (the federation did), "stopped" (somebody asked for it) or "left".
        rounds_sealed: rounds that the ledger has sealed in this federation, by this process or earlier ones.
        version: the newest version received; None: none.
    """

    reason: str
    rounds_sealed: int
    version: int | None


@dataclass(frozen=True, slots=True)
class _Crashed:
    """A thread met an error that ends the process."""

    error: BaseException


class Runner:
    """One process's work in one federation, from Join to the end.

    Args:
        transport: connected, with the terms in use.
        ledger: open, with the schedule committed.
        committed: that schedule.
        terms: of the federation.
        make_update: trains one round; called in the training thread, once per round.
        facts: for the session core.
        leaving: begin no round; send what is sealed, leave, and end.
        listener: hears of every round in training.
        clock: seconds that never run backwards.
    """

    def __init__(
        self,
        *,
        transport: Transport,
        ledger: Ledger,
        committed: Committed,
        terms: Terms,
        make_update: MakeUpdate,
        facts: Facts,
        leaving: bool = False,
        listener: RoundListener | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._listener: RoundListener = listener or _Nobody()
        self._transport = transport
        self._ledger = ledger
        self._committed = committed
        self._digest = committed.terms_digest
        self._terms = terms
        self._make_update = make_update
        self._clock = clock
        self._log = structlog.get_logger()
        entries = ledger.entries(self._digest)
        spent = ledger.spent(self._digest)
        self._core = Session(
            facts, spent=spent, skipped=spent - {entry.round for entry in entries}, entries=entries, leaving=leaving
        )
        self._happened: queue.SimpleQueue[Event | watcher.Seen | _Crashed] = queue.SimpleQueue()
        self._calls: queue.SimpleQueue[Call | None] = queue.SimpleQueue()
        self._rounds: queue.SimpleQueue[tuple[events.Train, bytes] | None] = queue.SimpleQueue()
        self._drop = threading.Event()
        self._outage = Outage(transport.address, clock)
        self._backoff = Backoff()
        self._join_id = secrets.token_bytes(16)
        self._model: tuple[int, bytes] | None = None
        self._told_of_timing = False

    def stop(self) -> None:
        """Asks the run to end and keep its state. May be called from a signal handler."""
        self._happened.put(events.Stop())

    def run(self) -> Outcome:
        """Runs until the federation has ended here or somebody asked to stop.

        Raises:
            ConflictError: if a person must look.
            LedgerWriteError: if the disk refuses.
            ClientError: whatever else ended it.
        """
        watch = watcher.Watcher(
            self._transport, self._happened.put, self._outage, model_bytes=4 * self._terms.parameters
        )
        training = self._thread("train", self._train_rounds)
        self._thread("send", self._make_calls)
        watch.start()
        try:
            reason = self._loop()
        finally:
            self._want_round(False)
            watch.stop()
            self._rounds.put(None)
            self._calls.put(None)
            self._transport.close()
            training.join(_LAST_SEAL_SECONDS)
        sealed = len(self._ledger.entries(self._digest))
        self._log.info("finished", reason=reason, rounds_sealed=sealed)
        return Outcome(reason, sealed, self._core.version)

    def _thread(self, name: str, work: Callable[[], None]) -> threading.Thread:
        def guarded() -> None:
            try:
                work()
            except BaseException as error:
                self._happened.put(_Crashed(error))

        thread = threading.Thread(target=guarded, name=name, daemon=True)
        thread.start()
        return thread

    # The main thread.

    def _loop(self) -> str:
        event: Event | watcher.Seen | _Crashed = events.Tick()
        while True:
            for taken in self._translate(event):
                for action in self._core.handle(taken, self._clock()):
                    match action:
                        case events.Finish(reason=reason):
                            return reason
                        case events.Halt(reason=reason):
                            raise ConflictError(reason)
                        case _:
                            self._carry_out(action)
            if self._core.outlasted and not self._told_of_timing:
                self._told_of_timing = True
                self._log.warning(
                    "round_outlasts_release_interval",
                    why="when its update leaves tells that it took long; raise release_interval_seconds",
                )
            wake = self._core.wake_at()
            try:
                event = self._happened.get(timeout=None if wake is None else max(0.0, wake - self._clock()))
            except queue.Empty:
                event = events.Tick()

    def _translate(self, happened: Event | watcher.Seen | _Crashed) -> Iterator[Event]:
        """Yields events one at a time: what the core orders after the first must find the model that it knows of."""
        match happened:
            case _Crashed(error=error):
                raise error
            case watcher.WatchFailed(error=error):
                if not isinstance(error, FaultError):
                    raise error
                yield events.CallRefused(str(error))
            case watcher.ModelReceived(server=server, version=version, model=model):
                if version == 0:
                    commitment.check_initial_model(self._terms, model)
                yield events.ServerSeen(server)
                if self._model is None or version > self._model[0]:
                    self._model = (version, model)
                self._log.info("model_received", version=version)
                yield events.ModelArrived(version)
            case watcher.SpeaksAgain(server=server):
                yield events.ServerSeen(server)
                yield events.Reconnected()
            case watcher.StateSeen(server=server):
                yield events.ServerSeen(server)
            case watcher.ServerGoesAway(server=server, retry_after_seconds=wait):
                yield events.ServerSeen(server)
                yield events.GoingAway(wait)
            case watcher.FederationEnded(server=server, final_version=version):
                yield events.ServerSeen(server)
                yield events.RunEnded(version)
            case _:
                yield happened

    def _carry_out(self, action: events.Action) -> None:
        match action:
            case events.Record(marks=marks):
                self._ledger.record(self._digest, marks)
            case events.MakeVoid(round=round_):
                self._ledger.void(self._digest, round_)
                self._log.warning("round_void", round=round_)
            case events.Skip(round=round_):
                self._ledger.skip(self._digest, round_)
                self._log.warning("round_skipped", round=round_)
            case events.Train():
                if self._model is None or self._model[0] != action.version:
                    raise ClientError(f"version {action.version} is not at hand; this is a mistake in the program")
                self._want_round(True)
                self._rounds.put((action, self._model[1]))
            case events.DropTraining():
                self._want_round(False)
            case (
                events.Join()
                | events.Start()
                | events.Leave()
                | events.AskParticipation()
                | events.Report()
                | events.Send()
            ):
                self._calls.put(action)

    def _want_round(self, wanted: bool) -> None:
        (self._drop.clear if wanted else self._drop.set)()
        self._listener.wanted(wanted)

    # The training thread.

    def _train_rounds(self) -> None:
        base: int | None = None
        local = np.empty(0)
        while (job := self._rounds.get()) is not None:
            train, model = job
            if base is None or train.version > base:
                base, local = train.version, np.frombuffer(model, "<f4").astype(np.float64)
            # A new key for every round: whatever becomes of this one, its bits are never used again.
            update = self._make_update(local, train.round, RandomStream())
            if self._drop.is_set():
                self._listener.settled(train.round, False)
                self._happened.put(events.TrainingDropped())
                continue
            if update is None:
                raise ClientError(f"round {train.round} was given up while it was wanted; this is a mistake")
            self._ledger.seal(self._digest, train.round, update.astype("<i4").tobytes())
            local = dpsgd.apply(
                local,
                update,
                step_numerator=self._terms.step_numerator(train.round),
                step_exponent=self._terms.step_exponent,
                grid_exponent=self._terms.grid_exponent,
            )
            self._log.info(
                "round_sealed",
                round=train.round,
                version=train.version,
                staleness=train.round - train.version,
                rounds_committed=self._committed.rounds,
            )
            self._listener.settled(train.round, True)
            self._happened.put(events.Sealed(train.round))

    # The sending thread.

    def _make_calls(self) -> None:
        while (call := self._calls.get()) is not None:
            try:
                event = self._perform(call)
            except RetryableError as error:
                self._outage.failed(str(error))
                # There is nothing else to send. A connection that comes back ends the wait.
                self._transport.wait_for_connection(self._backoff.next())
                self._happened.put(events.CallFailed(0.0))
                continue
            except FaultError as error:
                self._happened.put(events.CallRefused(str(error)))
                continue
            except PayloadUnreadableError as error:
                self._log.error("payload_unreadable", round=error.round, why=str(error))
                self._ledger.void(self._digest, error.round)
                self._happened.put(events.Unreadable(error.round))
                continue
            self._outage.answered()
            if isinstance(event, events.Answered) and event.verdict.answer == "BUSY":
                wait = self._backoff.next(event.verdict.retry_after_seconds)
                self._happened.put(events.ServerSeen(event.verdict.server))
                self._happened.put(events.CallFailed(wait))
                continue
            self._backoff.reset()
            self._happened.put(event)

    def _perform(self, call: Call) -> Event:
        match call:
            case events.Join():
                answer = self._transport.join(self._join_id)
                own_head = self._ledger.head_at(answer.anchor_sequence)
                if answer.session:
                    self._log.info("joined", session=answer.session, answer=answer.verdict.answer)
                return events.Joined(
                    answer.verdict, answer.participation, answer.anchor_sequence, answer.anchor_head, own_head
                )
            case events.Start(next_round=next_round):
                verdict, participation = self._transport.start(next_round)
                if verdict.answer in ("ACCEPTED", "DUPLICATE"):
                    self._log.info("started", entry_round=participation.entry_round)
                return events.Started(verdict, participation)
            case events.Leave(exit_round=exit_round):
                return events.Left(*self._transport.leave(exit_round))
            case events.AskParticipation():
                return events.ParticipationSeen(*self._transport.get_participation())
            case events.Report(reports=reports, held_range=held_range):
                digests = {entry.round: entry.digest for entry in self._ledger.entries(self._digest)}
                answered = self._transport.report_rounds(
                    [
                        (report.round, report.fate, digests[report.round] if report.fate == "held" else b"")
                        for report in reports
                    ],
                    held_range,
                )
                self._log.info("rounds_reported", reports=len(reports), answer=answered[0].answer)
                return events.ReportAnswered(*answered)
            case events.Send(round=round_):
                sent = self._transport.submit(self._ledger.sendable(self._digest, round_))
                self._tell(round_, sent)
                return events.SubmitAnswered(
                    round_, sent.verdict, sent.first_answer, sent.included_in, sent.participation
                )
        raise LedgerError(f"unknown call {call!r}")

    def _tell(self, round_: int, sent: SubmitAnswer) -> None:
        verdict = sent.verdict
        if verdict.answer in ("ACCEPTED", "DUPLICATE"):
            self._log.info("update_answered", round=round_, answer=verdict.answer, included_in=sent.included_in)
        else:
            self._log.warning(
                "update_answered", round=round_, answer=verdict.answer, included_in=None, detail=verdict.detail
            )
