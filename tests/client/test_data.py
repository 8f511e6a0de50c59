"""Records from files: what is read, what is refused, and that one record's preparation never looks at another."""

import bz2
import gzip
import hashlib
import importlib
import io
import json
import urllib.error

import msgspec
import numpy as np
import pytest
from hushgrad.client import data, dpsgd, models
from hushgrad.client.data import DataConfig, DataError, records
from hushgrad.client.stream import RandomStream

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


# Other formats. Each holds the same three records.


def _idx(path, array):
    code = {"|u1": 8, ">i2": 11, ">i4": 12, ">f4": 13, ">f8": 14}[array.dtype.str]
    shape = b"".join(size.to_bytes(4, "big") for size in array.shape)
    content = bytes([0, 0, code, array.ndim]) + shape + array.tobytes()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)


def _write_npy(folder):
    np.save(folder / "x.npy", FEATURES.astype(np.float32))
    np.save(folder / "y.npy", LABELS)
    return DataConfig(file="x.npy", labels_file="y.npy")


def _write_libsvm(folder):
    (folder / "r.libsvm").write_text("0 1:0.5 2:1\n1 1:1.5 2:2.0\n1 1:2.5 2:3\n")
    return DataConfig(file="r.libsvm", features=2)


def _write_libsvm_bz2(folder):
    (folder / "r.trn.bz2").write_bytes(bz2.compress(b"0 1:0.5 2:1\n1 1:1.5 2:2.0\n1 1:2.5 2:3\n"))
    return DataConfig(file="r.trn.bz2", features=2)


def _write_parquet(folder):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    table = pyarrow.table({"a": FEATURES[:, 0], "y": LABELS, "b": FEATURES[:, 1].astype(np.int32)})
    parquet.write_table(table, folder / "r.parquet")
    return DataConfig(file="r.parquet")


def _write_idx(folder):
    _idx(folder / "r-images-idx3-ubyte.gz", FEATURES.reshape(3, 1, 2).astype(">f4"))
    _idx(folder / "r-labels-idx1-ubyte.gz", LABELS.astype("u1"))
    return DataConfig(file="r-images-idx3-ubyte.gz")


WRITERS = [_write_npy, _write_libsvm, _write_libsvm_bz2, _write_parquet, _write_idx]


@pytest.mark.parametrize("write", WRITERS)
def test_the_same_records_in_any_format_have_the_same_fingerprint(tmp_path, write):
    found = data.load(write(tmp_path), folder=tmp_path)
    np.testing.assert_array_equal(found.features, FEATURES)
    np.testing.assert_array_equal(found.labels, LABELS)
    assert found.fingerprint == data.dataset(FEATURES, LABELS).fingerprint
    assert data.load(write(tmp_path), folder=tmp_path).class_names == ("0", "1")


@pytest.mark.parametrize("write", WRITERS)
def test_a_cut_or_damaged_file_is_refused_in_one_sentence(tmp_path, write):
    config = write(tmp_path)
    path = tmp_path / config.file
    content = path.read_bytes()
    middle = len(content) // 2
    for damaged in (b"", content[:middle], b"\xff" * len(content), content[: middle - 1] + b"\xff" + content[middle:]):
        path.write_bytes(damaged)
        try:
            found = str(data.load(config, folder=tmp_path).fingerprint)
        except DataError as error:
            found = str(error)
        # Half of a text is a text, and a .parquet has bytes that no value is in: what can be read is other data then,
        # which the ledger does not take, or the same.
        assert config.file in found or (path.suffix in (".libsvm", ".parquet") and len(damaged) >= middle)


def test_records_on_disk_stay_there_and_train_like_records_in_memory(tmp_path):
    rows = np.random.default_rng(1).random((500, 4)).astype(np.float32)
    labels = (rows[:, 0] > 0.5).astype(np.int64)
    np.save(tmp_path / "x.npy", rows)
    np.save(tmp_path / "y.npy", labels)
    mapped = data.load(DataConfig(file="x.npy", labels_file="y.npy", bounds=[0.0, 2.0]), folder=tmp_path)
    memory = data.dataset(rows, labels, bounds=[0.0, 2.0])
    assert mapped.mapped
    assert not memory.mapped
    assert mapped.fingerprint == memory.fingerprint
    chosen = np.array([3, 77, 499])
    np.testing.assert_array_equal(mapped.take(chosen), memory.features[chosen])
    model = models.make("logistic", features=4)
    recipe = dpsgd.Recipe("poisson", 500, 50, 1.0, 2.0, -20)
    sums = []
    for dataset in (mapped, memory):  # the same random bits, hence the same rows and noise
        stream = RandomStream(b"k" * 32)
        sums.append(dpsgd.Trainer(model, dataset).round(np.full(5, 0.1), recipe, stream))
    np.testing.assert_array_equal(*sums)


