"""One federation: ties admission, aggregation and membership into a single object that takes events.

Sans-I/O: no socket, clock, thread or file. Each event returns an `Outcome` with the answer and the records that must be
durable before it leaves. The owner (a server, a simulator, a sweep) after each event

1. hands `outcome.records` to its store, in order, and answers once they are durable;
2. calls `freeze()`; if that returns something, has `Frozen.aggregate.publish()` computed and written behind those
   records, and calls `published()` once that is durable;
3. calls `tick()` when `next_deadline()` has come.

Records and checkpoints must become durable in the order in which they were returned.
"""

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hushgrad.server import administration as administration_module
from hushgrad.server import admission, aggregation
from hushgrad.server import content as content_module
from hushgrad.server import membership as membership_module
from hushgrad.server import participant as participant_module
from hushgrad.server.administration import Administration
from hushgrad.server.admission import Decision, Standing
from hushgrad.server.aggregation import Aggregate, InOrder, Published
from hushgrad.server.content import ContentCheck, Finding, Measures
from hushgrad.server.membership import Membership, Participation, Refusal
from hushgrad.server.orders import Orders
from hushgrad.server.participant import Participant
from hushgrad.server.records import (
    MAX_REPORTS,
    Answer,
    Archive,
    Caller,
    DeclaredClaim,
    Disposition,
    History,
    ParticipantRecord,
    Receipt,
    Record,
    Snapshot,
    State,
    remembered_from,
)
from hushgrad.wire.terms import Terms

