"""Runs the chosen checks against a client and collects their results."""

import shutil
import tempfile
import time
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from hushgrad.conformance import (
    client_answers,
    client_kills,
    client_models,
    client_outages,
    client_rounds,
    client_statistics,
)
from hushgrad.conformance.report import Check, Judgement, Result
from hushgrad.conformance.stage import Kit, Scenario, StuckError
from hushgrad.experiments.errors import InputError

SCENARIOS: tuple[Scenario, ...] = (
    *client_rounds.SCENARIOS,
    *client_kills.SCENARIOS,
    *client_models.SCENARIOS,
    *client_outages.SCENARIOS,
    *client_answers.SCENARIOS,
    *client_statistics.SCENARIOS,
)
FULL_ROUNDS = 2400
QUICK_ROUNDS = 600


def checks() -> list[Check]:
    """Returns every check, in order."""
    return [check for scenario in SCENARIOS for check in scenario.checks]


def run(
    command: Sequence[str],
    *,
    only: Collection[str] = (),
    quick: bool = False,
    patience_seconds: float = 20.0,
    at_once: int = 3,
    keep: Path | None = None,
) -> list[Result]:
    """Judges a client.

    Args:
        command: starts it; see the package's docstring for what it is given.
        only: names of checks; empty: all.
        quick: fewer rounds of statistics.
        patience_seconds: how long the client may take for one thing.
        at_once: how many scenarios are played at the same time.
        keep: a folder for state, data and logs, which stay; none: a temporary one.

    Raises:
        InputError: if a check is not known, the command cannot be started, or the folder is in use.
    """
    known = {check.name for check in checks()}
    if unknown := sorted(set(only) - known):
        raise InputError(f"unknown check {unknown[0]!r}; checks are {', '.join(sorted(known))}")
    if not command or shutil.which(command[0]) is None:
        raise InputError(f"the command {' '.join(command)!r} cannot be started; give it after --")
    if keep is not None and keep.exists() and (not keep.is_dir() or any(keep.iterdir())):
        raise InputError(f"{keep} must be a new or empty folder; logs of two runs would mix")
    folder = keep or Path(tempfile.mkdtemp(prefix="hushgrad-conformance-"))
    kit = Kit(command, folder, patience_seconds, QUICK_ROUNDS if quick else FULL_ROUNDS)
    chosen = [scenario for scenario in SCENARIOS if not only or any(check.name in only for check in scenario.checks)]
    try:
        with ThreadPoolExecutor(at_once) as pool:
            # The longest come last in the list and first here.
            played = {scenario: pool.submit(_play, kit, scenario) for scenario in reversed(chosen)}
            results = [result for scenario in chosen for result in _asked_for(played[scenario].result(), only)]
    finally:
        if keep is None:
            shutil.rmtree(folder, ignore_errors=True)
    return results


def _asked_for(results: list[Result], only: Collection[str]) -> list[Result]:
    """Leaves out what nobody asked for, except what kept a check that was asked for from being tried."""
    asked = [result for result in results if not only or result.name in only]
    if any(result.outcome == "not tried" for result in asked):
        return [result for result in results if result in asked or result.outcome == "fail"]
    return asked


def _play(kit: Kit, scenario: Scenario) -> list[Result]:
    found = Judgement(scenario.checks)
    began = time.monotonic()
    try:
        scenario.play(kit, found)
    except StuckError as stuck:
        found.fail_rest(str(stuck))
    return found.results(time.monotonic() - began)
