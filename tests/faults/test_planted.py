"""What the simulated schedules catch: every planted bug, in a copy of the tree. `make simulate` counts the seeds."""

import tempfile
from pathlib import Path

import pytest

from tests.faults.planted import plant
from tests.faults.planted.bugs import BUGS, Bug


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name.replace(" ", "-"))
def test_a_planted_bug_is_caught(bug: Bug) -> None:
    with tempfile.TemporaryDirectory() as name:
        plant.copy_tree(Path(name))
        plant.plant(bug, Path(name))
        assert plant.simulate(Path(name), bug.seed, bug.seed + 5) is not None


def test_a_copy_without_a_bug_passes() -> None:
    with tempfile.TemporaryDirectory() as name:
        plant.copy_tree(Path(name))
        assert plant.simulate(Path(name), 0, 20) is None
