"""What a data owner is told: numbers that agree with the accountant, on the safe side, and read without a trace."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from dp_accounting import dp_event
from dp_accounting.pld import pld_privacy_accountant
from hushgrad import accountant
from hushgrad.client import ledger, overview, pace, standing, store, texts
from hushgrad.client.errors import LedgerError
from hushgrad.client.ledger import Ledger
from hushgrad.client.outbox import Accepted
from hushgrad.client.rows import Committed, Group
from hushgrad.wire import header

from tests.support import client_world
from tests.support.client_world import DIGEST, payload

ROUNDS = 150


@cache
def committed(*, rounds: int = ROUNDS, digest: bytes = DIGEST, flags: int = 0, timing: str = "covered") -> Committed:
    """A schedule with the claim that the accountant gives it."""
    schedule = (Group(8, 0.08, 4.0, 3.99, 0.5, rounds - 20), Group(16, 0.16, 4.0, 3.99, 0.5, 20))
    claim = accountant.from_schedule(
        [accountant.RoundGroup(0.08, 3.99, rounds - 20), accountant.RoundGroup(0.16, 3.99, 20)],
        sampling="poisson",
        adjacency="add-remove",
        delta=1e-5,
        delta_charged=1e-7,
    )
    blank = client_world.make_committed(terms_digest=digest)
    return replace(blank, schedule=schedule, claim=claim.to_dict(), flags=flags, timing=timing)


class Clock:
    """Moves by two seconds with each look."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        self.now += 2.0
        return self.now


@contextmanager
def open_ledger(folder: Path, *runs: Committed, lifetime: float = 5.0, second: bool = False) -> Iterator[Ledger]:
    ledger.create(
        folder,
        participant=client_world.PARTICIPANT,
        fingerprint=client_world.FINGERPRINT,
        lifetime_epsilon=lifetime,
        lifetime_delta=1e-4,
        accepted_new_budget=second,
    )
    with Ledger(folder, clock=Clock()) as book:
        for run in runs:
            book.commit(run)
        yield book


def told(folder: Path, *, now: float = 1_000_500.0) -> dict[str, object]:
    return overview.status(standing.read(folder, check=True), now=now)


def test_the_odometer_and_the_last_hundred_agree_with_another_librarys_call(tmp_path: Path) -> None:
    with open_ledger(tmp_path, committed()) as book:
        for round_ in range(140):
            book.seal(DIGEST, round_, payload())
    (run,) = told(tmp_path)["runs"]  # type: ignore[misc]

    def google(plain: int, double: int) -> float:
        # dp-accounting's own accountant on its own grid, not our construction of the distribution.
        account = pld_privacy_accountant.PLDAccountant(value_discretization_interval=1e-4)
        for q, count in ((0.08, plain), (0.16, double)):
            if count:
                account.compose(dp_event.PoissonSampledDpEvent(q, dp_event.GaussianDpEvent(3.99)), count)
        return float(account.get_epsilon(1e-5))

    last = run["last_updates"]
    assert (last["updates"], last["lowest_round"], last["highest_round"]) == (100, 40, 139)
    # Another grid and a hundredth of delta set aside: within 1 %, and ours is not below what is exact to 0.1 %.
    for found, exact in (
        (run["odometer"]["epsilon_so_far"], google(130, 10)),
        (last["epsilon_before"], google(40, 0)),
        (last["alone"]["epsilon_so_far"], google(90, 10)),
    ):
        assert 0.999 * exact <= found <= 1.01 * exact
    assert last["epsilon_after"] == run["odometer"]["epsilon_so_far"]
    assert last["epsilon_after"] - last["epsilon_before"] <= last["rise"]
    # What the words beside it say: less than the same updates alone, more than nothing.
    assert 0 < last["rise"] < last["alone"]["epsilon_so_far"]


def test_no_reading_is_above_the_claim_and_a_finished_run_reads_its_claim(tmp_path: Path) -> None:
    run = committed(rounds=30)
    with open_ledger(tmp_path, run) as book:
        for round_ in range(30):
            book.seal(DIGEST, round_, payload())
    (shown,) = told(tmp_path)["runs"]  # type: ignore[misc]
    assert shown["odometer"]["epsilon_so_far"] == run.epsilon
    assert shown["last_updates"]["updates"] == 30
    assert shown["last_updates"]["epsilon_before"] == 0.0
    assert shown["next"].startswith("No client is seen running")  # round 0 was never answered


