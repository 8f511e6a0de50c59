"""The verbs as people type them: what they print, which exit code they leave, and that bad input changes nothing."""

import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click.testing
import numpy as np
import pytest
import structlog
from hushgrad.client import __main__ as command
from hushgrad.client import zeroed
from hushgrad.client.ledger import Ledger
from hushgrad.wire import header

from tests.support import client_world
from tests.support.fake_server import FakeServer

CONFIG = """
participant = "client-1"
server = "{server}"
state = "state"
connect_timeout_seconds = 0.5
[data]
file = "data.npz"
[model]
kind = "logistic"
[privacy]
records = 100
clip_norm = 0.5
noise_multiplier = 4.0
sampler = "poisson"
epsilon = 1.0
delta = 1e-5
lifetime_epsilon = 1.0
lifetime_delta = 1e-5
release_interval_seconds = 0.01
"""


class World:
    """A folder with configuration and data, and a server."""

    def __init__(self, folder: Path, server: FakeServer, address: str) -> None:
        self.folder, self.server, self.address = folder, server, address
        rng = np.random.default_rng(5)
        features = rng.random((100, 3))
        np.savez(folder / "data.npz", X=features, y=(features[:, 0] > 0.5).astype(int))
        self.config = folder / "client.toml"
        self.write()

    def write(self, *changes: tuple[str, str]) -> None:
        text = CONFIG.format(server=self.address)
        for old, new in changes:
            assert old in text
            text = text.replace(old, new, 1)
        self.config.write_text(text)

    def call(self, *arguments: str) -> click.testing.Result:
        return click.testing.CliRunner().invoke(command.main, [*arguments, "--config", str(self.config)])

    def good(self, *arguments: str) -> Any:
        result = self.call(*arguments, "--json")
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    def files(self) -> dict[str, str]:
        """Everything in the folder by content, except the lock file and SQLite's transient ones."""
        transient = ("-wal", "-shm", "lock")
        return {
            str(path.relative_to(self.folder)): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in sorted(self.folder.rglob("*"))
            if path.is_file() and not path.name.endswith(transient)
        }

    def refused(self, code: int, complaint: str, *arguments: str) -> None:
        """Asserts the exit code, one line on stderr that says so, and that nothing has changed."""
        before, seen = self.files(), len(self.server.seen)
        result = self.call(*arguments)
        lines = [line for line in result.stderr.splitlines() if line.startswith("hushgrad-client: ")]
        assert result.exit_code == code, result.output
        assert len(lines) == 1, result.stderr
        assert complaint in lines[0]
        assert "Traceback" not in result.output
        assert self.files() == before
        calls = {name for name, _ in self.server.seen[seen:]}
        assert calls <= {"GetTerms"}, "nothing but the terms was asked for"


@pytest.fixture(autouse=True)
def _home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("HUSHGRAD_HOME", str(tmp_path_factory.mktemp("home")))
    yield
    structlog.reset_defaults()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    server = FakeServer(client_world.make_terms())
    with server.serving() as address:
        yield World(tmp_path, server, address)


@pytest.fixture
def ready(world: World) -> World:
    """With a ledger."""
    world.good("ledger", "init")
    return world


# The good way.


def test_a_run_from_init_to_export(ready: World) -> None:
    dry = ready.good("run", "--dry-run")
    assert (dry["rounds"], dry["rounds_affordable"], dry["fits"], dry["committed"]) == (6, 6, True, False)

    outcome = ready.good("run")
    assert (outcome["reason"], outcome["rounds_sealed"], outcome["version"]) == ("ended", 6, 6)
    assert outcome["claim"] == dry["claim"]
    assert 0 < outcome["claim"]["epsilon"] <= 1.0
    assert outcome["timing"] == "timing covered by the release interval"

    status = ready.good("status")
    (run,) = status["runs"]
    assert (run["rounds_committed"], run["rounds_spent"], run["next_round"]) == (6, 6, 6)
    assert run["odometer"]["epsilon_so_far"] == run["claim"]["epsilon"]
    assert "not a guarantee" in run["odometer"]["label"]
    assert status["left"]["epsilon"] == pytest.approx(1.0 - run["claim"]["epsilon"])
    assert run["waiting_for"].startswith("nothing: every committed round")

    assert ready.good("ledger", "verify")["updates"] == 6
    kinds = [row["kind"] for row in ready.good("ledger", "show")]
    assert kinds == ["init", "commit", *["update"] * 6]
    again = ready.good("run", "--dry-run")
    assert (again["committed"], again["claim"]) == (True, dry["claim"])


