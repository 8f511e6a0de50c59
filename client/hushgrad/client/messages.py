"""What client and server say to each other, as plain values: protobuf ends in `transport`, the core begins here."""

from dataclasses import dataclass
from typing import Literal

Answer = Literal[
    "UNSPECIFIED",
    "ACCEPTED",
    "DUPLICATE",
    "CONFLICT",
    "INVALID",
    "STALE",
    "STALE_SESSION",
    "TOO_FAR_AHEAD",
    "UNKNOWN_PARTICIPANT",
    "WRONG_TERMS",
    "RUN_ENDED",
    "BUSY",
]

Fate = Literal["skipped", "void", "held"]

MAX_REPORTS = 1000
"""Most reports in one ReportRounds call."""


@dataclass(frozen=True, slots=True)
class ServerState:
    """How far the server's memory reaches; ServerState in common.proto."""

    epoch: int
    watermark: int
    newest_version: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """The head of an answer; Verdict in common.proto. `retry_after_seconds` belongs to BUSY; zero: no hint."""

    answer: Answer
    server: ServerState
    detail: str = ""
    retry_after_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Participation:
    """How the server sees this participant; Participation in membership.proto."""

    state: Literal["unspecified", "observing", "active", "suspended", "left"]
    entry_round: int = 0
    exit_round: int | None = None
    wanted_rounds: tuple[int, ...] = ()
    evicted: bool = False


@dataclass(frozen=True, slots=True)
class RoundReport:
    """What became of one round here; RoundReport in membership.proto, without the digest of a held one."""

    round: int
    fate: Fate
