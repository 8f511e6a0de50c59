"""The server as a process: the real federation core, and around it what `host`, `store` and `watch` do.

The shell below is a second, small implementation of those three, under the same rules: records go to the store in the
order of decisions, many jobs per commit, and nothing is answered or published before it is synced.
"""

from collections.abc import Callable
from typing import Any

from hushgrad.client.messages import Participation, ServerState, Verdict
from hushgrad.server.administration import Ruling
from hushgrad.server.federation import Federation, Frozen, Outcome
from hushgrad.server.orders import Orders
from hushgrad.server.records import Answer, Caller, Receipt, State

from tests.faults.simulator.oracle import Oracle
from tests.faults.simulator.stores import Operation, ServerStore
from tests.faults.simulator.world import FAR, World

MAX_BATCH = 64
HEARTBEAT_SECONDS = 5.0
RESTORE_WAIT_SECONDS = 20.0
RECONNECT_SECONDS = 1.0
"""gRPC tries so often to reach a server that is gone; see the channel's options."""
_REFUSED_AS_CALLER = frozenset((Answer.WRONG_TERMS, Answer.UNKNOWN_PARTICIPANT, Answer.STALE_SESSION))
_NAMES = {answer: answer.name for answer in Answer}
_STATES = {state: state.name.lower() for state in State}

Job = tuple[tuple[Operation, ...], Frozen | None, Callable[..., None], tuple[Any, ...]]


