"""`hushgrad plot --frontier`: a picture of what the accountant planned, and one line for every file that is no plan."""

import json

import pytest
from hushgrad.accountant import planner
from hushgrad.cli import entry
from hushgrad.experiments import frontier


@pytest.fixture(scope="module")
def plan(tmp_path_factory):
    rows = planner.plan(
        records=2000,
        grad_computations=4000,
        epsilon=1.0,
        delta=1e-5,
        sampling="poisson",
        adjacency="add-remove",
        sample_sizes=(50, 200),
        parameters=1000,
    )
    document = {"sampling": "poisson", "adjacency": "add-remove", "epsilon_allowed": 1.0, "delta": 1e-5}
    path = tmp_path_factory.mktemp("plan") / "plan.json"
    path.write_text(json.dumps({**document, "plans": [row.to_dict() for row in rows]}))
    return path


def test_a_plan_becomes_a_picture(plan, tmp_path, capsys):
    picture = tmp_path / "frontier.png"

    assert entry.run(["plot", "--frontier", str(plan), "--frontier", str(plan), "--out", str(picture), "--json"]) == 0

    assert picture.read_bytes().startswith(b"\x89PNG")
    assert json.loads(capsys.readouterr().out)["lines"] == ["poisson, add-remove, epsilon 1, delta 1e-05"] * 2


def test_the_noise_in_the_result_is_that_of_all_rounds(plan):
    """T sums of s gradients with noise sigma C each: sigma sqrt(T) / (s T)."""
    read = frontier.read(plan)

    assert read.rounds == (80, 20)
    assert read.megabytes == (0.32, 0.08)
    expected = [sigma / (size * rounds**0.5) for sigma, rounds, size in zip(
        read.noise_multipliers, read.rounds, read.sample_sizes, strict=True
    )]  # fmt: skip
    assert read.total_noise == pytest.approx(expected)


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"plans": []}', '{"plans": [{}]}', "null"])
def test_what_is_no_plan_is_one_line_and_exit_code_2(text, tmp_path, capsys):
    path = tmp_path / "plan.json"
    path.write_text(text)

    assert entry.run(["plot", "--frontier", str(path), "--out", str(tmp_path / "x.png")]) == 2

    assert capsys.readouterr().err.count("\n") == 1
    assert not (tmp_path / "x.png").exists()


def test_files_that_are_not_there_are_named(plan, tmp_path, capsys):
    assert entry.run(["plot", "--frontier", str(tmp_path / "none.json")]) == 2
    assert entry.run(["plot", "--frontier", str(plan), "--out", str(tmp_path / "no" / "x.png")]) == 2
    errors = capsys.readouterr().err
    assert "none.json" in errors
    assert "cannot be written" in errors