def test_the_export_alone_gives_chain_digests_and_privacy_loss(ready: World) -> None:
    ready.good("run")
    document = ready.good("ledger", "export")
    assert (document["format"], document["participant"]) == (1, "client-1")

    head = hashlib.sha256(b"hushgrad ledger" + bytes.fromhex(document["ledger_id"])).digest()
    for row in document["rows"]:
        if row["kind"] != "update":
            assert hashlib.sha256(row["text"].encode()).hexdigest() == row["digest"]
        head = hashlib.sha256(head + bytes.fromhex(row["digest"])).digest()
        assert head.hex() == row["head"]
    assert document["head"] == head.hex()

    updates = [row for row in document["rows"] if row["kind"] == "update"]
    assert {(row["round"], row["digest"]) for row in updates} == {
        (round_, digest.hex()) for (_, round_), (digest, _) in ready.server.receipts.items()
    }
    # Another library call than ours: dp-accounting's own accountant, with a fine grid.
    from dp_accounting import dp_event
    from dp_accounting.pld import pld_privacy_accountant

    accountant = pld_privacy_accountant.PLDAccountant(value_discretization_interval=1e-4)
    for row in updates:
        assert (row["sampling"], row["clip_norm"], row["sample_size"]) == ("poisson", 0.5, 8)
        gaussian = dp_event.GaussianDpEvent(row["charged_noise_multiplier"])
        accountant.compose(dp_event.PoissonSampledDpEvent(row["sampling_probability"], gaussian))
    (run,) = document["runs"]
    assert accountant.get_epsilon(run["delta"]) == pytest.approx(run["claim"]["epsilon"], rel=5e-3)


def test_the_export_says_nothing_about_the_data(ready: World) -> None:
    ready.good("run")
    before = ready.good("ledger", "export")
    text = json.dumps(before)
    for word in ("loss", "accuracy", "batch", "gradient", "rows_of_data"):
        assert word not in text


def test_only_the_owner_is_told_how_many_records_counted_as_zero(ready: World) -> None:
    assert ready.good("run")["rounds_sealed"] == 6
    assert ready.good("status")["runs"][0]["records_zeroed"] == 0
    assert "zeroed" not in ready.call("status").stdout

    note = ready.folder / "state" / "zeroed.txt"
    (digest, _) = note.read_text().split()
    count = zeroed.Count(ready.folder / "state", digest)
    for seen in (0, 2, 3):
        count.write(seen)
    zeroed.Count(ready.folder / "state", digest).write(4)  # another process goes on
    assert ready.good("status")["runs"][0]["records_zeroed"] == 7
    assert "7 times a record counted as zero" in ready.call("status").stdout
    assert "zeroed" not in json.dumps(ready.good("ledger", "export"))
    note.write_bytes(b"\xff nonsense\n" + digest.encode() + b" -3\n")
    assert ready.good("status")["runs"][0]["records_zeroed"] is None


def test_a_record_that_cannot_be_used_is_counted_while_a_run_goes_on(ready: World) -> None:
    features = np.random.default_rng(5).random((100, 3))
    features[:50] = 1.7e308  # the norm of their gradients is not finite
    np.savez(ready.folder / "data.npz", X=features, y=(features[:, 0] > 0.5).astype(int))
    (ready.folder / "state" / "ledger.sqlite").unlink()
    ready.good("ledger", "init", "--accept-new-budget")
    outcome = ready.call("run")
    assert outcome.exit_code == 0, outcome.output
    # 6 rounds of 100 records with chance 0.08, half of them unusable: none at all has probability 0.92^300 < 1e-10.
    assert 0 < ready.good("status")["runs"][0]["records_zeroed"] < 300
    assert "zeroed" not in outcome.stderr


def test_people_get_text_without_json(ready: World) -> None:
    for arguments in (("run", "--dry-run"), ("run",), ("status",), ("ledger", "show"), ("ledger", "verify")):
        result = ready.call(*arguments)
        assert result.exit_code == 0, result.output
        assert not result.stdout.startswith("{")
    assert "odometer reading" in ready.call("status").stdout


