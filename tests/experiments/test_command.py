"""The `hushgrad` command imports what a verb needs when the verb is called, and says in one line what is missing."""

import subprocess
import sys

import pytest
from hushgrad.cli import entry


def test_help_needs_none_of_the_extras() -> None:
    code = (
        "import sys\n"
        "from hushgrad.cli import entry\n"
        "assert entry.run(['--help']) == 0\n"
        "heavy = {'numpy', 'sklearn', 'matplotlib', 'rich', 'grpc', 'dp_accounting'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert all(verb in done.stdout for verb in entry.VERBS)


def test_a_missing_extra_is_one_line_that_names_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "rich.console", None)  # as if it were not installed
    assert entry.run(["demo"]) == 1
    error = capsys.readouterr().err
    assert error == "hushgrad: this needs the package rich: pip install 'hushgrad[experiments]'\n"


def test_an_unknown_verb_is_bad_input(capsys: pytest.CaptureFixture[str]) -> None:
    assert entry.run(["dmeo"]) == 2
    assert "No such command" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ["demo", "--seed", "-1"],
        ["demo", "--rounds", "0"],
        ["demo", "--name", "../elsewhere"],
        ["demo", "--listen", "127.0.0.1:1"],
        ["split", "breast_cancer", "--clients", "0", "--test", "0.2", "--seed", "1", "--out", "parts"],
    ],
)
def test_bad_input_ends_with_2_and_writes_nothing(
    arguments: list[str], tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert entry.run(arguments) == 2
    assert list(tmp_path.iterdir()) == []


def test_prepare_only_writes_everybodys_files_and_starts_nothing(tmp_path) -> None:
    folder = tmp_path / "federation"
    addresses = ["--listen", "0.0.0.0:7443", "--server", "server:7443"]
    assert entry.run(["demo", "--prepare-only", "--rounds", "5", "--out", str(folder), *addresses]) == 0
    names = {path.name for path in folder.iterdir()}
    clients = {f"client-{number}.toml" for number in range(1, 6)}
    assert names == {*clients, "data", "evaluator.toml", "initial.safetensors", "server.toml", "terms.toml"}
    assert 'listen = "0.0.0.0:7443"' in (folder / "server.toml").read_text()
    assert 'server = "server:7443"' in (folder / "client-1.toml").read_text()
