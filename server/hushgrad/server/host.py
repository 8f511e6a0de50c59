"""Runs one federation on an event loop: what the cores decide is made durable, then answered, then published.

The only place where the federation, the store and the publisher meet. Every event is handed to the federation and its
records to the store in one step without awaiting, so that the order of decisions is the order of commits.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Any

from hushgrad.server.administration import Ruling
from hushgrad.server.aggregation import Published
from hushgrad.server.content import Measures
from hushgrad.server.counting import Counters
from hushgrad.server.federation import Federation, Outcome
from hushgrad.server.folding import Folding
from hushgrad.server.orders import Orders
from hushgrad.server.records import Answer, Caller, DeclaredClaim, Disposition, ParticipantRecord, Receipt, Score, Verb
from hushgrad.server.scoring import Scoreboard
from hushgrad.server.store import Store
from hushgrad.server.watch import Publisher

_REFUSED_AS_CALLER = frozenset((Answer.WRONG_TERMS, Answer.UNKNOWN_PARTICIPANT, Answer.STALE_SESSION))


class Host:
    """One federation, its store and its watchers."""

    def __init__(
        self,
        federation: Federation,
        store: Store,
        publisher: Publisher,
        log: Any,
        *,
        keep_sealed: bool,
        counters: Counters | None = None,
        folding: Folding | None = None,
        scores: tuple[Score, ...] = (),
    ) -> None:
        self.federation = federation
        self._store = store
        self._publisher = publisher
        self._log = log
        self._keep_sealed = keep_sealed
        self._folding = folding
        self._counters = counters or Counters()
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._published_at = self._loop.time()
        self.scoreboard = Scoreboard(scores)
        self.ended = asyncio.Event()
        self.drained = asyncio.Event()
        if federation.has_ended:
            self.ended.set()

    @property
    def published_at(self) -> float:
        """When the newest version was published, or this server started, in the loop's seconds."""
        return self._published_at

    def begin(self) -> None:
        """Does what may be due at once, after a restart for example."""
        self._publisher.set_watermark(self.federation.watermark())
        self.tell_end()
        self._advance()
        self._set_timer()

    # Events

    async def join(self, caller: Caller, join_id: bytes) -> Outcome:
        """Opens a session, durably."""
        outcome = self.federation.join(caller, join_id)
        if outcome.session:
            self._log.info("joined", participant=caller.participant, session=outcome.session)
        return await self._changed(outcome)

    async def start(self, caller: Caller, next_round: int, declared: DeclaredClaim | None = None) -> Outcome:
        """Makes the caller active, durably, and keeps what it claims, for people to see."""
        outcome = self.federation.start(caller, next_round, self._loop.time(), declared)
        if outcome.records and outcome.participation:
            self._log.info("started", participant=caller.participant, entry_round=outcome.participation.entry_round)
        return await self._changed(outcome)

    async def observe(self, caller: Caller, exit_round: int) -> Outcome:
        """Lets the caller owe nothing from a round on, durably."""
        return await self._changed(self.federation.observe(caller, exit_round, self._loop.time()))

    async def leave(self, caller: Caller, exit_round: int) -> Outcome:
        """Lets the caller go, durably."""
        outcome = self.federation.leave(caller, exit_round, self._loop.time())
        if outcome.records:
            self._log.info("left", participant=caller.participant)
        return await self._changed(outcome)

    async def participation(self, caller: Caller) -> Outcome:
        """Tells the caller how it is seen."""
        return await self._changed(self.federation.participation(caller))

    async def report(self, caller: Caller, reports: list[tuple[int, str, bytes]], held_range: range | None) -> Outcome:
        """Takes a participant's word on rounds, durably."""
        outcome = self.federation.report(caller, reports, held_range, self._loop.time())
        lost = [
            one.round for one in outcome.records if isinstance(one, Receipt) and one.disposition is Disposition.LOST
        ]
        if lost:
            self._log.warning("lost", participant=caller.participant, rounds=lost)
        return await self._changed(outcome)

    async def order(self, give: Callable[[Orders, float], Ruling]) -> Ruling:
        """Lets an operator give an order, durably.

        Args:
            give: gives it to the federation's orders, with the time.
        """
        ruling = give(self.federation.orders, self._loop.time())
        act = ruling.act
        committed = self._store.write(ruling.records)
        if act is not None and ruling.records:
            self._log.info(
                "ordered",
                verb=act.verb.value,
                who=act.who,
                changed=act.changed,
                **({"participant": act.participant} if act.participant else {}),
                **({"final_version": act.final_version} if act.final_version is not None else {}),
                **({"reason": act.reason} if act.reason else {}),
            )
            if act.verb is Verb.END:
                committed.add_done_callback(self._end_is_durable)
            self._advance()
            self._set_timer()
        await asyncio.shield(committed)
        self._look_at_drain()
        return ruling

    async def barrier(self) -> None:
        """Waits until everything decided before is durable."""
        await asyncio.shield(self._store.barrier())

    async def submit(
        self,
        caller: Caller,
        header: bytes,
        digest: bytes,
        payload: bytes | memoryview,
        measures: Measures | None = None,
    ) -> Outcome:
        """Takes one update; returns when its fate is durable."""
        began = time.perf_counter()
        outcome = self.federation.submit(caller, header, digest, payload, measures)
        if outcome.finding is not None:
            self._log.warning(
                "improbable_update",
                participant=caller.participant,
                round=next(one.round for one in outcome.records if isinstance(one, Receipt)),
                statistic=outcome.finding.statistic,
                answer=outcome.answer.name,
            )
        if self._keep_sealed and outcome.answer is Answer.ACCEPTED:
            self._keep(outcome.records[0], header, payload)
        await self._durable(outcome)
        self._counters.updated(caller.participant, outcome.answer, time.perf_counter() - began, self._loop.time())
        return outcome

    async def settled(self) -> None:
        """Returns when no payload of an update that was submitted before is read any more."""
        if self._folding is not None:
            await self._folding.done()
        if self._keep_sealed:
            await self._store.barrier()

    async def preview(self, caller: Caller, header: bytes, digest: bytes) -> Outcome:
        """Decides what can be decided before the payload has arrived."""
        return await self._durable(self.federation.preview(caller, header, digest))

    async def scored(self, score: Score) -> None:
        """Keeps an evaluator's score, durably, for people to see."""
        await self._store.do(lambda database: database.write_score(score))
        self.scoreboard.put(score)

    def check(self, caller: Caller) -> Outcome:
        """Tells whether terms, name and session are right."""
        return self.federation.check(caller)

    def backed_up(self, version: int) -> bool:
        """Notes a verified backup of a version; says whether it is newer than the one before."""
        if version <= (self.federation.backup_version or 0):
            return False
        self.federation.backup_version = version
        self._publisher.set_watermark(self.federation.watermark())
        return True

    def chunk_arrived(self, caller: Caller) -> None:
        """Notes that an upload makes progress."""
        self.federation.chunk_arrived(caller, self._loop.time())

    # Durability, versions, time

    def _keep(self, record: object, header: bytes, payload: bytes | memoryview) -> None:
        if isinstance(record, Receipt):
            name, round_ = record.participant, record.round
            self._store.do(lambda database: database.write_sealed(name, round_, header, payload))

    async def _changed(self, outcome: Outcome) -> Outcome:
        self._counters.answers[outcome.answer] += 1
        if outcome.records:
            self._set_timer()
        return await self._durable(outcome)

    async def _durable(self, outcome: Outcome) -> Outcome:
        if outcome.answer in _REFUSED_AS_CALLER and outcome.participation is None:
            return outcome
        committed = self._store.write(outcome.records)
        if outcome.records:
            self._advance()
        # The caller's deadline ends its waiting, never the commit.
        await asyncio.shield(committed)
        return outcome

    def _advance(self) -> None:
        frozen = self.federation.freeze()
        if frozen is not None:
            self._counters.folds += len(frozen.folded)
            self._store.checkpoint(frozen).add_done_callback(self._published)

    def _published(self, checkpoint: asyncio.Future[Published]) -> None:
        if checkpoint.cancelled() or checkpoint.exception() is not None:
            return
        published = checkpoint.result()
        now = self._loop.time()
        self.federation.published(published, now)
        self._publisher.publish(published, published.averaged_sha256, self.federation.watermark())
        self._log.info("published", version=published.version, seconds=round(now - self._published_at, 4))
        self._counters.versions += 1
        self._counters.version_seconds.observe(now - self._published_at)
        self._published_at = now
        self._look_at_end()
        self._advance()
        self._set_timer()
        self._look_at_drain()

    def _end_is_durable(self, committed: asyncio.Future[None]) -> None:
        if not committed.cancelled() and committed.exception() is None:
            self.tell_end()
            self._look_at_end()

    def tell_end(self) -> None:
        """Lets watchers know which version is the last one, when an operator has said so."""
        act = self.federation.administration.ended_by
        if act is not None:
            reason = f" ({act.reason})" if act.reason else ""
            version = self.federation.final_version
            self._publisher.end_with(version, f"an operator ended the federation with version {version}{reason}")

    def _look_at_end(self) -> None:
        if self.federation.has_ended and not self.ended.is_set():
            self._log.info("ended", final_version=self.federation.final_version)
            self.ended.set()

    def _look_at_drain(self) -> None:
        if self.federation.orders.may_stop():
            self.drained.set()

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        deadline = self.federation.next_deadline()
        if deadline < float("inf"):
            self._timer = self._loop.call_at(deadline, self._tick)

    def _tick(self) -> None:
        self._timer = None
        records = self.federation.tick(self._loop.time())
        if records:
            self._store.write(records)
            late = {record.participant for record in records if isinstance(record, Receipt)}
            for record in records:
                if isinstance(record, ParticipantRecord):
                    self._counters.suspensions += record.name in late
                    what = "suspended" if record.name in late else "not_heard_since_restore"
                    self._log.warning(what, participant=record.name, suspensions=record.suspensions)
        self._advance()
        self._set_timer()
        self._look_at_drain()
