"""The values that the cores and the store share: answers, dispositions, receipts, and what a restart begins with.

Knows neither how they are decided nor how they are kept.
"""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt
from hushgrad.server.stored import Sums

MAX_REPORTS: Final = 1000
"""So many rounds at most are reported in one call; one with fewer is the last of a series."""


class Answer(enum.IntEnum):
    """The fate of a request; names and numbers are those of `Answer` in common.proto, which explains each."""

    ACCEPTED = 1
    DUPLICATE = 2
    CONFLICT = 3
    INVALID = 4
    STALE = 5
    STALE_SESSION = 6
    TOO_FAR_AHEAD = 7
    UNKNOWN_PARTICIPANT = 8
    WRONG_TERMS = 9
    RUN_ENDED = 10
    BUSY = 11


class State(enum.IntEnum):
    """What a participant is to the server; numbers as in `ParticipationState` in membership.proto."""

    OBSERVING = 1
    ACTIVE = 2
    SUSPENDED = 3
    LEFT = 4


class Disposition(enum.StrEnum):
    """What became of a round. For ever, except that SKIPPED, VOID and LOST give way to an update that comes in time."""

    INCLUDED = "INCLUDED"
    INVALID = "INVALID"
    SKIPPED = "SKIPPED"
    VOID = "VOID"
    LOST = "LOST"


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks; see Caller in common.proto."""

    terms_digest: bytes
    participant: str
    session: int = 0


@dataclass(frozen=True, slots=True)
class Receipt:
    """What the server knows of one round of one participant.

    Attributes:
        participant: whose round.
        round: the round.
        digest: digest of the sealed update, 32 bytes; None when none has arrived.
        sequence: number of the ledger row that sealed it; None when there is none to trust.
        previous_head: head of that ledger before the row, 32 bytes.
        head: head after the row, as the server computes it, 32 bytes.
        disposition: what became of the round; None when the receipt outlived its content in a crash.
        reason: for people, why it was refused or skipped; of an included one, why it was found improbable.
        included_in: the first version whose checkpoint holds the update. In memory it is a promise from the moment of
            folding on; in the store it is set by that checkpoint.
    """

    participant: str
    round: int
    digest: bytes | None = None
    sequence: int | None = None
    previous_head: bytes = b""
    head: bytes = b""
    disposition: Disposition | None = None
    reason: str = ""
    included_in: int | None = None

    @property
    def lacks_content(self) -> bool:
        """Whether an update with this digest was sealed and its content is neither in the model nor refused."""
        return self.digest is not None and self.disposition not in (Disposition.INCLUDED, Disposition.INVALID)

    @property
    def is_wanted(self) -> bool:
        """Whether the participant should send the sealed bytes again."""
        return self.lacks_content and self.disposition not in (Disposition.VOID, Disposition.LOST)

    @property
    def is_flagged(self) -> bool:
        """Whether the update counts although it was found improbable."""
        return bool(self.reason) and self.disposition in (Disposition.INCLUDED, None)


@dataclass(frozen=True, slots=True)
class DeclaredClaim:
    """What a participant says that its run promises its records; see DeclaredClaim in membership.proto.

    Shown to people as declared. Nothing is decided by it, and nothing in it was verified.

    Attributes:
        epsilon, delta: for the whole run.
        adjacency: "add-remove" or "replace-one".
        sampler: "poisson" or "fixed".
        unit: what the compared data sets differ in.
        method, method_version: how epsilon was computed.
        planned_rounds: so many rounds the claim covers, >= 1.
        timing_covered: whether it holds for the times of messages too.
    """

    epsilon: float
    delta: float
    adjacency: str
    sampler: str
    unit: str
    method: str
    method_version: str
    planned_rounds: int
    timing_covered: bool


@dataclass(frozen=True, slots=True)
class ParticipantRecord:
    """What has to survive a crash of one participant, beside its receipts.

    Attributes:
        joins: the latest (join id, session) pairs, oldest first.
        intervals: (entry, exit) of the owed rounds that are not settled, and of the latest start; exit is None while
            every round up to the final version is owed.
        duplicates: repeats of updates seen, as of the last checkpoint.
        must_report: the server was restored, and it has not said yet what it holds; no version is made until it has, or
            the wait is over.
        declared: the claim that it declared last; None: it declared none.
    """

    name: str
    state: State
    session: int
    joins: tuple[tuple[bytes, int], ...]
    intervals: tuple[tuple[int, int | None], ...]
    suspensions: int
    duplicates: int
    must_report: bool = False
    declared: DeclaredClaim | None = None


class Verb(enum.StrEnum):
    """What an operator can order; admin.proto says what each does."""

    PAUSE = "pause"
    RESUME = "resume"
    EVICT = "evict"
    END = "end"
    DRAIN = "drain"


@dataclass(frozen=True, slots=True)
class Act:
    """One order of an operator that was taken: a row of the administration's log, which is replayed at start.

    Attributes:
        at: when, seconds since 1970 by the server's clock.
        who: the name in the operator's certificate; "loopback" on a connection without one.
        verb: what was ordered.
        request_id: 16 bytes that the operator's program chose; the same ones are the same order.
        changed: whether anything was not as ordered before.
        participant: with EVICT, who; empty: a seat that nobody had taken.
        final_version: with END, the last version there will be.
        at_once: with END, whether nobody is waited for but those whose updates were accepted.
        reason: for people, as the operator gave it.
    """

    at: float
    who: str
    verb: Verb
    request_id: bytes
    changed: bool = True
    participant: str = ""
    final_version: int | None = None
    at_once: bool = False
    reason: str = ""


Record = Receipt | ParticipantRecord | Act
"""Something that must be durable before the answer that rests on it."""


@dataclass(frozen=True, slots=True)
class Score:
    """How well a version does on public test data, as an evaluator reported it.

    Attributes:
        accuracy, averaged_accuracy: shares, 0 to 1; the second is None where there is no averaged model.
        examples: so many test records.
        reported_at: seconds since 1970.
    """

    evaluator: str
    version: int
    accuracy: float
    averaged_accuracy: float | None
    examples: int
    reported_at: float


@dataclass(frozen=True, slots=True)
class History:
    """Sums over all receipts of one participant, those included that memory does not hold.

    Attributes:
        accepted, invalid, without_update: numbers of rounds by disposition.
        lost: those without update that are LOST.
        flagged: those accepted that were found improbable.
        rounds_received: one more than the largest round with an update.
        sequence, head: the highest ledger row seen.
        forgotten_sequence: the highest ledger row among the receipts that memory does not hold.
    """

    accepted: int = 0
    invalid: int = 0
    without_update: int = 0
    rounds_received: int = 0
    sequence: int = 0
    head: bytes = b""
    forgotten_sequence: int = 0
    lost: int = 0
    flagged: int = 0


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What a server begins with: the last checkpoint, and every receipt that memory has to hold.

    Attributes:
        version: the version of the checkpoint.
        array: M, int64, shape (d,).
        average_sum: sum of the published models in the running average, float64, shape (d,); None when there is none.
        average_count: their number.
        participants: everybody who has joined.
        receipts: those of rounds >= `remembered_from(version, ...)` and all that lack their content.
        histories: by participant; may lack those without receipts.
        acts: every order that operators gave, in order.
    """

    version: int
    array: npt.NDArray[np.int64]
    average_sum: Sums | None = None
    average_count: int = 0
    participants: tuple[ParticipantRecord, ...] = ()
    receipts: tuple[Receipt, ...] = ()
    histories: Mapping[str, History] = field(default_factory=dict)
    acts: tuple[Act, ...] = ()


def remembered_from(version: int, *, window: int, publish_every: int) -> int:
    """Returns the first round whose receipts memory holds when `version` is the newest.

    Two publications of margin beyond the window: a receipt is dropped from memory only after a checkpoint that was
    queued behind it is durable, so that a look-up in the store never misses a row that is still on its way.
    """
    return version - window - 2 * publish_every


def owes_a_report(record: ParticipantRecord) -> bool:
    """Whether a restored server waits for what this participant may hold: one that has left is not coming back."""
    return record.state is not State.LEFT


class Archive(Protocol):
    """Receipts that memory does not hold any more."""

    def find(self, participant: str, round_: int) -> Receipt | None:
        """Returns the receipt of a round, if there is one."""
        ...

    def find_row(self, participant: str, sequence: int) -> Receipt | None:
        """Returns the receipt whose ledger row has this number, if there is one."""
        ...
