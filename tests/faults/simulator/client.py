"""A participant: its ledger on disk, and the processes on it: real session cores with what `runner` does around them.

Training is a wait and a payload of random integers; sealing, sending and watching are as in the runner and the watcher.
"""

import math
import struct
from typing import Any

from hushgrad.client import delay, events
from hushgrad.client.events import Action, Event
from hushgrad.client.messages import ServerState
from hushgrad.client.retry import Backoff
from hushgrad.client.session import Facts, Session

from tests.faults.simulator.oracle import Oracle
from tests.faults.simulator.server import Server
from tests.faults.simulator.stores import SimulatedLedger
from tests.faults.simulator.world import FAR, World

CALL_SECONDS = 2.0
"""How long a call waits for its answer; the runner waits longer, in proportion to its other times."""


class Participant:
    """One participant: its ledger, and what a person does with it.

    Attributes:
        ledger: what is on disk; of a participant with two, the newer one.
        process: the newest process; None before the first.
        pace: seconds that a round takes.
        copied_at: when its ledger was first copied or rolled back; nobody can promise one payload per round after that.
        is_gone: it has left for good.
    """

    def __init__(self, world: World, oracle: Oracle, server: Server, name: str) -> None:
        self.world = world
        self.oracle = oracle
        self.server = server
        self.name = name
        self.pace = world.plan.paces[name]
        self.ledger = SimulatedLedger(name, world.plan.terms, world.plan.terms_digest)
        self.process: Process | None = None
        self.copied_at = math.inf
        self.is_gone = False
        self.processes: list[Process] = []

    def is_out_of_reach(self, since: float, until: float) -> bool:
        """Whether, at any time of an interval, no process ran on, or the network was bad.

        A process that was told to stop finishes a call, and does nothing more for the server.
        """
        if self.world.has_trouble(self.name, since, until):
            return True
        for process in self.processes:
            if process.began <= since < process.worked_until:
                since = process.worked_until
        return since < until

    def run(self, *, leaving: bool = False) -> None:
        """Starts a process on the ledger, if none runs."""
        if self.process is not None and self.process.is_up:
            return
        if self.process is not None and self.process.has_halted:
            return
        self._start(self.ledger, leaving)

    def _start(self, ledger: SimulatedLedger, leaving: bool) -> None:
        self.process = Process(self, ledger, leaving)
        self.processes.append(self.process)
        self.process.feed(events.Tick())
        self.process.watch()

    def stop(self, seconds: float) -> None:
        """Asks the process to stop, and starts another one later."""
        if self.process is not None and self.process.is_up:
            self.process.is_stopping = True
            self.process.worked_until = self.world.now
            self.process.feed(events.Stop())
        self.world.until(self.world.now + seconds)
        self.world.after(seconds, self._run_again)

    def _run_again(self) -> None:
        if self.process is not None and self.process.is_stopping and self.process.is_up:
            self.world.after(0.5, self._run_again)  # it finishes its call first
        else:
            self.run()

    def leave(self, seconds: float) -> None:
        """Ends the process at once, and starts one that only leaves. Comes back later, or never when that is 0."""
        if self.process is None or self.process.has_halted:
            return
        self.process.end()
        self.is_gone = seconds == 0
        self.world.after(0.05, self.run_leaving)
        if seconds:
            self.world.until(self.world.now + seconds)
            self.world.after(seconds, self.come_back)

    def run_leaving(self) -> None:
        """Runs the process that leaves."""
        self.run(leaving=True)

    def come_back(self) -> None:
        """Ends a process that is still leaving, and takes part again."""
        if self.process is not None and self.process.leaving and not self.process.has_halted:
            self.process.end()
        self.run()

    def clone(self) -> None:
        """Starts a second process on a copy of the ledger; the first one runs on."""
        self.copied_at = min(self.copied_at, self.world.now)
        self.ledger = self.ledger.copy()
        self._start(self.ledger, False)

    def roll_back(self, copy: SimulatedLedger) -> None:
        """Ends the process and starts another one on an old copy of the ledger."""
        self.copied_at = min(self.copied_at, self.world.now)
        for process in self.processes:
            process.end()
        self.ledger = copy
        self._start(copy, False)


