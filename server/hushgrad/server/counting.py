"""What this process has done since it started, as plain numbers: for the page and for `/metrics`.

Counts and durations only, never what an update contains. Knows neither gRPC nor Prometheus. Each number is written by
one thread, the event loop's or the store's, and may be read from any: a reader sees each number whole, though not all
of one moment.
"""

import bisect
from typing import Final

from hushgrad.server.records import Answer

COMMIT_BOUNDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0)
"""Of commits and of answers to updates, in seconds: from a fast disk to one that is about to fail."""

CHECKPOINT_BOUNDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
"""Of checkpoints, in seconds: from a logistic regression to ten million parameters."""

INTERVAL_BOUNDS: Final = (0.01, 0.025, 0.1, 0.25, 1.0, 2.5, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0)
"""Of the time between one version and the next, in seconds."""

TOO_FAST: Final = "too_fast"
"""Refused because the caller's calls come faster than its limit."""
TOO_MANY: Final = "too_many"
"""Refused because too many calls of this kind are open."""
MALFORMED: Final = "malformed"
"""Refused because the request is no message of the contract, or lacks what it must say."""
UNAUTHENTICATED: Final = "unauthenticated"
"""Refused at the door: no certificate, or one that does not hold."""
NOT_PERMITTED: Final = "not_permitted"
"""Refused at the door: the certificate holds, but this call is not for its holder."""

_SERVED: Final = (Answer.ACCEPTED, Answer.DUPLICATE)
_OTHER_REASONS: Final = (TOO_FAST, TOO_MANY, MALFORMED, UNAUTHENTICATED, NOT_PERMITTED)
REASONS: Final = (*(answer.name.lower() for answer in Answer if answer not in _SERVED), *_OTHER_REASONS)
"""Every reason that `Counters.refusals` can name."""


class Histogram:
    """How often a duration fell below each bound.

    Attributes:
        bounds: upper bounds in seconds, ascending; a last bound of infinity is understood.
        counts: how many fell at or below each bound and above the one before; the last count is of those above all.
        total: sum of all durations, in seconds.
    """

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, seconds: float) -> None:
        """Counts one duration."""
        self.counts[bisect.bisect_left(self.bounds, seconds)] += 1
        self.total += seconds

    @property
    def count(self) -> int:
        """How many durations were counted."""
        return sum(self.counts)


class Counters:
    """All numbers of one process. They begin at zero with it and only grow, but `last_update_at` and `store_failed`.

    Attributes:
        updates: answers to updates, by the number of the answer.
        answers: answers to all other calls that answer with a verdict, by the number of the answer.
        refused: what was refused without such an answer, by reason: TOO_FAST, TOO_MANY, MALFORMED, UNAUTHENTICATED or
            NOT_PERMITTED.
        calls: calls taken, by the name of the call ("SubmitUpdate").
        received_bytes: payloads of updates and pieces of uploads, repeats included.
        sent_bytes: messages of watches and downloads.
        update_seconds: from a whole update to its answer: checked, folded and durable.
        folds: updates added to the model.
        suspensions: participants suspended for holding up a version.
        versions: versions published.
        version_seconds: from one version to the next.
        commits: how long commits of the store took.
        commit_jobs: jobs in those commits; many share one commit when the server is busy.
        checkpoints: how long the making of a checkpoint took, within its commit.
        store_failed: whether the store has failed; the server is stopping then.
        last_update_at: when each participant's last update was accepted, in the event loop's seconds. Holds nobody who
            has sent none since this process started.
    """

    __slots__ = (
        "answers",
        "calls",
        "checkpoints",
        "commit_jobs",
        "commits",
        "folds",
        "last_update_at",
        "received_bytes",
        "refused",
        "sent_bytes",
        "store_failed",
        "suspensions",
        "update_seconds",
        "updates",
        "version_seconds",
        "versions",
    )

    def __init__(self) -> None:
        # Lists, since an Answer is slow as the key of a dictionary.
        self.updates = [0] * (max(Answer) + 1)
        self.answers = [0] * (max(Answer) + 1)
        self.refused = dict.fromkeys(_OTHER_REASONS, 0)
        self.calls: dict[str, int] = {}
        self.received_bytes = 0
        self.sent_bytes = 0
        self.update_seconds = Histogram(COMMIT_BOUNDS)
        self.folds = 0
        self.suspensions = 0
        self.versions = 0
        self.version_seconds = Histogram(INTERVAL_BOUNDS)
        self.commits = Histogram(COMMIT_BOUNDS)
        self.commit_jobs = 0
        self.checkpoints = Histogram(CHECKPOINT_BOUNDS)
        self.store_failed = False
        self.last_update_at: dict[str, float] = {}

    def updated(self, participant: str, answer: Answer, seconds: float, now: float) -> None:
        """Counts one whole update whose fate is durable.

        Args:
            participant: who sent it; a name that the federation knows when the answer is ACCEPTED.
            seconds: how long its answer took.
            now: in the event loop's seconds.
        """
        self.update_seconds.observe(seconds)
        if answer is Answer.ACCEPTED:
            self.last_update_at[participant] = now

    def refusals(self) -> dict[str, int]:
        """Returns how many calls of any kind were refused, by reason; every reason of `REASONS` is there."""
        found = {
            answer.name.lower(): self.updates[answer] + self.answers[answer]
            for answer in Answer
            if answer not in _SERVED
        }
        return {**found, **self.refused}
