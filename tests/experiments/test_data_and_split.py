"""The packaged data are what was packaged, and a split puts no record in two places."""

import numpy as np
import pytest
from hushgrad.client import data as client_data
from hushgrad.experiments import data, source, split
from hushgrad.experiments.errors import InputError
from hushgrad.experiments.tables import Table


@pytest.fixture(scope="module")
def pages() -> Table:
    return data.phishing()


def numbered(rows: int, classes: int = 2) -> Table:
    """A table whose record i has the feature i."""
    return Table(np.arange(rows, dtype=np.float64)[:, None], np.arange(rows) % classes, ("0", "1"))


def test_packaged_data_have_the_published_shape_and_class_counts(pages: Table) -> None:
    # The figures of LIBSVM's page of binary classification data, and of the UCI file.
    assert pages.features.shape == (11_055, 68)
    assert np.bincount(pages.labels).tolist() == [4_898, 6_157]


def test_every_page_has_one_bit_set_in_each_of_thirty_groups(pages: Table) -> None:
    assert np.allclose((pages.features**2).sum(axis=1), 1.0, atol=1e-4)  # 30 * 0.18257^2, five digits as in LIBSVM
    assert len(np.unique(pages.features)) == 2


def test_changed_packaged_data_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data, "PHISHING_SHA256", "00" * 32)
    with pytest.raises(RuntimeError, match="reinstall"):
        data.phishing()


def test_no_row_is_in_two_places_and_parts_are_equally_large(pages: Table) -> None:
    cut = split.split(pages, clients=5, test_fraction=0.2, seed=1)
    everywhere = np.concatenate([cut.test, *cut.parts, cut.left_out])
    assert np.array_equal(np.sort(everywhere), np.arange(pages.rows))
    assert len(cut.test) == 2_211
    assert [len(part) for part in cut.parts] == [1_768] * 5
    assert len(cut.left_out) < 5


def test_a_seed_fixes_the_split_and_another_seed_changes_it(pages: Table) -> None:
    one, same, other = (split.split(pages, clients=5, test_fraction=0.2, seed=seed) for seed in (1, 1, 2))
    assert np.array_equal(one.test, same.test)
    assert all(np.array_equal(a, b) for a, b in zip(one.parts, same.parts, strict=True))
    assert not np.array_equal(one.test, other.test)
    assert not np.array_equal(one.parts[0], other.parts[0])


def test_every_record_is_drawn_for_the_test_set_equally_often() -> None:
    # 30 records, 20 %, 2,000 seeds: 400 +- 17.9 each, the standard deviation of a binomial count. Six of them leave a
    # false alarm of 30 * 2e-9.
    counts = np.zeros(30)
    for seed in range(2_000):
        counts[split.split(numbered(30), clients=2, test_fraction=0.2, seed=seed).test] += 1
    assert np.abs(counts - 400).max() < 6 * 17.9


def test_the_test_set_has_the_classes_of_the_whole(pages: Table) -> None:
    share = pages.labels[split.split(pages, clients=5, test_fraction=0.2, seed=3).test].mean()
    assert abs(share - pages.labels.mean()) < 1 / 2_211


def test_without_a_test_set_all_records_go_to_the_clients() -> None:
    cut = split.split(numbered(10), clients=5, test_fraction=0.0, seed=0)
    assert len(cut.test) == 0
    assert [len(part) for part in cut.parts] == [2] * 5


@pytest.mark.parametrize(
    ("clients", "fraction", "seed", "words"),
    [
        (0, 0.2, 1, "number of clients"),
        (5, 1.0, 1, "test fraction"),
        (5, -0.1, 1, "test fraction"),
        (5, float("nan"), 1, "test fraction"),
        (5, 0.2, -1, "seed"),
        (9, 0.2, 1, "too few"),
        (2, 0.01, 1, "too few"),
    ],
)
def test_what_cannot_be_split_is_refused(clients: int, fraction: float, seed: int, words: str) -> None:
    with pytest.raises(InputError, match=words):
        split.split(numbered(10), clients=clients, test_fraction=fraction, seed=seed)


def test_a_part_reads_back_as_the_same_records_even_if_it_lacks_a_class(tmp_path) -> None:
    table = Table(np.eye(4), np.array([0, 1, 1, 1]), ("healthy", "ill"))
    table.take(np.array([1, 3])).save(tmp_path / "part.npz")
    config = client_data.DataConfig(file=str(tmp_path / "part.npz"), class_names=["healthy", "ill"])
    read = client_data.load(config)
    assert read.labels.tolist() == [1, 1]
    assert np.array_equal(read.features, np.eye(4)[[1, 3]])


def test_bounds_of_public_records_hold_all_of_them() -> None:
    generator = np.random.default_rng(5)
    features = generator.normal(size=(50, 4)) * np.array([1e-6, 1.0, 1e3, 0.0])
    bounds = source.bounds_of(Table(features, np.zeros(50, np.int64), ("0", "1")))
    for (low, high), column in zip(bounds, features.T, strict=True):
        assert low <= column.min() <= column.max() <= high
        assert low < high
