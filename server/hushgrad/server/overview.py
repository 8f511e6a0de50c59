"""One picture of the federation for those who look at it: the page, `/metrics`, a script.

Taken on the event loop, in one step, from what is in memory: no file is read, nothing is decided, and nothing in it
changes afterwards. Every number is the server's own, but claims: those are shown as their participants declared them.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from hushgrad.server.counting import Counters
from hushgrad.server.federation import Federation
from hushgrad.server.participant import Participant
from hushgrad.server.records import Answer, DeclaredClaim, Score, State

Phase = Literal["gathering", "running", "paused", "ended"]

_SLOW_SECONDS: Final = 0.1  # one of counting.COMMIT_BOUNDS


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known outside of the federation itself; times in the event loop's seconds.

    Attributes:
        now: when the picture is taken.
        wall_seconds: the same, since 1970.
        started_at: when this server started.
        published_at: when the newest version was published, or this server started, if that was later.
        server_epoch: of the state.
        watchers: open watches.
        waiting_jobs: what the store has not written yet.
        scores: the latest score of each evaluator.
    """

    now: float
    wall_seconds: float
    started_at: float
    published_at: float
    server_epoch: int
    watchers: int
    waiting_jobs: int = 0
    scores: tuple["Score", ...] = ()


@dataclass(frozen=True, slots=True)
class ParticipantPicture:
    """One participant.

    Attributes:
        state: "observing", "active", "suspended" or "left".
        is_evicted: left by an operator's order, for good.
        holds_up: whether the next version waits for an update of it.
        round: the newest round with an update; None before the first.
        staleness: how many versions the newest version is behind that round, at least 0. The model that the round began
            with was at least as stale.
        behind: how many rounds it is behind whoever is furthest ahead among the active.
        seconds_since_update: since its last accepted update; None: none since this server started.
        next_owed_round, entry_round, exit_round, suspensions: as in the status.
        accepted, duplicates, invalid, without_update, lost, flagged: numbers of rounds, as in the status.
        claim: as it declared it, not verified; None: it declared none.
        budget_used: rounds received over rounds planned of that claim, at most 1; None likewise.
    """

    name: str
    state: str
    is_evicted: bool
    holds_up: bool
    round: int | None
    staleness: int
    behind: int
    seconds_since_update: float | None
    next_owed_round: int
    entry_round: int
    exit_round: int | None
    suspensions: int
    accepted: int
    duplicates: int
    invalid: int
    without_update: int
    lost: int
    flagged: int
    claim: DeclaredClaim | None
    budget_used: float | None


@dataclass(frozen=True, slots=True)
class Totals:
    """What this process has done since it started. A rate is the difference of two of these over `seconds`.

    Attributes:
        seconds: since the start.
        accepted, duplicates: updates.
        versions: published.
        received_bytes, sent_bytes: of updates and models.
        refusals: by reason; every reason is there.
        suspensions: of participants.
    """

    seconds: float
    accepted: int
    duplicates: int
    versions: int
    received_bytes: int
    sent_bytes: int
    refusals: Mapping[str, int]
    suspensions: int


@dataclass(frozen=True, slots=True)
class StorePicture:
    """How the store does.

    Attributes:
        failed: whether it has; the server is stopping then.
        commits: so many since the start.
        commit_seconds: what one took in the mean; None before the first.
        slow_commits: those that took longer than a tenth of a second.
        checkpoint_seconds: what making a checkpoint took in the mean; None before the first.
        waiting_jobs: what it has not written yet.
        watermark: the version up to which nothing can be lost any more.
        backup_version: of the last verified backup; None: there are none.
    """

    failed: bool
    commits: int
    commit_seconds: float | None
    slow_commits: int
    checkpoint_seconds: float | None
    waiting_jobs: int
    watermark: int
    backup_version: int | None


