"""What `/metrics` says of a federation in memory: the server's own numbers, bounded labels, and nothing private."""

import dataclasses
import math
import re
from pathlib import Path

import pytest
from hushgrad.server import counting, metrics, overview
from hushgrad.server.counting import Counters
from hushgrad.server.metrics import Metrics, Surroundings
from hushgrad.server.overview import Facts
from hushgrad.server.records import Answer, DeclaredClaim, Score
from prometheus_client.parser import text_string_to_metric_families

from tests.support.federations import Owner, digest_of, make_terms, senders_of
from tests.support.monitoring import dashboard_expressions, metrics_named_in, rules

TERMS = make_terms(participants=3, final_version=6, straggler_timeout_seconds=10.0)
PAGE = Path(__file__).resolve().parents[2] / "docs" / "monitoring.md"


def surroundings(folder: Path) -> Surroundings:
    (folder / "database").write_bytes(bytes(4096))
    return Surroundings(
        straggler_timeout_seconds=TERMS.straggler_timeout_seconds,
        participants_allowed=TERMS.largest_number_of_participants,
        state=folder,
        database=folder / "database",
        is_serving=lambda: True,
        spool_bytes=lambda: 12345,
        certificate_expiry=lambda: 2e9,
        backup_seconds=lambda: 1.9e9,
    )


