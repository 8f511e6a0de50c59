"""The paper's experiments, repeated in full: our accuracies lie where they must, and in reasonable time.

Bands are of the mean test accuracy over seeds; the paper states 0.86, 0.91 and 0.93 for the three rows of figure 1c.
"""

import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.paper, pytest.mark.timeout(1800)]

CPU_SECONDS = 600.0
"""Five minutes on two cores."""


def reproduced(name: str, folder: Path, *more: str) -> tuple[dict[str, Any], float]:
    """Returns what `hushgrad reproduce NAME --json` prints, and the processor time that it took."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    words = [
        sys.executable,
        "-m",
        "hushgrad.cli",
        "reproduce",
        name,
        "--json",
        "--jobs",
        "2",
        "--out",
        str(folder),
        *more,
    ]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(f"{name}: {spent:.0f} s of processor time")
    return json.loads(done.stdout), spent


def test_figure_1c_is_where_the_paper_has_it_and_takes_less_than_five_minutes_of_two_cores(tmp_path: Path) -> None:
    found, seconds = reproduced("figure1c", tmp_path)
    rows = {row["epsilon_printed"]: row for row in found["rows"]}
    for row in found["rows"]:
        assert {"epsilon_printed", "claim", "accuracy_mean", "accuracy_std", "accuracy_paper"} <= set(row)
        assert row["seeds"] == [1, 2, 3, 4, 5]
    assert 0.86 <= rows[0.04945]["accuracy_mean"] <= 0.91
    assert 0.89 <= rows[0.1]["accuracy_mean"] <= 0.93
    assert rows[None]["accuracy_mean"] >= 0.93
    assert rows[None]["claim"] is None
    # What the printed noise really costs is less than the printed epsilon: its proof is loose, fixed sampling included.
    assert rows[0.04945]["claim"]["epsilon"] < 0.04945
    assert seconds < CPU_SECONDS


def test_with_tight_noise_the_same_records_need_a_hundred_rounds_for_more_than_the_papers_accuracy(
    tmp_path: Path,
) -> None:
    found, _ = reproduced("beyond-same", tmp_path)
    (row,) = [
        row
        for row in found["rows"]
        if row["labels.step"].startswith("tight noise, 100 large rounds") and row["claim"]["epsilon"] <= 0.04945
    ]
    assert row["rounds"] <= 100
    assert row["claim"]["delta"] == 1e-4
    assert row["claim"]["sampling"] == "poisson"
    assert row["runs"] == 5
    assert row["accuracy_mean"] >= 0.92


def test_disjoint_clients_of_2000_records_learn_at_epsilon_a_tenth(tmp_path: Path) -> None:
    found, _ = reproduced("beyond-disjoint", tmp_path)
    (row,) = [row for row in found["rows"] if row["privacy.epsilon"] == 0.1]
    assert row["claim"]["epsilon"] <= 0.1
    assert row["claim"]["delta"] == 1e-4
    assert row["runs"] == 20
    assert row["accuracy_mean"] >= 0.91


@pytest.mark.skipif("HUSHGRAD_DATA" not in os.environ, reason="HUSHGRAD_DATA must name a folder with MNIST's files")
@pytest.mark.parametrize("name", ["figure3b", "figure3c", "figure9", "figure12"])
def test_lenets_figures_begin_with_the_data_at_hand_and_say_that_five_rounds_are_no_result(
    name: str, tmp_path: Path
) -> None:
    found, _ = reproduced(name, tmp_path, "--quick")
    assert found["partial"].startswith("PARTIAL")
    assert {row["rounds"] for row in found["rows"]} == {5}


@pytest.mark.skipif("HUSHGRAD_DATA" not in os.environ, reason="HUSHGRAD_DATA must name a folder with MNIST's files")
def test_noise_on_a_trained_lenet_costs_nothing_at_first_and_then_everything(tmp_path: Path) -> None:
    found, _ = reproduced("figure3a", tmp_path)
    kept = {(row["clip_norm"], row["noise_multiplier"]): row["accuracy_fraction"] for row in found["rows"]}
    assert found["rows"][0]["accuracy_of_optimum"] >= 0.98  # the paper's LeNet without privacy reaches 0.98
    assert kept[0.0025, 2.0] >= 0.995
    assert kept[0.05, 20.0] <= 0.2  # a tenth is chance