def test_without_a_release_interval_the_claim_says_that_timing_is_not_covered(ready: World) -> None:
    ready.write(("release_interval_seconds = 0.01\n", ""))
    assert ready.good("run", "--dry-run")["timing"] == "timing not covered"


def test_the_server_is_told_the_committed_claim_and_nothing_else(ready: World) -> None:
    outcome = ready.good("run")
    (start,) = ready.server.calls("Start")
    told = start.claim
    claim = outcome["claim"]
    assert (told.epsilon, told.delta) == (claim["epsilon"], claim["delta"])
    assert (told.adjacency, told.unit, told.method) == (claim["adjacency"], claim["unit"], claim["method"])
    assert (told.method_version, told.planned_rounds, told.timing_covered) == (claim["method_version"], 6, True)
    assert {field.name for field in told.DESCRIPTOR.fields} == {
        "epsilon", "delta", "adjacency", "sampler", "unit", "method", "method_version", "planned_rounds",
        "timing_covered",
    }  # fmt: skip


def test_the_server_is_told_no_claim_when_its_owner_says_so(ready: World) -> None:
    ready.write(('state = "state"', 'state = "state"\ndeclare_claim = false'))
    ready.good("run")
    (start,) = ready.server.calls("Start")
    assert not start.HasField("claim")


def test_dry_run_draws_and_writes_nothing(ready: World) -> None:
    before = ready.files()
    ready.good("run", "--dry-run")
    assert ready.files() == before
    assert {name for name, _ in ready.server.seen} == {"GetTerms"}


def test_status_works_while_a_client_runs(ready: World) -> None:
    with Ledger(ready.folder / "state"):
        assert ready.good("status")["runs"] == []


def test_a_second_federation_must_be_meant_and_adds_up(ready: World) -> None:
    ready.write(("lifetime_delta = 1e-5", "lifetime_delta = 1e-4"))
    (ready.folder / "state" / "ledger.sqlite").unlink()
    ready.good("ledger", "init", "--accept-new-budget")
    first = ready.good("run")["claim"]["epsilon"]

    other = FakeServer(client_world.make_terms(final_version=5))
    with other.serving() as address:
        ready.server, ready.address = other, address
        changes = (("lifetime_delta = 1e-5", "lifetime_delta = 1e-4"),)
        ready.write(*changes)
        ready.refused(5, "if a second federation is meant", "run")
        ready.write(*changes, ("[data]", f'terms_digest = "{other.digest.hex()}"\n[data]'))
        second = ready.good("run")["claim"]["epsilon"]
    assert ready.good("status")["left"]["epsilon"] == pytest.approx(1.0 - first - second)


def test_a_run_beyond_what_is_left_for_life_is_refused(ready: World) -> None:
    ready.good("run")
    other = FakeServer(client_world.make_terms(final_version=5))
    with other.serving() as address:
        ready.server, ready.address = other, address
        ready.write(("[data]", f'terms_digest = "{other.digest.hex()}"\n[data]'))
        ready.refused(3, "is left", "run")  # the first run has taken all of lifetime_delta


# Bad input.


Change = Callable[[World], None]


def _write(*changes: tuple[str, str]) -> Change:
    return lambda world: world.write(*changes)


def _nan(world: World) -> None:
    features = np.random.default_rng(5).random((100, 3))
    features[7, 1] = np.nan
    np.savez(world.folder / "data.npz", X=features, y=np.zeros(100, int))


def _other_data(world: World) -> None:
    np.savez(world.folder / "data.npz", X=np.ones((100, 3)), y=np.tile([0, 1], 50))


def _wrong_dimension(world: World) -> None:
    (world.folder / "state" / "ledger.sqlite").unlink()
    np.savez(world.folder / "data.npz", X=np.ones((100, 4)), y=np.tile([0, 1], 50))
    world.good("ledger", "init")