def test_what_was_promised_is_gone_even_if_nothing_was_sealed(tmp_path: Path) -> None:
    run, other = committed(), committed(rounds=40, digest=hashlib.sha256(b"second").digest())
    with open_ledger(tmp_path, run, other, lifetime=5.0):
        pass
    answer = told(tmp_path)
    assert answer["committed"]["epsilon"] == pytest.approx(run.epsilon + other.epsilon)  # type: ignore[index]
    assert answer["left"]["epsilon"] == pytest.approx(5.0 - run.epsilon - other.epsilon)  # type: ignore[index]
    fit = answer["runs_like_the_last_that_fit"]
    # Deltas: 1e-4 for life, two of 1e-5 committed; epsilon is the tighter of the two here.
    assert fit == int((5.0 - run.epsilon - other.epsilon) / other.epsilon)
    assert answer["runs"][0]["odometer"]["epsilon_so_far"] == 0.0  # type: ignore[index]
    assert answer["runs"][0]["last_updates"] is None  # type: ignore[index]


def test_people_read_no_number_smaller_than_what_was_spent_and_none_larger_than_what_is_left(tmp_path: Path) -> None:
    run = committed(rounds=40)
    with open_ledger(tmp_path, run, lifetime=1.23456789):
        pass
    answer = told(tmp_path)
    lines = {line.split()[0]: line.split() for line in texts.status(answer).splitlines() if line[0] != " "}
    assert float(lines["committed"][2]) >= answer["committed"]["epsilon"]  # type: ignore[index]
    left = answer["left"]["epsilon"]  # type: ignore[index]
    assert left * 0.999 < float(lines["left"][2]) <= left
    assert lines["lifetime"][2] == "1.23456789"


def test_a_pace_comes_from_when_updates_were_sealed(tmp_path: Path) -> None:
    with open_ledger(tmp_path, committed()) as book:
        for round_ in range(50):
            book.seal(DIGEST, round_, payload())
        book.skip(DIGEST, 50)
        last = 1_000_000.0 + 2.0 * 50
    (run,) = told(tmp_path, now=last + 4.0)["runs"]  # type: ignore[misc]
    assert (run["rounds_left"], run["pace"]["updates"], run["pace"]["seconds"]) == (99, 49, 98.0)
    # 99 rounds at two seconds each, from the last seal, of which four seconds have passed.
    assert run["pace"]["seconds_to_end"] == pytest.approx(99 * 2.0 - 4.0)
    assert not run["pace"]["quiet"]
    (run,) = told(tmp_path, now=last + 86_400.0)["runs"]  # type: ignore[misc]
    assert run["pace"]["quiet"]
    assert run["pace"]["seconds_to_end"] == pytest.approx(99 * 2.0)
    assert "Once it goes on" in texts.pace(run["pace"])


@pytest.mark.parametrize("damage", ["", "nonsense", "5 nan\n6 inf\n", "\x00\xff\n12 -3\n1e9 4\n", "9" * 9_000])
def test_a_lost_note_costs_the_pace_and_nothing_else(tmp_path: Path, damage: str) -> None:
    with open_ledger(tmp_path, committed()) as book:
        for round_ in range(5):
            book.seal(DIGEST, round_, payload())
    before = told(tmp_path)
    (tmp_path / pace.NOTE_NAME).write_text(damage, "latin-1")
    after = told(tmp_path)
    assert after["runs"][0]["pace"] is None  # type: ignore[index]
    assert "not known" in texts.pace(None)
    before["runs"][0]["pace"] = None  # type: ignore[index]
    assert after == before


def test_a_note_that_cannot_be_written_stops_no_seal(tmp_path: Path) -> None:
    with open_ledger(tmp_path, committed()) as book:
        (tmp_path / pace.NOTE_NAME).mkdir()
        book.seal(DIGEST, 0, payload())
        assert book.spent(DIGEST) == {0}


