"""What happens to a session, and what it does about it: the events and actions of the core in `session`.

Every `Call` is answered by exactly one event; `Train` by `Sealed` or `TrainingDropped`; the others by none.
"""

from dataclasses import dataclass

from hushgrad.client.messages import Answer, Participation, RoundReport, ServerState, Verdict
from hushgrad.client.outbox import Mark

# What can happen.


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed."""


@dataclass(frozen=True, slots=True)
class Joined:
    """Join was answered.

    Attributes:
        anchor_sequence: number of the newest row of our ledger that the server has seen; zero: none.
        anchor_head: the head behind that row, as the server has it.
        own_head: the head behind the row of that number in our ledger; None if there is no such row.
    """

    verdict: Verdict
    participation: Participation
    anchor_sequence: int
    anchor_head: bytes
    own_head: bytes | None


@dataclass(frozen=True, slots=True)
class Started:
    """Start was answered."""

    verdict: Verdict
    participation: Participation


@dataclass(frozen=True, slots=True)
class Left:
    """Leave was answered."""

    verdict: Verdict
    participation: Participation


@dataclass(frozen=True, slots=True)
class ParticipationSeen:
    """GetParticipation was answered."""

    verdict: Verdict
    participation: Participation


@dataclass(frozen=True, slots=True)
class ReportAnswered:
    """ReportRounds was answered."""

    verdict: Verdict
    participation: Participation


@dataclass(frozen=True, slots=True)
class SubmitAnswered:
    """An update was answered."""

    round: int
    verdict: Verdict
    first_answer: Answer
    included_in: int
    participation: Participation


@dataclass(frozen=True, slots=True)
class CallFailed:
    """The call under way got no answer, or BUSY, and is worth repeating after so many seconds."""

    wait_seconds: float


@dataclass(frozen=True, slots=True)
class CallRefused:
    """The call under way met a fault that repeating will not cure."""

    detail: str


@dataclass(frozen=True, slots=True)
class Unreadable:
    """The update that was to be sent cannot be read any more, and the ledger says VOID already."""

    round: int


@dataclass(frozen=True, slots=True)
class Sealed:
    """The round in training was sealed."""

    round: int


@dataclass(frozen=True, slots=True)
class TrainingDropped:
    """The round in training was given up before it was sealed; nothing of it exists."""


@dataclass(frozen=True, slots=True)
class ServerSeen:
    """A message of the watch told the server's state."""

    server: ServerState


@dataclass(frozen=True, slots=True)
class Reconnected:
    """The watch speaks again after it was cut: the server may have restarted, and may want updates again."""


@dataclass(frozen=True, slots=True)
class ModelArrived:
    """A whole version was received and its checksum is right."""

    version: int


@dataclass(frozen=True, slots=True)
class RunEnded:
    """The watch said that the federation has ended."""

    final_version: int


@dataclass(frozen=True, slots=True)
class GoingAway:
    """The watch said that the server stops for a while."""

    retry_after_seconds: float


@dataclass(frozen=True, slots=True)
class Stop:
    """Somebody asked this process to stop and keep its state."""


Answered = Joined | Started | Left | ParticipationSeen | ReportAnswered | SubmitAnswered
Event = (
    Tick
    | Joined
    | Started
    | Left
    | ParticipationSeen
    | ReportAnswered
    | SubmitAnswered
    | CallFailed
    | CallRefused
    | Unreadable
    | Sealed
    | TrainingDropped
    | ServerSeen
    | Reconnected
    | ModelArrived
    | RunEnded
    | GoingAway
    | Stop
)


# What to do.


@dataclass(frozen=True, slots=True)
class Join:
    """Call Join; answer with Joined, CallFailed or CallRefused."""


@dataclass(frozen=True, slots=True)
class Start:
    """Call Start; answer with Started, CallFailed or CallRefused."""

    next_round: int


@dataclass(frozen=True, slots=True)
class Leave:
    """Call Leave; answer with Left, CallFailed or CallRefused."""

    exit_round: int


@dataclass(frozen=True, slots=True)
class AskParticipation:
    """Call GetParticipation; answer with ParticipationSeen, CallFailed or CallRefused."""


@dataclass(frozen=True, slots=True)
class Report:
    """Call ReportRounds; answer with ReportAnswered, CallFailed or CallRefused.

    Attributes:
        reports: what to say.
        held_range: (first, end) of the rounds of which `reports` names all that are held; None: nothing is said about
            the others.
    """

    reports: tuple[RoundReport, ...]
    held_range: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Send:
    """Send the sealed bytes of a round; answer with SubmitAnswered, CallFailed, CallRefused or Unreadable."""

    round: int


@dataclass(frozen=True, slots=True)
class Train:
    """Train a round, from this version or from the local model that grew out of it, and seal it; answer with Sealed or
    TrainingDropped."""

    round: int
    version: int


@dataclass(frozen=True, slots=True)
class Record:
    """Write marks into the outbox before any later action is carried out. Not answered."""

    marks: tuple[Mark, ...]


@dataclass(frozen=True, slots=True)
class MakeVoid:
    """Write into the ledger that a round's sealed bytes are gone, before any later action. Not answered."""

    round: int


@dataclass(frozen=True, slots=True)
class Skip:
    """Write into the ledger that nothing will be sealed for a round, before any later action. Not answered."""

    round: int


@dataclass(frozen=True, slots=True)
class DropTraining:
    """Give up the round in training unless it is sealed already; Train is answered as always."""


@dataclass(frozen=True, slots=True)
class Finish:
    """All is done, or somebody asked to stop: end the process with exit code 0 and keep its state."""

    reason: str


@dataclass(frozen=True, slots=True)
class Halt:
    """Stop at once, draw nothing more, keep ledger and sealed bytes, tell a person."""

    reason: str
    exit_code: int


Call = Join | Start | Leave | AskParticipation | Report | Send
Action = Call | Train | DropTraining | Record | MakeVoid | Skip | Finish | Halt