def test_large_records_are_prepared_in_pieces_as_in_one_go(monkeypatch):
    rows = np.random.default_rng(1).random((1000, 3))
    found = data.dataset(rows, np.arange(1000) % 2, bounds=[0.0, 0.5])
    model = models.make("softmax", features=3, classes=2)
    whole = found.prepare(model)
    fingerprint = found.fingerprint
    monkeypatch.setattr(records, "_BLOCK_BYTES", 8 * 3 * 64)
    np.testing.assert_array_equal(found.prepare(model), whole)
    assert data.dataset(rows, np.arange(1000) % 2).fingerprint == fingerprint


def test_images_of_bytes_are_kept_as_bytes(tmp_path):
    images = np.random.default_rng(1).integers(0, 256, (5, 4, 3)).astype("u1")
    _idx(tmp_path / "t10k-images-idx3-ubyte", images)
    _idx(tmp_path / "t10k-labels-idx1-ubyte", np.arange(5, dtype="u1"))
    found = data.load(DataConfig(file="t10k-images-idx3-ubyte", bounds=[0.0, 255.0]), folder=tmp_path)
    assert found.values.dtype == np.uint8
    np.testing.assert_array_equal(found.features, images.reshape(5, 12) / 255.0)
    assert found.class_names == ("0", "1", "2", "3", "4")


@pytest.mark.parametrize(
    ("config", "complaint"),
    [
        (DataConfig(file="x.npy"), "labels_file"),
        (DataConfig(file="r.libsvm"), r"declare \[data\] features"),
        (DataConfig(file="r.libsvm", features=1), "indices from 1 to 1"),
        (DataConfig(file="zero.libsvm", features=2), "indices from 1 to 2"),
        (DataConfig(file="alone-images-idx3-ubyte"), "labels is not beside it"),
        (DataConfig(file="x.npy", labels_file="none.npy"), "there is no data file .*none.npy"),
        (DataConfig(file="x.npy", labels_file="y.npy", features=5), "declares 5 features, the data have 2"),
        (DataConfig(file="records.csv.gz"), "found records.csv.gz"),
        (DataConfig(), 'exactly one of "file", "sklearn" and "openml"'),
        (DataConfig(sklearn="iris", openml="iris", openml_version=1), "exactly one"),
        (DataConfig(openml="iris"), "openml_version must be given"),
    ],
)
def test_what_a_format_needs_and_lacks_is_said(tmp_path, config, complaint):
    _write_npy(tmp_path)
    _write_libsvm(tmp_path)
    (tmp_path / "zero.libsvm").write_text("0 0:0.5 1:1\n")
    (tmp_path / "records.csv.gz").write_bytes(b"")
    _idx(tmp_path / "alone-images-idx3-ubyte", FEATURES.reshape(3, 1, 2).astype(">f4"))
    with pytest.raises(DataError, match=complaint):
        data.load(config, folder=tmp_path)


