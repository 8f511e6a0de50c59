"""The kit itself: servers, reports, the command line, and what is refused before anything is started."""

import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from hushgrad.cli import entry
from hushgrad.conformance import client_kit, report, server_files, server_kit, world
from hushgrad.conformance.report import Check, Judgement
from hushgrad.experiments.errors import InputError

OURS = [sys.executable, "-m", "hushgrad.conformance.our_server"]


@pytest.mark.e2e
def test_our_server_passes(capsys):
    assert entry.run(["conformance", "server", "--json", "--", *OURS]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["passed"]
    assert found["counts"] == {"pass": len(server_kit.CHECKS), "fail": 0, "not tried": 0}


def test_a_beacon_tells_which_model_an_update_was_trained_from():
    federation = world.beacons()
    for version in range(16):
        shining = (world.beacon_model(version)[: world.BEACONS] > 0) * 50.0
        update = np.append(shining, 0.0) / federation.grid
        assert world.beacon_version(federation, update.astype(np.int32)) == version
    assert world.beacon_version(federation, np.zeros(world.BEACONS + 1, np.int32)) is None


def test_data_are_the_same_in_both_files(tmp_path):
    federation = world.marks(rounds=10)
    path = federation.write_data(tmp_path)
    with np.load(path) as file:
        table = np.loadtxt(path.with_suffix(".csv"), delimiter=",", skiprows=1)
        assert np.array_equal(table, np.column_stack([file["X"], file["y"]]))
    assert path.with_suffix(".csv").read_text().startswith("x0,x1,")


def test_a_scenario_that_ends_early_fails_one_check_and_leaves_the_others_untried():
    found = Judgement([Check("a", "A."), Check("b", "B."), Check("c", "C.")])
    found.passed("a")
    found.fail_rest("the client ended")
    assert [(result.outcome, result.why) for result in found.results()] == [
        ("pass", "A."),
        ("fail", "the client ended"),
        ("not tried", "the scenario ended before; see b"),
    ]
    assert not report.passed(found.results())


def test_every_check_has_a_name_of_its_own_and_a_promise():
    for checks in (client_kit.checks(), list(server_kit.CHECKS)):
        assert len({check.name for check in checks}) == len(checks)
        assert all(check.promise.endswith(".") for check in checks)


def test_chance_accuses_an_honest_client_less_than_once_in_a_hundred_thousand_runs():
    assert sum(check.false_alarm for check in client_kit.checks()) < 1e-5


def test_the_list_names_every_check(capsys):
    assert entry.run(["conformance", "client", "--list", "--json"]) == 0
    assert [row["check"] for row in json.loads(capsys.readouterr().out)] == [c.name for c in client_kit.checks()]


def test_the_page_names_every_check_and_its_rate():
    page = (Path(__file__).resolve().parents[2] / "docs" / "conformance.md").read_text()
    for check in (*client_kit.checks(), *server_kit.CHECKS):
        chance = f"{check.false_alarm:.0e}" if check.false_alarm else "-"
        assert f"| `{check.name}` | {check.promise} | {chance} |" in page


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["client"], "cannot be started"),
        (["client", "--", "/no/such/command"], "cannot be started"),
        (["client", "--only", "nonsense", "--", "true"], "unknown check"),
        (["client", "--keep", str(Path(__file__).parent), "--", "true"], "must be a new or empty folder"),
        (["server"], "give host:port"),
        (["server", "--only", "nonsense", "127.0.0.1:1"], "unknown check"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(arguments, words, capsys):
    assert entry.run(["conformance", *arguments]) == 2
    assert words in capsys.readouterr().err


def test_files_of_a_federation_are_written_once(tmp_path):
    folder = tmp_path / "new"
    assert {path.name for path in server_files.write(folder)} == {"terms.toml", "server.toml", "initial.safetensors"}
    with pytest.raises(InputError, match="new or empty"):
        server_files.write(folder)


def test_a_client_that_ends_at_once_fails(tmp_path):
    results = client_kit.run(["false"], only=["header", "budget"], patience_seconds=2.0)
    assert [(result.name, result.outcome) for result in results] == [("header", "fail"), ("budget", "fail")]


@pytest.mark.e2e
@pytest.mark.faults
def test_a_kit_that_is_killed_leaves_no_client_behind(tmp_path):
    """A client that starts another process and takes its time; both end with the kit, however many there are."""
    script = tmp_path / "client.sh"
    script.write_text(f"sleep 300 &\necho $$ $! > {tmp_path}/running-$$\nwait\n")
    kit = subprocess.Popen(
        [sys.executable, "-m", "hushgrad.cli", "conformance", "client", "--", "sh", str(script)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )

    def pids():
        return [int(pid) for path in tmp_path.glob("running-*") for pid in path.read_text().split()]

    wait_until(lambda: len(pids()) >= 2)
    assert all(map(is_running, pids()))
    kit.kill()
    kit.wait()
    wait_until(lambda: not any(map(is_running, pids())))


def is_running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_until(condition, seconds=20):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)
