"""The reference is what the code says."""

import importlib.util
from pathlib import Path

import msgspec
import pytest

FOLDER = Path(__file__).resolve().parents[2] / "docs"


@pytest.fixture(scope="module")
def generator():
    spec = importlib.util.spec_from_file_location("make_reference", FOLDER / "make_reference.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def page(generator) -> str:
    return generator.page()


def test_the_reference_is_fresh(page: str) -> None:
    assert (FOLDER / "reference.md").read_text() == page, "run: make docs"


@pytest.mark.parametrize(
    "entry",
    ["`straggler_timeout_seconds`", "`lifetime_epsilon`", "`keep_last`", "`hushgrad-client run`", "`hushgrad new`"],
)
def test_keys_and_commands_are_in_it(page: str, entry: str) -> None:
    assert entry in page


def test_a_key_without_an_explanation_is_refused(generator) -> None:
    class Unexplained(msgspec.Struct):
        """A file.

        Attributes:
            known: what it is.
        """

        known: int
        forgotten: int

    with pytest.raises(SystemExit, match="forgotten"):
        generator._table(Unexplained)
