"""Records from files: what is read, what is refused, and that one record's preparation never looks at another."""

import msgspec
import numpy as np
import pytest
from hushgrad.client import data, models
from hushgrad.client.data import DataConfig, DataError

FEATURES = np.array([[0.5, 1.0], [1.5, 2.0], [2.5, 3.0]])
LABELS = np.array([0, 1, 1])


@pytest.fixture
def npz(tmp_path):
    np.savez(tmp_path / "records.npz", X=FEATURES, y=LABELS)
    return tmp_path


def _csv(folder, text):
    (folder / "records.csv").write_text(text)
    return data.load(DataConfig(file="records.csv"), folder=folder)


def test_an_npz_and_a_csv_of_the_same_records_have_the_same_fingerprint(npz):
    first = data.load(DataConfig(file="records.npz"), folder=npz)
    second = _csv(npz, "a,y,b\n0.5,0,1.0\n1.5,1,2.0\n2.5,1,3.0\n")
    for dataset in (first, second):
        np.testing.assert_array_equal(dataset.features, FEATURES)
        np.testing.assert_array_equal(dataset.labels, LABELS)
        assert dataset.features.dtype == np.float64
        assert dataset.labels.dtype == np.int64
        assert dataset.features.flags.c_contiguous
    assert first.fingerprint == second.fingerprint
    assert first.class_names == ("0", "1")


def test_other_types_and_memory_orders_of_the_same_numbers_have_the_same_fingerprint(npz):
    np.savez_compressed(npz / "other.npz", X=np.asfortranarray(FEATURES.astype(np.float32)), y=LABELS.astype(np.uint8))
    first = data.load(DataConfig(file="records.npz"), folder=npz)
    assert data.load(DataConfig(file="other.npz"), folder=npz).fingerprint == first.fingerprint


@pytest.mark.parametrize("change", ["value", "label", "order", "shape"])
def test_other_records_have_another_fingerprint(change):
    features, labels = FEATURES.copy(), LABELS.copy()
    if change == "value":
        features[2, 1] = np.nextafter(3.0, 4.0)
    elif change == "label":
        labels[0] = 1
    elif change == "order":
        features, labels = features[::-1], labels[::-1]
    else:
        features, labels = features.reshape(3, 2)[:, [0]], labels
    assert data.dataset(features, labels).fingerprint != data.dataset(FEATURES, LABELS).fingerprint


def test_bounds_do_not_change_the_fingerprint_so_a_ledger_stays_with_its_records(npz):
    plain = data.load(DataConfig(file="records.npz"), folder=npz)
    scaled = data.load(DataConfig(file="records.npz", bounds=[0.0, 2.0]), folder=npz)
    assert plain.fingerprint == scaled.fingerprint


def test_packed_bits_are_unpacked(tmp_path):
    bits = np.array([[1, 0, 1, 0, 0, 0, 0, 0, 1], [0, 1, 1, 0, 0, 0, 0, 1, 0]], np.uint8)
    np.savez(tmp_path / "bits.npz", bits=np.packbits(bits, axis=1), d=9, value=0.25, y=[1, 0])
    np.testing.assert_array_equal(data.load(DataConfig(file="bits.npz"), folder=tmp_path).features, bits * 0.25)


def test_values_are_clipped_to_declared_bounds_and_scaled(npz):
    found = data.load(DataConfig(file="records.npz", bounds=[1.0, 2.0]), folder=npz).features
    np.testing.assert_array_equal(found, [[0.0, 0.0], [0.5, 1.0], [1.0, 1.0]])
    each = data.load(DataConfig(file="records.npz", bounds=[[0.0, 2.0], [1.0, 5.0]]), folder=npz).features
    np.testing.assert_array_equal(each, [[0.25, 0.0], [0.75, 0.25], [1.0, 0.5]])


