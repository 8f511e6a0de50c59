"""terms.toml: what people write, what it becomes, and what is refused with which words."""

import hashlib
import math

import numpy as np
import pytest
from hushgrad.wire import grid, terms, terms_file
from hushgrad.wire.errors import ContractError

TEXT = """
federation = "phishing"
model = "logistic"
final_version = 50
window = 4
straggler_timeout_seconds = 30.0
participants = ["client-2", "client-1"]

[[arrays]]
name = "weight"
shape = [4]

[[arrays]]
name = "bias"
shape = []

[step_size]
kind = "inverse-sqrt"
eta0 = 0.2
beta = 0.01

[sample_size]
kind = "polynomial"
q = 10.0
p = 0.5

[delay]
kind = "max-delay"
max_delay = 1

[privacy]
clip_norm = 0.5
noise_multiplier_min = 2.0
noise_multiplier_max = 4.0
samplers = ["poisson"]
max_examples_per_round = 200
"""
INITIAL = np.array([0.1, -0.2, 0.3, 0.0, 1.0], np.float32)


def read(tmp_path, text=TEXT):
    path = tmp_path / "terms.toml"
    path.write_text(text)
    return terms_file.load(path)


def build(tmp_path, text=TEXT, initial=INITIAL):
    return terms_file.build(read(tmp_path, text), initial, bytes(range(16)))


def test_file_becomes_terms_with_grid_steps_and_sizes_worked_out(tmp_path):
    built = build(tmp_path)
    sizes = [math.ceil(10 * math.sqrt(i + 1)) for i in range(50)]
    steps = [0.2 / (1 + 0.01 * math.sqrt(sum(sizes[:i]))) for i in range(50)]
    assert built.participants == ("client-1", "client-2")
    assert built.largest_number_of_participants == 2
    assert built.grid_exponent == -16
    assert [built.sample_size(i) for i in range(50)] == sizes
    assert [built.step_size(i) for i in range(50)] == pytest.approx(steps, rel=2**-9)
    assert terms.from_bytes(built.to_bytes()) == built


def test_digest_of_the_initial_model_is_of_version_0_as_it_is_published(tmp_path):
    built = build(tmp_path)
    array = grid.initial_array(INITIAL, grid_exponent=built.grid_exponent, step_exponent=built.step_exponent)
    published = grid.published_model(array, grid_exponent=built.grid_exponent, step_exponent=built.step_exponent)
    assert built.initial_model_sha256 == hashlib.sha256(published.astype("<f4").tobytes()).digest()
    np.testing.assert_allclose(published, INITIAL, rtol=1e-7)


# Worked by hand with nominal sizes 10, 10, ...: t = 0, 10, 20.
@pytest.mark.parametrize(
    ("section", "steps"),
    [
        ({"kind": "constant", "eta0": 0.5}, [0.5, 0.5, 0.5]),
        ({"kind": "inverse", "eta0": 1.0, "beta": 0.1}, [1.0, 1 / 2, 1 / 3]),
        ({"kind": "inverse-sqrt", "eta0": 1.0, "beta": 1.0}, [1.0, 1 / (1 + math.sqrt(10)), 1 / (1 + math.sqrt(20))]),
        ({"kind": "list", "values": [0.3, 0.2]}, [0.3, 0.2, 0.2]),
    ],
)
def test_step_sizes_have_the_worked_values(section, steps):
    assert terms_file.step_sizes(terms_file.StepSize(**section), [10], 3) == pytest.approx(steps, rel=1e-15)


@pytest.mark.parametrize(
    ("section", "sizes"),
    [
        ({"kind": "constant", "size": 26}, [26]),
        ({"kind": "polynomial", "q": 2.0, "p": 1.0}, [2, 4, 6, 8]),
        ({"kind": "polynomial", "q": 2.5, "p": 0.0}, [3]),
        ({"kind": "list", "values": [5, 7, 7, 7]}, [5, 7]),
    ],
)
def test_sample_sizes_have_the_worked_values(section, sizes):
    assert terms_file.sample_sizes(terms_file.SampleSize(**section), 4) == sizes


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("window = 4", "windows = 4", "windows"),
        ("window = 4", 'window = "4"', "window"),
        ("window = 4", "", "window"),
        ("window = 4", "window = 1", "window must be >= max_delay"),
        ("window = 4", "window = ", "terms.toml"),
        ('kind = "max-delay"', 'kind = "never"', "never"),
        ("max_delay = 1", "max_delay = 1\nmin_delay = 1", "min_delay"),
        ("clip_norm = 0.5", "", "clip_norm"),
        ("clip_norm = 0.5", "clip_norm = nan", "clip_norm"),
        ("clip_norm = 0.5", "clip_norm = 0.0", "clip_norm"),
        ("noise_multiplier_min = 2.0", "noise_multiplier_min = nan", "noise_multiplier_min"),
        ("noise_multiplier_max = 4.0", "noise_multiplier_max = nan", "noise multipliers"),
        ("noise_multiplier_max = 4.0", "noise_multiplier_max = 9000.0", "holds sums up to"),
        ("max_examples_per_round = 200", "max_examples_per_round = 100000", "holds sums up to"),
        ("max_examples_per_round = 200", "max_examples_per_round = 70", "sample size"),
        ('samplers = ["poisson"]', 'samplers = ["shuffle"]', "shuffle"),
        ("eta0 = 0.2", "eta0 = 0.0", "eta0"),
        ("eta0 = 0.2", "eta0 = nan", "step sizes"),
        ("eta0 = 0.2", "eta0 = inf", "step sizes"),
        ("beta = 0.01", "beta = -0.01", "beta"),
        ("beta = 0.01", "beta = nan", "step sizes"),
        ("beta = 0.01", "beta = 1e9", "below 256"),
        ("q = 10.0", "q = nan", "sample_size"),
        ("q = 10.0", "q = -1.0", "sample size"),
        ("p = 0.5", "p = 1e9", "sample_size"),
        ("final_version = 50", "final_version = 0", "final_version"),
        ("final_version = 50", "final_version = 2000000", "final_version"),
        ('["client-2", "client-1"]', "[]", "participants"),
        ('["client-2", "client-1"]', '["client-1", "client-1"]', "unique"),
        ('name = "bias"', 'name = "weight"', "unique"),
        ("shape = [4]", "shape = [5]", "6 numbers, found 5"),
        ("shape = [4]", "shape = [0]", "axis"),
        ('federation = "phishing"', 'federation = "Phishing!"', "federation"),
        ("window = 4", "window = 4\ngrid_exponent = -15", "at most -16"),
        ("window = 4", "window = 4\ngrid_exponent = -30", "holds sums up to"),
    ],
)
def test_wrong_file_is_refused_and_the_error_names_the_place(tmp_path, old, new, message):
    assert TEXT.count(old) >= 1
    with pytest.raises(ContractError, match=message):
        build(tmp_path, TEXT.replace(old, new, 1))


def test_missing_file_is_refused(tmp_path):
    with pytest.raises(ContractError, match="cannot be read"):
        terms_file.load(tmp_path / "terms.toml")


def test_initial_model_with_nan_is_refused(tmp_path):
    with pytest.raises(ContractError, match="finite"):
        build(tmp_path, initial=np.array([0, 0, np.nan, 0, 0], np.float32))
