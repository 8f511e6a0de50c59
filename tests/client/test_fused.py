"""A compiled logistic round gives the bits that numpy gives, and leaves to numpy what it cannot be sure of."""

import importlib.util
import subprocess
import sys

import numpy as np
import pytest
from hushgrad.client import data, fused, models, sampling
from hushgrad.client.dpsgd import Recipe, Trainer
from hushgrad.client.stream import RandomStream

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("numba") is None, reason="numba is not installed: pip install 'hushgrad[fast]'"
)

RECIPE = {
    "sampler": "poisson",
    "records": 400,
    "sample_size": 30,
    "clip_norm": 0.5,
    "noise_multiplier": 2.1,
    "grid_exponent": -16,
}


@pytest.fixture(scope="module")
def compiled():
    return fused._compile()


@pytest.fixture
def calls(monkeypatch, compiled):
    """What the compiled round answered, call by call."""
    answers = []

    def counted(*arguments):
        answers.append(compiled(*arguments))
        return answers[-1]

    monkeypatch.setattr(fused, "kernel", lambda: counted)
    return answers


def _trainer(*, features=68, rows=400, l2=0.0, dtype=np.float64, scale=1.0):
    generator = np.random.default_rng(5)
    records = (scale * generator.normal(size=(rows, features))).astype(dtype)
    dataset = data.dataset(records, generator.integers(0, 2, rows), class_names=["0", "1"])
    return Trainer(models.make("logistic", features=features, classes=2, l2=l2), dataset)


def _by_numpy(monkeypatch, trainer, parameters, recipe, key):
    with monkeypatch.context() as patch:
        patch.setattr(fused, "kernel", lambda: None)
        return trainer.round(parameters, recipe, RandomStream(key))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("l2", [0.0, 1e-3, 0.3])
@pytest.mark.parametrize("size", [0.0, 0.1, 5.0])
def test_a_compiled_round_has_the_bits_of_numpy(monkeypatch, calls, dtype, l2, size):
    """Weights of size 5 with l2 = 0.3 pull further than twice the clip norm: that is numpy's, and no call is made."""
    trainer, recipe = _trainer(l2=l2, dtype=dtype), Recipe(**RECIPE)
    parameters = size * np.random.default_rng(6).normal(size=69)
    for number in range(40):
        key = number.to_bytes(32, "little")
        found = trainer.round(parameters, recipe, RandomStream(key))
        np.testing.assert_array_equal(found, _by_numpy(monkeypatch, trainer, parameters, recipe, key))
        assert found.dtype == np.int32
    if l2 * np.linalg.norm(parameters[:-1]) <= 2 * 0.5:
        assert len(calls) == 40
        assert sum(answer >= 0 for answer in calls) >= 36  # a bound that is never met would be no use
    else:
        assert not calls


def test_a_sum_in_the_middle_of_two_steps_is_left_to_numpy(monkeypatch, calls):
    """Records of zeros at w = 0 have gradient (0, ..., -+1/2): with G = 1 an odd number of them ends on a half.

    Without the check the compiled code would round 16 features of exact zeros right and could differ in the last, so
    the answers are looked at, not the bits alone.
    """
    dataset = data.dataset(np.zeros((400, 16)), np.ones(400, np.int64), class_names=["0", "1"])
    trainer = Trainer(models.make("logistic", features=16, classes=2, l2=0.0), dataset)
    recipe = Recipe(**{**RECIPE, "noise_multiplier": 600.0, "grid_exponent": 0})
    taken = []
    for number in range(20):
        key = number.to_bytes(32, "little")
        found = trainer.round(np.zeros(17), recipe, RandomStream(key))
        np.testing.assert_array_equal(found, _by_numpy(monkeypatch, trainer, np.zeros(17), recipe, key))
        taken.append(len(trainer.choose(recipe, RandomStream(key))))
    assert [answer == fused.GAVE_UP for answer in calls] == [count % 2 == 1 for count in taken]
    assert len({count % 2 for count in taken}) == 2


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e200])
def test_records_that_are_not_finite_are_zeroed_and_counted_by_numpy(monkeypatch, calls, bad):
    trainer, recipe, key = _trainer(features=4), Recipe(**RECIPE), b"k" * 32
    trainer._prepared[:, 2] = np.where(np.arange(400) % 2, bad, 1.0)
    found = trainer.round(np.full(5, 0.1), recipe, RandomStream(key))
    zeroed = trainer.zeroed
    assert calls == [fused.GAVE_UP]
    np.testing.assert_array_equal(found, _by_numpy(monkeypatch, trainer, np.full(5, 0.1), recipe, key))
    assert trainer.zeroed == 2 * zeroed > 0


