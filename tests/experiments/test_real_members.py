"""Experiments with real members: what is refused, who runs where, what ends with whom. Whole runs: tests/backends."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import tomli_w
from hushgrad.cli import entry
from hushgrad.client import config as client_config
from hushgrad.experiments.errors import InputError
from hushgrad.experiments.study import backends, crashes, inventory, members, report, resolve, sources, store
from hushgrad.experiments.study.journal import Journal, State
from hushgrad.experiments.study.sweep import runs

from tests.support import studies

ATTEND = [sys.executable, "-m", "hushgrad.experiments.study.attend"]
SLEEP = "import time; print(1, flush=True); time.sleep(60)"
HOSTS = {
    "server": {"host": "a", "port": 7443},
    "hosts": [{"name": name, "ssh": f"{name}.example", "folder": "/srv", "environment": "/opt/venv"} for name in "abc"],
}


def write(path: Path, **changes: object) -> Path:
    path.write_text(tomli_w.dumps(studies.raw(**changes)))
    return path


def load(tmp_path: Path, **changes: object) -> inventory.Inventory:
    path = tmp_path / "hosts.toml"
    path.write_text(tomli_w.dumps({**HOSTS, **changes}))
    return inventory.load(path)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"faults": {"loss": 0.1}}, "only --backend simulate"),
        ({"sweep": [{"keys": ["privacy.noise", "privacy.noise_multiplier"], "values": [["none", "unset"]]}]}, "noise"),
    ],
)
def test_what_real_members_cannot_do_is_refused_before_anything_is_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], changes: dict, words: str
) -> None:
    file = write(tmp_path / "it.toml", **changes)
    assert entry.run(["run", str(file), "--backend", "processes", "--out", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err.strip()
    assert words in error
    assert not (tmp_path / "out").exists()


def test_hosts_that_cannot_be_reached_are_named_and_nothing_is_begun(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hosts = [{**HOSTS["hosts"][0], "ssh": "127.0.0.1", "port": 1}]
    (tmp_path / "hosts.toml").write_text(tomli_w.dumps({**HOSTS, "hosts": hosts}))
    file = write(tmp_path / "it.toml")
    words = ["run", str(file), "--backend", "hosts", "--hosts", str(tmp_path / "hosts.toml"), "--quiet"]
    assert entry.run([*words, "--out", str(tmp_path / "out")]) == 2
    assert "host a cannot be used" in capsys.readouterr().err
    assert not (tmp_path / "out" / "work").exists()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"server": {"host": "z"}}, "one of a, b, c"),
        ({"colour": "red"}, "colour"),
        ({"hosts": [{**HOSTS["hosts"][0], "container": "docker run"}]}, "exactly one of environment and container"),
        ({"hosts": [{**HOSTS["hosts"][0], "folder": "here"}]}, "absolute path"),
        ({"hosts": [{**HOSTS["hosts"][0], "ssh": "-oProxyCommand=x"}]}, "no dash"),
        ({"hosts": [HOSTS["hosts"][0]] * 2}, "name of its own"),
    ],
)
def test_an_inventory_that_cannot_be_is_refused_by_name(tmp_path: Path, changes: dict, words: str) -> None:
    with pytest.raises(InputError, match=words):
        load(tmp_path, **changes)


def test_clients_go_where_the_inventory_says_or_are_dealt_out_beside_the_server(tmp_path: Path) -> None:
    assert load(tmp_path).places(3) == ["b", "c", "b"]
    assert load(tmp_path, hosts=HOSTS["hosts"][:1]).places(2) == ["a", "a"]
    given = [{**host, "clients": numbers} for host, numbers in zip(HOSTS["hosts"], ([3], [1, 2], []), strict=True)]
    placed = load(tmp_path, hosts=given)
    assert placed.places(3) == ["b", "b", "a"]
    with pytest.raises(InputError, match="each of 1 to 4 once"):
        placed.places(4)


def test_a_clients_file_promises_exactly_what_the_run_will_cost(tmp_path: Path) -> None:
    experiment = studies.small()
    records = sources.load(experiment, 1)
    setup = resolve.resolve(experiment, features=68, classes=2)
    (tmp_path / "client.toml").write_bytes(members.client(setup, "client-2", records.table))
    found = client_config.load_client(tmp_path / "client.toml", {})
    assert setup.claim is not None
    assert (found.privacy.epsilon, found.privacy.delta) == (setup.claim.epsilon, setup.claim.delta)
    assert (found.privacy.lifetime_epsilon, found.privacy.noise_multiplier) == (setup.claim.epsilon, 4.0)


def test_a_run_is_made_by_one_process_at_a_time(tmp_path: Path) -> None:
    (run,) = runs(studies.small())
    journal = Journal(tmp_path / "run", run)
    with pytest.raises(InputError, match="made by another process"):
        Journal(tmp_path / "run", run)
    journal.state.members.append("client-1")
    journal.save()
    journal.close()
    again = Journal(tmp_path / "run", run)
    assert again.state.members == ["client-1"]
    assert again.state.token == journal.state.token
    again.close()


@pytest.mark.parametrize(
    ("how", "code"), [("end of input", 128 + signal.SIGTERM), ("SIGTERM", 128 + signal.SIGTERM), ("kill", 137)]
)
def test_what_is_attended_to_ends_with_its_master(tmp_path: Path, how: str, code: int) -> None:
    process = subprocess.Popen(
        [*ATTEND, str(tmp_path), str(tmp_path), "timeit", "-n1", "-r1", SLEEP],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdout.readline()
    if how == "kill":
        process.stdin.write(b"kill\n")
        process.stdin.flush()
    elif how == "SIGTERM":
        process.terminate()
    else:
        process.stdin.close()
    assert process.wait(timeout=10) == code


def test_crashes_follow_from_the_seed_and_cost_a_simulated_run_time_and_no_update() -> None:
    _, calm = studies.simulated(studies.small())
    faults = {"crash_rate": 0.2, "restart_seconds": 3.0, "crashes": [{"client": 2, "round": 4, "seconds": 30.0}]}
    experiment = studies.small(faults=faults)
    (setup, one), (_, two) = studies.simulated(experiment), studies.simulated(experiment)
    assert one.final.tobytes() == two.final.tobytes()
    assert one.updates == 3 * setup.rounds
    assert one.seconds > calm.seconds + 20
    planned = {(client, i) for client in (1, 2, 3) for i in crashes.of(experiment, client) if i < setup.rounds}
    assert set(one.crashes) == planned
    assert (2, 4) in planned
    assert one.final.tobytes() != calm.final.tobytes()


def test_a_client_that_crashed_for_long_is_suspended_and_comes_back() -> None:
    faults = {"crashes": [{"client": 3, "round": 2, "seconds": 30.0}]}
    _, outcome = studies.simulated(
        studies.small(training__straggler_timeout_seconds=8.0, faults=faults, training__rounds=40)
    )
    assert outcome.suspensions == 1
    assert 2 * 40 + 5 < outcome.updates < 3 * 40


def test_rows_in_parquet_are_those_of_csv(tmp_path: Path) -> None:
    file = write(tmp_path / "it.toml")
    for form in ("csv", "parquet"):
        assert entry.run(["run", str(file), "--out", str(tmp_path / form), "--rows", form, "--quiet"]) == 0
        assert entry.run(["report", str(tmp_path / form), "--rows", form]) == 0
        assert (tmp_path / form / "report" / f"rows.{form}").exists()
    (csv,), (parquet,) = store.read(tmp_path / "csv"), store.read(tmp_path / "parquet")
    assert parquet["points"] == csv["points"]
    assert parquet["points"]
    assert list((tmp_path / "parquet").glob("runs/*.csv")) == []
    # What is there is not made again, whatever the format.
    assert entry.run(["run", str(file), "--out", str(tmp_path / "parquet"), "--quiet"]) == 0
    assert list((tmp_path / "parquet").glob("runs/*.csv")) == []
    from pyarrow import parquet as reader

    (row,) = reader.read_table(tmp_path / "parquet" / "report" / "rows.parquet").to_pylist()
    assert row["claim_epsilon"] == csv["would_claim"]["epsilon"]
    assert row["accuracy_mean"] == csv["accuracy"]


def test_the_scored_versions_of_a_run_that_was_taken_up_again_are_in_one_row() -> None:
    setup = resolve.resolve(studies.small(evaluation={"points": 3}), features=68, classes=2)

    def line(version: int, seconds: float) -> dict[str, str]:
        return {
            "version": str(version),
            "accuracy": "0.5",
            "log_loss": "0.6",
            "accuracy_averaged": "",
            "seconds": str(seconds),
        }

    state = State(0, "key", "small", "token", started=[1000.0, 1100.0])
    rows = {"1": [line(0, 0.1), line(3, 1.0), line(5, 2.0)], "2": [line(5, 1.0), line(9, 2.0), line(12, 3.0)]}
    points = backends._points(setup, state, rows, {3: 9, 5: 15, 9: 27, 12: 36})
    assert [(point.version, point.seconds, point.updates) for point in points] == [
        (5, 2.0, 15), (9, 102.0, 27), (12, 103.0, 36),
    ]  # fmt: skip


def test_a_report_names_hosts_that_were_lost() -> None:
    lost = [
        {"member": "client-2", "host": "b", "at_version": 17, "returned": False},
        {"member": "client-3", "host": "c", "at_version": 20, "returned": True, "returned_at_version": 25},
    ]
    said = report.happened([{"number": 4, "rounds": 60, "lost": lost, "claims_not_collected": ["client-2"]}])
    assert "client-2 on b was lost at version 17 of 60; not back before the end" in said[0]
    assert "back at version 25" in said[1]
    assert "client-2 was not asked" in said[2]


def test_what_follows_collect_is_a_folder_and_its_inventory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "hosts.toml").write_text(tomli_w.dumps(HOSTS))
    assert entry.run(["run", "collect", str(tmp_path), "--hosts", str(tmp_path / "hosts.toml")]) == 2
    assert "no runs that were made with --backend hosts" in capsys.readouterr().err


def test_progress_of_a_run_stands_beside_that_of_the_sweep(capsys: pytest.CaptureFixture[str]) -> None:
    from hushgrad.experiments.study import progress

    with progress.shown(quiet=False) as tell:
        assert tell is not None
        tell._told_at = time.monotonic() - 60
        tell(1, 3, 90.0)
        tell._told_at = time.monotonic() - 60
        tell.within("version 7 of 20")
    assert "1 of 3 runs (33 %), about 2 min left; version 7 of 20" in capsys.readouterr().err


def test_a_finished_run_can_be_completed_and_nothing_else_changes(tmp_path: Path) -> None:
    file = write(tmp_path / "it.toml")
    assert entry.run(["run", str(file), "--out", str(tmp_path / "out"), "--quiet"]) == 0
    (path,) = (tmp_path / "out").glob("runs/*.json")
    before = json.loads(path.read_text())
    store.amend(path, {"claims_not_collected": ["client-1"]})
    assert json.loads(path.read_text()) == {**before, "claims_not_collected": ["client-1"]}
    assert len(store.read(tmp_path / "out")) == 1
