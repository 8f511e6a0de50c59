"""Promises about the repository itself: sizes, pins, targets, and nothing that ties it to one machine."""

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PINS = (ROOT / "constraints.txt").read_text().splitlines()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def tracked_files() -> list[Path]:
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
        text=True,
    )
    return [path for name in listed.stdout.split("\0") if name and (path := ROOT / name).is_file()]


def normalised(name: str) -> str:
    """A distribution's name as package indexes compare it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def test_no_file_is_larger_than_a_mebibyte():
    assert [str(path) for path in tracked_files() if path.stat().st_size > 2**20] == []


def test_constraints_are_names_and_versions_only():
    wrong = [line for line in PINS if not re.fullmatch(r"#.*|[A-Za-z0-9._-]+==[0-9][0-9A-Za-z.]*", line)]
    assert wrong == []


def test_every_dependency_is_pinned():
    pinned = {normalised(line.partition("==")[0]) for line in PINS if not line.startswith("#")}
    extras = PROJECT["optional-dependencies"]
    # Frameworks of later roles, installed by those who ask for them.
    wanted = [
        *PROJECT["dependencies"],
        *(entry for name in extras if name not in ("torch", "ray") for entry in extras[name]),
    ]
    names = {normalised(re.match(r"[A-Za-z0-9._-]+", entry).group()) for entry in wanted} - {"hushgrad"}
    assert sorted(names - pinned) == []


def test_tests_need_neither_torch_nor_ray():
    heavy = {"torch", "ray", "opacus", "jax", "tensorflow", "opendp"}
    assert [line for line in PINS if normalised(line.partition("==")[0]) in heavy] == []


def test_no_file_names_a_place_to_download_from():
    # A lock that names hosts breaks behind the next proxy, and says where it was made.
    pattern = re.compile(r"pyp[i]\.org|pyth[o]nhosted|--index-url|--find-links|\.whl\b|file:/{2}|npm[j]s\.org")
    wrong = [
        str(path.relative_to(ROOT))
        for path in tracked_files()
        if path != Path(__file__) and path.suffix != ".npz" and pattern.search(path.read_text(errors="replace"))
    ]
    assert wrong == []


def make_targets() -> set[str]:
    return set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))


def test_every_make_command_in_the_documents_is_a_target():
    documents = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
    named = {
        target
        for document in documents
        for target in re.findall(r"(?:`|^|\$ )make ([a-z-]+)", document.read_text(), flags=re.MULTILINE)
    }
    assert {"demo", "test"} <= named
    assert named <= make_targets()


def test_every_command_of_the_project_has_an_entry_point():
    for target in PROJECT["scripts"].values():
        module, _, function = target.partition(":")
        found = list(ROOT.glob(f"*/{module.replace('.', '/')}.py"))
        assert found, target
        assert f"{function}" in found[0].read_text()


def test_every_page_of_the_documentation_exists():
    pages = re.findall(r":\s*([a-z-]+\.md)\s*$", (ROOT / "mkdocs.yml").read_text(), flags=re.MULTILINE)
    assert "index.md" in pages
    assert [page for page in pages if not (ROOT / "docs" / page).is_file()] == []