_FATES = {
    "skipped": (Disposition.SKIPPED, "reported by the participant"),
    "void": (Disposition.VOID, "reported by the participant"),
    "lost": (Disposition.LOST, "the server was restored from a backup without it, and nobody holds it any more"),
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """The answer to one event.

    Attributes:
        records: what must be durable before the answer leaves. Even when there are none, an answer that repeats or
            refuses by something known must wait until everything returned before is durable.
        participation: how the server sees the caller; None when it was refused as a caller.
        watermark: the retention watermark for the caller; None when it was refused as a caller.
        session, sequence, head: with Join.
        first_answer, included_in: with an update; see `Decision`.
        finding: with an update that has just been decided: why it is improbable.
    """

    answer: Answer
    detail: str = ""
    records: tuple[Record, ...] = ()
    participation: Participation | None = None
    watermark: int | None = None
    session: int = 0
    sequence: int = 0
    head: bytes = b""
    first_answer: Answer | None = None
    included_in: int = 0
    retry_after_milliseconds: int = 0
    finding: Finding | None = None


@dataclass(frozen=True, slots=True)
class Frozen:
    """What one checkpoint holds: array, set and membership, taken in one step.

    Attributes:
        previous: the version published before.
        aggregate: the frozen array; its `publish()` is pure and may run elsewhere.
        folded: (participant, round) of the updates that this version adds.
        participants: those whose records changed since the last checkpoint without an event of their own.
    """

    previous: int
    aggregate: aggregation.Frozen
    folded: tuple[tuple[str, int], ...]
    participants: tuple[ParticipantRecord, ...]


class Federation:
    """The state machine of one federation. See the module's docstring for the duties of its owner."""

    def __init__(
        self,
        terms: Terms,
        terms_digest: bytes,
        snapshot: Snapshot,
        archive: Archive,
        *,
        now: float,
        since_first_start: float = 0.0,
        backup_version: int | None = None,
        content: ContentCheck | None = None,
        restore_wait_seconds: float = 0.0,
        in_order: InOrder = aggregation.at_once,
        reuses_copies: bool = False,
    ) -> None:
        """Begins from a snapshot.

        Args:
            terms: the federation's terms.
            terms_digest: their digest, 32 bytes.
            snapshot: the last checkpoint and the receipts around it.
            archive: finds older receipts.
            now: seconds of the clock that all later calls use.
            since_first_start: seconds since a server first started on this state.
            backup_version: the version of the last verified backup; None when no backups are kept.
            content: says which updates no honest participant can have made; None: nobody asks.
            restore_wait_seconds: how long a restored server waits for everybody to say what they hold, before it makes
                the first version after the backup without them.
            in_order, reuses_copies: see `Aggregate`.
        """
        self._content = content
        self.terms = terms
        self.backup_version = backup_version
        self.administration = Administration(snapshot.acts)
        self._terms_digest = terms_digest
        self._archive = archive
        self._parameters = terms.parameters
        self._aggregate = Aggregate(
            snapshot.array,
            grid_exponent=terms.grid_exponent,
            step_exponent=terms.step_exponent,
            final_version=terms.final_version,
            average_sum=snapshot.average_sum,
            average_count=snapshot.average_count,
            in_order=in_order,
            reuses_copies=reuses_copies,
        )
        receipts: dict[str, list[Receipt]] = {}
        for receipt in snapshot.receipts:
            receipts.setdefault(receipt.participant, []).append(receipt)
        self._membership = Membership(
            terms,
            terms_digest,
            (
                participant_module.restore(
                    record,
                    receipts.get(record.name, ()),
                    snapshot.histories.get(record.name, History()),
                    version=snapshot.version,
                    final_version=membership_module.final_version(terms, self.administration),
                )
                for record in snapshot.participants
            ),
            newest=snapshot.version,
            now=now,
            since_first_start=since_first_start,
            restore_wait_seconds=restore_wait_seconds,
            administration=self.administration,
        )
        self.orders = Orders(terms, self._membership, lambda: bool(self._folded))
        self._remembered_from = self._first_remembered(snapshot.version)
        self._folded: list[tuple[str, int]] = []
        self._changed: set[str] = set()

    # What others may read

    @property
    def newest_version(self) -> int:
        """The newest published version."""
        return self._membership.newest

    @property
    def final_version(self) -> int:
        """The last version there will be: that of the terms, or an earlier one by order."""
        return self._membership.final_version

    @property
    def has_ended(self) -> bool:
        """Whether the final version is published."""
        return self._membership.has_ended

    @property
    def is_gathering(self) -> bool:
        """Whether version 1 (or the first that is published) is still open."""
        return self._membership.newest == 0

    @property
    def participants(self) -> Iterable[Participant]:
        """Everybody who has joined, ordered by name. To be read only."""
        return [participant for _, participant in sorted(self._membership.participants.items())]

    def view(self, participant: Participant) -> Participation:
        """Returns how the server sees a participant."""
        return self._membership.view(participant)

    def watermark(self, participant: Participant | None = None) -> int:
        """Returns the retention watermark for a participant, or the one that holds for all of them."""
        newest = self._membership.newest
        base = newest if self.backup_version is None else min(self.backup_version, newest)
        everybody = self._membership.participants.values() if participant is None else (participant,)
        return min((one.watermark(base, self.terms.window) for one in everybody), default=base)

    def waiting_for(self) -> str:
        """Returns one sentence: what the next version waits for. Empty when the federation has ended."""
        return self._membership.waiting_for()

    @property
    def holding_up(self) -> tuple[str, ...]:
        """Names of those whose owed rounds the next version lacks."""
        return self._membership.holding_up

    # Membership

    def join(self, caller: Caller, join_id: bytes) -> Outcome:
        """Opens a session."""
        is_new = caller.participant not in self._membership.participants
        if is_new and self.orders.is_draining and caller.terms_digest == self._terms_digest:
            return _waits_for_another_process()
        found = self._membership.join(caller, join_id)
        if isinstance(found, Refusal):
            return Outcome(found.answer, found.detail)
        participant, session = found
        return Outcome(
            Answer.RUN_ENDED if self.has_ended else Answer.ACCEPTED,
            self._evicted(participant),
            records=(participant.record(),),
            participation=self.view(participant),
            watermark=self.watermark(participant),
            session=session,
            sequence=participant.sequence,
            head=participant.head,
        )

    def start(self, caller: Caller, next_round: int, now: float, declared: DeclaredClaim | None = None) -> Outcome:
        """Makes the caller active, and keeps what it claims, for people to see. None: it says nothing about that."""
        participant = self._called(caller)
        if isinstance(participant, Outcome):
            return participant
        if participant.is_evicted:
            return Outcome(
                Answer.UNKNOWN_PARTICIPANT,
                self._evicted(participant),
                participation=self.view(participant),
                watermark=self.watermark(participant),
            )
        if self.orders.is_draining and participant.state is not State.ACTIVE:
            return _waits_for_another_process()
        changed = self._membership.start(participant, next_round, now)
        if declared is not None and declared != participant.declared:
            participant.declared = declared
            changed = True
        return self._answered(participant, changed)

    def observe(self, caller: Caller, exit_round: int, now: float) -> Outcome:
        """Lets the caller owe nothing from a round on."""
        return self._stop(caller, exit_round, State.OBSERVING, now)

    def leave(self, caller: Caller, exit_round: int, now: float) -> Outcome:
        """Lets the caller go."""
        return self._stop(caller, exit_round, State.LEFT, now)

    def participation(self, caller: Caller) -> Outcome:
        """Tells the caller how it is seen."""
        participant = self._called(caller)
        return participant if isinstance(participant, Outcome) else self._answered(participant, False)

    def check(self, caller: Caller) -> Outcome:
        """Tells whether terms, name and session are right, whether or not the federation has ended."""
        found = self._membership.check(caller)
        if isinstance(found, Refusal):
            return Outcome(found.answer, found.detail)
        return self._answered(found, False)

    def report(
        self,
        caller: Caller,
        reports: Sequence[tuple[int, str, bytes]],
        held_range: range | None = None,
        now: float = 0.0,
    ) -> Outcome:
        """Takes a participant's word on rounds: (round, "skipped" | "void" | "held", digest when held).

        Nothing changes when one of them contradicts what is known.

        Args:
            held_range: rounds of which `reports` names all that are held; the others can never be sent again, and those
                owed or wanted become LOST. None: nothing is said about the others.
            now: with held_range, the time.
        """
        participant = self._called(caller)
        if isinstance(participant, Outcome):
            return participant
        changes: dict[int, Receipt] = {}
        held: set[int] = set()
        wanted: set[int] = set()
        for round_, fate, digest in reports:
            if fate == "held":
                held.add(round_)
            known = participant.find(round_, self._remembered_from, self._archive)
            if fate == "held":
                if known is not None and known.digest is not None:
                    if known.digest != digest:
                        return self._contradiction(participant, round_, "is known with another digest")
                elif self._is_taken(round_):
                    wanted.add(round_)
            elif fate == "skipped" and known is not None and known.is_wanted:
                return self._contradiction(participant, round_, "is reported skipped, but a sealed update was received")
            elif self._can_settle(participant, round_, known, fate):
                changes.setdefault(round_, _settled(participant.name, round_, known, fate))
        told = held_range if held_range is not None else range(0)
        for round_ in sorted({*participant.open_rounds(told.stop), *participant.wanted}):
            if round_ in told and round_ not in held and round_ not in changes:
                changes[round_] = _settled(participant.name, round_, participant.receipts.get(round_), "lost")
        for receipt in changes.values():
            self._membership.put(participant, receipt)
        records: list[Record] = list(changes.values())
        if held_range is not None:
            self._membership.expect(participant, wanted)
            if participant.must_report and len(reports) < MAX_REPORTS:
                self._membership.heard(participant, now)
                records.append(participant.record())
        outcome = self._answered(participant, False)
        view = self.view(participant)
        listed = tuple(sorted(wanted.union(view.wanted_rounds)))
        return Outcome(
            outcome.answer,
            records=tuple(records),
            participation=dataclasses.replace(view, wanted_rounds=listed),
            watermark=outcome.watermark,
        )

    # Updates

    def submit(
        self,
        caller: Caller,
        header: bytes,
        digest: bytes,
        payload: bytes | memoryview,
        measures: Measures | None = None,
    ) -> Outcome:
        """Takes one update, in whole.

        Args:
            header: 192 bytes.
            digest: SHA-256(header || payload), 32 bytes, computed from what arrived.
            payload: the elements.
            measures: what `content.measure` says of them; None: it is asked here where it matters.
        """
        found = self._membership.check(caller)
        if isinstance(found, Refusal):
            return Outcome(found.answer, found.detail)
        defect = aggregation.defect(payload, self._parameters)
        finding = None
        if self._content is not None and defect is None:
            finding = self._content.finding(header, measures or content_module.measure(payload))
            if finding is not None and self._content.refuses:
                defect = finding.detail
        decision = self._admit(found, header, digest, defect, "" if finding is None else finding.detail)
        records: tuple[Record, ...] = ()
        if decision.receipt is not None:
            if decision.must_fold:
                self._aggregate.fold(payload, self.terms.step_numerator(decision.receipt.round))
                self._folded.append((found.name, decision.receipt.round))
            self._membership.put(found, decision.receipt)
            records = (decision.receipt,)
        elif decision.answer is Answer.DUPLICATE:
            found.duplicates += 1
            self._changed.add(found.name)
        return self._decided(found, decision, records, finding if records else None)

    def preview(self, caller: Caller, header: bytes, digest: bytes) -> Outcome:
        """Decides what can be decided before the payload has arrived. ACCEPTED means: send it; nothing has changed.

        A header that the terms refuse is refused for ever, here and now.
        """
        found = self._membership.check(caller)
        if isinstance(found, Refusal):
            return Outcome(found.answer, found.detail)
        decision = self._admit(found, header, digest, None)
        if decision.must_fold:
            return self._decided(found, Decision(Answer.ACCEPTED), ())
        records: tuple[Record, ...] = ()
        if decision.receipt is not None:
            self._membership.put(found, decision.receipt)
            records = (decision.receipt,)
        elif decision.answer is Answer.DUPLICATE:
            found.duplicates += 1
            self._changed.add(found.name)
        return self._decided(found, decision, records)

    def chunk_arrived(self, caller: Caller, now: float) -> None:
        """Notes that an upload makes progress: its sender is no straggler."""
        participant = self._membership.participants.get(caller.participant)
        if participant is not None:
            self._membership.chunk_arrived(participant, now)

    # Versions and time

    def freeze(self) -> Frozen | None:
        """Fixes the content of the next version when nothing is missing, one version at a time; else None."""
        if not self._membership.is_ready or self.orders.is_closing:
            return None
        previous = self._membership.newest
        version = self._membership.freeze()
        folded, self._folded = tuple(self._folded), []
        changed, self._changed = self._changed, set()
        records = tuple(self._membership.participants[name].record() for name in sorted(changed))
        return Frozen(previous, self._aggregate.freeze(version), folded, records)

    def published(self, published: Published, now: float) -> None:
        """Notes that the checkpoint of the frozen version is durable: from now on it is the newest one."""
        if published.version != self._membership.frozen:
            raise ValueError(f"expected version {self._membership.frozen}, found {published.version}")
        self._aggregate.published(published)
        self._membership.published(now)
        first = self._first_remembered(published.version)
        for participant in self._membership.participants.values():
            for round_ in range(max(self._remembered_from, 0), first):
                participant.forget(round_)
        self._remembered_from = first

    def next_deadline(self) -> float:
        """Returns when `tick` has something to do if nothing happens before; infinity when never."""
        return self._membership.next_deadline()

    def tick(self, now: float) -> tuple[Record, ...]:
        """Suspends stragglers; returns the records that must be durable before anything rests on them."""
        given_up = {participant.name for participant in self._membership.stop_collecting(now)}
        skipped = self._membership.tick(now)
        names = sorted({receipt.participant for receipt in skipped} | given_up)
        return (*skipped, *(self._membership.participants[name].record() for name in names))

    # Parts of the above

    def _first_remembered(self, version: int) -> int:
        return remembered_from(version, window=self.terms.window, publish_every=self.terms.publish_every)

    def _called(self, caller: Caller) -> Participant | Outcome:
        found = self._membership.check(caller)
        if isinstance(found, Refusal):
            return Outcome(found.answer, found.detail)
        if self.has_ended:
            return Outcome(
                Answer.RUN_ENDED,
                f"the final version, {self.final_version}, is published",
                participation=self.view(found),
                watermark=self.watermark(found),
            )
        return found

    def _answered(self, participant: Participant, changed: bool) -> Outcome:
        records = (participant.record(),) if changed else ()
        return Outcome(
            Answer.ACCEPTED,
            records=records,
            participation=self.view(participant),
            watermark=self.watermark(participant),
        )

    def _stop(self, caller: Caller, exit_round: int, state: State, now: float) -> Outcome:
        participant = self._called(caller)
        if isinstance(participant, Outcome):
            return participant
        return self._answered(participant, self._membership.stop(participant, exit_round, state, now))

    def _admit(
        self, participant: Participant, header: bytes, digest: bytes, payload_defect: str | None, note: str = ""
    ) -> Decision:
        membership = self._membership
        return admission.admit(
            header,
            digest,
            payload_defect,
            participant=participant,
            terms=self.terms,
            terms_digest=self._terms_digest,
            standing=Standing(
                membership.newest,
                membership.frozen,
                membership.following(membership.frozen),
                self._remembered_from,
                self.final_version,
                self.orders.is_closing,
            ),
            archive=self._archive,
            note=note,
        )

    def _decided(
        self,
        participant: Participant,
        decision: Decision,
        records: tuple[Record, ...],
        finding: Finding | None = None,
    ) -> Outcome:
        return Outcome(
            decision.answer,
            decision.detail,
            records,
            self.view(participant),
            self.watermark(participant),
            first_answer=decision.first_answer,
            included_in=decision.included_in,
            retry_after_milliseconds=decision.retry_after_milliseconds,
            finding=finding,
        )

    def _evicted(self, participant: Participant) -> str:
        act = self.administration.evicted.get(participant.name)
        if act is None:
            return ""
        reason = f" ({act.reason})" if act.reason else ""
        return (
            f"{participant.name} was evicted by {administration_module.said(act)}{reason}: it cannot start any more; "
            "what it has sealed is still taken inside the window"
        )

    def _is_taken(self, round_: int) -> bool:
        # Rounds beyond the window too: they are sent again once it has reached them.
        return self._membership.newest - self.terms.window <= round_ < self.terms.final_version

    def _can_settle(self, participant: Participant, round_: int, known: Receipt | None, fate: str) -> bool:
        if fate == "void" and known is not None and known.is_wanted:
            return True
        return (known is None or known.disposition is None) and participant.owes(round_)

    def _contradiction(self, participant: Participant, round_: int, what: str) -> Outcome:
        return Outcome(
            Answer.CONFLICT,
            f"round {round_} of {participant.name} {what}; two ledgers exist for one participant, or one was rolled "
            "back",
            participation=self.view(participant),
        )


def _waits_for_another_process() -> Outcome:
    return Outcome(
        Answer.BUSY,
        "an operator drains this server; try again once it has been started again",
        retry_after_milliseconds=1000,
    )


def _settled(name: str, round_: int, known: Receipt | None, fate: str) -> Receipt:
    known = known or Receipt(name, round_)
    disposition, reason = _FATES[fate]
    return Receipt(
        known.participant,
        known.round,
        known.digest,
        known.sequence,
        known.previous_head,
        known.head,
        disposition,
        reason,
    )
