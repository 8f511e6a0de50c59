"""Sweeps from the command line: killed and started again, sharded, reported."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import tomli_w
from hushgrad.cli import entry
from hushgrad.experiments.study import conduct, report, reproduce, store

from tests.support import studies

RUNS = 200


def write(path: Path, **changes) -> Path:
    path.write_text(tomli_w.dumps(studies.raw(**changes)))
    return path


def many(path: Path) -> Path:
    """An experiment of 200 runs that take a few milliseconds each."""
    return write(
        path,
        seeds=list(range(1, 51)),
        training__rounds=6,
        sweep=[
            {"keys": ["privacy.noise_multiplier"], "values": [[3.0], [6.0]]},
            {"keys": ["training.step_size.eta0"], "values": [[0.01], [0.02]]},
        ],
    )


def tables_of(folder: Path) -> dict[str, bytes]:
    """Everything that a report writes but pictures, and every run's own files."""
    report.write(folder, folder / "report")
    written = [*folder.glob("runs/*"), *(path for path in folder.glob("report/*") if path.suffix != ".png")]
    return {str(path.relative_to(folder)): path.read_bytes() for path in written}


def test_a_sweep_killed_half_way_does_the_rest_and_gives_identical_tables(tmp_path: Path):
    experiment = many(tmp_path / "many.toml")
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    assert entry.run(["run", str(experiment), "--out", str(whole), "--jobs", "1", "--quiet"]) == 0
    command = [
        sys.executable,
        "-m",
        "hushgrad.cli",
        "run",
        str(experiment),
        "--out",
        str(cut),
        "--jobs",
        "1",
        "--quiet",
    ]
    process = subprocess.Popen(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, start_new_session=True)
    deadline = time.monotonic() + 60
    while len(list(cut.glob("runs/*.json"))) < RUNS // 2 and time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    kept = {path: path.stat().st_mtime_ns for path in cut.glob("runs/*.json")}
    assert RUNS // 2 <= len(kept) < RUNS
    assert entry.run(["run", str(experiment), "--out", str(cut), "--jobs", "1", "--quiet"]) == 0
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
    assert tables_of(cut) == tables_of(whole)
    assert len(store.read(cut)) == RUNS


def test_two_processes_make_what_one_makes(tmp_path: Path):
    experiment = write(tmp_path / "it.toml", seeds=[1, 2, 3])
    for jobs in ("1", "2"):
        assert entry.run(["run", str(experiment), "--out", str(tmp_path / jobs), "--jobs", jobs, "--quiet"]) == 0
    assert tables_of(tmp_path / "1") == tables_of(tmp_path / "2")


def test_shards_fill_one_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    experiment = write(tmp_path / "it.toml", seeds=[1, 2, 3])
    made = []
    for shard in ("1/2", "2/2"):
        arguments = ["run", str(experiment), "--out", str(tmp_path / "out"), "--jobs", "1", "--shard", shard, "--json"]
        assert entry.run(arguments) == 0
        made.append(json.loads(capsys.readouterr().out)["runs_made"])
    assert made == [2, 1]
    assert len(store.read(tmp_path / "out")) == 3


def test_an_unknown_key_is_one_line_and_changes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    experiment = write(tmp_path / "it.toml", privacy__epsilom=1.0)
    assert entry.run(["run", str(experiment), "--out", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err.strip()
    assert "\n" not in error
    assert "it.toml" in error
    assert "epsilom" in error
    assert not (tmp_path / "out").exists()


def test_a_folder_of_another_experiment_is_refused_and_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    first = write(tmp_path / "first.toml")
    second = write(tmp_path / "second.toml", training__rounds=13)
    assert entry.run(["run", str(first), "--out", str(tmp_path / "out"), "--quiet"]) == 0
    before = tables_of(tmp_path / "out")
    assert entry.run(["run", str(second), "--out", str(tmp_path / "out"), "--quiet"]) == 2
    assert "another experiment" in capsys.readouterr().err
    assert tables_of(tmp_path / "out") == before


def test_an_epsilon_that_no_noise_reaches_is_a_refused_budget(tmp_path: Path):
    privacy = {**studies.SMALL["privacy"], "epsilon": 0.5, "delta": 1e-17}
    del privacy["noise_multiplier"]
    experiment = write(tmp_path / "it.toml", privacy=privacy)
    assert entry.run(["run", str(experiment), "--out", str(tmp_path / "out"), "--quiet"]) == 3


def test_a_report_says_how_many_runs_were_made_and_what_no_claim_covers(tmp_path: Path):
    experiment = write(
        tmp_path / "it.toml", seeds=[1, 2], sweep=[{"keys": ["privacy.noise_multiplier"], "values": [[3.0], [6.0]]}]
    )
    assert entry.run(["run", str(experiment), "--out", str(tmp_path / "out"), "--quiet"]) == 0
    assert entry.run(["report", str(tmp_path / "out")]) == 0
    text = (tmp_path / "out" / "report" / "report.md").read_text()
    assert "4 runs were made on these data" in text
    assert "not covered by any claim" in text
    assert "protects nobody" in text
    found = json.loads((tmp_path / "out" / "report" / "report.json").read_text())
    accuracies = [run["accuracy"] for run in store.read(tmp_path / "out")][:2]
    assert found["rows"][0]["accuracy_mean"] == pytest.approx(sum(accuracies) / 2)
    assert (tmp_path / "out" / "report" / "report.tex").read_text().count(r"\\") == 3
    assert (tmp_path / "out" / "report" / "accuracy-by-rounds.png").read_bytes()[1:4] == b"PNG"


def test_progress_counts_over_the_whole_sweep_and_estimates_the_end(tmp_path: Path):
    told = []
    experiment = studies.small(seeds=[1, 2, 3])
    conduct.conduct(experiment, tmp_path / "out", progress=lambda *words: told.append(words))
    assert [(done, total) for done, total, _ in told] == [(0, 3), (1, 3), (2, 3), (3, 3)]
    assert told[0][2] is None
    assert told[1][2] > 0


def test_reproduce_tables_has_published_recomputed_and_tight_numbers(capsys: pytest.CaptureFixture[str]):
    assert entry.run(["reproduce", "tables", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert list(found) == ["table2", "table3", "table4", "table5"]
    first = found["table5"][0]  # the first row of table 5, as printed
    assert first["published"] == {"paper_epsilon": 0.15007, "sigma": 12.10881}
    assert first["recomputed"]["sigma"] == 12.10881
    # dp-accounting 0.6.0 on this row: 0.0433 for Poisson sampling
    assert first["tight"]["poisson"]["epsilon"] == pytest.approx(0.0433, abs=2e-4)


def test_there_is_nothing_else_to_reproduce(capsys: pytest.CaptureFixture[str]):
    assert entry.run(["reproduce", "figure99"]) == 2
    assert "figure1c" in capsys.readouterr().err


def test_a_quick_look_at_a_figure_says_that_it_is_no_result(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert entry.run(["reproduce", "figure1c", "--quick", "--json", "--out", str(tmp_path), "--jobs", "1"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["partial"].startswith("PARTIAL")
    assert {row["rounds"] for row in found["rows"]} == {reproduce.QUICK_ROUNDS}
    # It is kept apart from the runs of the figure itself.
    assert not (tmp_path / "figure1c" / "runs").exists()