class Process:
    """One process of one participant."""

    def __init__(self, participant: Participant, ledger: SimulatedLedger, leaving: bool) -> None:
        plan = participant.world.plan
        terms = plan.terms
        self.participant = participant
        self.name = participant.name
        self.world = participant.world
        self.oracle = participant.oracle
        self.server = participant.server
        self.ledger = ledger
        self.leaving = leaving
        self.is_up = True
        self.began, self.worked_until = self.world.now, math.inf
        self.has_halted = False
        self.knows_that_it_is_evicted = False
        self.told_exit: int | None = None
        self.is_stopping = False
        self.finished = ""
        self.session = 0
        self.stream = 0
        self.received = -1
        self.anchor: tuple[int, bytes] = (0, b"")
        self._core = Session(
            Facts(
                final_version=terms.final_version,
                window=terms.window,
                straggler_timeout_seconds=terms.straggler_timeout_seconds,
                delay=delay.of(terms),
                release_interval_seconds=plan.release_interval_seconds,
            ),
            spent=ledger.spent,
            skipped=ledger.skipped,
            entries=ledger.entries(),
            leaving=leaving,
        )
        chance = self.world.chance
        self._join_id = chance.randbytes(16)
        self._backoff = Backoff(chance.random)
        self._watch_backoff = Backoff(chance.random)
        self._call: tuple[int, events.Call] | None = None
        self._calls = 0
        self._wake_at = FAR
        self._is_dropping = False
        self._was_cut = False
        self._waits_to_call = self._waits_to_watch = 0

    def end(self) -> None:
        """Ends."""
        if self.is_up:
            self.is_up = False
            self.worked_until = min(self.worked_until, self.world.now)

    def crash(self, seconds: float) -> None:
        """Dies; the disk loses what was not synced; another process starts later."""
        self.end()
        self.ledger.crash(self.world.chance)
        self.world.until(self.world.now + seconds)
        if self.participant.process is self:
            self.world.after(seconds, self.participant.run_leaving if self.leaving else self.participant.run)

    def point(self, name: str) -> None:
        """Marks a point of durability."""
        self.world.point(self, self.name, name)

    # The main thread

    def feed(self, event: Event) -> None:
        """Hands an event to the core and carries out what it says."""
        if not self.is_up:
            return
        for action in self._core.handle(event, self.world.now):
            self._carry_out(action)
            if not self.is_up:
                return
        wake = self._core.wake_at()
        if wake is not None and wake < self._wake_at:
            self._wake_at = wake
            self.world.after(max(0.0, wake - self.world.now), self._wake, wake)

    def _wake(self, wake: float) -> None:
        if self._wake_at == wake:
            self._wake_at = FAR
            self.feed(events.Tick())

    def _carry_out(self, action: Action) -> None:
        kind = type(action)
        if self.world.trace is not None:
            self.world.say(f"{self.name}: {action}")
        if kind is events.Train:
            self.oracle.trained(self, action)
            self._is_dropping = False
            pace = self.participant.pace
            self.world.after(pace * (0.7 + 0.6 * self.world.chance.random()), self._trained, action.round)
        elif kind is events.Record:
            self.oracle.recorded(self, action.marks)
            self.ledger.record(action.marks, self.point)
        elif kind is events.MakeVoid:
            self.ledger.void(action.round, self.point)
        elif kind is events.Skip:
            self.ledger.skip(action.round, self.point)
        elif kind is events.DropTraining:
            self._is_dropping = True
        elif kind is events.Finish:
            self.end()
            self.finished = action.reason
        elif kind is events.Halt:
            self.end()
            self.has_halted = True
            self.oracle.halted(self, action.reason)
        else:
            self._make_call(action)

    # The training thread

    def _trained(self, round_: int) -> None:
        if not self.is_up:
            return
        if self._is_dropping:
            self.feed(events.TrainingDropped())
            return
        self._seal(round_)
        self.feed(events.Sealed(round_))

    def _seal(self, round_: int) -> None:
        numbers = self.payload()
        payload = struct.pack(f"<{len(numbers)}i", *numbers)
        self.ledger.seal(round_, payload, self.point)
        self.oracle.sealed(self, round_)

    def payload(self) -> list[int]:
        """Returns what noise looks like here: integers that are never drawn again."""
        chance = self.world.chance
        return [chance.getrandbits(32) - 2**31 or 1 for _ in range(self.world.plan.terms.parameters)]

    # The sending thread

    def _make_call(self, action: events.Call) -> None:
        self._calls += 1
        call = self._calls
        self._call = (call, action)
        kind = type(action)
        args: tuple[Any, ...]
        if kind is events.Send:
            packed, payload, digest = self.ledger.sendable(action.round)
            method, args = "submit", (action.round, packed, payload, digest)
            if self.world.plan.pieces > 1:
                # The server says how much it has; piece 0 asks.
                method, args = "upload", (*args, 0)
            self.point("before send")
            self.oracle.sending(self, action.round, digest)
        elif kind is events.Join:
            method, args = "join", (self._join_id,)
        elif kind is events.Start:
            method, args = "start", (action.next_round,)
        elif kind is events.Leave:
            method, args = "leave", (action.exit_round,)
        elif kind is events.AskParticipation:
            method, args = "ask", ()
        else:
            reports = [
                (report.round, report.fate, self.ledger.digest(report.round) if report.fate == "held" else b"")
                for report in action.reports
            ]
            held_range = None if action.held_range is None else range(*action.held_range)
            method, args = "report", (reports, held_range)
        self._sent = (method, args)
        self.world.send(self.name, True, self.server.receive, self, call, self.session, method, args)
        self.world.after(CALL_SECONDS, self.refused, call)
        if kind is events.Send:
            self.point("after send")

    def piece_taken(self, call: int, next_piece: int) -> None:
        """The server has so many pieces of an upload; the next one leaves."""
        if self.is_up and self._call is not None and self._call[0] == call:
            method, args = self._sent
            self.world.send(
                self.name, True, self.server.receive, self, call, self.session, method, (*args[:4], next_piece)
            )

    def refused(self, call: int) -> None:
        """The call got no answer."""
        if self.is_up and self._call is not None and self._call[0] == call:
            self._call = None
            self._waits_to_call = call
            self.world.after(self._backoff.next(), self._call_again, call)

    def _call_again(self, call: int) -> None:
        if call and self._waits_to_call == call:
            self._waits_to_call = 0
            self.feed(events.CallFailed(0.0))

    def connection_broken(self) -> None:
        """The server is gone: what was open ends without an answer."""
        if not self._waits_to_watch:
            self.watch_broken(self.stream)
        if self._call is not None:
            self.refused(self._call[0])

    def connected(self) -> None:
        """A server is there again, and reached: that ends every wait for it."""
        if self.is_up:
            self._call_again(self._waits_to_call)
            self._watch_again(self._waits_to_watch)

    def answered(self, call: int, answer: tuple[Any, ...]) -> None:
        """The call got an answer."""
        if not self.is_up or self._call is None or self._call[0] != call:
            return
        action = self._call[1]
        self._call = None
        verdict, participation, session, sequence, head, first, included_in = answer
        if verdict.answer == "BUSY":
            self.feed(events.ServerSeen(verdict.server))
            self.feed(events.CallFailed(self._backoff.next(verdict.retry_after_seconds)))
            return
        # The latest word counts: a restored server knows fewer orders.
        if participation.state != "unspecified":
            self.knows_that_it_is_evicted = participation.evicted
        if participation.state == "active":
            self.told_exit = participation.exit_round
        self._backoff.reset()
        kind = type(action)
        event: Event
        if kind is events.Send:
            self.oracle.answered(self, action.round, verdict, first, included_in)
            self.point("answer received")
            event = events.SubmitAnswered(action.round, verdict, first, included_in, participation)
        elif kind is events.Join:
            if session:
                self.session = session
            self.anchor = (sequence, head)
            event = events.Joined(verdict, participation, sequence, head, self.ledger.head_at(sequence))
        elif kind is events.Start:
            event = events.Started(verdict, participation)
        elif kind is events.Leave:
            event = events.Left(verdict, participation)
        elif kind is events.AskParticipation:
            event = events.ParticipationSeen(verdict, participation)
        else:
            event = events.ReportAnswered(verdict, participation)
        self.feed(event)

    # The watching thread

    def watch(self) -> None:
        """Opens a stream."""
        if not self.is_up:
            return
        self.stream += 1
        if not self.world.send(self.name, True, self.server.watch, self, self.stream, self.received):
            self.world.after(CALL_SECONDS, self.watch_broken, self.stream)

    def watch_broken(self, stream: int) -> None:
        """The stream ended without a last word."""
        if self.is_up and stream == self.stream:
            self.stream += 1
            self._was_cut = True
            self._waits_to_watch = self.stream
            self.world.after(self._watch_backoff.next(), self._watch_again, self.stream)

    def _watch_again(self, stream: int) -> None:
        if stream and self._waits_to_watch == stream:
            self._waits_to_watch = 0
            self.watch()

    def version_arrived(self, stream: int, state: ServerState, published: Any) -> None:
        """A version came."""
        if not self.is_up or stream != self.stream:
            return
        self._watch_backoff.reset()
        self._see(state)
        if published.version > self.received and self.is_up:
            self.received = published.version
            self.oracle.received(self, state.epoch, published)
            self.feed(events.ModelArrived(published.version))

    def state_seen(self, stream: int, state: ServerState) -> None:
        """A heartbeat came."""
        if self.is_up and stream == self.stream:
            self._see(state)

    def _see(self, state: ServerState) -> None:
        self.feed(events.ServerSeen(state))
        if self._was_cut:
            self._was_cut = False
            self.feed(events.Reconnected())

    def told_to_go_away(self, stream: int, state: ServerState) -> None:
        """The server stops for a while."""
        if self.is_up and stream == self.stream:
            self.feed(events.ServerSeen(state))
            self.feed(events.GoingAway(0.0))

    def run_ended(self, stream: int, state: ServerState) -> None:
        """The federation has ended."""
        if self.is_up and stream == self.stream:
            self._see(state)
            self.feed(events.RunEnded(self.world.plan.terms.final_version))