@pytest.mark.parametrize("bounds", [None, [0.0, 2.0], [[-1.0, 1.0], [0.0, 9.0]]])
def test_how_a_record_is_prepared_does_not_depend_on_the_others(tmp_path, bounds):
    np.savez(tmp_path / "all.npz", X=FEATURES, y=LABELS)
    np.savez(tmp_path / "one.npz", X=FEATURES[1:2], y=LABELS[1:2])
    whole = data.load(DataConfig(file="all.npz", bounds=bounds), folder=tmp_path)
    alone = data.load(DataConfig(file="one.npz", bounds=bounds), folder=tmp_path)
    assert alone.features.tobytes() == whole.features[1:2].tobytes()


def test_names_of_classes_are_numbered_in_sorted_order_or_as_declared(tmp_path):
    text = "a,y\n1,spam\n2,ham\n3,spam\n"
    found = _csv(tmp_path, text)
    assert found.labels.tolist() == [1, 0, 1]
    assert found.class_names == ("ham", "spam")
    declared = data.load(DataConfig(file="records.csv", class_names=["spam", "eggs", "ham"]), folder=tmp_path)
    assert declared.labels.tolist() == [0, 2, 0]
    assert declared.class_names == ("spam", "eggs", "ham")


def test_numbers_as_labels_can_be_declared(tmp_path):
    np.savez(tmp_path / "signs.npz", X=FEATURES, y=np.array([-1.0, 1.0, 1.0]))
    found = data.load(DataConfig(file="signs.npz", class_names=["-1", "1"]), folder=tmp_path)
    assert found.labels.tolist() == [0, 1, 1]


@pytest.mark.parametrize(("name", "shape", "classes"), [("breast_cancer", (569, 30), 2), ("iris", (150, 4), 3)])
def test_scikit_learns_sets_are_known_by_name(name, shape, classes):
    found = data.load(DataConfig(sklearn=name))
    assert found.features.shape == shape
    assert len(found.class_names) == classes
    assert set(found.labels.tolist()) == set(range(classes))


def test_scikit_learns_labels_are_those_of_the_set():
    from sklearn.datasets import load_digits, load_wine

    assert data.load(DataConfig(sklearn="digits")).labels.tolist() == load_digits().target.tolist()
    assert data.load(DataConfig(sklearn="wine")).labels.tolist() == load_wine().target.tolist()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b,y\n1,2,0\n1,nan,1\n", r"record 1 .*column 'b' is NaN"),
        ("a,b,y\n1,2,0\n-inf,3,1\n", r"record 1 .*column 'a' is NaN or infinite"),
        ("a,b,y\n1,2,0\n1,lots,1\n", r"line 3, column 'b': expected a number"),
        ("a,b,y\n1,,0\n", r"line 2, column 'b': expected a number"),
        ("a,b,y\n1,2,0\n1,2\n", r"line 3: expected 3 columns, found 2"),
        ("a,b\n1,2\n", r"must name a column 'y'"),
        ("", r"must name a column 'y'"),
        ("a,y\n", r"at least one record"),
        ("y\n1\n", r"at least one record and one feature"),
        ("a,y\n1,-1\n2,1\n", r"declare class_names"),
        ("a,y\n1,0.5\n2,1\n", r"declare class_names"),
        ("a,y\n1,70000\n2,1\n", r"declare class_names"),
        ("a,y\n1,spam\n2,spam\n", r"declare class_names"),
    ],
)
def test_csv_files_that_cannot_be_used_are_refused_in_one_line(tmp_path, text, message):
    with pytest.raises(DataError, match=message) as caught:
        _csv(tmp_path, text)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"X": [[1.0, np.inf]], "y": [0]}, r"record 0 .*column 1 is NaN or infinite"),
        ({"X": [[1.0]], "y": [0, 1]}, r"expected 1 labels"),
        ({"X": [[1.0]], "y": [[0]]}, r"expected 1 labels"),
        ({"X": [1.0, 2.0], "y": [0, 1]}, r"shape \(N, f\)"),
        ({"X": np.zeros((0, 3)), "y": []}, r"at least one record"),
        ({"X": [["a"]], "y": [0]}, r"must be numbers"),
        ({"X": [[1.0], [2.0]], "y": [0.0, np.nan]}, r"label of record 1"),
        ({"X": [[1.0]], "y": [1j]}, r"whole numbers or text"),
        ({"X": [[1.0]], "labels": [0]}, r"array 'y' of labels"),
        ({"Z": [[1.0]], "y": [0]}, r"array X"),
        ({"bits": np.zeros((1, 1), np.uint8), "d": 9, "value": 1.0, "y": [0]}, r"bits must be bytes"),
    ],
)
def test_npz_files_that_cannot_be_used_are_refused_in_one_line(tmp_path, arrays, message):
    np.savez(tmp_path / "bad.npz", **{name: np.array(value) for name, value in arrays.items()})
    with pytest.raises(DataError, match=message) as caught:
        data.load(DataConfig(file="bad.npz"), folder=tmp_path)
    assert "\n" not in str(caught.value)


