"""Named arrays, the flat vector, and .safetensors files."""

import numpy as np
import pytest
import safetensors.numpy
from hushgrad.wire import arrays
from hushgrad.wire.arrays import ArraySpec
from hushgrad.wire.errors import ContractError

SPECS = (ArraySpec("weight", (2, 3)), ArraySpec("bias", (2,)), ArraySpec("scale", ()))
VALUES = {
    "bias": np.array([10.0, 11.0], np.float32),
    "weight": np.arange(6, dtype=np.float32).reshape(2, 3),
    "scale": np.float32(0.5),
}


def test_flat_vector_follows_the_order_of_the_specs():
    assert arrays.flatten(VALUES, SPECS).tolist() == [0, 1, 2, 3, 4, 5, 10, 11, 0.5]


def test_cutting_undoes_joining():
    cut = arrays.unflatten(arrays.flatten(VALUES, SPECS), SPECS)
    assert {name: array.shape for name, array in cut.items()} == {"weight": (2, 3), "bias": (2,), "scale": ()}
    for name, array in VALUES.items():
        np.testing.assert_array_equal(cut[name], array)


def test_model_survives_a_safetensors_file_bit_for_bit(tmp_path):
    vector = np.random.default_rng(1).normal(size=9).astype(np.float32)
    vector[:3] = -0.0, 1e-42, np.finfo(np.float32).max  # signed zero, subnormal, largest
    arrays.save_model(tmp_path / "model.safetensors", vector, SPECS, {"version": "3"})
    assert arrays.load_model(tmp_path / "model.safetensors", SPECS).tobytes() == vector.tobytes()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"bias": None}, "expected arrays"),
        ({"extra": np.zeros(1)}, "expected arrays"),
        ({"bias": np.zeros(3)}, "shape"),
        ({"bias": np.array([np.nan, 0.0])}, "finite"),
        ({"bias": np.array([np.inf, 0.0])}, "finite"),
    ],
)
def test_wrong_arrays_are_refused(change, message):
    wrong = {name: array for name, array in {**VALUES, **change}.items() if array is not None}
    with pytest.raises(ContractError, match=message):
        arrays.flatten(wrong, SPECS)


def test_vector_of_another_length_is_refused():
    with pytest.raises(ContractError, match=r"9 numbers, found shape \[8\]"):
        arrays.unflatten(np.zeros(8), SPECS)


def test_unreadable_files_are_refused(tmp_path):
    (tmp_path / "text").write_text("no model")
    safetensors.numpy.save_file({"other": np.zeros(2, np.float32)}, tmp_path / "other")
    for name in ("missing", "text", "other"):
        with pytest.raises(ContractError):
            arrays.load_model(tmp_path / name, SPECS)


@pytest.mark.parametrize(("name", "shape"), [("", (1,)), ("a" * 201, (1,)), ("a", (0,)), ("a", (2, -1))])
def test_spec_without_name_or_elements_is_refused(name, shape):
    with pytest.raises(ContractError):
        ArraySpec(name, shape)
