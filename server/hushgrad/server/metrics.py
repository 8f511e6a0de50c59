"""`/metrics`: what is known of a federation and of its server, in the text format of Prometheus, by its naming rules.

Formats, and decides nothing: the numbers are the picture's (`overview`), the counters' and a few of the machine's. No
label is free text; names of participants are at most as many as the terms admit. Nothing here depends on private data:
no loss, no count of anybody's records. docs/monitoring.md has every name.
"""

import contextlib
import importlib.metadata
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, get_args

from hushgrad.server.counting import Counters, Histogram
from hushgrad.server.overview import Overview, ParticipantPicture, Phase
from hushgrad.server.records import Answer, State
from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector, exposition
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

PHASES: Final[tuple[Phase, ...]] = get_args(Phase)
MOST_EVALUATORS: Final = 16
"""So many evaluators' scores are shown, the latest ones: nothing else says how many there may be."""

_STATES: Final = tuple(state.name.lower() for state in State)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What neither the picture nor the counters know. The callables may be called on any thread.

    Attributes:
        straggler_timeout_seconds, participants_allowed: from the terms.
        state: folder of the server's state.
        database: its main file.
        is_serving: whether calls are taken.
        spool_bytes: what lies in the spool.
        certificate_expiry: when the certificate that the server shows expires, seconds since 1970; None without TLS.
        backup_seconds: when the last verified backup was made, seconds since 1970; 0 when there is none yet, None when
            no backups are kept.
    """

    straggler_timeout_seconds: float
    participants_allowed: int
    state: Path
    database: Path
    is_serving: Callable[[], bool]
    spool_bytes: Callable[[], int]
    certificate_expiry: Callable[[], float | None]
    backup_seconds: Callable[[], float | None]


class Metrics:
    """Renders everything that one server process has to say."""

    def __init__(self, counters: Counters, surroundings: Surroundings) -> None:
        self._counters = counters
        self._surroundings = surroundings
        self._newest: tuple[Overview | None, bytes] = (None, b"")
        self._process = CollectorRegistry()
        ProcessCollector(registry=self._process)
        PlatformCollector(registry=self._process)

    def render(self, overview: Overview) -> tuple[bytes, str]:
        """Returns the text of one scrape, and its content type. Of one picture one text is made, however many ask."""
        of, text = self._newest
        if of is not overview:
            registry = CollectorRegistry()
            registry.register(_Families(overview, self._counters, self._surroundings))
            text = exposition.generate_latest(registry) + exposition.generate_latest(self._process)
            self._newest = overview, text
        return text, exposition.CONTENT_TYPE_PLAIN_0_0_4


class _Families(Collector):
    """One picture as metric families."""

    def __init__(self, overview: Overview, counters: Counters, surroundings: Surroundings) -> None:
        self._overview = overview
        self._counters = counters
        self._surroundings = surroundings

    def collect(self) -> Iterable[Metric]:
        yield from self._federation()
        yield from self._participants()
        yield from self._scores()
        yield from self._calls()
        yield from self._store()
        yield from self._machine()

    def _federation(self) -> Iterator[Metric]:
        overview, surroundings = self._overview, self._surroundings
        yield InfoMetricFamily("hushgrad_build", "The program.", {"version": importlib.metadata.version("hushgrad")})
        yield InfoMetricFamily(
            "hushgrad_federation",
            "The federation, and the digest of its terms.",
            {"federation": overview.federation, "terms_digest": overview.terms_digest},
        )
        yield _labelled(
            "hushgrad_phase",
            "1 for the phase that the federation is in, 0 for the others.",
            "phase",
            {phase: phase == overview.phase for phase in PHASES},
        )
        yield _gauge("hushgrad_newest_version", "The newest published version.", overview.newest_version)
        yield _gauge("hushgrad_final_version", "The version after which the federation ends.", overview.final_version)
        yield _gauge(
            "hushgrad_retention_watermark_version",
            "Clients may drop sealed updates that this version or an earlier one includes.",
            overview.store.watermark,
        )
        yield _gauge(
            "hushgrad_server_epoch",
            "1 at first, and one more each time the state is restored from a backup.",
            overview.server_epoch,
        )
        yield _gauge(
            "hushgrad_version_timestamp_seconds",
            "When the newest version was published, or this server started, if that was later.",
            overview.taken_at - overview.waiting_seconds,
        )
        yield _gauge(
            "hushgrad_straggler_timeout_seconds",
            "After so long the federation goes on without who holds it up.",
            surroundings.straggler_timeout_seconds,
        )
        yield _gauge("hushgrad_watchers", "Open watches.", overview.watchers)
        yield _gauge("hushgrad_serving", "Whether the server takes calls.", surroundings.is_serving())

    def _participants(self) -> Iterator[Metric]:
        everybody = self._overview.participants
        counts = dict.fromkeys(_STATES, 0)
        for one in everybody:
            counts[one.state] += 1
        yield _labelled("hushgrad_participants", "Participants that have joined, by state.", "state", counts)
        yield _gauge(
            "hushgrad_participants_allowed",
            "So many participants the terms allow.",
            self._surroundings.participants_allowed,
        )
        yield _of_each(
            "hushgrad_participant_state",
            "1 for the state that a participant is in, 0 for the others.",
            (((one.name, state), state == one.state) for one in everybody for state in _STATES),
            "state",
        )
        for name, documentation, value in _OF_EACH_PARTICIPANT:
            yield _of_each(name, documentation, (((one.name,), value(one)) for one in everybody))
        yield _of_each(
            "hushgrad_participant_rounds",
            "A participant's rounds by what became of them. A round without update may still become accepted.",
            (
                ((one.name, outcome), count)
                for one in everybody
                for outcome, count in (
                    ("accepted", one.accepted),
                    ("invalid", one.invalid),
                    ("without_update", one.without_update),
                )
            ),
            "outcome",
        )
        duplicates = CounterMetricFamily(
            "hushgrad_participant_duplicates_total", "Updates that a participant sent again.", labels=["participant"]
        )
        for one in everybody:
            duplicates.add_metric([one.name], one.duplicates)
        yield duplicates
        taken_at = self._overview.taken_at
        yield _of_each(
            "hushgrad_participant_last_update_timestamp_seconds",
            "When a participant's last update was accepted; missing until this server has accepted one.",
            (
                ((one.name,), taken_at - one.seconds_since_update)
                for one in everybody
                if one.seconds_since_update is not None
            ),
        )
        yield _of_each(
            "hushgrad_participant_claim_used_ratio",
            "Rounds received over rounds planned, of the claim that a participant declared. Not verified.",
            (((one.name,), one.budget_used) for one in everybody if one.budget_used is not None),
        )

    def _scores(self) -> Iterator[Metric]:
        latest = sorted(self._overview.scores, key=lambda score: score.reported_at, reverse=True)[:MOST_EVALUATORS]
        accuracy = GaugeMetricFamily(
            "hushgrad_evaluation_accuracy_ratio",
            "Accuracy on public test data, as an evaluator reported it last.",
            labels=["evaluator", "model"],
        )
        for score in latest:
            accuracy.add_metric([score.evaluator, "published"], score.accuracy)
            if score.averaged_accuracy is not None:
                accuracy.add_metric([score.evaluator, "averaged"], score.averaged_accuracy)
        yield accuracy

    def _calls(self) -> Iterator[Metric]:
        counters = self._counters
        yield _counter("hushgrad_calls_total", "Calls, by name.", dict(counters.calls), "call")
        yield _counter(
            "hushgrad_updates_total",
            "Answers to updates.",
            {answer.name.lower(): counters.updates[answer] for answer in Answer},
            "answer",
        )
        yield _counter(
            "hushgrad_refusals_total",
            "Calls that did not get what they asked for, by reason; an update among them.",
            counters.refusals(),
            "reason",
        )
        yield _histogram(
            "hushgrad_update_duration_seconds",
            "From a whole update to its answer: checked, folded and durable.",
            counters.update_seconds,
        )
        yield _counter("hushgrad_updates_folded_total", "Updates added to the model.", counters.folds)
        yield _counter(
            "hushgrad_update_received_bytes_total",
            "Payloads of updates and pieces of uploads, repeats included.",
            counters.received_bytes,
        )
        yield _counter(
            "hushgrad_model_sent_bytes_total", "Messages of watches and downloads of models.", counters.sent_bytes
        )
        yield _counter(
            "hushgrad_suspensions_total", "Participants suspended for holding up a version.", counters.suspensions
        )
        yield _counter("hushgrad_versions_published_total", "Versions published.", counters.versions)
        yield _histogram("hushgrad_version_interval_seconds", "From one version to the next.", counters.version_seconds)

    def _store(self) -> Iterator[Metric]:
        counters, store = self._counters, self._overview.store
        yield _gauge("hushgrad_store_up", "0 once the store has failed; the server stops then.", not store.failed)
        yield _gauge("hushgrad_store_waiting_jobs", "What the store has not written yet.", store.waiting_jobs)
        yield _histogram(
            "hushgrad_store_commit_duration_seconds", "Commits of the store, each for many jobs.", counters.commits
        )
        yield _counter("hushgrad_store_jobs_total", "Jobs in those commits.", counters.commit_jobs)
        yield _histogram(
            "hushgrad_checkpoint_duration_seconds",
            "The making of checkpoints, each within a commit.",
            counters.checkpoints,
        )

    def _machine(self) -> Iterator[Metric]:
        surroundings = self._surroundings
        yield _gauge("hushgrad_spool_bytes", "Unfinished uploads on disk.", surroundings.spool_bytes())
        with contextlib.suppress(OSError):  # A disk that fails must not hide everything else.
            yield from self._disk()
        expiry = surroundings.certificate_expiry()
        if expiry is not None:
            yield _gauge(
                "hushgrad_certificate_expiry_timestamp_seconds", "When the server's certificate expires.", expiry
            )
        backup_seconds = surroundings.backup_seconds()
        if backup_seconds is not None:
            yield _gauge(
                "hushgrad_backup_timestamp_seconds",
                "When the last verified backup was made; 0 when there is none yet.",
                backup_seconds,
            )
        if self._overview.store.backup_version is not None:
            yield _gauge(
                "hushgrad_backup_version", "The version in the last backup.", self._overview.store.backup_version
            )

    def _disk(self) -> Iterator[Metric]:
        filesystem = os.statvfs(self._surroundings.state)
        yield _gauge(
            "hushgrad_state_filesystem_free_bytes",
            "Room for the server on the disk of its state.",
            filesystem.f_bavail * filesystem.f_frsize,
        )
        yield _gauge(
            "hushgrad_state_filesystem_size_bytes", "Size of that disk.", filesystem.f_blocks * filesystem.f_frsize
        )
        yield _gauge("hushgrad_database_bytes", "Size of the database.", self._surroundings.database.stat().st_size)


_OF_EACH_PARTICIPANT: Final[tuple[tuple[str, str, Callable[[ParticipantPicture], float]], ...]] = (
    ("hushgrad_participant_awaited", "Whether the next version waits for an update of it.", lambda one: one.holds_up),
    ("hushgrad_participant_next_owed_round", "The first round that it still owes.", lambda one: one.next_owed_round),
    (
        "hushgrad_participant_staleness_versions",
        "How many versions behind its round the newest version is.",
        lambda one: one.staleness,
    ),
    ("hushgrad_participant_suspensions", "How often it was suspended.", lambda one: one.suspensions),
    ("hushgrad_participant_rounds_lost", "Rounds without update that nobody holds any more.", lambda one: one.lost),
    (
        "hushgrad_participant_rounds_flagged",
        "Accepted rounds whose update its declared mechanism cannot have produced.",
        lambda one: one.flagged,
    ),
)


def _gauge(name: str, documentation: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, documentation, value=value)


def _labelled(name: str, documentation: str, label: str, values: dict[str, int]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, documentation, labels=[label])
    for key, value in values.items():
        family.add_metric([key], value)
    return family


def _of_each(
    name: str, documentation: str, values: Iterable[tuple[tuple[str, ...], float]], *labels: str
) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, documentation, labels=["participant", *labels])
    for keys, value in values:
        family.add_metric(keys, value)
    return family


def _counter(name: str, documentation: str, value: float | dict[str, int], label: str = "") -> CounterMetricFamily:
    if not isinstance(value, dict):
        return CounterMetricFamily(name, documentation, value=value)
    family = CounterMetricFamily(name, documentation, labels=[label])
    for key, count in value.items():
        family.add_metric([key], count)
    return family


def _histogram(name: str, documentation: str, histogram: Histogram) -> HistogramMetricFamily:
    counts = tuple(histogram.counts)  # all of one moment, so that buckets and count agree
    buckets, below = [], 0
    for bound, count in zip((*map(str, histogram.bounds), "+Inf"), counts, strict=True):
        below += count
        buckets.append((bound, below))
    return HistogramMetricFamily(name, documentation, buckets=buckets, sum_value=histogram.total)
