"""One participant as the server sees it: which rounds it owes, which of them are settled, and its remembered receipts.

Knows nothing of the others, of versions, or of time other than as numbers it is given.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from hushgrad.server.records import Archive, DeclaredClaim, Disposition, History, ParticipantRecord, Receipt, State

REMEMBERED_JOINS = 16
"""So many join ids are kept: a Join that the network delayed gets its old session again and fences nobody."""


class Interval:
    """The owed rounds [entry, exit), and which of them have a disposition.

    Invariant: every round in [entry, below) is settled, `below` is not, and `ahead` holds the settled ones above it.
    """

    __slots__ = ("ahead", "below", "entry", "exit")

    def __init__(self, entry: int, exit_: int, settled: Iterable[int] = ()) -> None:
        self.entry = entry
        self.exit = max(exit_, entry)
        self.below = entry
        self.ahead = {round_ for round_ in settled if entry <= round_ < self.exit}
        self._advance()

    def _advance(self) -> None:
        while self.below in self.ahead:
            self.ahead.discard(self.below)
            self.below += 1

    @property
    def is_settled(self) -> bool:
        """Whether every owed round has a disposition."""
        return self.below >= self.exit

    def is_open(self, round_: int) -> bool:
        """Whether the round is owed and has no disposition."""
        return self.below <= round_ < self.exit and round_ not in self.ahead

    def settle(self, round_: int) -> None:
        """Notes that the round has a disposition. Rounds that are not owed are ignored."""
        if self.is_open(round_):
            self.ahead.add(round_)
            self._advance()

    def skip_to(self, round_: int) -> None:
        """Notes that every round below this one has a disposition."""
        if round_ > self.below:
            self.below = min(round_, self.exit)
            self.ahead = {other for other in self.ahead if other >= self.below}
            self._advance()

    def close(self, exit_: int) -> None:
        """Lets no round >= exit be owed."""
        self.exit = max(min(self.exit, exit_), self.entry)
        self.below = min(self.below, self.exit)
        self.ahead = {round_ for round_ in self.ahead if round_ < self.exit}

    def open_rounds(self, end: int) -> list[int]:
        """Returns the owed rounds below `end` that have no disposition, in order."""
        return [round_ for round_ in range(self.below, min(self.exit, end)) if round_ not in self.ahead]


@dataclass(slots=True)
class Participant:
    """Everything that memory holds of one participant.

    Attributes:
        name: its name.
        final_version: no round at or above it is ever owed.
        state: see State.
        session: the newest session given; 0 before the first.
        joins: the latest join ids and the sessions they got, oldest first.
        intervals: owed rounds; the last one belongs to the latest Start, earlier ones are kept until they are settled.
        suspensions: how often it was suspended.
        receipts: by round; complete for all rounds that memory covers.
        rows: the receipts in `receipts` by ledger sequence.
        wanted: the rounds whose sealed bytes the server wants again.
        expected: the rounds that it holds, has reported so, and the server takes: waited for like owed ones.
        must_report: the server was restored, and it has not said yet what it holds.
        is_evicted: an operator has decided that it takes no part any more.
        reopened: rounds whose update may have been promised for an earlier version than the one that holds it, because
            the server restarted in between.
        forgotten_sequence: the highest ledger row among the receipts that memory does not hold.
        sequence, head: the highest ledger row seen.
        declared: the claim that it declared last, for people; None: it declared none.
        started_at, chunk_at: when it last started, and when the last piece of an upload came, in the caller's seconds.
    """

    name: str
    final_version: int
    state: State = State.OBSERVING
    session: int = 0
    joins: dict[bytes, int] = field(default_factory=dict)
    intervals: list[Interval] = field(default_factory=list)
    suspensions: int = 0
    receipts: dict[int, Receipt] = field(default_factory=dict)
    rows: dict[int, Receipt] = field(default_factory=dict)
    wanted: set[int] = field(default_factory=set)
    reopened: set[int] = field(default_factory=set)
    expected: set[int] = field(default_factory=set)
    must_report: bool = False
    is_evicted: bool = False
    forgotten_sequence: int = 0
    sequence: int = 0
    head: bytes = b""
    declared: DeclaredClaim | None = None
    started_at: float = float("-inf")
    chunk_at: float = float("-inf")
    accepted: int = 0
    duplicates: int = 0
    invalid: int = 0
    without_update: int = 0
    lost: int = 0
    flagged: int = 0
    rounds_received: int = 0

    @property
    def entry_round(self) -> int:
        """The first round owed since the latest Start; 0 before the first."""
        return self.intervals[-1].entry if self.intervals else 0

    @property
    def exit_round(self) -> int | None:
        """The first round not owed any more; None while every round up to the final version is."""
        if not self.intervals:
            return 0
        return None if self.state is State.ACTIVE else self.intervals[-1].exit

    @property
    def next_owed_round(self) -> int:
        """The lowest owed round without a disposition; the exit when there is none."""
        for interval in self.intervals:
            if not interval.is_settled:
                return interval.below
        return self.intervals[-1].exit if self.intervals else 0

    def owes(self, round_: int) -> bool:
        """Whether the round is owed and has no disposition."""
        return any(interval.is_open(round_) for interval in self.intervals)

    def owes_below(self, end: int) -> bool:
        """Whether an owed round below `end` has no disposition, or an expected one has not come."""
        return any(interval.below < min(interval.exit, end) for interval in self.intervals) or any(
            round_ < end for round_ in self.expected
        )

    def open_rounds(self, end: int) -> list[int]:
        """Returns the owed rounds below `end` that have no disposition, in order."""
        return [round_ for interval in self.intervals for round_ in interval.open_rounds(end)]

    def counts_for(self, version: int) -> bool:
        """Whether it has started, is not suspended, and takes part up to `version`."""
        if not self.intervals or self.is_evicted or self.state is State.SUSPENDED:
            return False
        return self.state is State.ACTIVE or self.intervals[-1].exit >= version

    def is_in_base(self, version: int) -> bool:
        """Whether the majority for `version` is taken over a set that holds it: started, and not gone by itself."""
        return (self.state is State.SUSPENDED and not self.is_evicted) or self.counts_for(version)

    def begin(self, entry: int, now: float) -> None:
        """Starts owing rounds from `entry` on. Rounds of earlier intervals at or above it go over to the new one."""
        for interval in self.intervals:
            interval.close(entry)
        self.intervals = [interval for interval in self.intervals if not interval.is_settled]
        settled = (round_ for round_, receipt in self.receipts.items() if receipt.disposition is not None)
        self.intervals.append(Interval(entry, self.final_version, settled))
        self.state = State.ACTIVE
        self.started_at = now

    def close(self, exit_: int) -> None:
        """Owes no round at or above `exit_`. Earlier exits stand."""
        for interval in self.intervals:
            interval.close(exit_)

    def find(self, round_: int, remembered_from: int, archive: Archive) -> Receipt | None:
        """Returns the receipt of a round, from memory or, for old rounds, from the archive."""
        receipt = self.receipts.get(round_)
        if receipt is None and 0 <= round_ < remembered_from:
            return archive.find(self.name, round_)
        return receipt

    def find_row(self, sequence: int, archive: Archive) -> Receipt | None:
        """Returns the receipt with this ledger sequence, from memory or, for old rows, from the archive."""
        receipt = self.rows.get(sequence)
        if receipt is None and 1 <= sequence <= self.forgotten_sequence:
            return archive.find_row(self.name, sequence)
        return receipt

    def put(self, receipt: Receipt) -> None:
        """Takes a new or changed receipt, settles its round when it has a disposition, and keeps count."""
        before = self.receipts.get(receipt.round)
        self._count(before, -1)
        self._count(receipt, 1)
        self.remember(receipt)
        if receipt.disposition is not None:
            self.expected.discard(receipt.round)
            for interval in self.intervals:
                interval.settle(receipt.round)

    def remember(self, receipt: Receipt) -> None:
        """Keeps a receipt in memory."""
        self.receipts[receipt.round] = receipt
        if receipt.is_wanted:
            self.wanted.add(receipt.round)
        else:
            self.wanted.discard(receipt.round)
        if receipt.sequence is not None:
            self.rows[receipt.sequence] = receipt
            if receipt.sequence > self.sequence:
                self.sequence, self.head = receipt.sequence, receipt.head
        if receipt.digest is not None:
            self.rounds_received = max(self.rounds_received, receipt.round + 1)

    def forget(self, round_: int) -> None:
        """Drops the receipt of a round from memory, unless its content is missing or the watermark waits for it."""
        receipt = self.receipts.get(round_)
        if receipt is None or receipt.lacks_content or round_ in self.reopened:
            return
        del self.receipts[round_]
        if receipt.sequence is not None:
            self.rows.pop(receipt.sequence, None)
            self.forgotten_sequence = max(self.forgotten_sequence, receipt.sequence)

    def watermark(self, base: int, window: int) -> int:
        """Returns the version up to which this participant may drop sealed bytes.

        The outbox goes by the version that was promised, and a crash breaks promises: an update promised for v_5 may
        come again after v_8, or never. So its round holds the watermark back until a checkpoint has it. Round i is only
        taken from version i - W + 1 on, and promised for a later one.

        Args:
            base: the version up to which nothing in a checkpoint can be lost any more.
            window: W of the terms.
        """
        self.reopened = {round_ for round_ in self.reopened if not self._is_settled_for_ever(round_, base)}
        return max(0, min([base, *(round_ - window + 1 for round_ in self.reopened)]))

    def _is_settled_for_ever(self, round_: int, base: int) -> bool:
        receipt = self.receipts.get(round_)
        if receipt is None or receipt.disposition in (Disposition.INVALID, Disposition.VOID, Disposition.LOST):
            return True
        return receipt.included_in is not None and receipt.included_in <= base

    def _count(self, receipt: Receipt | None, by: int) -> None:
        if receipt is None:
            return
        if receipt.disposition is Disposition.INVALID:
            self.invalid += by
        elif receipt.disposition is None or receipt.disposition is Disposition.INCLUDED:
            self.accepted += by
            self.flagged += by if receipt.is_flagged else 0
        else:
            self.without_update += by
            self.lost += by if receipt.disposition is Disposition.LOST else 0

    def record(self) -> ParticipantRecord:
        """Returns what has to survive a crash."""
        last = len(self.intervals) - 1
        return ParticipantRecord(
            name=self.name,
            state=self.state,
            session=self.session,
            joins=tuple(self.joins.items()),
            intervals=tuple(
                (interval.entry, None if at == last and self.state is State.ACTIVE else interval.exit)
                for at, interval in enumerate(self.intervals)
                if at == last or not interval.is_settled
            ),
            suspensions=self.suspensions,
            duplicates=self.duplicates,
            must_report=self.must_report,
            declared=self.declared,
        )


def restore(
    record: ParticipantRecord, receipts: Iterable[Receipt], history: History, *, version: int, final_version: int
) -> Participant:
    """Rebuilds a participant after a restart.

    All owed rounds below `version` had a disposition when that version was published; what is settled above follows
    from the receipts, of which those without content settle nothing.
    """
    participant = Participant(
        name=record.name,
        final_version=final_version,
        state=record.state,
        session=record.session,
        joins=dict(record.joins),
        suspensions=record.suspensions,
        forgotten_sequence=history.forgotten_sequence,
        sequence=history.sequence,
        head=history.head,
        accepted=history.accepted,
        duplicates=record.duplicates,
        invalid=history.invalid,
        without_update=history.without_update,
        lost=history.lost,
        flagged=history.flagged,
        rounds_received=history.rounds_received,
        must_report=record.must_report,
        declared=record.declared,
    )
    for receipt in receipts:
        participant.remember(receipt)
        if receipt.digest is not None:
            participant.reopened.add(receipt.round)
    settled = {round_ for round_, receipt in participant.receipts.items() if receipt.disposition is not None}
    for entry, exit_ in record.intervals:
        interval = Interval(entry, final_version if exit_ is None else exit_, settled)
        interval.skip_to(version)
        participant.intervals.append(interval)
    return participant
