"""What the tests of processes and disks would catch: each planted bug makes one of them fail, in a copy of the tree."""

import os
from pathlib import Path

import pytest

from tests.faults.process.planted_in_processes import BUGS, Bug, is_caught, run_planted

pytestmark = [
    pytest.mark.faults,
    pytest.mark.e2e,
    pytest.mark.timeout(400),
    pytest.mark.skipif(os.geteuid() != 0, reason="power cuts need root"),
]


@pytest.mark.parametrize("bug", BUGS, ids=[bug.name.replace(" ", "_") for bug in BUGS])
def test_a_planted_bug_is_caught(bug: Bug, tmp_path: Path) -> None:
    done = run_planted(bug, tmp_path)
    assert is_caught(done), done.stdout[-3000:] + done.stderr[-2000:]
