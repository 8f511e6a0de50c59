"""An installation without the extra: one line that says what to install, and exit code 1."""

import subprocess
import sys

import pytest

_WITHOUT = (
    "import sys; sys.modules[{missing!r}] = None; sys.argv = {argv!r}; "
    "from hushgrad.{role}.__main__ import main; main()"
)

_OPTIONS = [
    "--sampling=fixed",
    "--adjacency=replace-one",
    "--records=1000",
    "--schedule=10:5:2",
    "--delta=1e-5",
    "--json",
]


def _run(role, missing, *arguments):
    program = _WITHOUT.format(role=role, missing=missing, argv=[f"hushgrad-{role}", *arguments])
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("missing", ["dp_accounting", "scipy"])
def test_the_accountant_names_its_extra(missing):
    ended = _run("accountant", missing, "epsilon", *_OPTIONS)

    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr == f"error: this needs the package {missing}: pip install 'hushgrad[accountant]'\n"


@pytest.mark.parametrize("missing", ["structlog", "cryptography", "sklearn", "dp_accounting"])
def test_the_client_names_its_extra(missing, tmp_path):
    config = tmp_path / "client.toml"
    config.write_text("")
    ended = _run("client", missing, "status", "--config", str(config))

    if missing == "structlog":
        assert (ended.returncode, ended.stdout) == (1, "")
        assert ended.stderr == f"hushgrad-client: this needs the package {missing}: pip install 'hushgrad[client]'\n"
    assert "Traceback" not in ended.stderr


def test_help_needs_no_extra():
    for role in ("accountant", "client"):
        assert _run(role, "dp_accounting", "--help").returncode == 0


def test_a_broken_installation_of_our_own_is_not_hidden():
    ended = _run("accountant", "hushgrad.accountant.planner", "--help")

    assert "Traceback" in ended.stderr
