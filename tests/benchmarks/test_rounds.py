"""That rounds are measured with servers that add what they were sent, the real one and the one that is wire alone."""

from pathlib import Path

from benchmarks import rounds
from benchmarks.harness import Bound, Record


def test_both_rows_of_a_small_model_are_measured_and_their_models_are_right(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(Path(rounds.__file__).parents[1]))
    # 61,706 parameters and fewer: the last models are compared with what the updates add up to.
    size = rounds.Size(69, 2, 1, (rounds.WIRE, rounds.DURABLE))
    found = list(rounds.figures((size,)))
    assert {one.name for one in found if isinstance(one, Record)} == {
        "wire, 69 parameters",
        "durable, 69 parameters",
    }, found
    assert sum(isinstance(one, Bound) for one in found) == 3
    assert list(tmp_path.iterdir()) == []