def test_parquet_columns_that_are_no_numbers_or_lack_values_are_named(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    parquet.write_table(pyarrow.table({"a": [1.0, None], "y": [0, 1]}), tmp_path / "r.parquet")
    with pytest.raises(DataError, match="column 'a': values are missing"):
        data.load(DataConfig(file="r.parquet"), folder=tmp_path)
    parquet.write_table(pyarrow.table({"a": ["secret", "x"], "y": [0, 1]}), tmp_path / "r.parquet")
    with pytest.raises(DataError, match="column 'a': expected numbers, found string") as caught:
        data.load(DataConfig(file="r.parquet"), folder=tmp_path)
    assert "secret" not in str(caught.value)
    parquet.write_table(pyarrow.table({"a": [1.0, 2.0], "name": ["no", "yes"]}), tmp_path / "r.parquet")
    assert data.load(DataConfig(file="r.parquet", label="name"), folder=tmp_path).class_names == ("no", "yes")
    with pytest.raises(DataError, match="there must be a column 'y'"):
        data.load(DataConfig(file="r.parquet"), folder=tmp_path)


def test_a_set_of_openml_is_read_from_what_was_fetched(tmp_path, monkeypatch):
    # What the two requests that scikit-learn makes would bring, kept as its cache keeps them: no network is asked.
    answers = {
        "api/v1/json/data/list/data_name/clinic/limit/2/data_version/2": {
            "data": {"dataset": [{"did": "7", "name": "clinic", "version": 2, "status": "active", "format": "ARFF"}]}
        },
        "api/v1/json/data/7": {
            "data_set_description": {
                "id": "7", "name": "clinic", "description": "made up",
                "version": "2", "format": "ARFF", "file_id": "9",
                "status": "active",
                "default_target_attribute": "ill", "md5_checksum": hashlib.md5(ARFF).hexdigest(),
                "url": "https://www.openml.org/data/v1/download/9/clinic.arff",
            }
        },
        "api/v1/json/data/features/7": {"data_features": {"feature": [
            {"index": "0", "name": "a", "data_type": "numeric", "is_target": "false", **PLAIN},
            {"index": "1", "name": "b", "data_type": "numeric", "is_target": "false", **PLAIN},
            {"index": "2", "name": "ill", "data_type": "nominal", "nominal_value": ["no", "yes"], "is_target": "true",
             **PLAIN},
        ]}},
        "api/v1/json/data/qualities/7": {"data_qualities": {"quality": [{"name": "Instances", "value": "3.0"}]}},
    }  # fmt: skip
    asked = []

    def answer(request, *arguments, **keywords):
        address = getattr(request, "full_url", request)
        asked.append(address)
        path = address.partition("openml.org/")[2]
        return Answer(ARFF if "download" in path else json.dumps(answers[path]).encode())

    openml = importlib.import_module("sklearn.datasets._openml")
    monkeypatch.setattr(openml, "urlopen", answer)
    monkeypatch.setenv("SCIKIT_LEARN_DATA", str(tmp_path))
    config = DataConfig(openml="clinic", openml_version=2, class_names=["no", "yes"])
    found = data.load(config)
    np.testing.assert_array_equal(found.features, FEATURES)
    np.testing.assert_array_equal(found.labels, LABELS)
    assert asked
    asked.clear()
    assert data.load(config).fingerprint == found.fingerprint
    assert asked == [], "the second time it is in the cache"


PLAIN = {"is_ignore": "false", "is_row_identifier": "false", "number_of_missing_values": "0"}


class Answer(io.BytesIO):
    """What urlopen returns."""

    def info(self):
        return {}


ARFF = b"""@RELATION clinic
@ATTRIBUTE a NUMERIC
@ATTRIBUTE b NUMERIC
@ATTRIBUTE ill {no,yes}
@DATA
0.5,1.0,no
1.5,2.0,yes
2.5,3.0,yes
"""


@pytest.mark.filterwarnings("ignore:A network error occurred")
def test_a_set_that_cannot_be_fetched_is_one_sentence(tmp_path, monkeypatch):
    def fails(*_, **__):
        raise urllib.error.URLError("no route")

    openml = importlib.import_module("sklearn.datasets._openml")
    monkeypatch.setattr(openml, "urlopen", fails)
    monkeypatch.setattr(openml.time, "sleep", lambda seconds: None)  # between its tries
    monkeypatch.setenv("SCIKIT_LEARN_DATA", str(tmp_path))
    with pytest.raises(DataError, match="OpenML's iris, version 1 cannot be fetched"):
        data.load(DataConfig(openml="iris", openml_version=1))


def test_arrays_of_any_form_have_a_fingerprint_of_names_types_shapes_and_contents():
    arrays = {"pixels": np.arange(12, dtype=np.uint8).reshape(3, 2, 2), "text": np.array(["a", "b", "c"])}
    rows, fingerprint = data.fingerprint_of(arrays)
    assert rows == 3
    same = {name: np.asfortranarray(array.copy()) for name, array in reversed(arrays.items())}
    assert data.fingerprint_of(same) == (rows, fingerprint)
    for changed in (
        {**arrays, "text": np.array(["a", "b", "d"])},
        {"pixels": arrays["pixels"], "texts": arrays["text"]},
        {**arrays, "pixels": arrays["pixels"].astype(np.int16)},
        {**arrays, "pixels": arrays["pixels"].reshape(3, 4)},
    ):
        assert data.fingerprint_of(changed)[1] != fingerprint


@pytest.mark.parametrize(
    ("arrays", "complaint"),
    [
        ({}, "at least one array"),
        ({"a": np.array([{}], object)}, "Python objects"),
        ({"a": np.zeros(3), "b": np.zeros(4)}, r"as many rows, one per record, found \[3, 4\]"),
        ({"a": np.float64(1.0)}, "one row per record"),
    ],
)
def test_arrays_that_are_no_records_are_refused(arrays, complaint):
    with pytest.raises(DataError, match=complaint):
        data.fingerprint_of(arrays)
