"""The session core: what a client does next, decided from what has happened. No socket, clock, thread, file or array.

Events go in by `Session.handle`, actions come out; time is an argument. Models are known by version, updates by round.
At most one call to the server and at most one training round are under way at any moment. The duties kept here are
those of the client in protos/hushgrad/v1: read membership.proto and updates.proto beside this file.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from hushgrad.client import events
from hushgrad.client.delay import PermissibleDelay
from hushgrad.client.events import Action, Call, Event
from hushgrad.client.messages import MAX_REPORTS, Answer, Fate, Participation, RoundReport, ServerState
from hushgrad.client.outbox import Accepted, Entry, Forgotten, Mark, Refused, Reopened

CONFLICT_EXIT = 5

_HALTING: dict[Answer, str] = {
    "CONFLICT": "the server knows another update or ledger row of this participant; two ledgers exist, or one was "
    "rolled back",
    "STALE_SESSION": "another process of this participant has joined since; stop one of the two, or, if it is not "
    "yours, have the certificate revoked: somebody shares it",
    "WRONG_TERMS": "the federation at this address has other terms",
    "UNKNOWN_PARTICIPANT": "the terms do not admit this participant, or the server's state was made anew",
    "UNSPECIFIED": "the server gave an answer that this client does not know; update the client",
}

_MAX_INVALID_IN_A_ROW = 3
"""A server that refuses the content of one update after the other will refuse the next: no more privacy for that."""

_MAX_BUSY_SECONDS = 60.0

FREE_SHARE = 0.75
"""An update leaves on the first tick that comes so much of an interval after its round began. What is left of one
interval lets rounds that begin on a tick, a little late as timers are, leave on the next one."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What the core knows of terms and configuration.

    Attributes:
        final_version: no round at or above it is begun.
        window: W of the terms.
        straggler_timeout_seconds: of the terms.
        delay: the permissible delay of the terms.
        release_interval_seconds: updates leave on ticks of this clock; zero: at once. When a round began decides which
            tick, not when it was finished, and the next round begins no earlier: so nothing that others see depends on
            how long a round takes, as long as that is below `FREE_SHARE` of the interval.
        round_seconds: rounds begin at least so many seconds apart.
    """

    final_version: int
    window: int
    straggler_timeout_seconds: float
    delay: PermissibleDelay
    release_interval_seconds: float = 0.0
    round_seconds: float = 0.0


@dataclass(slots=True)
class _Held:
    """A sealed update whose bytes are held: not yet answered (epoch 0), or accepted."""

    accepted: bool
    included_in: int = 0
    epoch: int = 0
    not_before: float = -math.inf
    after_version: int = -1


@dataclass(frozen=True, slots=True)
class _Permission:
    """When the server told that we are active, and for which rounds and newest version."""

    entry_round: int
    newest_version: int
    at: float


class Session:
    """One process's life in one federation.

    Args:
        facts: see Facts.
        spent: the rounds that the ledger has as sealed, skipped or void.
        skipped: those of them that it has as skipped.
        entries: the outbox.
        leaving: begin no round; send what is sealed, leave, and finish.
    """

    def __init__(
        self,
        facts: Facts,
        *,
        spent: Iterable[int] = (),
        skipped: Iterable[int] = (),
        entries: Iterable[Entry] = (),
        leaving: bool = False,
    ) -> None:
        self._facts = facts
        self._leaving = leaving
        self._spent = set(spent)
        self._largest_spent = max(self._spent, default=-1)
        self._held: dict[int, _Held] = {}
        self._reports: dict[int, Fate] = dict.fromkeys(skipped, "skipped")
        for entry in entries:
            if entry.held:
                self._held[entry.round] = _Held(entry.state == "accepted", entry.included_in, entry.server_epoch)
            elif entry.reason == "VOID":
                self._reports[entry.round] = "void"

        self._now = -math.inf
        self._joined = False
        self._participation = Participation("unspecified")
        self._server = ServerState(epoch=0, watermark=0, newest_version=0)
        self._told_epoch = 1
        self._told_below = 0
        self._version: int | None = None
        self._version_at = -math.inf
        self._heard_at = -math.inf
        self._must_ask = False
        self._permission: _Permission | None = None
        self._call: Call | None = None
        self._call_not_before = -math.inf
        self._training: int | None = None
        self._dropping = False
        self._began = -math.inf
        self._outlasted = False
        self._begin_not_before = -math.inf
        self._invalid_in_a_row = 0
        self._ended = False
        self._end_is_certain = False
        self._stopping = False
        self._over = False

    # What others may look at.

    @property
    def version(self) -> int | None:
        """The newest version received; None before the first."""
        return self._version

    @property
    def next_round(self) -> int:
        """The first round that this client can still spend."""
        entry = self._participation.entry_round if self._participation.state == "active" else 0
        return max(self._largest_spent + 1, entry)

    @property
    def waiting(self) -> int:
        """Number of sealed updates without an answer."""
        return sum(not held.accepted for held in self._held.values())

    @property
    def outlasted(self) -> bool:
        """True once a round took so long that the tick on which it leaves may tell so."""
        return self._outlasted

    @property
    def over(self) -> bool:
        """True once Finish or Halt was given; nothing follows."""
        return self._over

    def wake_at(self) -> float | None:
        """Returns the time at which a Tick may change something; None when only other events can.

        It is later than the time of the last event that was handled, and may have passed by now.
        """
        times = [self._call_not_before, self._begin_not_before, max(self._call_not_before, self._ask_at())]
        times += [held.not_before for held in self._held.values() if not held.accepted]
        return min((time for time in times if self._now < time < math.inf), default=None)

    def handle(self, event: Event, now: float) -> list[Action]:
        """Takes what happened and returns what to do, in order.

        Args:
            event: what happened.
            now: seconds of a clock that never runs backwards.
        """
        self._now = now
        if self._over:
            return []
        actions = self._take(event, now)
        if not self._over:
            actions += self._forget()
            actions += self._next(now)
        return actions

    # Events.

    def _take(self, event: Event, now: float) -> list[Action]:
        match event:
            case (
                events.Joined()
                | events.Started()
                | events.Left()
                | events.ParticipationSeen()
                | events.ReportAnswered()
                | events.SubmitAnswered()
            ):
                return self._answered(event, now)
            case events.CallFailed(wait_seconds=wait):
                self._call = None
                self._call_not_before = now + wait
            case events.CallRefused(detail=detail):
                return self._halt(f"the server refused a call, and repeating it will not help: {detail}")
            case events.Unreadable(round=round_):
                self._call = None
                self._held.pop(round_, None)
                self._reports[round_] = "void"
            case events.Sealed(round=round_):
                self._training = None
                self._dropping = False
                self._spend(round_)
                release = self._release_time(now)
                self._outlasted |= now > self._began + FREE_SHARE * self._facts.release_interval_seconds > self._began
                self._held[round_] = _Held(accepted=False, not_before=release)
                self._begin_not_before = max(self._begin_not_before, release)
            case events.TrainingDropped():
                self._training = None
                self._dropping = False
            case events.ServerSeen(server=server):
                self._see(server)
            case events.Reconnected():
                self._must_ask = True
            case events.ModelArrived(version=version):
                if self._version is None or version > self._version:
                    self._version, self._version_at = version, now
                if version >= self._facts.final_version:
                    self._ended = self._end_is_certain = True
            case events.RunEnded():
                self._ended = self._end_is_certain = True
            case events.GoingAway(retry_after_seconds=wait):
                self._call_not_before = max(self._call_not_before, now + min(wait, _MAX_BUSY_SECONDS))
            case events.Stop():
                self._stopping = True
            case events.Tick():
                pass
        return []

    def _answered(self, event: events.Answered, now: float) -> list[Action]:
        call, self._call = self._call, None
        verdict = event.verdict
        if verdict.server.epoch < self._server.epoch:
            # What a server said before it was restored holds no longer: it knows other updates and sessions now.
            return []
        was_restored = not self._joined or verdict.server.epoch > self._server.epoch > 0
        evicted = event.participation.evicted and verdict.answer == "UNKNOWN_PARTICIPANT"
        unknown = verdict.answer in ("STALE_SESSION", "UNKNOWN_PARTICIPANT") and not evicted
        if unknown and was_restored and not isinstance(event, events.Joined):
            # The call was on its way when the server was restored; nobody fenced us. The next call joins again.
            self._see(verdict.server)
            return []
        if verdict.answer in _HALTING and not evicted:
            detail = f": {verdict.detail}" if verdict.detail else ""
            return self._halt(f"the server answered {verdict.answer} ({_HALTING[verdict.answer]}){detail}")
        if verdict.answer == "BUSY":
            wait = verdict.retry_after_seconds or 1.0
            self._call_not_before = now + min(wait, _MAX_BUSY_SECONDS)
            self._see(verdict.server)
            return []
        if isinstance(event, events.Joined) and event.anchor_sequence > 0 and event.own_head != event.anchor_head:
            return self._halt(
                f"the server has seen row {event.anchor_sequence} of this participant's ledger, and this ledger has "
                f"{'another row there' if event.own_head else 'no such row'}: it was rolled back, copied or made anew. "
                "Restore the newest ledger; nothing was drawn"
            )
        self._see(verdict.server)
        self._ended |= verdict.answer == "RUN_ENDED"
        if isinstance(event, events.SubmitAnswered):
            actions = self._submitted(event)
            if self._over:
                return actions
        elif verdict.answer in ("ACCEPTED", "DUPLICATE", "RUN_ENDED") or evicted:
            actions = []
        else:
            return self._halt(f"the server answered {verdict.answer}, which does not belong to this call")
        if isinstance(event, events.Joined):
            self._joined = True
        if event.participation.state != "unspecified":
            self._participation = event.participation
            self._heard_at, self._must_ask = now, False
        if isinstance(event, events.ParticipationSeen):
            self._permission = _Permission(self.next_round, self._server.newest_version, now)
        wanted = frozenset(event.participation.wanted_rounds)
        if isinstance(event, events.ReportAnswered) and isinstance(call, events.Report):
            actions += self._reported(call, wanted)
        return actions + self._want(wanted)

    def _submitted(self, event: events.SubmitAnswered) -> list[Action]:
        held = self._held.get(event.round)
        if held is None:
            return []
        answer = event.first_answer if event.verdict.answer == "DUPLICATE" else event.verdict.answer
        match answer:
            case "ACCEPTED":
                held.accepted, held.included_in = True, event.included_in
                held.epoch = event.verdict.server.epoch
                self._invalid_in_a_row = 0
                return [events.Record((Accepted(event.round, held.included_in, held.epoch),))]
            case "INVALID" | "STALE":
                del self._held[event.round]
                actions: list[Action] = [events.Record((Refused(event.round, answer),))]
                self._invalid_in_a_row = self._invalid_in_a_row + 1 if answer == "INVALID" else 0
                if self._invalid_in_a_row >= _MAX_INVALID_IN_A_ROW:
                    actions += self._halt(
                        f"the server refused the content of {self._invalid_in_a_row} updates in a row, the last one "
                        f"because: {event.verdict.detail or 'no reason given'}; spending more privacy would be waste"
                    )
                return actions
            case "TOO_FAR_AHEAD":
                held.after_version = event.verdict.server.newest_version
                return []
            case "RUN_ENDED":
                return []
        return self._halt(f"the server answered {answer} to an update, which this client does not understand")

    def _reported(self, call: events.Report, wanted: frozenset[int]) -> list[Action]:
        marks: list[Mark] = []
        if call.held_range is not None:
            self._told_below = call.held_range[1]
            if len(call.reports) < MAX_REPORTS:
                self._told_epoch = self._server.epoch
        for report in call.reports:
            if report.fate != "held":
                self._reports.pop(report.round, None)
                continue
            held = self._held.get(report.round)
            if held is not None and held.accepted and report.round not in wanted:
                held.epoch = self._server.epoch
                marks.append(Accepted(report.round, held.included_in, held.epoch))
        return [events.Record(tuple(marks))] if marks else []

    def _want(self, wanted: frozenset[int]) -> list[Action]:
        """Makes ready what the server asks for again; what cannot be sent any more becomes void."""
        actions: list[Action] = []
        reopened: list[Mark] = []
        for round_ in sorted(wanted):
            held = self._held.get(round_)
            if held is not None:
                if held.accepted:
                    self._held[round_] = _Held(accepted=False)
                    reopened.append(Reopened(round_))
            elif round_ not in self._spent:
                return self._halt(
                    f"the server wants round {round_}, which this ledger never sealed: another ledger exists for this "
                    "participant, or this one was rolled back"
                )
            elif round_ not in self._reports and not self._must_tell():
                actions.append(events.MakeVoid(round_))
                self._reports[round_] = "void"
        if reopened:
            actions.append(events.Record(tuple(reopened)))
        return actions

    def _see(self, server: ServerState) -> None:
        """Takes the server's state; answers and watch may overtake each other, so it only moves forward in an epoch."""
        if server.epoch > self._server.epoch:
            # A restored server may know neither our session nor all of our ledger: join again before anything else.
            self._joined = self._joined and self._server.epoch == 0
            self._server = server
            self._told_below = 0
            for held in self._held.values():
                held.after_version = -1  # of the epoch that is gone, in which versions were further on
        elif server.epoch == self._server.epoch:
            self._server = ServerState(
                server.epoch,
                max(server.watermark, self._server.watermark),
                max(server.newest_version, self._server.newest_version),
            )

    def _forget(self) -> list[Action]:
        """Drops what the watermark covers. What an earlier epoch accepted is not covered before it was reported."""
        covered = [
            round_
            for round_, held in self._held.items()
            if held.accepted and held.epoch == self._server.epoch and held.included_in <= self._server.watermark
        ]
        for round_ in covered:
            del self._held[round_]
        return [events.Record(tuple(Forgotten(round_) for round_ in covered))] if covered else []

    # Decisions.

    def _next(self, now: float) -> list[Action]:
        if self._training is not None and (self._stopping or self._ended or self._participation.evicted):
            dropping, self._dropping = self._dropping, True
            return [] if dropping else [events.DropTraining()]
        if self._stopping:
            self._over = True
            return [events.Finish("stopped")]
        if self._finished():
            self._over = True
            return [events.Finish("ended")]
        if self._left():
            self._over = True
            return [events.Finish("left")]
        if self._has_done_all_that_the_evicted_may():
            return self._halt(
                "an operator has evicted this participant: it takes no part any more. All that was accepted from it "
                "stays in the model, and its ledger says what was spent; ask the operator"
            )
        actions: list[Action] = []
        while self._wants_to_train(now) and self._hopeless(now):
            actions.append(events.Skip(self.next_round))
            self._reports[self.next_round] = "skipped"
            self._spend(self.next_round)
        if self._call is None and now >= self._call_not_before:
            self._call = self._next_call(now)
            if self._call is not None:
                actions.append(self._call)
        if self._version is not None and self._wants_to_train(now) and self._allowed(now):
            self._training = self.next_round
            self._began = now
            self._begin_not_before = now + self._facts.round_seconds
            actions.append(events.Train(self.next_round, self._version))
        return actions

    def _finished(self) -> bool:
        if not self._ended or not self._joined or self._call is not None or self._training is not None:
            return False
        if self._unsettled():
            return False
        return self._end_is_certain or self._covered()

    def _left(self) -> bool:
        if not self._leaving or not self._joined or self._call is not None or self._participation.state != "left":
            return False
        return not self.waiting and self._due_report() is None and self._covered()

    def _has_done_all_that_the_evicted_may(self) -> bool:
        if not self._participation.evicted or not self._joined or self._call is not None or self._training is not None:
            return False
        return not self.waiting and self._due_report() is None and self._covered()

    def _covered(self) -> bool:
        """Says whether the newest checkpoint holds everything accepted, so that nothing will be asked for again."""
        return all(held.included_in <= self._server.newest_version for held in self._held.values() if held.accepted)

    def _next_call(self, now: float) -> Call | None:
        if not self._joined:
            return events.Join()
        if (report := self._due_report()) is not None:
            return report
        if not self._ended:
            if (round_ := self._oldest_sendable(now)) is not None:
                return events.Send(round_)
            if self._leaving and self._participation.state != "left" and not self.waiting:
                return events.Leave(self.next_round)
            if not self._leaving and self._wants_to_start():
                return events.Start(self.next_round)
            if self._wants_to_train(now) and not self._allowed(now):
                return events.AskParticipation()
            if self._must_ask or (now >= self._ask_at() and not self._wants_to_train(now)):
                return events.AskParticipation()
        return None

    def _ask_at(self) -> float:
        """Returns when to ask although nothing else is to be done.

        A server that restarted may want an update again, and may suspend us for it, while we wait for a version that
        waits for us.
        """
        if self._ended or not self._joined or self._version is None:
            return math.inf
        return max(self._version_at, self._heard_at) + self._facts.straggler_timeout_seconds / 2

    def _unsettled(self) -> list[int]:
        """Returns the rounds that an earlier epoch of the server accepted and the present one has not confirmed."""
        return [round_ for round_, held in self._held.items() if held.accepted and held.epoch < self._server.epoch]

    def _must_tell(self) -> bool:
        """Says whether the server was restored and does not know yet what is held here, and what nobody holds."""
        return self._told_epoch < self._server.epoch and not self._ended

    def _due_report(self) -> events.Report | None:
        reports = [RoundReport(round_, fate) for round_, fate in sorted(self._reports.items())][:MAX_REPORTS]
        room = MAX_REPORTS - len(reports)
        unsettled = self._unsettled()
        if not room or not (unsettled or self._must_tell()):
            return events.Report(tuple(reports)) if reports else None
        begin = self._told_below
        held = sorted(round_ for round_ in self._held if round_ >= begin or round_ in unsettled)
        end = held[room] if len(held) > room else self._largest_spent + 1
        reports += [RoundReport(round_, "held") for round_ in held[:room]]
        return events.Report(tuple(reports), (begin, end) if self._must_tell() else None)

    def _oldest_sendable(self, now: float) -> int | None:
        for round_ in sorted(self._held):
            held = self._held[round_]
            if not held.accepted and self._server.newest_version > held.after_version and now >= held.not_before:
                return round_
        return None

    def _wants_to_start(self) -> bool:
        """Also with nothing left to train: the others need a majority, or all, to publish what is still missing."""
        return (
            self._participation.state in ("observing", "left", "suspended")
            and not self._participation.evicted
            and self._version is not None
            and self._version >= self._server.newest_version
        )

    def _wants_to_train(self, now: float) -> bool:
        """Everything that must hold before a round is begun, except that the server may have to be asked."""
        participation = self._participation
        if self._ended or self._leaving or not self._joined or self._training is not None:
            return False
        if participation.state != "active":
            return False
        if self._version is None or now < self._begin_not_before or self._unsettled():
            return False
        round_ = self.next_round
        newest = max(self._version, self._server.newest_version)
        last = self._facts.final_version
        if participation.exit_round is not None:
            last = min(last, participation.exit_round)
        return (
            round_ < last
            and round_ not in self._spent
            and round_ < newest + self._facts.window
            and self._facts.delay.permits(self._version, round_)
        )

    def _allowed(self, now: float) -> bool:
        """Says whether privacy may be spent on the next round without asking the server first."""
        recent = now - self._version_at <= self._facts.straggler_timeout_seconds / 2
        return self._inside_window() and (recent or self._asked(now))

    def _hopeless(self, now: float) -> bool:
        """Says whether the next round is owed and its update would be too old to count: it is skipped, not spent."""
        return not self._inside_window() and self._asked(now)

    def _inside_window(self) -> bool:
        return self._server.newest_version <= self.next_round + self._facts.window

    def _asked(self, now: float) -> bool:
        """Says whether the server has told lately how it sees us, with nothing published since."""
        asked = self._permission
        return (
            asked is not None
            and asked.entry_round <= self.next_round
            and asked.newest_version == self._server.newest_version
            and now - asked.at <= self._facts.straggler_timeout_seconds / 2
        )

    def _spend(self, round_: int) -> None:
        self._spent.add(round_)
        self._largest_spent = max(self._largest_spent, round_)

    def _release_time(self, now: float) -> float:
        """Returns the tick of the public release clock on which a round that was sealed just now leaves."""
        interval = self._facts.release_interval_seconds
        if interval <= 0:
            return -math.inf
        due = max(now, self._began + FREE_SHARE * interval)
        return (math.floor(due / interval) + 1) * interval

    def _halt(self, reason: str) -> list[Action]:
        self._over = True
        return [events.Halt(reason, CONFLICT_EXIT)]
