"""docs/monitoring.md lists every event that server and client log, read from the syntax trees."""

import ast
import functools
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "monitoring.md"
LEVELS = {"debug", "info", "warning", "error", "critical", "exception"}
# What must never stand in a log, under whatever name somebody gives it.
PRIVATE = re.compile(r"loss|gradient|batch_size|examples|label|feature|payload$|token|secret|password")

# An evaluator measures public data.
PUBLIC = {"evaluator.py": ("log_loss",)}


def is_log(node: ast.expr) -> bool:
    """Says whether an expression is a logger: log, self._log, structlog.get_logger()."""
    if isinstance(node, ast.Call):
        return getattr(node.func, "attr", "") == "get_logger"
    return getattr(node, "attr", getattr(node, "id", "")) in ("log", "_log")


def constants(node: ast.expr, function: ast.AST) -> set[str]:
    """Returns the strings that an event's name can be: itself, one of two, or what a local name was given."""
    if isinstance(node, ast.Constant):
        return {str(node.value)}
    if isinstance(node, ast.IfExp):
        return constants(node.body, function) | constants(node.orelse, function)
    assert isinstance(node, ast.Name), f"line {node.lineno}: an event's name must be plain to see"
    values = [
        assign.value
        for assign in ast.walk(function)
        if isinstance(assign, ast.Assign) and any(getattr(target, "id", "") == node.id for target in assign.targets)
    ]
    assert values, f"line {node.lineno}: an event's name must be plain to see"
    return set().union(*(constants(value, function) for value in values))


def calls_in(source: str) -> list[tuple[set[str], str, list[str]]]:
    """Returns (names, level, keys) of every log call."""
    found = []
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in LEVELS
            and is_log(node.func.value)
        ):
            names = constants(node.args[0], tree)
            found.append((names, node.func.attr, [keyword.arg or "" for keyword in node.keywords]))
    return found


@functools.cache
def calls_of(side: str) -> list[tuple[Path, set[str], str, list[str]]]:
    """Returns (file, names, level, keys) of every log call of a side."""
    paths = sorted((ROOT / side / "hushgrad" / side).rglob("*.py"))
    return [(path, *call) for path in paths for call in calls_in(path.read_text())]


def logged(side: str) -> dict[str, set[str]]:
    """Returns the levels of every event of a side."""
    found: dict[str, set[str]] = {}
    for _, names, level, _ in calls_of(side):
        for name in names:
            found.setdefault(name, set()).add(level)
    return found


def listed(side: str) -> dict[str, set[str]]:
    """Returns the levels of every event that the page has for a side."""
    section = re.search(rf"<!-- events of the {side} -->\n(.*?)<!-- end -->", PAGE.read_text(), re.DOTALL)
    assert section is not None
    rows = re.findall(r"^\| `([a-z_]+)` \| ([a-z, ]+) \|", section.group(1), re.MULTILINE)
    return {name: set(levels.split(", ")) for name, levels in rows}


@pytest.mark.parametrize("side", ["server", "client"])
def test_the_page_lists_every_event_and_no_other(side: str) -> None:
    assert listed(side) == logged(side)


@pytest.mark.parametrize("side", ["server", "client"])
def test_no_event_has_a_key_for_what_is_private(side: str) -> None:
    for path, names, _, keys in calls_of(side):
        private = [key for key in keys if PRIVATE.search(key) and key not in PUBLIC.get(path.name, ())]
        assert not private, f"{path}: {names} logs {private}"


def test_a_name_that_is_chosen_or_computed_is_found() -> None:
    source = """
def f(self, late):
    what = "suspended" if late else "not_heard"
    self._log.warning(what, participant="a")
    structlog.get_logger().info("begun", loss=1.0)
"""
    assert calls_in(source) == [
        ({"suspended", "not_heard"}, "warning", ["participant"]),
        ({"begun"}, "info", ["loss"]),
    ]
    assert PRIVATE.search("loss")
    with pytest.raises(AssertionError):
        calls_in('log.info(f"version {k}")')