@pytest.mark.parametrize(
    ("change", "code", "complaint"),
    [
        (lambda w: (w.folder / "state" / "ledger.sqlite").unlink(), 2, "there is no ledger at"),
        (lambda w: (w.folder / "state" / "ledger.sqlite").write_bytes(b""), 2, "is empty"),
        (lambda w: (w.folder / "state" / "ledger.sqlite").write_bytes(b"x" * 9999), 2, "cannot be read as a ledger"),
        (_write(('"client-1"', '"client-2"')), 2, "belongs to participant 'client-1'"),
        (_other_data, 2, "belongs to other data"),
        (_nan, 2, "NaN"),
        (_wrong_dimension, 2, "the model's arrays are weights [4], bias []"),
        (_write(("[model]", "[model]\ndepth = 3")), 2, "unknown field `depth`"),
        (_write(("[privacy]", "[secrecy]")), 2, "unknown field `secrecy`"),
        (_write(("delta = 1e-5", "delta = 0.02")), 2, "--accept-large-delta"),
        (_write(("clip_norm = 0.5", "clip_norm = 0.6")), 2, "clip_norm is 0.6, the terms say 0.5"),
        (_write(("noise_multiplier = 4.0", "noise_multiplier = 30.0")), 2, "the terms allow 1.0 to 20.0"),
        (_write(("records = 100", "records = 7")), 2, "too small for this federation"),
        (_write(('kind = "logistic"', 'kind = "softmax"')), 2, "the terms are for a 'logistic' model"),
        (_write(("lifetime_epsilon = 1.0", "lifetime_epsilon = 2.0")), 2, "a lifetime budget never changes"),
        (_write(("[data]", f'terms_digest = "{"00" * 32}"\n[data]')), 5, "the configuration pins 0000"),
        (_write(("\nepsilon = 1.0", "\nepsilon = 0.01")), 3, "[privacy] epsilon allows 0.01"),
        (
            _write(("noise_multiplier = 4.0", "noise_multiplier = 1.0"), ("\nepsilon = 1.0", "\nepsilon = 9.0")),
            3,
            "left",
        ),
    ],
)
def test_bad_input_is_one_line_and_changes_nothing(ready: World, change: Change, code: int, complaint: str) -> None:
    change(ready)
    ready.refused(code, complaint, "run")


def test_a_second_client_on_the_ledger_is_refused_before_it_reads_the_data(ready: World) -> None:
    _nan(ready)  # would be refused as well, but later
    with Ledger(ready.folder / "state"):
        ready.refused(2, "in use by another process", "run")


def test_a_participant_that_the_terms_do_not_name_is_refused(tmp_path: Path) -> None:
    server = FakeServer(client_world.make_terms(participants=("client-7", "client-8")))
    with server.serving() as address:
        world = World(tmp_path, server, address)
        world.good("ledger", "init")
        world.refused(2, "do not name participant 'client-1'", "run")


def test_a_sampler_that_is_not_offered_is_refused(tmp_path: Path) -> None:
    from dataclasses import replace

    terms = client_world.make_terms()
    server = FakeServer(replace(terms, privacy=replace(terms.privacy, samplers=("poisson",))))
    with server.serving() as address:
        world = World(tmp_path, server, address)
        world.good("ledger", "init")
        world.write(('sampler = "poisson"', 'sampler = "fixed"'))
        world.refused(2, "sampler is 'fixed', the terms allow poisson", "run")


def test_fixed_sampling_needs_as_many_rows_as_were_declared(ready: World) -> None:
    ready.write(('sampler = "poisson"', 'sampler = "fixed"'), ("records = 100", "records = 101"))
    ready.refused(2, "101", "run")


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("noise_multiplier = 4.0", "noise_multiplier = 5.0", "noise_multiplier = 4.0, the configuration now gives 5.0"),
        ("records = 100", "records = 101", "records = 100, the configuration now gives 101"),
        ('sampler = "poisson"', 'sampler = "fixed"', "sampler = poisson, the configuration now gives fixed"),
        ("release_interval_seconds = 0.01", "", "timing = covered, the configuration now gives not covered"),
    ],
)
def test_a_committed_run_refuses_another_configuration(ready: World, old: str, new: str, complaint: str) -> None:
    ready.good("run")
    ready.write((old, new))
    ready.refused(2, complaint, "run")


def test_an_unreachable_server_is_waited_for_visibly_and_then_given_up(ready: World) -> None:
    ready.write((ready.address, "127.0.0.1:1"))
    before = ready.files()
    result = ready.call("run", "--log-format", "json")
    assert result.exit_code == 4
    lines = result.stderr.splitlines()
    events = [json.loads(line) for line in lines[:-1]]
    waiting = [event for event in events if event["event"] == "waiting_for_server"]
    assert waiting[0]["address"] == "127.0.0.1:1"
    assert lines[-1].startswith("hushgrad-client: no server answered at 127.0.0.1:1 within 0.5 s")
    assert ready.files() == before


