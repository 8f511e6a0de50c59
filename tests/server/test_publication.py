"""A large version published into files is, bit for bit, the one that is published in memory."""

import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from hushgrad.server import publication, stored
from hushgrad.server.aggregation import Aggregate, Published
from hushgrad.server.stored import Mean, StoredBytes, StoredSums

LARGE, SMALL = 150_001, 1000


def make(parameters: int, final_version: int = 4, **keys: object) -> Aggregate:
    array = np.random.default_rng(1).integers(-(2**50), 2**50, parameters)
    return Aggregate(array, grid_exponent=-16, step_exponent=20, final_version=final_version, **keys)  # type: ignore[arg-type]


def payload(parameters: int, seed: int) -> bytes:
    return np.random.default_rng(seed).integers(-(2**31) + 1, 2**31, parameters).astype("<i4").tobytes()


def contents(published: Published) -> tuple[object, ...]:
    sums, averaged = published.average_sum, published.averaged
    return (
        published.version,
        published.model[:],
        published.sha256,
        published.array.tobytes(),
        None if sums is None else sums[:].tobytes(),
        published.average_count,
        None if averaged is None else averaged[:],
        published.averaged_sha256,
    )


def test_files_and_memory_give_the_same_versions_and_the_same_average(tmp_path: Path) -> None:
    in_files, in_memory = make(LARGE), make(LARGE)
    for version in range(1, 5):
        for aggregate in (in_files, in_memory):
            aggregate.fold(payload(LARGE, version), 2**31 + version)
        large = publication.publish(in_files.freeze(version), tmp_path)
        whole = in_memory.freeze(version).publish()
        assert isinstance(large.model, StoredBytes)
        assert large.files is not None
        assert contents(large) == contents(whole)
        assert stored.sha256(large.model) == large.sha256
        in_files.published(large)
        in_memory.published(whole)
    names = sorted(path.name.rsplit("-", 1)[0] for path in tmp_path.iterdir())
    assert names == [
        *("array-1", "array-2", "array-3", "array-4"),
        *("average_sum-3", "average_sum-4"),
        *("model-1", "model-2", "model-3", "model-4"),
    ]


def test_a_small_version_needs_no_files(tmp_path: Path) -> None:
    published = publication.publish(make(SMALL).freeze(1), tmp_path)
    assert isinstance(published.model, bytes)
    assert published.files is None
    assert list(tmp_path.iterdir()) == []


def test_a_version_stays_readable_when_its_files_are_gone(tmp_path: Path) -> None:
    aggregate = make(LARGE, final_version=1)
    published = publication.publish(aggregate.freeze(1), tmp_path)
    before = contents(published)
    for path in tmp_path.iterdir():
        path.unlink()
    assert contents(published) == before


def test_any_part_of_an_average_is_that_part_of_the_whole(tmp_path: Path) -> None:
    sums = np.random.default_rng(2).normal(size=1001)
    (tmp_path / "sums").write_bytes(sums.tobytes())
    whole = (sums / 3).astype("<f4").tobytes()
    for mean in (Mean(sums, 3), Mean(StoredSums(StoredBytes(tmp_path / "sums")), 3)):
        assert len(mean) == 4004
        generator = random.Random(3)
        for _ in range(200):
            start, stop = sorted(generator.choices(range(4100), k=2))
            assert mean[start:stop] == whole[start:stop]


def test_another_thread_and_copies_used_again_change_nothing() -> None:
    # 40 random orders of updates and versions, each folded on a thread and beside it; false alarms cannot happen.
    for seed in range(40):
        generator = random.Random(seed)
        with ThreadPoolExecutor(1) as thread:
            apart = make(SMALL, 30, in_order=thread.submit, reuses_copies=True)
            at_once = make(SMALL, 30)
            waiting = None
            for step in range(30):
                if waiting is None and generator.random() < 0.3:
                    waiting = (apart.freeze(step), at_once.freeze(step))
                elif waiting is not None and generator.random() < 0.5:
                    found, expected = (frozen.publish() for frozen in waiting)
                    assert contents(found) == contents(expected)
                    apart.published(found)
                    at_once.published(expected)
                    waiting = None
                else:
                    for aggregate in (apart, at_once):
                        aggregate.fold(payload(SMALL, step), 300 + step)
