"""The fuzzer's targets on its seeds, and on every input that ever made one of them fail."""

from pathlib import Path

import numpy as np
import pytest
from hushgrad.server.aggregation import Aggregate

from tests.fuzz import seeding, targets

FOUND = sorted((Path(__file__).parent / "found").iterdir())


def test_the_launcher_knows_every_target() -> None:
    assert set(seeding.TARGETS) == set(targets.TARGETS)


@pytest.mark.parametrize("name", targets.TARGETS)
def test_seeds_pass(name: str) -> None:
    for data in targets.seeds(name):
        targets.TARGETS[name](data)


@pytest.mark.parametrize("path", FOUND, ids=[path.name for path in FOUND])
def test_inputs_that_once_failed_pass(path: Path) -> None:
    """A file is named after its target: admission-what-it-was."""
    targets.TARGETS[path.name.split("-")[0]](path.read_bytes())


@pytest.mark.parametrize(("name", "inputs"), [("decoder", 3000), ("admission", 150), ("service", 100)])
def test_mutated_seeds_pass(name: str, inputs: int) -> None:
    generator = np.random.default_rng(6)
    seeds = targets.seeds(name)
    for _ in range(inputs):
        data = bytearray(seeds[generator.integers(len(seeds))])
        for _ in range(generator.integers(1, 6)):
            at = int(generator.integers(len(data) + 1))
            data[at : at + int(generator.integers(3))] = generator.bytes(int(generator.integers(8)))
        targets.TARGETS[name](bytes(data))


def test_the_seeds_reach_what_matters() -> None:
    """A target that refused everything at the door would find nothing."""
    owner = targets.admitted(targets.seeds("admission")[0])
    assert owner.federation.newest_version >= 1


def test_a_target_sees_a_planted_bug(monkeypatch: pytest.MonkeyPatch) -> None:
    """An update that is folded twice: the oracle of `admission` must object."""
    fold = Aggregate.fold

    def twice(self: Aggregate, payload: bytes, step_numerator: int) -> None:
        fold(self, payload, step_numerator)
        fold(self, payload, step_numerator)

    monkeypatch.setattr(Aggregate, "fold", twice)
    with pytest.raises(AssertionError, match="not the sum"):
        targets.admission(targets.seeds("admission")[0])
