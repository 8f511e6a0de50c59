"""Who takes part, what each owes, when the next version can be published, and who is suspended for holding it up.

Knows no updates, arrays, sockets or clocks: `now` is an argument, in seconds of any monotonic clock.

A version v_k can be published when every owed round <= k-1 has a disposition and enough participants count for it:
for the first one all enrolled (after the start timeout: a majority of them), later a majority of those that have
started and have not gone by themselves; suspended ones stay in that base, so that a minority never trains on alone.
Operators can take somebody out of both, stop the making of versions for a while, and end it before the terms do.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from hushgrad.server import administration as administration_module
from hushgrad.server.administration import Administration
from hushgrad.server.participant import REMEMBERED_JOINS, Participant
from hushgrad.server.records import Answer, Caller, Disposition, Receipt, State
from hushgrad.wire.terms import Terms

_MAX_DOUBLINGS = 30


@dataclass(frozen=True, slots=True)
class Participation:
    """How the server sees a participant; see Participation in membership.proto. exit_round None: not set."""

    state: State
    entry_round: int
    exit_round: int | None
    wanted_rounds: tuple[int, ...]
    suspensions: int
    evicted: bool = False


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a caller is not served."""

    answer: Answer
    detail: str


class Membership:
    """The participants of one federation and the version that they make next.

    Attributes:
        participants: everybody who has joined, by name.
        administration: what operators have ordered.
        newest: the newest published version.
        frozen: the newest version whose content is fixed; larger than `newest` while its checkpoint is being written.
    """

    def __init__(
        self,
        terms: Terms,
        terms_digest: bytes,
        participants: Iterable[Participant],
        *,
        newest: int,
        now: float,
        since_first_start: float,
        restore_wait_seconds: float = 0.0,
        administration: Administration | None = None,
    ) -> None:
        self._terms = terms
        self.administration = administration or Administration()
        self._terms_digest = terms_digest
        self.participants = {participant.name: participant for participant in participants}
        self.newest = newest
        self.frozen = newest
        self._published_at = now
        self._majority_from = (
            now - since_first_start + terms.start_timeout_seconds if terms.start_timeout_seconds > 0 else math.inf
        )
        self._restore_wait_seconds = restore_wait_seconds
        self._collects_until = now + restore_wait_seconds
        self._blockers: set[str] = set()
        self._enough_since: float | None = None
        for name in self.administration.evicted:
            if name in self.participants:
                self.participants[name].is_evicted = True
        if self.administration.ends_at_once:
            self._wait_for_open_ones()
        self._look_at_all(now)

    # Versions

    @property
    def final_version(self) -> int:
        """The last version there will be: that of the terms, or an earlier one by order."""
        return final_version(self._terms, self.administration)

    def following(self, version: int) -> int:
        """Returns the version that is published after `version`."""
        every = self._terms.publish_every
        return min((version // every + 1) * every, self.final_version)

    @property
    def next_version(self) -> int:
        """The version that is published after the newest one; the newest itself when that is the final one."""
        return self.following(self.newest)

    @property
    def has_ended(self) -> bool:
        """Whether the final version is published."""
        return self.newest >= self.final_version

    @property
    def is_gathering(self) -> bool:
        """Whether the content of the first version is still open."""
        return self.frozen == 0

    @property
    def is_ready(self) -> bool:
        """Whether the next version can be frozen now."""
        return (
            not self.has_ended
            and self.administration.paused_by is None
            and self.frozen == self.newest
            and not self._blockers
            and self._enough_since is not None
            and not self.unheard
        )

    @property
    def holding_up(self) -> tuple[str, ...]:
        """Names of those whose owed rounds the next version lacks."""
        return tuple(sorted(self._blockers))

    @property
    def unheard(self) -> list[str]:
        """Names of those who have not said yet what they hold since the server was restored."""
        return [name for name, participant in sorted(self.participants.items()) if participant.must_report]

    def freeze(self) -> int:
        """Fixes the set of the next version and returns its number. Call it only when `is_ready`."""
        if not self.is_ready:
            raise ValueError("freeze() needs is_ready")
        self.frozen = self.next_version
        return self.frozen

    def published(self, now: float) -> None:
        """Notes that the checkpoint of the frozen version is durable."""
        self.newest = self.frozen
        self._published_at = now
        self._look_at_all(now)

    # Callers

    def check(self, caller: Caller) -> Participant | Refusal:
        """Returns the participant that calls, or why it is refused: terms, name and session, in this order."""
        if caller.terms_digest != self._terms_digest:
            return self._wrong_terms(caller)
        participant = self.participants.get(caller.participant)
        if participant is None:
            return Refusal(Answer.UNKNOWN_PARTICIPANT, f"{caller.participant} has not joined; call Join first")
        if caller.session < participant.session:
            return Refusal(
                Answer.STALE_SESSION,
                f"session {caller.session} of {caller.participant} was replaced by session {participant.session}; "
                "another process has joined since, stop this one",
            )
        if caller.session > participant.session:
            return Refusal(
                Answer.UNKNOWN_PARTICIPANT,
                f"session {caller.session} of {caller.participant} is not known, the newest is {participant.session}; "
                "the server's state was replaced, tell a person",
            )
        return participant

    def _wrong_terms(self, caller: Caller) -> Refusal:
        return Refusal(
            Answer.WRONG_TERMS,
            f"this server's terms have digest {self._terms_digest.hex()}, found {caller.terms_digest.hex()}; compare "
            "the address with the one you were given",
        )

    def view(self, participant: Participant) -> Participation:
        """Returns how the server sees a participant."""
        exit_round = participant.exit_round
        if exit_round is None and self.administration.ended_by is not None:
            exit_round = self.final_version
        return Participation(
            participant.state,
            participant.entry_round,
            exit_round,
            tuple(sorted(participant.wanted)),
            participant.suspensions,
            participant.is_evicted,
        )

    # Joining, starting, stopping

    def join(self, caller: Caller, join_id: bytes) -> tuple[Participant, int] | Refusal:
        """Opens a session, or finds the one that this join id got before."""
        if caller.terms_digest != self._terms_digest:
            return self._wrong_terms(caller)
        participant = self.participants.get(caller.participant)
        if participant is None:
            names, room = self._terms.participants, self._terms.largest_number_of_participants
            if names and caller.participant not in names:
                return Refusal(
                    Answer.UNKNOWN_PARTICIPANT, f"the terms name {', '.join(names)}, found {caller.participant}"
                )
            room -= self.administration.closed_seats
            if len(self.participants) >= room:
                return Refusal(
                    Answer.UNKNOWN_PARTICIPANT,
                    f"the terms have room for {room} participants and all have joined, found one more, "
                    f"{caller.participant}",
                )
            participant = Participant(caller.participant, self.final_version)
            if caller.participant in self.administration.evicted:
                participant.is_evicted, participant.state = True, State.LEFT
            self.participants[caller.participant] = participant
        session = participant.joins.get(join_id)
        if session is None:
            participant.session += 1
            session = participant.session
            participant.joins[join_id] = session
            while len(participant.joins) > REMEMBERED_JOINS:
                del participant.joins[next(iter(participant.joins))]
        return participant, session

    def start(self, participant: Participant, next_round: int, now: float) -> bool:
        """Makes the participant active; says whether anything changed."""
        if participant.state is State.ACTIVE:
            return False
        entry = next_round if self.is_gathering else max(next_round, self.newest + 1, self.frozen)
        if self.administration.ends_at_once:
            entry = self.final_version
        participant.begin(min(entry, self.final_version), now)
        self._look_at(participant)
        self._look_at_quorum(now)
        return True

    def stop(self, participant: Participant, exit_round: int, state: State, now: float) -> bool:
        """Makes it observing or gone, owing nothing from `exit_round` on; says whether anything changed."""
        before = (participant.state, participant.exit_round)
        participant.close(exit_round)
        participant.state = state
        self._look_at(participant)
        self._look_at_quorum(now)
        return before != (participant.state, participant.exit_round)

    # Orders. Each is in `administration` already.

    def resumed(self, now: float) -> None:
        """Goes on after a pause: whoever is waited for has all of its time again."""
        self._published_at = max(self._published_at, now)
        if self.unheard:
            self._collects_until = max(self._collects_until, now + self._restore_wait_seconds)
        self._look_at_quorum(now)

    def evict(self, name: str, now: float) -> list[Receipt]:
        """Lets nobody wait for a participant any more; returns the receipts of the rounds that it still had to send.

        All that it owed below the frozen version is settled, and it owes nothing above. What the server has a receipt
        of and no content is skipped, as in a suspension; it counts if it comes after all.
        """
        participant = self.participants.get(name)
        skipped: list[Receipt] = []
        if participant is not None:
            if participant.must_report:
                self.heard(participant, now)
            participant.expected.clear()
            for round_ in sorted(self._open_ones(participant)):
                skipped.append(self._skip(participant, round_, "its participant was evicted"))
            participant.close(self.frozen)
            participant.state, participant.is_evicted = State.LEFT, True
            self._look_at(participant)
        self._look_at_quorum(now)
        return skipped

    def ended(self, now: float) -> list[Receipt]:
        """Lets no round at or above the final version be owed.

        When it ends at once, rounds that nobody has sent are skipped, and the receipts of those returned.
        """
        version = self.final_version
        skipped = []
        for participant in self.participants.values():
            participant.final_version = version
            participant.close(version)
            if self.administration.ends_at_once:
                for round_ in participant.open_rounds(version):
                    if round_ not in participant.receipts:
                        skipped.append(self._skip(participant, round_, "an operator ended the federation"))
        if self.administration.ends_at_once:
            self._wait_for_open_ones()
        self._look_at_all(now)
        return skipped

    @property
    def lacks_content(self) -> bool:
        """Whether an update that was accepted before a crash has neither come again nor been given up."""
        return any(self._open_ones(participant) for participant in self.participants.values())

    @property
    def has_vacant_seats(self) -> bool:
        """Whether somebody whom the terms do not name could still join."""
        room = self._terms.largest_number_of_participants - self.administration.closed_seats
        return not self._terms.participants and len(self.participants) < room

    @property
    def has_room_without(self) -> bool:
        """Whether somebody could still take part if one more were evicted."""
        return self._room > 1

    @property
    def expects_a_version(self) -> bool:
        """Whether the next version will be made if everybody does what it owes."""
        return not self.has_ended and self.administration.paused_by is None and self._enough_since is not None

    def _wait_for_open_ones(self) -> None:
        for participant in self.participants.values():
            participant.expected |= self._open_ones(participant)

    def _open_ones(self, participant: Participant) -> set[int]:
        return {round_ for round_ in participant.wanted if participant.receipts[round_].disposition is None}

    # Rounds

    def put(self, participant: Participant, receipt: Receipt) -> None:
        """Takes a new or changed receipt."""
        participant.put(receipt)
        if participant.name in self._blockers:
            self._look_at(participant)

    def expect(self, participant: Participant, rounds: Iterable[int]) -> None:
        """Waits for rounds whose sealed bytes a participant holds, also where it does not owe them."""
        participant.expected.update(rounds)
        self._look_at(participant)

    def heard(self, participant: Participant, now: float) -> None:
        """Notes that a participant has said everything that it holds since the server was restored."""
        participant.must_report = False
        if not self.unheard:
            self._published_at = now  # whoever is owed a version now begins to be waited for

    # Time

    def chunk_arrived(self, participant: Participant, now: float) -> None:
        """Notes that an upload of this participant makes progress."""
        participant.chunk_at = now

    def next_deadline(self) -> float:
        """Returns when `tick` has something to do if nothing happens before; infinity when never."""
        if self.has_ended or self.frozen > self.newest or self.administration.paused_by is not None:
            return math.inf
        if self.unheard:
            return self._collects_until
        deadlines = [self._deadline(self.participants[name]) for name in self._blockers]
        if self._enough_since is None:
            deadlines = [self._majority_from] if self.newest == 0 and self._is_majority_of_all() else []
        return min(deadlines, default=math.inf)

    def tick(self, now: float) -> list[Receipt]:
        """Suspends whoever has held up the next version for too long; returns the receipts of the skipped rounds.

        Each receipt's participant has to be made durable with it.
        """
        if self.unheard or self.administration.paused_by is not None:
            return []
        self._look_at_quorum(now)
        if self.has_ended or self.frozen > self.newest or self._enough_since is None:
            return []
        late = [name for name in sorted(self._blockers) if self._deadline(self.participants[name]) <= now]
        skipped = []
        for name in late:
            skipped += self._suspend(self.participants[name])
        if late:
            self._look_at_quorum(now)
        return skipped

    def stop_collecting(self, now: float) -> list[Participant]:
        """Waits no longer for what others hold, when the time for that is over; returns whom it gave up."""
        if self.administration.paused_by is not None:
            return []
        unheard = [self.participants[name] for name in self.unheard] if now >= self._collects_until else []
        for participant in unheard:
            self.heard(participant, now)
        return unheard

    def waiting_for(self) -> str:
        """Returns one sentence: what the next version waits for. Empty when the federation has ended."""
        if self.has_ended:
            return ""
        version = self.next_version
        if (paused := self.administration.paused_by) is not None:
            reason = f" ({paused.reason})" if paused.reason else ""
            by = administration_module.said(paused)
            return f"version {version} waits for an operator to resume: paused by {by}{reason}"
        if unheard := self.unheard:
            return (
                f"version {version} waits until {_listed(unheard)} {'say' if len(unheard) > 1 else 'says'} what "
                f"{'they hold' if len(unheard) > 1 else 'it holds'}, because the server was restored"
            )
        if self._enough_since is None:
            return self._waiting_for_participants(version)
        missing = [
            f"round {round_} of {name}"
            for name in sorted(self._blockers)
            for round_ in sorted({*self.participants[name].open_rounds(version), *self._expected(name)})
        ]
        if missing:
            return f"version {version} waits for {_listed(missing)}"
        return f"version {version} is being written"

    def _waiting_for_participants(self, version: int) -> str:
        counting = {name for name, participant in self.participants.items() if participant.counts_for(version)}
        if self.newest == 0:
            room = self._room
            names = {*(self._terms.participants or self.participants)} - set(self.administration.evicted)
            absent = [name for name in sorted(names) if name not in counting]
            listed = f": {_listed(absent)}" if absent else ""
            return f"version {version} waits for {room - len(counting)} of {room} participants{listed}"
        base = [name for name, participant in sorted(self.participants.items()) if participant.is_in_base(version)]
        if not base:
            return f"version {version} waits for a participant: none takes part"
        absent = [name for name in base if name not in counting]
        return (
            f"version {version} waits for a majority: {len(counting)} of {len(base)} participants take part, "
            f"suspended: {_listed(absent)}"
        )

    def _expected(self, name: str) -> list[int]:
        return [round_ for round_ in self.participants[name].expected if round_ < self._horizon]

    @property
    def _horizon(self) -> int:
        """Rounds below it are waited for. A last version that is made at once takes all that can be taken."""
        return self.newest + self._terms.window if self.administration.ends_at_once else self.next_version

    def _deadline(self, participant: Participant) -> float:
        wait = self._terms.straggler_timeout_seconds * 2.0 ** min(participant.suspensions, _MAX_DOUBLINGS)
        since = max(
            self._published_at,
            participant.started_at,
            participant.chunk_at,
            self._enough_since if self._enough_since is not None else math.inf,
        )
        return since + wait

    def _suspend(self, participant: Participant) -> list[Receipt]:
        version = self.next_version
        skipped = []
        participant.expected = {round_ for round_ in participant.expected if round_ >= self._horizon}
        if not participant.owes_below(version):
            # Nothing that it owes is late: only what it holds of rounds that a restored server does not know of.
            self._look_at(participant)
            return []
        for round_ in participant.open_rounds(version):
            skipped.append(self._skip(participant, round_, "its participant was suspended"))
        participant.close(version)
        participant.suspensions += 1
        if participant.state is State.ACTIVE:
            participant.state = State.SUSPENDED
        self._look_at(participant)
        return skipped

    def _skip(self, participant: Participant, round_: int, reason: str) -> Receipt:
        known = participant.receipts.get(round_, Receipt(participant.name, round_))
        receipt = Receipt(
            known.participant,
            known.round,
            known.digest,
            known.sequence,
            known.previous_head,
            known.head,
            Disposition.SKIPPED,
            reason,
        )
        participant.put(receipt)
        return receipt

    # What the next version waits for, kept up to date by these three

    def _look_at(self, participant: Participant) -> None:
        if participant.owes_below(self._horizon):
            self._blockers.add(participant.name)
        else:
            self._blockers.discard(participant.name)

    def _look_at_quorum(self, now: float) -> None:
        if not self._is_enough(now):
            self._enough_since = None
        elif self._enough_since is None:
            self._enough_since = now

    def _look_at_all(self, now: float) -> None:
        for participant in self.participants.values():
            self._look_at(participant)
        self._look_at_quorum(now)

    def _count(self) -> int:
        version = self.next_version
        return sum(participant.counts_for(version) for participant in self.participants.values())

    @property
    def _room(self) -> int:
        administration = self.administration
        return self._terms.largest_number_of_participants - len(administration.evicted) - administration.closed_seats

    def _is_majority_of_all(self) -> bool:
        return 2 * self._count() > self._room

    def _is_enough(self, now: float) -> bool:
        if self.administration.ends_at_once:
            return True
        version = self.next_version
        counting = self._count()
        if self.newest == 0:
            room = self._room
            return counting == room or (now >= self._majority_from and self._is_majority_of_all())
        base = sum(participant.is_in_base(version) for participant in self.participants.values())
        return counting > 0 and 2 * counting > base


def final_version(terms: Terms, administration: Administration) -> int:
    """Returns the last version there will be: that of the terms, or an earlier one by order."""
    ended_by = administration.ended_by
    if ended_by is None or ended_by.final_version is None:
        return terms.final_version
    return min(ended_by.final_version, terms.final_version)


def _listed(items: list[str], most: int = 5) -> str:
    if len(items) <= most:
        return ", ".join(items)
    return f"{', '.join(items[:most])} and {len(items) - most} more"
