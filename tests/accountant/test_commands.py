"""The `hushgrad-accountant` command: what it prints, its exit codes, and one clear line for every mistake."""

import json
import subprocess
import sys

import pytest
from hushgrad.accountant import __main__ as entry

_PLAIN = "--sampling poisson --adjacency add-remove --records 10000 --delta 1e-5"


def _run(capsys, monkeypatch, arguments):
    monkeypatch.setattr(sys, "argv", ["hushgrad-accountant", *arguments.split()])
    with pytest.raises(SystemExit) as ended:
        entry.main()
    output = capsys.readouterr()
    return ended.value.code or 0, output.out, output.err


def test_epsilon_prints_a_whole_claim(capsys, monkeypatch):
    """meta-pytorch/opacus#80: q = 0.01, sigma = 1.1, 1000 rounds: 1.5154."""
    code, out, _ = _run(
        capsys, monkeypatch, f"epsilon {_PLAIN} --sample-size 100 --rounds 1000 --noise-multiplier 1.1 --json"
    )

    assert code == 0
    claim = json.loads(out)
    assert claim["epsilon"] == pytest.approx(1.5154, rel=5e-3)
    assert set(claim) == {"epsilon", "delta", "adjacency", "sampling", "unit", "method", "method_version"}


def test_epsilon_without_json_is_a_sentence(capsys, monkeypatch):
    code, out, _ = _run(capsys, monkeypatch, f"epsilon {_PLAIN} --sample-size 100 --rounds 1000 --noise-multiplier 1.1")

    assert code == 0
    assert "differential privacy of every single record" in out


def test_a_schedule_of_two_halves_is_the_whole(capsys, monkeypatch):
    single = _run(capsys, monkeypatch, f"epsilon {_PLAIN} --sample-size 100 --rounds 200 --noise-multiplier 2 --json")
    schedule = _run(capsys, monkeypatch, f"epsilon {_PLAIN} --schedule 100:150:2,100:50:2.0 --json")

    assert single[:2] == schedule[:2]


def test_calibrate_prints_the_noise_and_its_claim(capsys, monkeypatch):
    code, out, _ = _run(capsys, monkeypatch, f"calibrate {_PLAIN} --sample-size 100 --rounds 100 --epsilon 0.5 --json")

    assert code == 0
    answer = json.loads(out)
    assert set(answer) == {"noise_multiplier", "claim"}
    assert 0.49 < answer["claim"]["epsilon"] <= 0.5


@pytest.mark.parametrize(
    "arguments",
    [
        f"epsilon {_PLAIN} --sample-size 100 --rounds 10 --noise-multiplier 0",
        f"epsilon {_PLAIN} --sample-size 100 --rounds 10 --noise-multiplier nan",
        f"epsilon {_PLAIN} --sample-size 100 --rounds 0 --noise-multiplier 1",
        f"epsilon {_PLAIN} --sample-size 10001 --rounds 10 --noise-multiplier 1",
        f"epsilon {_PLAIN} --sample-size 100 --rounds 10",
        f"epsilon {_PLAIN} --schedule 100:10:1 --rounds 3",
        f"epsilon {_PLAIN} --schedule 100:10",
        "epsilon --sampling poisson --adjacency add-remove --records 0 --schedule 1:1:1 --delta 1e-5",
        "epsilon --sampling poisson --adjacency add-remove --records 1000 --schedule 10:1:1 --delta 0.01",
        "epsilon --sampling poisson --adjacency add-remove --records 1000 --schedule 10:1:1 --delta 2",
        "epsilon --sampling fixed --adjacency add-remove --records 1000 --schedule 1000:1:1 --delta 1e-5",
        "epsilon --sampling shuffle --adjacency add-remove --records 1000 --schedule 10:1:1 --delta 1e-5",
        "epsilon --sampling poisson --records 1000 --schedule 10:1:1 --delta 1e-5",
        f"calibrate {_PLAIN} --sample-size 100 --rounds 10 --epsilon 0",
        f"calibrate {_PLAIN} --sample-size 100 --epsilon 1",
        "nonsense",
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(capsys, monkeypatch, arguments):
    code, out, err = _run(capsys, monkeypatch, arguments)

    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert err.count("\n") == 1


def test_a_large_delta_can_be_insisted_on_and_warns(capsys, monkeypatch):
    code, _, err = _run(
        capsys,
        monkeypatch,
        "epsilon --sampling poisson --adjacency add-remove --records 1000 --schedule 10:1:1 --delta 0.01 "
        "--accept-large-delta",
    )

    assert code == 0
    assert err.startswith("warning: ")


def test_importing_the_package_loads_no_numerical_library():
    program = (
        "import sys, hushgrad.accountant;print(sorted({'numpy', 'scipy', 'dp_accounting', 'click'} & set(sys.modules)))"
    )

    output = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)

    assert output.stdout.strip() == "[]"