def test_errors_name_places_and_never_values(tmp_path):
    with pytest.raises(DataError) as caught:
        _csv(tmp_path, "a,y\n1,0\nsecret-4711,1\n")
    assert "4711" not in str(caught.value)
    np.savez(tmp_path / "x.npz", X=FEATURES, y=np.array(["a", "b", "secret-4711"]))
    with pytest.raises(DataError, match=r"record 2 .*not in class_names") as caught:
        data.load(DataConfig(file="x.npz", class_names=["a", "b"]), folder=tmp_path)
    assert "4711" not in str(caught.value)


def test_files_that_are_not_there_or_not_what_their_name_says_are_refused(tmp_path):
    with pytest.raises(DataError, match="there is no data file"):
        data.load(DataConfig(file="none.npz"), folder=tmp_path)
    (tmp_path / "text.npz").write_text("no zip")
    with pytest.raises(DataError, match=r"readable \.npz"):
        data.load(DataConfig(file="text.npz"), folder=tmp_path)
    np.savez(tmp_path / "pickle.npz", X=np.array([{}], object), y=[0])
    with pytest.raises(DataError, match="pickled"):
        data.load(DataConfig(file="pickle.npz"), folder=tmp_path)
    (tmp_path / "records.xlsx").write_bytes(b"")
    with pytest.raises(DataError, match=r"must be \.npz, \.npy, \.csv"):
        data.load(DataConfig(file="records.xlsx"), folder=tmp_path)
    (tmp_path / "bytes.csv").write_bytes(b"a,y\n\xff,1\n")
    with pytest.raises(DataError, match="UTF-8"):
        data.load(DataConfig(file="bytes.csv"), folder=tmp_path)


@pytest.mark.parametrize(
    "bounds",
    [[0.0], [1.0, 0.0], [0.0, float("inf")], [[0.0, 1.0]], [[0.0, 1.0], [1.0]], [0.0, [0.0, 1.0]], [0.0, 1.0, 2.0]],
)
def test_bounds_that_are_none_are_refused(npz, bounds):
    with pytest.raises(DataError, match="bounds"):
        data.load(DataConfig(file="records.npz", bounds=bounds), folder=npz)


def test_exactly_one_source_must_be_given():
    for config in (DataConfig(), DataConfig(file="a.npz", sklearn="iris")):
        with pytest.raises(DataError, match="exactly one"):
            data.load(config)


def test_the_table_of_a_configuration_file_is_read_as_written_and_unknown_keys_are_refused():
    config = msgspec.toml.decode(b'file = "a.npz"\nbounds = [[0, 1], [2.5, 3]]', type=DataConfig)
    assert config.bounds == [[0.0, 1.0], [2.5, 3.0]]
    with pytest.raises(msgspec.ValidationError, match="standardise"):
        msgspec.toml.decode(b'file = "a.npz"\nstandardise = true', type=DataConfig)


def test_a_model_that_does_not_fit_is_named():
    dataset = data.dataset(FEATURES, [0, 1, 2])
    dataset.check_fits(models.make("softmax", features=2, classes=3))
    with pytest.raises(DataError, match="3 features, the data have 2"):
        dataset.check_fits(models.make("logistic", features=3))
    with pytest.raises(DataError, match="labels must be 0 to 1"):
        dataset.check_fits(models.make("logistic", features=2))
