"""The packaged data are what was packaged, and a split puts no record in two places."""

import numpy as np
import pytest
from hushgrad.client import data as client_data
from hushgrad.experiments import data, partition, source, split
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


# Who gets which records.


def labels(rows: int = 6_000, classes: int = 10) -> np.ndarray:
    return np.arange(rows) % classes


@pytest.mark.parametrize(
    ("kind", "more"),
    [
        ("disjoint", {}),
        ("iid", {}),
        ("dirichlet", {"alpha": 0.3}),
        ("dirichlet", {"alpha": 100.0}),
        ("size", {"weights": [5, 3, 1, 1]}),
    ],
)
def test_a_partition_is_fixed_by_its_seed_and_gives_each_row_at_most_once_to_a_client(kind: str, more: dict) -> None:
    def cut(seed: int) -> tuple[np.ndarray, ...]:
        return partition.partition(labels(), kind, clients=4, generator=np.random.default_rng(seed), **more)

    one, same, other = cut(1), cut(1), cut(2)
    assert all(np.array_equal(a, b) for a, b in zip(one, same, strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))
    for part in one:
        assert len(np.unique(part)) == len(part)
    everywhere = np.concatenate(one)
    assert (len(np.unique(everywhere)) == len(everywhere)) == (kind != "iid")
    assert [len(part) for part in one] == ([3_000, 1_800, 600, 600] if kind == "size" else [1_500] * 4)


def test_small_alphas_give_clients_few_classes_and_large_ones_all() -> None:
    def largest_share(alpha: float) -> float:
        parts = partition.partition(
            labels(), "dirichlet", clients=4, generator=np.random.default_rng(3), alpha=alpha, records=300
        )
        return float(np.mean([np.bincount(labels()[part], minlength=10).max() / len(part) for part in parts]))

    # Of ten equal shares the largest of 300 draws is near 0.13; with alpha 0.1 one class has most of a client's rows.
    assert largest_share(1_000.0) < 0.18
    assert largest_share(0.1) > 0.4


def test_a_class_that_has_run_out_is_made_up_for_by_others() -> None:
    parts = partition.partition(
        np.array([0] * 2 + [1] * 38), "dirichlet", clients=4, generator=np.random.default_rng(0), alpha=0.01
    )
    assert sorted(np.concatenate(parts).tolist()) == list(range(40))


def test_iid_clients_draw_from_all_records_equally() -> None:
    # 2,000 seeds, 10 of 40 rows: 500 +- 19.4 each; six of them leave a false alarm of 40 * 2e-9.
    counts = np.zeros(40)
    for seed in range(2_000):
        parts = partition.partition(labels(40), "iid", clients=4, generator=np.random.default_rng(seed))
        counts[parts[seed % 4]] += 1
    assert np.abs(counts - 500).max() < 6 * 19.4


@pytest.mark.parametrize(
    ("kind", "more", "words"),
    [
        ("round-robin", {}, "must be one of"),
        ("dirichlet", {}, "alpha goes with"),
        ("disjoint", {"alpha": 1.0}, "alpha goes with"),
        ("dirichlet", {"alpha": 0.0}, "alpha must be finite and > 0"),
        ("size", {}, "weights go with"),
        ("size", {"weights": [1.0, 2.0]}, "one finite weight > 0 for each of 4"),
        ("size", {"weights": [1.0, 1.0, 1.0, -1.0]}, "one finite weight"),
        ("size", {"weights": [1e6, 1.0, 1.0, 1.0]}, "a client would get none"),
        ("disjoint", {"records": 1_501}, "too few"),
        ("iid", {"records": 6_001}, "too few"),
    ],
)
def test_a_partition_that_does_not_exist_is_refused(kind: str, more: dict, words: str) -> None:
    with pytest.raises(InputError, match=words):
        partition.partition(labels(), kind, clients=4, generator=np.random.default_rng(1), **more)


def test_a_split_with_other_classes_for_each_client_keeps_the_test_set_apart(pages: Table) -> None:
    cut = split.split(pages, clients=5, test_fraction=0.2, seed=1, kind="dirichlet", alpha=0.2)
    everywhere = np.concatenate([cut.test, *cut.parts, cut.left_out])
    assert np.array_equal(np.sort(everywhere), np.arange(pages.rows))
    shares = [pages.labels[part].mean() for part in cut.parts]
    assert max(shares) - min(shares) > 0.2
    drawn_by_all = split.split(pages, clients=5, test_fraction=0.2, seed=1, kind="iid")
    assert not set(drawn_by_all.test) & set(np.concatenate(drawn_by_all.parts))
