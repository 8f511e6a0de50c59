"""An operator during a demo: a pause loses nothing and changes no claim, and an end reaches everybody."""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hushgrad.experiments.administration import Desk

ROUNDS = 30
NAMES = [f"client-{number}" for number in range(1, 6)]


def demo(runs: Path, name: str, order: Callable[[Desk], None] | None) -> dict[str, Any]:
    """Runs a demo, lets an operator at work once version 3 is there, and returns the summary."""
    options = ["--seed", "7", "--rounds", str(ROUNDS), "--name", name, "--runs-dir", str(runs), "--json"]
    process = subprocess.Popen(
        [sys.executable, "-m", "hushgrad.cli", "demo", *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        if order is not None:
            desk = Desk(_address(runs / name / "logs" / "server.log", process), ca=None, certificate=None, key=None)
            _wait(lambda: desk.status()["newest_version"] >= 3)
            order(desk)
            desk.close()
        out, error = process.communicate(timeout=100)
    finally:
        process.kill()
    assert process.returncode == 0, error.decode()
    summary: dict[str, Any] = json.loads(out)
    return summary


def _address(log: Path, process: subprocess.Popen[bytes]) -> str:
    found: list[str] = []

    def look() -> bool:
        assert process.poll() is None
        lines = log.read_text().splitlines() if log.exists() else []
        found[:] = [json.loads(line)["address"] for line in lines if '"listening"' in line]
        return bool(found)

    _wait(look)
    return found[0]


def _wait(look: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not look():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def claims(summary: dict[str, Any]) -> dict[str, Any]:
    return {name: one["claim"] for name, one in summary["participants"].items()}


def sealed_rounds(run: Path) -> dict[str, list[int]]:
    ledgers = {name: json.loads((run / "ledgers" / f"{name}.json").read_text()) for name in NAMES}
    return {
        name: [row["round"] for row in ledger["rows"] if row["kind"] == "update"] for name, ledger in ledgers.items()
    }


@pytest.mark.faults
def test_a_pause_loses_nothing_and_changes_no_claim(tmp_path: Path) -> None:
    """Beside an undisturbed demo of the same seed: the same claims, and every sealed update is in the model."""

    def pause_and_resume(desk: Desk) -> None:
        desk.pause("a walk in the park")
        time.sleep(0.5)  # a version whose content was fixed before is still published
        before = desk.status()
        time.sleep(2.0)
        after = desk.status()
        assert after["newest_version"] == before["newest_version"]
        assert "paused by (loopback)" in after["waiting_for"]
        desk.resume()

    plain = demo(tmp_path, "plain", None)
    paused = demo(tmp_path, "paused", pause_and_resume)
    assert claims(paused) == claims(plain)
    assert sealed_rounds(tmp_path / "paused") == {name: list(range(ROUNDS)) for name in NAMES}
    assert paused["updates_accepted"] == plain["updates_accepted"] == 5 * ROUNDS
    assert paused["global_version"] == ROUNDS


@pytest.mark.faults
def test_an_end_reaches_every_process_and_changes_no_claim(tmp_path: Path) -> None:
    """Clients, evaluator and the demo itself end well; the claims are those that were fixed before round 0."""
    ended = demo(tmp_path, "ended", _end)
    assert 3 <= ended["global_version"] < ROUNDS
    assert {(claim["epsilon"], claim["delta"]) for claim in claims(ended).values()} == {(0.5, 1e-5)}
    assert max(len(rounds) for rounds in sealed_rounds(tmp_path / "ended").values()) <= ended["global_version"] + 2
    for name in (*NAMES, "evaluator"):
        last = [json.loads(line) for line in (tmp_path / "ended" / "logs" / f"{name}.log").read_text().splitlines()][-1]
        assert (last["event"], last["reason"]) == ("finished", "ended")


def _end(desk: Desk) -> None:
    desk.end(None, "enough")