@dataclass(frozen=True, slots=True)
class Overview:
    """The whole picture.

    Attributes:
        taken_at: seconds since 1970.
        started_at: when this server started, seconds since 1970; tells one server process from the next.
        waiting_for: one sentence, what the next version waits for; empty when the federation has ended.
        waiting_seconds: since the newest version was published, or this server started.
        deadline_seconds: until somebody is suspended or a majority is enough, if nothing happens; None: that will not
            happen by itself.
        holding_up: names of those whose rounds the next version lacks.
        scores: the latest of each evaluator.
    """

    federation: str
    terms_digest: str
    phase: Phase
    newest_version: int
    final_version: int
    server_epoch: int
    taken_at: float
    started_at: float
    uptime_seconds: float
    waiting_for: str
    waiting_seconds: float
    deadline_seconds: float | None
    holding_up: tuple[str, ...]
    watchers: int
    participants: tuple[ParticipantPicture, ...]
    scores: tuple[Score, ...]
    totals: Totals
    store: StorePicture


def take(federation: Federation, terms_digest: bytes, counters: Counters, facts: Facts) -> Overview:
    """Returns the picture of this moment. Call it on the thread that owns the federation; it changes nothing."""
    newest = federation.newest_version
    holding_up = federation.holding_up
    participants = list(federation.participants)
    furthest = max((one.rounds_received for one in participants if one.state is State.ACTIVE), default=0)
    deadline = federation.next_deadline()
    uptime = facts.now - facts.started_at
    return Overview(
        federation=federation.terms.federation,
        terms_digest=terms_digest.hex(),
        phase=_phase(federation),
        newest_version=newest,
        final_version=federation.final_version,
        server_epoch=facts.server_epoch,
        taken_at=facts.wall_seconds,
        started_at=facts.wall_seconds - uptime,
        uptime_seconds=uptime,
        waiting_for=federation.waiting_for(),
        waiting_seconds=max(0.0, facts.now - facts.published_at),
        deadline_seconds=max(0.0, deadline - facts.now) if math.isfinite(deadline) else None,
        holding_up=holding_up,
        watchers=facts.watchers,
        participants=tuple(
            _participant(one, newest, furthest, one.name in holding_up, counters, facts.now) for one in participants
        ),
        scores=facts.scores,
        totals=_totals(counters, uptime),
        store=_store(federation, counters, facts.waiting_jobs),
    )


def _phase(federation: Federation) -> Phase:
    if federation.has_ended:
        return "ended"
    if federation.administration.paused_by is not None:
        return "paused"
    return "gathering" if federation.is_gathering else "running"


def _participant(
    one: Participant, newest: int, furthest: int, holds_up: bool, counters: Counters, now: float
) -> ParticipantPicture:
    updated_at = counters.last_update_at.get(one.name)
    claim = one.declared
    return ParticipantPicture(
        name=one.name,
        state=one.state.name.lower(),
        is_evicted=one.is_evicted,
        holds_up=holds_up,
        round=one.rounds_received - 1 if one.rounds_received else None,
        staleness=max(0, one.rounds_received - 1 - newest),
        behind=max(0, furthest - one.rounds_received) if one.state is State.ACTIVE else 0,
        seconds_since_update=None if updated_at is None else max(0.0, now - updated_at),
        next_owed_round=one.next_owed_round,
        entry_round=one.entry_round,
        exit_round=one.exit_round,
        suspensions=one.suspensions,
        accepted=one.accepted,
        duplicates=one.duplicates,
        invalid=one.invalid,
        without_update=one.without_update,
        lost=one.lost,
        flagged=one.flagged,
        claim=claim,
        budget_used=None if claim is None else min(1.0, one.rounds_received / claim.planned_rounds),
    )


def _totals(counters: Counters, uptime: float) -> Totals:
    return Totals(
        seconds=uptime,
        accepted=counters.updates[Answer.ACCEPTED],
        duplicates=counters.updates[Answer.DUPLICATE],
        versions=counters.versions,
        received_bytes=counters.received_bytes,
        sent_bytes=counters.sent_bytes,
        refusals=counters.refusals(),
        suspensions=counters.suspensions,
    )


def _store(federation: Federation, counters: Counters, waiting_jobs: int) -> StorePicture:
    commits, checkpoints = counters.commits, counters.checkpoints
    return StorePicture(
        failed=counters.store_failed,
        commits=commits.count,
        commit_seconds=commits.total / commits.count if commits.count else None,
        slow_commits=sum(commits.counts[commits.bounds.index(_SLOW_SECONDS) + 1 :]),
        checkpoint_seconds=checkpoints.total / checkpoints.count if checkpoints.count else None,
        waiting_jobs=waiting_jobs,
        watermark=federation.watermark(),
        backup_version=federation.backup_version,
    )