def test_after_an_old_ledger_was_put_back_the_pace_is_that_of_its_new_updates(tmp_path: Path) -> None:
    state, copy = tmp_path / "state", tmp_path / "copy"
    with open_ledger(state, committed()) as book:
        book.seal(DIGEST, 0, payload())
    shutil.copytree(state, copy)
    with Ledger(state, clock=Clock()) as book:
        for round_ in range(1, 20):
            book.seal(DIGEST, round_, payload())
    shutil.copy(copy / store.LEDGER_NAME, state / store.LEDGER_NAME)
    times = iter([5_000_000.0, 5_000_030.0])
    with Ledger(state, clock=lambda: next(times)) as book:
        book.seal(DIGEST, 1, payload())
        book.seal(DIGEST, 2, payload())
    seals = standing.read(state, check=True).seals
    assert [seal.sequence for seal in seals] == [3, 4, 5]
    assert [seal.unix_seconds for seal in seals[1:]] == [5_000_000.0, 5_000_030.0]


@pytest.mark.parametrize(
    ("flags", "timing", "second", "said"),
    [
        (0, "not covered", False, "no release interval is set"),
        (header.FLAG_CLIPPING_DECLARED, "covered", False, "the claim takes its word"),
        (header.FLAG_INSECURE_NOISE, "covered", False, "protects nobody"),
        (0, "covered", True, "this is a second budget"),
    ],
)
def test_what_is_special_about_a_ledger_stands_first_among_what_is_not_covered(
    tmp_path: Path, flags: int, timing: str, second: bool, said: str
) -> None:
    with open_ledger(tmp_path / "plain", committed()):
        usual = told(tmp_path / "plain")["not_covered"]
    with open_ledger(tmp_path / "special", committed(flags=flags, timing=timing), second=second):
        found = told(tmp_path / "special")["not_covered"]
    assert said in found[0]  # type: ignore[index]
    assert found[1:] == usual  # type: ignore[index]


def test_reading_changes_no_byte_and_stops_no_writer(tmp_path: Path) -> None:
    with open_ledger(tmp_path, committed()) as book:
        book.seal(DIGEST, 0, payload())

        def content() -> dict[str, bytes]:
            # SQLite's -shm holds who reads where; it is no part of the ledger.
            return {
                path.name: path.read_bytes() for path in sorted(tmp_path.iterdir()) if not path.name.endswith("-shm")
            }

        before = content()
        assert told(tmp_path)["process"] == "running"
        standing.check(tmp_path)
        standing.some_rows(tmp_path, 1, 10)
        assert content() == before
        connection = store.connect(tmp_path, read_only=True)
        connection.execute("BEGIN")
        assert store.newest(connection)[0] == 3
        book.seal(DIGEST, 1, payload())  # while a reader is in the middle of it
        book.record(DIGEST, [Accepted(0, 1, 1)])
        assert store.newest(connection)[0] == 3
        connection.close()
    answer = told(tmp_path)
    assert (answer["process"], answer["ledger_rows"]) == ("not seen", 4)


READ_ONLY = """
import os, sys
from pathlib import Path
from hushgrad.client import standing
os.setgid(65534); os.setuid(65534)
print(standing.read(Path(sys.argv[1]), check=True).rows)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody who may not write")
def test_a_ledger_at_rest_can_be_read_where_nothing_may_be_written() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with open_ledger(folder, committed()) as book:
            book.seal(DIGEST, 0, payload())
        for path in folder.iterdir():
            path.chmod(0o644)
        folder.chmod(0o555)
        before = sorted(path.name for path in folder.iterdir())
        command = [sys.executable, "-c", textwrap.dedent(READ_ONLY), name]
        result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert result.stdout == "3\n", result.stderr
        assert sorted(path.name for path in folder.iterdir()) == before


def test_a_ledger_whose_chain_is_broken_gives_no_number(tmp_path: Path) -> None:
    with open_ledger(tmp_path, committed()) as book:
        for round_ in range(5):
            book.seal(DIGEST, round_, payload())
    connection = store.connect(tmp_path, read_only=False)
    (drop,) = connection.execute("SELECT sql FROM sqlite_schema WHERE name = 'rows_never_change'").fetchone()
    connection.execute("DROP TRIGGER rows_never_change")
    connection.execute("UPDATE ledger SET digest = zeroblob(32) WHERE sequence = 4")
    connection.execute(drop)
    connection.close()
    with pytest.raises(LedgerError, match=r"ledger row 4: .*the chain is broken here"):
        told(tmp_path)


def test_the_answer_is_plain_json(tmp_path: Path) -> None:
    with open_ledger(tmp_path, committed()) as book:
        book.seal(DIGEST, 0, payload())
    answer = told(tmp_path)
    assert json.loads(json.dumps(answer, allow_nan=False)) == answer