@pytest.mark.parametrize("parameters", [np.full(5, np.nan), np.full(5, 1e300)])
def test_a_model_that_is_not_finite_is_left_to_numpy(monkeypatch, calls, parameters):
    trainer, recipe, key = _trainer(features=4), Recipe(**RECIPE), b"k" * 32
    found = trainer.round(parameters, recipe, RandomStream(key))
    assert calls == [fused.GAVE_UP]
    np.testing.assert_array_equal(found, _by_numpy(monkeypatch, trainer, parameters, recipe, key))


def test_a_mask_that_needs_more_random_bits_goes_on_where_it_stopped(monkeypatch, calls):
    monkeypatch.setattr(sampling, "poisson_words", lambda table, rows: 4)
    trainer, recipe, key = _trainer(), Recipe(**RECIPE), b"k" * 32
    parameters = np.full(69, 0.1)
    found = trainer.round(parameters, recipe, RandomStream(key))
    assert calls == [fused.GAVE_UP]
    np.testing.assert_array_equal(found, _by_numpy(monkeypatch, trainer, parameters, recipe, key))


def test_rounds_with_few_or_all_records_have_the_bits_of_numpy(monkeypatch, calls):
    """One of 400 expected: most rounds have none or one. All of them: there is no mask, and numpy makes the round."""
    trainer, parameters = _trainer(), np.full(69, 0.1)
    for sample_size in (1, 400):
        recipe = Recipe(**{**RECIPE, "sample_size": sample_size})
        for number in range(10):
            key = number.to_bytes(32, "little")
            found = trainer.round(parameters, recipe, RandomStream(key))
            np.testing.assert_array_equal(found, _by_numpy(monkeypatch, trainer, parameters, recipe, key))
    assert len(calls) == 10
    assert 0 in calls


def test_saturated_sums_have_the_bits_of_numpy(monkeypatch, calls):
    """400 clipped gradients of length 2^28 grid steps each exceed int32; the wide clip norm needs a small sigma."""
    dataset = data.dataset(np.full((400, 3), 1e9), np.ones(400, np.int64), class_names=["0", "1"])
    trainer = Trainer(models.make("logistic", features=3, classes=2, l2=0.0), dataset)
    recipe = Recipe(
        **{**RECIPE, "sample_size": 399, "clip_norm": 2.0**28, "grid_exponent": 0, "noise_multiplier": 0.01}
    )
    found = trainer.round(np.zeros(4), recipe, RandomStream(b"k" * 32))
    np.testing.assert_array_equal(found, _by_numpy(monkeypatch, trainer, np.zeros(4), recipe, b"k" * 32))
    assert found[0] == -(2**31 - 1)


def test_nothing_is_compiled_for_few_rounds_or_where_somebody_says_so(monkeypatch):
    monkeypatch.setattr(fused, "_compile", lambda: "compiled")
    for setting, rounds, expected in (("", 3, None), ("1", 1, "compiled"), ("0", fused.WORTH, None)):
        monkeypatch.setenv("HUSHGRAD_FAST", setting)
        for name, value in (("_rounds", 0), ("_tried", False), ("_compiled", None)):
            monkeypatch.setattr(fused, name, value)
        assert [fused.kernel() for _ in range(rounds)][-1] == expected
    monkeypatch.setenv("HUSHGRAD_FAST", "")
    for name, value in (("_rounds", fused.WORTH - 1), ("_tried", False), ("_compiled", None)):
        monkeypatch.setattr(fused, name, value)
    assert fused.kernel() == "compiled"


def test_a_client_of_few_rounds_does_not_load_numba():
    code = "import sys\nfrom hushgrad.client import dpsgd\nassert 'numba' not in sys.modules\n"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
