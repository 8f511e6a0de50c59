"""The array of the model: exact, in any order, and frozen for good."""

import numpy as np
import pytest
from hushgrad.server import aggregation
from hushgrad.server.aggregation import Aggregate


def make(array: np.ndarray, final_version: int = 4) -> Aggregate:
    return Aggregate(array, grid_exponent=-16, step_exponent=20, final_version=final_version)


def test_fold_equals_the_sum_in_python_integers_modulo_two_to_the_64() -> None:
    generator = np.random.default_rng(1)
    # More elements than one pass of the scratch array, and products that wrap around.
    array = generator.integers(-(2**62), 2**62, 70_001)
    payloads = [generator.integers(-(2**31) + 1, 2**31, array.size).astype("<i4") for _ in range(3)]
    numerators = [256, 2**31, 2**32 - 1]
    aggregate = make(array)
    for payload, numerator in zip(payloads, numerators, strict=True):
        aggregate.fold(payload.tobytes(), numerator)
    frozen = aggregate.freeze(1).array
    for at in (0, 1, 65_535, 65_536, 70_000):
        exact = int(array[at]) - sum(e * int(u[at]) for e, u in zip(numerators, payloads, strict=True))
        assert int(frozen[at]) == (exact + 2**63) % 2**64 - 2**63


def test_what_is_folded_after_freezing_is_not_in_the_frozen_version() -> None:
    aggregate = make(np.zeros(3, np.int64))
    frozen = aggregate.freeze(1)
    aggregate.fold(np.ones(3, "<i4").tobytes(), 256)
    assert frozen.array.tolist() == [0, 0, 0]
    assert aggregate.freeze(2).array.tolist() == [-256, -256, -256]


@pytest.mark.parametrize(
    ("elements", "is_taken"),
    [([0, 2**31 - 1], True), ([-(2**31) + 1, 0], True), ([0, -(2**31)], False), ([0], False), ([0, 0, 0], False)],
)
def test_defect_finds_a_wrong_size_and_the_one_invalid_element(elements: list[int], is_taken: bool) -> None:
    assert (aggregation.defect(np.array(elements, "<i4").tobytes(), 2) is None) is is_taken


def test_the_running_average_is_the_mean_of_the_published_models_of_the_second_half() -> None:
    aggregate = make(np.zeros(2, np.int64))
    models = []
    for version in range(1, 5):
        aggregate.fold(np.array([version * 1000, -7], "<i4").tobytes(), 300)
        published = aggregate.freeze(version).publish()
        aggregate.published(published)
        models.append(np.frombuffer(published.model, "<f4").astype(np.float64))
    assert published.average_count == 2
    # Versions 3 and 4 of 4: those above final_version / 2.
    assert np.frombuffer(published.averaged, "<f4").tolist() == ((models[2] + models[3]) / 2).astype("<f4").tolist()