class Scraped:
    """One scrape, parsed by Prometheus' own client."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.families = list(text_string_to_metric_families(text))
        self.samples = [sample for family in self.families for sample in family.samples]

    def value(self, name: str, **labels: str) -> float:
        [found] = [s.value for s in self.samples if s.name == name and s.labels == labels]
        return found

    def of_each(self, name: str) -> dict[str, float]:
        return {s.labels["participant"]: s.value for s in self.samples if s.name == name}

    @property
    def names(self) -> set[str]:
        """Names as people write them in rules: of a histogram, all three."""
        return {sample.name for sample in self.samples}


def scrape(
    owner: Owner, counters: Counters, folder: Path, scores: tuple[Score, ...] = (), **changes: object
) -> Scraped:
    facts = Facts(
        now=owner.now,
        wall_seconds=1_800_000_000.0,
        started_at=-100.0,
        published_at=owner.now - 7.0,
        server_epoch=2,
        watchers=5,
        waiting_jobs=3,
        scores=scores,
    )
    picture = overview.take(owner.federation, digest_of(owner.terms), counters, facts)
    around = dataclasses.replace(surroundings(folder), **changes)
    return Scraped(Metrics(counters, around).render(picture)[0].decode())


@pytest.fixture
def running() -> tuple[Owner, Counters]:
    """Two versions; then one participant submits, one is late and is suspended, and one is waited for."""
    owner, counters = Owner(TERMS, now=50.0), Counters()
    senders = senders_of(TERMS)
    owner.begin(senders)
    for round_ in range(2):
        for sender in senders:
            outcome = owner.submit(sender, sender.seal(round_))
            counters.updates[outcome.answer] += 1
            counters.updated(sender.name, outcome.answer, 0.003, owner.now)
    counters.updates[owner.submit(senders[0], senders[0].sealed[1]).answer] += 1
    counters.calls["SubmitUpdate"] = 9
    owner.now += 4.0
    counters.updates[owner.submit(senders[0], senders[0].seal(2)).answer] += 1
    counters.updates[owner.submit(senders[0], senders[0].seal(3)).answer] += 1
    counters.updated(senders[0].name, Answer.ACCEPTED, 0.3, owner.now)
    return owner, counters


def test_the_numbers_are_the_federations_own(running: tuple[Owner, Counters], tmp_path: Path) -> None:
    scraped = scrape(*running, tmp_path)
    assert scraped.value("hushgrad_newest_version") == 2
    assert scraped.value("hushgrad_final_version") == 6
    assert {phase: scraped.value("hushgrad_phase", phase=phase) for phase in metrics.PHASES} == {
        "gathering": 0,
        "running": 1,
        "paused": 0,
        "ended": 0,
    }
    assert scraped.value("hushgrad_version_timestamp_seconds") == 1_800_000_000 - 7
    assert scraped.value("hushgrad_participants", state="active") == 3
    assert scraped.of_each("hushgrad_participant_awaited") == {"client-1": 0, "client-2": 1, "client-3": 1}
    assert scraped.of_each("hushgrad_participant_next_owed_round") == {"client-1": 4, "client-2": 2, "client-3": 2}
    assert scraped.of_each("hushgrad_participant_staleness_versions") == {"client-1": 1, "client-2": 0, "client-3": 0}
    assert scraped.of_each("hushgrad_participant_last_update_timestamp_seconds") == {
        "client-1": 1_800_000_000,
        "client-2": 1_800_000_000 - 4,
        "client-3": 1_800_000_000 - 4,
    }
    assert scraped.value("hushgrad_updates_total", answer="accepted") == 8
    assert scraped.value("hushgrad_updates_total", answer="duplicate") == 1
    assert scraped.of_each("hushgrad_participant_duplicates_total") == {"client-1": 1, "client-2": 0, "client-3": 0}
    assert scraped.value("hushgrad_update_duration_seconds_count") == 7
    assert scraped.value("hushgrad_update_duration_seconds_bucket", le="0.005") == 6
    assert scraped.value("hushgrad_update_duration_seconds_bucket", le="+Inf") == 7
    assert scraped.value("hushgrad_update_duration_seconds_sum") == pytest.approx(6 * 0.003 + 0.3)
    assert scraped.value("hushgrad_calls_total", call="SubmitUpdate") == 9
    assert scraped.value("hushgrad_spool_bytes") == 12345
    assert scraped.value("hushgrad_watchers") == 5
    assert scraped.value("hushgrad_store_waiting_jobs") == 3
    assert scraped.value("hushgrad_server_epoch") == 2
    assert "process_start_time_seconds" in scraped.names


def test_who_was_late_is_suspended_and_waited_for_no_longer(running: tuple[Owner, Counters], tmp_path: Path) -> None:
    owner, counters = running
    owner.wait(11.0)
    scraped = scrape(owner, counters, tmp_path)
    states = {
        sample.labels["participant"]: sample.labels["state"]
        for sample in scraped.samples
        if sample.name == "hushgrad_participant_state" and sample.value == 1
    }
    assert states == {"client-1": "active", "client-2": "suspended", "client-3": "suspended"}
    assert scraped.of_each("hushgrad_participant_awaited") == dict.fromkeys(states, 0)
    assert scraped.of_each("hushgrad_participant_suspensions") == {"client-1": 0, "client-2": 1, "client-3": 1}


def test_a_federation_that_has_just_begun_has_every_counter_at_zero(tmp_path: Path) -> None:
    scraped = scrape(Owner(TERMS), Counters(), tmp_path)
    assert scraped.value("hushgrad_phase", phase="gathering") == 1
    found = {s.labels["reason"]: s.value for s in scraped.samples if s.name == "hushgrad_refusals_total"}
    assert found == dict.fromkeys(counting.REASONS, 0), "a rule on increases misses a counter that appears with 1"
    assert not [s for s in scraped.samples if "participant" in s.labels]


def test_of_one_picture_one_text_is_made_however_many_ask(running: tuple[Owner, Counters], tmp_path: Path) -> None:
    owner, counters = running
    asked: list[int] = []

    def spool_bytes() -> int:
        asked.append(1)
        return 0

    rendered = Metrics(counters, dataclasses.replace(surroundings(tmp_path), spool_bytes=spool_bytes))
    facts = Facts(now=60.0, wall_seconds=1e9, started_at=0.0, published_at=0.0, server_epoch=1, watchers=0)
    pictures = [overview.take(owner.federation, digest_of(TERMS), counters, facts) for _ in range(2)]
    assert rendered.render(pictures[0]) == rendered.render(pictures[0])
    assert len(asked) == 1
    rendered.render(pictures[1])
    assert len(asked) == 2


def test_strangers_make_no_series(running: tuple[Owner, Counters], tmp_path: Path) -> None:
    owner, counters = running
    before = scrape(owner, counters, tmp_path)
    for number in range(50):
        stranger = senders_of(make_terms(names=(f"stranger-{number}",)))[0]
        stranger.terms_digest = digest_of(TERMS)
        outcome = owner.join(stranger)
        counters.answers[outcome.answer] += 1
        sealed = stranger.seal(0)
        counters.updated(stranger.name, owner.submit(stranger, sealed).answer, 0.001, owner.now)
    after = scrape(owner, counters, tmp_path)
    assert after.value("hushgrad_refusals_total", reason="unknown_participant") == 50
    assert len(after.samples) == len(before.samples)
    assert "stranger" not in after.text


def test_a_claim_is_used_by_rounds_received_over_rounds_planned(
    running: tuple[Owner, Counters], tmp_path: Path
) -> None:
    owner, counters = running
    assert not scrape(owner, counters, tmp_path).of_each("hushgrad_participant_claim_used_ratio")
    one = next(iter(owner.federation.participants))
    one.declared = DeclaredClaim(0.5, 1e-5, "add-remove", "poisson", "record", "PLD", "1", 16, True)
    assert scrape(owner, counters, tmp_path).of_each("hushgrad_participant_claim_used_ratio") == {"client-1": 4 / 16}


def test_scores_of_the_latest_evaluators_are_shown_and_no_more(tmp_path: Path) -> None:
    scores = tuple(
        Score(f"board-{number}", 3, number / 100, None if number % 2 else 0.5, 1000, 1e9 + number)
        for number in range(3 * metrics.MOST_EVALUATORS)
    )
    scraped = scrape(Owner(TERMS), Counters(), tmp_path, scores)
    found = [s for s in scraped.samples if s.name == "hushgrad_evaluation_accuracy_ratio"]
    assert {s.labels["evaluator"] for s in found} == {score.evaluator for score in scores[-metrics.MOST_EVALUATORS :]}
    assert scraped.value("hushgrad_evaluation_accuracy_ratio", evaluator="board-47", model="published") == 0.47


def test_names_and_units_are_prometheus_own(running: tuple[Owner, Counters], tmp_path: Path) -> None:
    for family in scrape(*running, tmp_path).families:
        name = family.name
        assert re.fullmatch(r"(hushgrad|process|python)_[a-z0-9_]+", name), name
        assert family.documentation, name
        if family.type == "counter":
            assert all(sample.name.endswith("_total") for sample in family.samples), name
        assert not re.search(r"_(ms|milliseconds|minutes|kb|mib|percent)(_|$)", name), name
        if name.startswith("hushgrad_") and "timestamp" in name:
            assert name.endswith("_timestamp_seconds"), name
        assert not [sample for sample in family.samples if math.isnan(sample.value)], name


def test_a_disk_that_cannot_be_asked_hides_nothing_else(running: tuple[Owner, Counters], tmp_path: Path) -> None:
    scraped = scrape(*running, tmp_path, state=tmp_path / "gone")
    assert scraped.value("hushgrad_newest_version") == 2
    assert scraped.value("hushgrad_backup_timestamp_seconds") == 1.9e9
    assert "hushgrad_state_filesystem_free_bytes" not in scraped.names


def test_without_tls_and_backups_nothing_is_said_of_them(running: tuple[Owner, Counters], tmp_path: Path) -> None:
    scraped = scrape(*running, tmp_path, certificate_expiry=lambda: None, backup_seconds=lambda: None)
    assert not {name for name in scraped.names if "certificate" in name or "backup" in name}


def test_rules_dashboard_and_page_name_what_there_is(running: tuple[Owner, Counters], tmp_path: Path) -> None:
    owner, counters = running
    owner.federation.backup_version = 1
    one = next(iter(owner.federation.participants))
    one.declared = DeclaredClaim(0.5, 1e-5, "add-remove", "poisson", "record", "PLD", "1", 8, True)
    score = Score("board", 1, 0.5, 0.5, 10, 1e9)
    scraped = scrape(owner, counters, tmp_path, (score,))
    for source, expression in (*rules(), *dashboard_expressions()):
        unknown = metrics_named_in(expression) - scraped.names
        assert not unknown, f"{source} asks for {', '.join(sorted(unknown))}, which no server has"
    own = {family.name for family in scraped.families if family.name.startswith("hushgrad_")}
    own = {f"{name}_total" if f"{name}_total" in scraped.names else name for name in own}
    documented = set(re.findall(r"^\| `(hushgrad_[a-z_]+)", PAGE.read_text(), re.MULTILINE))
    assert documented == own