class Server:
    """One server: its disk, and the process on it, if there is one.

    Attributes:
        is_up: whether a process runs.
        store: what is on disk.
        federation: the core of the running process.
        booted_at: when the running process began.
        generation: rises with every process; what was meant for an earlier one is dropped.
    """

    def __init__(self, world: World, oracle: Oracle) -> None:
        self.world = world
        self.oracle = oracle
        self.terms = world.plan.terms
        self.store = ServerStore(self.terms)
        self.is_up = False
        self.generation = 0
        self.backups = [self.store.image()]
        self.on_restore: Callable[[], None] = _nothing
        self._seconds_after_drain = 0.0
        self.first_start = world.now
        self.boot()

    # Life and death

    def boot(self) -> None:
        """Starts a process on what the disk holds."""
        if self.is_up:
            return
        self.is_up = True
        self.generation += 1
        store, now = self.store, self.world.now
        self.booted_at = now
        self.federation = Federation(
            self.terms,
            self.world.plan.terms_digest,
            store.snapshot(self.terms),
            store,
            now=now,
            since_first_start=now - self.first_start,
            backup_version=store.backup_version if self.world.plan.keeps_backups else None,
            restore_wait_seconds=RESTORE_WAIT_SECONDS,
        )
        self._jobs: list[Job] = []
        # On the real server's disk, and emptied when it starts, because its tail may be torn.
        self._spool: dict[tuple[str, bytes], int] = {}
        self._is_storing = False
        self._is_stopping = False
        self._final_version = store.durable_final_version
        self._timer_at = FAR
        self._watchers: dict[Any, list[float]] = {}
        self._see_state()
        self.oracle.booted(self)
        self.world.say(f"server serves version {store.last.version}, epoch {store.epoch}")
        self.world.after(HEARTBEAT_SECONDS, self._heartbeat, self.generation)
        self._advance()
        self._set_timer()
        for one in self.oracle.participants.values():
            for process in one.processes:
                if process.is_up:
                    self.world.after(RECONNECT_SECONDS * self.world.chance.random(), self._let_in, process)

    def _let_in(self, process: Any) -> None:
        if self.is_up and not self.world.has_trouble(process.name, self.world.now, self.world.now):
            process.connected()

    def crash(self, seconds: float) -> None:
        """Dies; the disk loses what was not synced; another process starts later."""
        self.is_up = False
        self.store.crash(self.world.chance)
        self.oracle.crashed(self)
        self._break_streams()
        self.world.until(self.world.now + seconds)
        self.world.after(seconds, self.boot)

    def drain(self, seconds: float) -> None:
        """Stops in an orderly way and starts again later."""
        if not self.is_up:
            return
        self.world.say("server drains")
        for process in self._watchers:
            self.world.send(process.name, False, process.told_to_go_away, process.stream, self.state)
        while self._jobs:
            self._store(self.generation)
        self.crash(seconds)

    def backup(self, fails: str) -> None:
        """Copies what is durable; the watermark rises to it where backups are kept."""
        if fails:
            self.world.counts[f"backup fails {fails}"] += 1
        if not self.is_up or fails == "before it replaces the one before":
            return
        if self.world.plan.keeps_backups:
            # The copy is whole before the watermark rests on it.
            self.backups = [self.store.image()]
            version = self.store.last.version
            if fails:
                return
            if self.store.synced == len(self.store.transactions):
                self._enqueue((("backup", version),), None, self._backed_up, version)
        else:
            self.backups.append(self.store.image())

    def _backed_up(self, version: int) -> None:
        self.federation.backup_version = version
        self._see_state()

    def restore(self, seconds: float) -> None:
        """Loses the disk and begins again from a backup, in a new epoch."""
        if not self.is_up or self.federation.has_ended or self.oracle.frozen_version >= self.oracle.final_version:
            return
        may_begin_anew = self.terms.start_timeout_seconds and not self.world.plan.orders
        backups = [image for image in self.backups if may_begin_anew or _has_version(image)]
        if not backups:
            # From the very beginning all would have to start again, and some may be gone for good, or were evicted and
            # have no name yet that could be evicted again.
            return
        image = self.world.chance.choice(backups)
        epoch = self.store.epoch + 1
        self.crash(seconds)
        self.store = ServerStore(self.terms, image)
        version = self.store.last.version
        self.store.transact((("epoch", epoch), ("backup", version)))
        self.store.sync()
        self.backups = [image]
        self.oracle.restored(self, version)
        self.on_restore()
        self.world.counts["restore of a backup"] += 1
        self.world.say(f"server is restored to version {version}, epoch {epoch}")

    # Orders

    def restarts_after_drain(self, seconds: float) -> None:
        """Somebody is about to order a drain, and starts the server again so many seconds after it."""
        self._seconds_after_drain = seconds

    def order(self, give: Callable[[Orders, float], Ruling], answers: list[Answer]) -> None:
        """Takes an order; its answer is put into a list once it is durable, or never."""
        if not self.is_up:
            return
        ruling = give(self.federation.orders, self.world.now)
        act = ruling.act
        self.world.say(f"operator: {'' if act is None else act.verb.value}: {ruling.answer.name} {ruling.detail}")
        self.oracle.ordered(self, ruling)
        written = (("write", ruling.records),) if ruling.records else ()
        self._enqueue(written, None, self._ordered, ruling, answers)
        if ruling.records:
            self._advance()
            self._set_timer()

    def _ordered(self, ruling: Ruling, answers: list[Answer]) -> None:
        answers.append(ruling.answer)
        self._final_version = self.store.durable_final_version
        for process in self._watchers:
            self._tell(process)
        self._look_at_drain()

    def _look_at_drain(self) -> None:
        if self.federation.orders.may_stop() and not self._is_stopping:
            self._is_stopping = True
            self.world.after(0.01, self._stop_after_drain, self.generation)

    def _stop_after_drain(self, generation: int) -> None:
        if self.is_up and generation == self.generation:
            self.oracle.drained(self)
            self.drain(self._seconds_after_drain)

    # Calls

    def receive(self, process: Any, call: int, session: int, method: str, args: tuple[Any, ...]) -> None:
        """Takes one call."""
        if not self.is_up:
            self.world.after(0.01, process.refused, call)
            return
        name = process.name
        caller = Caller(self.world.plan.terms_digest, name, session)
        federation = self.federation
        oracle = self.oracle
        now = self.world.now
        if method == "submit":
            oracle.arriving(self, name, args[0], args[3])
            outcome = federation.submit(caller, args[1], args[3], args[2])
            oracle.arrived(name, args[0], args[3], args[2], outcome)
        elif method == "upload":
            took = self._take_piece(process, call, caller, args)
            if took is None:
                return
            outcome, method = took, "submit"
        elif method == "join":
            outcome = federation.join(caller, args[0])
            oracle.joined(self, process)
        elif method == "start":
            oracle.starting(self, name)
            outcome = federation.start(caller, args[0], now)
        elif method == "leave":
            oracle.leaving(self, name)
            outcome = federation.leave(caller, args[0], now)
        elif method == "ask":
            outcome = federation.participation(caller)
        else:
            outcome = federation.report(caller, args[0], args[1], now)
        if self.world.trace is not None:
            self.world.say(f"server: {method} of {name} ({_show(args)}): {outcome.answer.name} {outcome.detail}")
        if outcome.answer in _REFUSED_AS_CALLER:
            self._reply(process, call, method, args, outcome)
            return
        records = outcome.records
        written = (("write", records),) if records else ()
        self._enqueue(written, None, self._reply, process, call, method, args, outcome)
        if records:
            self._advance()
            self._set_timer()

    def _take_piece(self, process: Any, call: int, caller: Caller, args: tuple[Any, ...]) -> Outcome | None:
        """Takes one piece of an upload; returns the fate of the update once it is known."""
        round_, packed, payload, digest, piece = args
        key = (caller.participant, digest)
        if key not in self._spool:
            self.oracle.arriving(self, caller.participant, round_, digest)
            outcome = self.federation.preview(caller, packed, digest)
            if outcome.answer is not Answer.ACCEPTED:
                self.oracle.arrived(caller.participant, round_, digest, payload, outcome)
                return outcome
            self._spool[key] = 0
        self.federation.chunk_arrived(caller, self.world.now)
        self._spool[key] += piece == self._spool[key]
        if self._spool[key] < self.world.plan.pieces:
            self.world.send(caller.participant, False, process.piece_taken, call, self._spool[key])
            return None
        del self._spool[key]
        self.world.counts["update uploaded in pieces"] += 1
        self.oracle.arriving(self, caller.participant, round_, digest)
        outcome = self.federation.submit(caller, packed, digest, payload)
        self.oracle.arrived(caller.participant, round_, digest, payload, outcome)
        return outcome

    def _reply(self, process: Any, call: int, method: str, args: tuple[Any, ...], outcome: Outcome) -> None:
        if method == "submit":
            self.oracle.answering(self, process.name, args[0], args[3], outcome)
        view = outcome.participation
        participation = (
            Participation("unspecified")
            if view is None
            else Participation(
                _STATES[view.state],  # type: ignore[arg-type]
                view.entry_round,
                view.exit_round,
                view.wanted_rounds,
                view.evicted,
            )
        )
        state = self.state
        if outcome.watermark is not None:
            state = ServerState(state.epoch, outcome.watermark, state.newest_version)
        verdict = Verdict(
            _NAMES[outcome.answer],
            state,
            outcome.detail,
            outcome.retry_after_milliseconds / 1000,  # type: ignore[arg-type]
        )
        first = "UNSPECIFIED" if outcome.first_answer is None else _NAMES[outcome.first_answer]
        answer = (verdict, participation, outcome.session, outcome.sequence, outcome.head, first, outcome.included_in)
        if not self.world.send(process.name, False, process.answered, call, answer):
            self.world.after(0.5, process.refused, call)
        self.world.point(self, "server", "answer sent")

    # The store thread

    def _enqueue(
        self, operations: tuple[Operation, ...], frozen: Frozen | None, then: Callable[..., None], *args: Any
    ) -> None:
        self._jobs.append((operations, frozen, then, args))
        if not self._is_storing:
            self._is_storing = True
            self.world.after(0.0005 + 0.006 * self.world.chance.random(), self._store, self.generation)

    def _store(self, generation: int) -> None:
        if generation != self.generation or not self.is_up:
            return
        batch, self._jobs = self._jobs[:MAX_BATCH], self._jobs[MAX_BATCH:]
        operations: list[Operation] = []
        what = "receipts"
        for written, frozen, _, _ in batch:
            operations += written
            if frozen is not None:
                what = "checkpoint"
                operations.append(_checkpoint(frozen))
        self.world.point(self, "server", f"{what} before commit")
        if operations:
            self.store.transact(tuple(operations))
            self.world.point(self, "server", f"{what} written")
            self.store.sync()
            self.world.point(self, "server", f"{what} synced")
        for _, _, then, args in batch:
            then(*args)
        if self._jobs:
            self.world.after(0.0005 + 0.006 * self.world.chance.random(), self._store, self.generation)
        else:
            self._is_storing = False

    # Versions and time

    def _advance(self) -> None:
        frozen = self.federation.freeze()
        if frozen is not None:
            self.oracle.frozen(self, frozen)
            self._enqueue((), frozen, self._published)

    def _published(self) -> None:
        published = self.store.last
        self.federation.published(published, self.world.now)
        self._see_state()
        self.oracle.published(self, published)
        self.world.say(f"server publishes version {published.version}")
        for process in self._watchers:
            self._tell(process)
        self.world.point(self, "server", "version published")
        self._advance()
        self._set_timer()
        self._look_at_drain()

    def _set_timer(self) -> None:
        deadline = self.federation.next_deadline()
        if deadline < self._timer_at:
            self._timer_at = deadline
            self.world.after(max(0.0, deadline - self.world.now), self._tick, self.generation, deadline)

    def _tick(self, generation: int, deadline: float) -> None:
        if generation != self.generation or not self.is_up or deadline != self._timer_at:
            return
        self._timer_at = FAR
        before = self.oracle.waited_for(self)
        records = self.federation.tick(self.world.now)
        self.oracle.suspended(self, before, records)
        if records:
            self._enqueue((("write", records),), None, _nothing)
            if self.world.trace is not None:
                names = {record.name for record in records if not isinstance(record, Receipt)}
                self.world.say(f"server suspends {', '.join(sorted(names))}")
        self._advance()
        self._set_timer()
        self._look_at_drain()

    def _see_state(self) -> None:
        federation = self.federation
        self.state = ServerState(self.store.epoch, federation.watermark(), federation.newest_version)

    # Watchers

    def watch(self, process: Any, stream: int, after_version: int) -> None:
        """Takes one watch."""
        if not self.is_up:
            self.world.after(0.01, process.watch_broken, stream)
            return
        # The version sent last, and when the last message arrives: a stream keeps its order.
        self._watchers[process] = [after_version, 0.0]
        self._tell(process)

    def _tell(self, process: Any) -> None:
        watcher = self._watchers[process]
        if self.state.newest_version > watcher[0]:
            watcher[0] = self.state.newest_version
            self._push(process, watcher, process.version_arrived, process.stream, self.state, self.store.last)
        if self.state.newest_version >= self._final_version:
            self._push(process, watcher, process.run_ended, process.stream, self.state)

    def _push(self, process: Any, watcher: list[float], deliver: Callable[..., None], *args: Any) -> None:
        arrival = self.world.stream(process.name, watcher[1], deliver, *args)
        if arrival < 0:
            self.world.after(0.5 + self.world.chance.random(), process.watch_broken, process.stream)
        else:
            watcher[1] = arrival

    def _heartbeat(self, generation: int) -> None:
        if generation != self.generation or not self.is_up:
            return
        for process, watcher in self._watchers.items():
            self._push(process, watcher, process.state_seen, process.stream, self.state)
        self.world.after(HEARTBEAT_SECONDS, self._heartbeat, generation)

    def _break_streams(self) -> None:
        for one in self.oracle.participants.values():
            for process in one.processes:
                if process.is_up:
                    self.world.after(0.03 * self.world.chance.random(), process.connection_broken)


def _checkpoint(frozen: Frozen) -> Operation:
    return ("checkpoint", frozen.aggregate.publish(), frozen.folded, frozen.participants)


def _has_version(image: list[tuple[Operation, ...]]) -> bool:
    return any(operation[0] == "checkpoint" for transaction in image for operation in transaction)


def _nothing() -> None:
    pass


def _show(args: tuple[Any, ...]) -> str:
    return ", ".join(arg.hex()[:8] if isinstance(arg, bytes) else str(arg) for arg in args)
