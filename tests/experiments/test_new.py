"""What `hushgrad new` writes is what the other commands read, and costs what was asked."""

import csv
import dataclasses
import json
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hushgrad import accountant
from hushgrad.cli import entry
from hushgrad.client import config as client_config
from hushgrad.client import models
from hushgrad.experiments import demo_settings, files, plan
from hushgrad.experiments.errors import BudgetRefusedError, InputError
from hushgrad.server import config as server_config
from hushgrad.wire import arrays, terms_file

REQUEST = demo_settings.request(name="demo", features=68, records=1_768, rounds=100)


@pytest.fixture(scope="module")
def demo_plan() -> plan.Plan:
    return plan.make(REQUEST)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A .csv of 300 records with 3 features and named classes."""
    path = tmp_path / "records.csv"
    generator = np.random.default_rng(1)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["age", "outcome", "weight", "height"])
        for row in generator.uniform(0, 100, size=(300, 3)):
            writer.writerow([row[0], "ill" if row[0] > 50 else "healthy", row[1], row[2]])
    return path


def new(folder: Path, table: Path, *changes: str) -> int:
    """Runs `hushgrad new`; later options win over earlier ones."""
    arguments = [
        "new",
        str(folder),
        "--model",
        "logistic",
        "--data",
        str(table),
        "--label",
        "outcome",
        "--clients",
        "3",
    ]
    budget = ["--epsilon", "2", "--delta", "1e-5", "--clip-norm", "1", "--rounds", "20"]
    return entry.run([*arguments, *budget, *changes])


def test_the_demos_plan_meets_its_budget_and_wastes_little_of_it(demo_plan: plan.Plan) -> None:
    assert 0.49 < demo_plan.claim.epsilon <= 0.5
    assert demo_plan.claim.delta == 1e-5


def test_a_little_less_noise_than_the_plans_breaks_the_budget(demo_plan: plan.Plan) -> None:
    with pytest.raises(BudgetRefusedError, match="more than"):
        plan.make(REQUEST, noise_multiplier=0.99 * demo_plan.noise_multiplier)


def test_the_demos_grid_is_as_fine_as_its_noise_allows(demo_plan: plan.Plan) -> None:
    # min(12 * 0.5 / 2^16, 0.01 * 0.5 / sqrt(69)) is 9.2e-5, and 2^-14 = 6.1e-5 is the power of two below it.
    assert 12 < demo_plan.noise_multiplier < 12.5
    assert demo_plan.grid_exponent == -14


def test_more_rounds_need_more_noise(demo_plan: plan.Plan) -> None:
    longer = plan.make(dataclasses.replace(REQUEST, rounds=200))
    assert longer.noise_multiplier > 1.3 * demo_plan.noise_multiplier  # about sqrt(2) times


def test_a_sample_size_changes_the_noise_and_hardly_what_the_sum_is_worth(demo_plan: plan.Plan) -> None:
    half = plan.make(dataclasses.replace(REQUEST, sample_size=150))
    assert half.noise_multiplier / 150 == pytest.approx(demo_plan.noise_multiplier / 300, rel=0.1)


@pytest.mark.parametrize(
    "change",
    [
        {"epsilon": 0.0},
        {"epsilon": float("nan")},
        {"delta": 0.0},
        {"delta": 1.0},
        {"delta": 1e-3},  # above 1/N
        {"clip_norm": -1.0},
        {"clients": 0},
        {"records": 0},
        {"rounds": 0},
        {"sample_size": 1_769},
        {"eta0": 0.0},
        {"beta": -0.1},
        {"classes": 3},
        {"l2": -1.0},
        {"name": "Not a name"},
    ],
)
def test_numbers_out_of_range_are_refused(change: dict) -> None:
    with pytest.raises(InputError):
        plan.make(dataclasses.replace(REQUEST, **change))


def test_files_load_where_they_are_read_and_agree_with_each_other(tmp_path: Path, table: Path) -> None:
    folder = tmp_path / "federation"
    assert new(folder, table, "--bounds", "0", "100") == 0
    terms = terms_file.load(folder / "terms.toml")
    specs = [arrays.ArraySpec(entry.name, tuple(entry.shape)) for entry in terms.arrays]
    initial = arrays.load_model(folder / "initial.safetensors", specs)
    built = terms_file.build(terms, initial, bytes(16))
    assert built.parameters == 4
    assert built.participants == ("client-1", "client-2", "client-3")
    assert server_config.load(folder / "server.toml").listen == "127.0.0.1:7443"
    overrides = {"participant": "client-2", "state": str(tmp_path / "state"), "data": str(table)}
    client = client_config.load_client(folder / "client.toml", overrides)
    assert client.privacy.clip_norm == built.privacy.clip_norm
    assert client.privacy.noise_multiplier == built.privacy.noise_multiplier_min
    assert client.privacy.records == 100  # 300 rows, 3 clients
    assert client.data.class_names == ["healthy", "ill"]
    evaluator = client_config.load_evaluator(folder / "evaluator.toml", {"data": str(table)})
    assert evaluator.data.bounds == client.data.bounds


def test_the_files_claim_is_what_the_accountant_says_of_their_numbers(tmp_path: Path, table: Path) -> None:
    folder = tmp_path / "federation"
    assert new(folder, table) == 0
    terms = terms_file.load(folder / "terms.toml")
    privacy = client_config.load_client(
        folder / "client.toml", {"participant": "client-1", "state": "s", "data": str(table)}
    ).privacy
    # Charged as if exact, a little less than what was charged: the claim must be below epsilon and close to it.
    rounds = accountant.RoundGroup(
        terms.sample_size.size / privacy.records, privacy.noise_multiplier, terms.final_version
    )
    claim = accountant.from_schedule([rounds], sampling="poisson", adjacency="add-remove", delta=privacy.delta)
    assert 0.95 * privacy.epsilon < claim.epsilon <= privacy.epsilon


def test_the_result_is_printed_as_json(tmp_path: Path, table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert new(tmp_path / "federation", table, "--json", "--records", "500") == 0
    result = json.loads(capsys.readouterr().out)
    assert result["records"] == 500
    assert not result["records_counted"]
    assert result["claim"]["epsilon"] <= 2


@pytest.mark.parametrize(
    ("changes", "code", "words"),
    [
        (["--label", "nothing"], 2, "column 'nothing'"),
        (["--data", "missing.csv"], 2, "no data file"),
        (["--epsilon", "0"], 2, "epsilon"),
        (["--delta", "1e-18"], 3, "noise multiplier"),  # the imperfections of any sampler cost more than that
        (["--delta", "0.5"], 2, "1/100"),
        (["--clip-norm", "inf"], 2, "clip norm"),
        (["--clients", "0"], 2, "number of clients"),
        (["--classes", "1"], 2, "--classes"),
        (["--bounds", "1", "0"], 2, "low < high"),
        (["--listen", "nowhere"], 2, "host:port"),
        (["--server", "host:0"], 2, "host:port"),
        (["--name", "A B"], 2, "name"),
    ],
)
def test_bad_input_is_one_line_and_writes_nothing(
    tmp_path: Path, table: Path, capsys: pytest.CaptureFixture[str], changes: list[str], code: int, words: str
) -> None:
    folder = tmp_path / "federation"
    assert new(folder, table, *changes) == code
    error = capsys.readouterr().err
    assert words in error
    assert len(error.strip().splitlines()) == 1
    assert not folder.exists()


def test_nothing_is_written_over_what_is_there(tmp_path: Path, table: Path) -> None:
    folder = tmp_path / "federation"
    folder.mkdir()
    (folder / "mine.txt").write_text("keep me")
    assert new(folder, table) == 2
    assert [path.name for path in folder.iterdir()] == ["mine.txt"]


def test_split_writes_parts_that_new_reads(tmp_path: Path, table: Path) -> None:
    parts = tmp_path / "parts"
    arguments = ["--clients", "3", "--test", "0.2", "--seed", "1", "--label", "outcome", "--out", str(parts)]
    assert entry.run(["split", str(table), *arguments]) == 0
    assert sorted(path.name for path in parts.iterdir()) == [
        "client-1.npz",
        "client-2.npz",
        "client-3.npz",
        "test.npz",
    ]
    changes = ["--bounds-from", str(parts / "test.npz")]
    assert new(tmp_path / "federation", parts / "client-1.npz", *changes) == 0


@pytest.mark.parametrize(
    ("model", "settings", "parameters", "name"),
    [
        ("mlp", ["hidden=20", "activation=tanh"], 3 * 20 + 20 + 20 * 2 + 2, "mlp-tanh"),
        ("softmax", ["precision=float32"], 8, "softmax"),
        ("logistic", [], 4, "logistic"),
    ],
)
def test_any_model_is_set_up_by_command_and_loaded_from_its_files(
    tmp_path: Path, table: Path, model: str, settings: list[str], parameters: int, name: str
) -> None:
    folder = tmp_path / "federation"
    options = [part for setting in settings for part in ("--model-option", setting)]
    assert new(folder, table, "--model", model, "--eta0", "0.01", *options) == 0
    loaded = client_config.load_client(folder / "client.toml", {"participant": "client-1", "data": str(table)})
    made = models.make(loaded.model.kind, features=3, classes=2, l2=loaded.model.l2, **loaded.model.options())
    terms = msgspec.toml.decode((folder / "terms.toml").read_bytes())
    assert terms["model"] == made.name == name
    assert [(array["name"], tuple(array["shape"])) for array in terms["arrays"]] == [
        (spec.name, spec.shape) for spec in made.arrays
    ]
    assert sum(spec.size for spec in made.arrays) == parameters


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["--model", "mlp", "--model-option", "hidden=20", "--model-option", "activation=tanh"], "eta0"),
        (["--model", "mlp", "--eta0", "1"], "needs hidden"),
        (
            ["--model", "lenet", "--eta0", "1", "--model-option", "activation=tanh", "--model-option", "padding=0"],
            "pixels",
        ),
        (["--model-option", "hidden=20"], "has no hidden"),
        (["--model-option", "hidden"], "NAME=VALUE"),
        (["--model", "tree"], "kind must be one of"),
    ],
)
def test_models_that_cannot_be_set_up_are_refused_and_nothing_is_written(
    tmp_path: Path, table: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], word: str
) -> None:
    folder = tmp_path / "federation"
    assert new(folder, table, *arguments) == 2
    assert word in capsys.readouterr().err
    assert not folder.exists()


def test_steps_that_fall_in_a_line_are_written_as_a_list(demo_plan: plan.Plan) -> None:
    made = dataclasses.replace(
        demo_plan, request=dataclasses.replace(demo_plan.request, rounds=4, step_kind="linear"), eta0=0.8
    )
    terms = msgspec.toml.decode(files.terms(made, straggler_timeout_seconds=60.0))
    assert terms["step_size"]["values"] == pytest.approx([0.8, 0.6, 0.4, 0.2])
