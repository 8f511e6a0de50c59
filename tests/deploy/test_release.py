"""What `make release` would refuse is refused before anybody tries: tags and changes that do not fit the version."""

import importlib.util
import shutil
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]


@pytest.fixture(scope="module")
def release():
    spec = importlib.util.spec_from_file_location("release", ROOT / "deploy" / "release.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_image_is_tagged_with_the_version_of_the_package(release) -> None:
    assert release._wrong_tags(ROOT, VERSION) == []


def test_an_image_with_another_tag_is_found(release, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "deploy", tmp_path / "deploy")
    shutil.copy(ROOT / "docker-compose.yml", tmp_path)
    job = tmp_path / "deploy" / "kubernetes" / "client" / "job.yaml"
    job.write_text(job.read_text().replace(f"hushgrad-client:{VERSION}", "hushgrad-client:0.0.9"))
    assert release._wrong_tags(tmp_path, VERSION) == ["hushgrad-client:0.0.9"]


def test_the_changelog_has_an_entry_for_the_version(release) -> None:
    assert release._changes(ROOT, VERSION).startswith(f"# hushgrad {VERSION}\n")


def test_a_version_without_changes_is_refused(release) -> None:
    with pytest.raises(SystemExit, match=r"99\.0\.0"):
        release._changes(ROOT, "99.0.0")
