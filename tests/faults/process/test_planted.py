"""What the tests of processes and disks would catch: each planted bug makes one of them fail, in a copy of the tree."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.process.planted_in_processes import BUGS, Bug

ROOT = Path(__file__).resolve().parents[3]
PARTS = ("protos", "accountant", "client", "server", "experiments", "tests", "pyproject.toml")

pytestmark = [
    pytest.mark.faults,
    pytest.mark.e2e,
    pytest.mark.timeout(400),
    pytest.mark.skipif(os.geteuid() != 0, reason="power cuts need root"),
]


@pytest.mark.parametrize("bug", BUGS, ids=[bug.name.replace(" ", "_") for bug in BUGS])
def test_a_planted_bug_is_caught(bug: Bug, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    for part in PARTS:
        if (ROOT / part).is_dir():
            shutil.copytree(ROOT / part, tree / part, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copyfile(ROOT / part, tree / part)
    path = tree / bug.path
    text = path.read_text()
    assert text.count(bug.old) == 1, f"plant it anew: {bug.old!r} is there {text.count(bug.old)} times"
    path.write_text(text.replace(bug.old, bug.new))
    file, names = bug.caught_by
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-m", "e2e", file, "-k", names]
    # The folder of the copy comes first, here and in every process that the tests start.
    done = subprocess.run(
        [*command, f"--basetemp={tmp_path / 'base'}"],
        cwd=tree,
        env={key: value for key, value in os.environ.items() if key != "PYTHONPATH"},
        capture_output=True,
        text=True,
        timeout=380,
    )
    assert done.returncode == 1, done.stdout[-3000:] + done.stderr[-2000:]
    assert "AssertionError" in done.stdout or "assert " in done.stdout