def test_a_second_ledger_for_the_same_data_must_be_asked_for(ready: World) -> None:
    ready.refused(2, "this data has had a ledger already", "ledger", "init", "--state", str(ready.folder / "second"))
    ready.refused(2, "never overwritten", "ledger", "init", "--accept-new-budget")
    made = ready.good("ledger", "init", "--accept-new-budget", "--state", str(ready.folder / "second"))
    assert made["accepted_new_budget"] is True
    assert ready.good("status", "--state", str(ready.folder / "second"))["accepted_new_budget"] is True
    assert "second budget" in ready.call("status", "--state", str(ready.folder / "second")).stdout
    assert ready.good("status")["accepted_new_budget"] is False


def test_a_deleted_ledger_is_not_forgotten(ready: World) -> None:
    (ready.folder / "state" / "ledger.sqlite").unlink()
    ready.refused(2, "this data has had a ledger already", "ledger", "init")


@pytest.mark.parametrize("verb", [("status",), ("ledger", "show"), ("ledger", "verify"), ("ledger", "export")])
def test_every_reader_refuses_a_missing_ledger(world: World, verb: tuple[str, ...]) -> None:
    world.refused(2, "there is no ledger at", *verb)


def test_a_dry_run_that_does_not_fit_says_how_many_rounds_do(ready: World) -> None:
    full = ready.good("run", "--dry-run")["claim"]["epsilon"]
    ready.write(("\nepsilon = 1.0", f"\nepsilon = {0.7 * full}"))
    result = ready.call("run", "--dry-run", "--json")
    assert result.exit_code == 3
    assert 0 < json.loads(result.stdout)["rounds_affordable"] < 6


def test_a_delta_above_one_over_n_can_be_accepted(ready: World) -> None:
    ready.write(("\ndelta = 1e-5", "\ndelta = 0.02"))
    answer = ready.call("run", "--dry-run", "--json", "--accept-large-delta")
    assert json.loads(answer.stdout)["warning"]


def test_terms_that_cannot_be_read_are_a_conflict(ready: World) -> None:
    ready.server.terms_bytes = b"\xff\xff"
    ready.server.digest = hashlib.sha256(b"\xff\xff").digest()
    ready.refused(5, "cannot be accepted", "run")


# As a process.


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_process_with_its_state_kept(ready: World, number: signal.Signals) -> None:
    ready.server.hold_versions = True
    arguments = ["run", "--config", str(ready.config), "--log-format", "json"]
    process = subprocess.Popen(
        [sys.executable, "-m", "hushgrad.client", *arguments], stderr=subprocess.PIPE, text=True, env=dict(os.environ)
    )
    _wait_for(lambda: len(ready.server.receipts) == 2)
    process.send_signal(number)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 0, errors
    events = [json.loads(line) for line in errors.splitlines()]
    assert events[-1]["event"] == "finished"
    assert (events[-1]["reason"], events[-1]["rounds_sealed"]) == ("stopped", 2)

    ready.server.release()
    assert ready.good("run")["rounds_sealed"] == 6
    assert ready.good("ledger", "verify")["updates"] == 6
    assert len(ready.server.headers) == 6
    assert [header.unpack(head).round for head in ready.server.headers] == list(range(6))


def test_the_events_that_others_read_have_their_keys(ready: World) -> None:
    result = ready.call("run", "--log-format", "json")
    events: dict[str, dict[str, Any]] = {}
    for line in result.stderr.splitlines():
        event = json.loads(line)
        events.setdefault(event["event"], event)
    expected = {
        "joined": {"session"},
        "committed": {"rounds", "claim"},
        "started": {"entry_round"},
        "model_received": {"version"},
        "round_sealed": {"round", "version", "staleness", "rounds_committed"},
        "update_answered": {"round", "answer", "included_in"},
        "finished": {"reason", "rounds_sealed"},
    }
    for name, keys in expected.items():
        assert keys <= set(events[name]), name


def _wait_for(condition: Callable[[], bool]) -> None:
    pause, deadline = threading.Event(), time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        pause.wait(0.02)
