"""A client's own floor: it may be offered more privacy than it asks for, never less; runs add up over a life."""

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import click.testing
import numpy as np
import pytest
import structlog
from hushgrad.accountant import commands as accountant_commands
from hushgrad.client import __main__ as command
from hushgrad.wire import header
from hushgrad.wire.terms import Terms

from tests.support import client_world
from tests.support.fake_server import FakeServer

CONFIG = """
participant = "client-1"
server = "{server}"
state = "state"
{pin}
[data]
file = "data.npz"
[model]
kind = "logistic"
[privacy]
records = 100
clip_norm = 0.5
noise_multiplier = 4.0
sampler = "poisson"
epsilon = 0.5
delta = 1e-5
lifetime_epsilon = 0.7
lifetime_delta = 2e-5
release_interval_seconds = 0.01
"""


class Participant:
    """A folder with data, ledger and configuration of one client."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        features = np.random.default_rng(5).random((100, 3))
        np.savez(folder / "data.npz", X=features, y=(features[:, 0] > 0.5).astype(int))
        self.point_at("127.0.0.1:1")
        assert self.call("ledger", "init").exit_code == 0

    def point_at(self, address: str, pin: str = "") -> None:
        text = CONFIG.format(server=address, pin=f'terms_digest = "{pin}"' if pin else "")
        (self.folder / "client.toml").write_text(text)

    def call(self, *verb: str) -> click.testing.Result:
        return click.testing.CliRunner().invoke(command.main, [*verb, "--config", str(self.folder / "client.toml")])

    def answer(self, *verb: str) -> Any:
        result = self.call(*verb, "--json")
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    def ledger(self) -> str:
        return hashlib.sha256((self.folder / "state" / "ledger.sqlite").read_bytes()).hexdigest()

    def refuses(self, terms: Terms, code: int, complaint: str) -> None:
        """Asserts exit code and message, that the ledger is as before, and that the server heard of nothing."""
        before = self.ledger()
        with offering(self, terms) as server:
            result = self.call("run")
        (line,) = [line for line in result.stderr.splitlines() if line.startswith("hushgrad-client: ")]
        assert (result.exit_code, complaint in line) == (code, True), line
        assert self.ledger() == before
        assert {name for name, _ in server.seen} == {"GetTerms"}


@contextmanager
def offering(who: Participant, terms: Terms, *, meant: bool = True) -> Iterator[FakeServer]:
    """Serves a federation, and points a participant at it, with its digest pinned if it is meant."""
    server = FakeServer(terms)
    with server.serving() as address:
        who.point_at(address, server.digest.hex() if meant else "")
        yield server


@pytest.fixture
def participant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Participant]:
    monkeypatch.setenv("HUSHGRAD_HOME", str(tmp_path / "home"))
    yield Participant(tmp_path)
    structlog.reset_defaults()


GOOD = client_world.make_terms()


@pytest.mark.parametrize(
    ("terms", "code", "complaint"),
    [
        (
            replace(GOOD, privacy=replace(GOOD.privacy, noise_multiplier_max=3.9)),
            2,
            "noise_multiplier is 4.0, the terms allow 1.0 to 3.9; if your own floor is higher than that, do not take",
        ),
        (client_world.make_terms(sample_size=40, max_examples_per_round=128), 3, "[privacy] epsilon allows 0.5"),
        (client_world.make_terms(final_version=60), 3, "60 rounds would cost epsilon"),
        (client_world.make_terms(max_examples_per_round=20), 2, "batches above max_examples_per_round"),
        (
            replace(GOOD, privacy=replace(GOOD.privacy, clip_norm=0.25), grid_exponent=GOOD.grid_exponent - 1),
            2,
            "clip_",
        ),
        (replace(GOOD, privacy=replace(GOOD.privacy, samplers=("fixed",))), 2, "sampler is 'poisson', the terms allow"),
    ],
    ids=[
        "less noise",
        "larger batches",
        "more rounds",
        "batches that may be cut",
        "another clip norm",
        "other sampler",
    ],
)
def test_terms_below_the_clients_own_floor_are_refused(
    participant: Participant, terms: Terms, code: int, complaint: str
) -> None:
    participant.refuses(terms, code, complaint)


def test_terms_that_allow_others_less_noise_change_nothing_about_ones_own(participant: Participant) -> None:
    """The server never chooses a client's noise: the least that it allows is no floor and no ceiling of ours."""
    with offering(participant, GOOD) as server:
        assert participant.answer("run")["rounds_sealed"] == 6
    declared = {header.unpack(request.header).noise_multiplier for request in server.calls("SubmitUpdate")}
    assert GOOD.privacy.noise_multiplier_min == 1.0
    assert declared == {4.0}


@pytest.mark.e2e
def test_a_process_that_refuses_says_so_in_one_line_and_its_exit_code(participant: Participant) -> None:
    with offering(participant, client_world.make_terms(sample_size=40, max_examples_per_round=128)):
        done = subprocess.run(
            [sys.executable, "-m", "hushgrad.client", "run", "--config", str(participant.folder / "client.toml")],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            capture_output=True,
            text=True,
            timeout=110,
        )
    assert done.returncode == 3
    assert "Traceback" not in done.stderr
    assert done.stderr.splitlines()[-1].startswith("hushgrad-client: 6 rounds would cost epsilon")


def test_terms_that_became_worse_after_the_first_round_are_another_federation(participant: Participant) -> None:
    with offering(participant, GOOD):
        participant.answer("run")
    before = participant.ledger()
    with offering(participant, client_world.make_terms(sample_size=12), meant=False) as server:
        result = participant.call("run")
    assert result.exit_code == 5
    assert "if a second federation is meant" in result.stderr
    assert participant.ledger() == before
    assert {name for name, _ in server.seen} == {"GetTerms"}


def test_two_federations_on_one_ledger_add_up_and_a_third_finds_nothing_left(participant: Participant) -> None:
    spent = []
    for final_version in (6, 5):
        with offering(participant, client_world.make_terms(final_version=final_version)):
            outcome = participant.answer("run")
            assert outcome["rounds_sealed"] == final_version
            spent.append(outcome["claim"])
    status = participant.answer("status")
    assert [run["claim"] for run in status["runs"]] == spent
    assert status["left"]["epsilon"] == pytest.approx(0.7 - spent[0]["epsilon"] - spent[1]["epsilon"], abs=1e-9)
    assert status["left"]["delta"] == pytest.approx(2e-5 - spent[0]["delta"] - spent[1]["delta"], abs=1e-15)

    with offering(participant, client_world.make_terms(final_version=4)) as third:
        result = participant.call("run")
        assert result.exit_code == 3
        assert "of the lifetime pair (0.7, 2e-05) only" in result.stderr
        dry = participant.call("run", "--dry-run")
        assert dry.exit_code == 3
        assert "does not fit" in dry.stdout
    assert {name for name, _ in third.seen} == {"GetTerms"}

    # Anybody can add it up from the exported ledger alone.
    exported = participant.folder / "ledger.json"
    exported.write_text(participant.call("ledger", "export").stdout)
    check = click.testing.CliRunner().invoke(accountant_commands.commands, ["check", str(exported), "--json"])
    assert check.exit_code == 0, check.output
    assert participant.answer("ledger", "verify")["updates"] == 11
