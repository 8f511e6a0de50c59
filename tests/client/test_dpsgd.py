"""One round against its definition, bit by bit, from known random bits; and what must never depend on the batch."""

import math

import numpy as np
import pytest
from hushgrad.client import data, dpsgd, models, noise, sampling
from hushgrad.client.dpsgd import Recipe, RecipeError, Trainer
from hushgrad.client.stream import RandomStream

KEY = b"d" * 32
RECIPE = {
    "sampler": "poisson",
    "records": 400,
    "sample_size": 40,
    "clip_norm": 0.5,
    "noise_multiplier": 2.0,
    "grid_exponent": -16,
}


def _dataset(rows: int = 400, features: int = 6) -> data.Dataset:
    generator = np.random.default_rng(0)
    return data.dataset(generator.normal(size=(rows, features)), generator.integers(0, 2, rows))


def _parameters(size: int = 7) -> np.ndarray:
    return np.random.default_rng(1).normal(size=size)


@pytest.mark.parametrize("sampler", ["poisson", "fixed"])
def test_a_round_is_sum_rounded_to_the_grid_plus_noise(sampler):
    recipe, dataset, parameters = Recipe(**{**RECIPE, "sampler": sampler}), _dataset(), _parameters()
    model = models.make("logistic", features=6)
    found = Trainer(model, dataset).round(parameters, recipe, RandomStream(KEY))

    source = RandomStream(KEY)
    if sampler == "poisson":
        chosen = sampling.poisson(source, sampling.poisson_table(40, 400), 400)
    else:
        chosen = sampling.fixed(source, 40, 400, 400)
    gradients = []
    for x, y in zip(dataset.features[chosen], dataset.labels[chosen], strict=True):
        residual = 1 / (1 + math.exp(-(x @ parameters[:-1] + parameters[-1]))) - y
        gradient = np.append(residual * x, residual)
        gradients.append(gradient / max(1.0, float(np.linalg.norm(gradient)) / 0.5))
    total = np.sum(gradients, axis=0) / 2.0**-16
    drawn = noise.GaussianTables(2.0 * 0.5 * 2.0**16).draw(source, 7)
    assert found.dtype == np.int32
    # 1e-13 * 40 * C / G = 1e-7 of a step: rounding to another integer would need a sum that close to a half
    assert found.tolist() == [round(value) + int(n) for value, n in zip(total, drawn, strict=True)]


def test_an_empty_batch_is_noise_alone():
    recipe = Recipe(**{**RECIPE, "records": 10**6, "sample_size": 1})
    dataset = _dataset(rows=3)
    trainer = Trainer(models.make("logistic", features=6), dataset)
    source = RandomStream(KEY)
    assert not len(sampling.poisson(source, sampling.poisson_table(1, 10**6), 3))
    expected = noise.GaussianTables(recipe.scale).draw(source, 7)
    np.testing.assert_array_equal(trainer.round(_parameters(), recipe, RandomStream(KEY)), expected)


class _Constant:
    """A model whose sum is what it is told, to see what a round makes of it."""

    def __init__(self, total: list[float]) -> None:
        self.total = np.array(total)
        self.asked: list[int] = []
        self.name, self.features, self.classes = "constant", 6, 2
        self.arrays = (models.make("logistic", features=len(total) - 1).arrays[0],)

    def prepare(self, features):
        return features

    def clipped_sum(self, parameters, rows, labels, clip_norm):
        self.asked.append(len(labels))
        return models.ClippedSum(self.total, 0)


def _noise_free(total: list[float]) -> np.ndarray:
    recipe = Recipe(**RECIPE)
    model = _Constant([*total, 0.0])
    trainer = Trainer(model, _dataset())
    trainer.parameters = len(total) + 1
    source = RandomStream(KEY)
    sampling.poisson(source, sampling.poisson_table(40, 400), 400)
    drawn = noise.GaussianTables(recipe.scale).draw(source, len(total) + 1)
    return (trainer.round(np.zeros(len(total) + 1), recipe, RandomStream(KEY)).astype(np.int64) - drawn)[:-1]


def test_sums_are_rounded_to_the_nearest_grid_step():
    G = 2.0**-16
    found = _noise_free([0.49 * G, 0.51 * G, -0.51 * G, 1.5 * G, 2.5 * G, -3.2 * G, 1000.0])
    assert found.tolist() == [0, 1, -1, 2, 2, -3, 1000 * 2**16]


def test_updates_saturate_and_never_hold_the_invalid_element():
    recipe, trainer = Recipe(**RECIPE), Trainer(_Constant([1e6, -1e6, 0.0]), _dataset())
    trainer.parameters = 3
    found = trainer.round(np.zeros(3), recipe, RandomStream(KEY))
    assert found[:2].tolist() == [2**31 - 1, -(2**31 - 1)]


def test_a_round_sends_the_sum_and_never_a_mean_over_the_batch():
    """The same batch with every record twice: twice the sum."""
    dataset, parameters, model = _dataset(rows=10), _parameters(), models.make("logistic", features=6)
    twice = data.dataset(np.repeat(dataset.features, 2, axis=0), np.repeat(dataset.labels, 2))
    sums = []
    for records in (dataset, twice):
        recipe = Recipe(**{**RECIPE, "records": len(records.labels), "sample_size": len(records.labels)})
        drawn = noise.GaussianTables(recipe.scale).draw(RandomStream(KEY), 7)
        sums.append(Trainer(model, records).round(parameters, recipe, RandomStream(KEY)) - drawn)
    assert (abs(sums[1] - 2 * sums[0]) <= 1).all()
    assert abs(sums[0]).max() > 1000


def test_rounds_with_fresh_streams_differ_and_with_one_key_agree():
    trainer, recipe = Trainer(models.make("logistic", features=6), _dataset()), Recipe(**RECIPE)
    fresh = {trainer.round(_parameters(), recipe, RandomStream()).tobytes() for _ in range(20)}
    assert len(fresh) == 20
    same = {trainer.round(_parameters(), recipe, RandomStream(KEY)).tobytes() for _ in range(3)}
    assert len(same) == 1


def test_the_noise_of_an_update_has_the_declared_scale():
    """300 rounds of 7 coordinates around their mean: variance within 5 sqrt(2 / 2093) = 15 % (6e-7); twin: 1.25."""
    trainer = Trainer(models.make("logistic", features=6), _dataset())
    recipe = Recipe(**{**RECIPE, "records": 400, "sample_size": 400})  # everybody: only the noise varies
    source = RandomStream(KEY)
    updates = np.array([trainer.round(_parameters(), recipe, source) for _ in range(300)], np.float64)
    variance = ((updates - updates.mean(axis=0)) ** 2).sum() / (299 * 7) / recipe.scale**2
    assert abs(variance - 1) < 5 * math.sqrt(2 / (299 * 7))
    assert abs(variance / 1.25**2 - 1) > 5 * math.sqrt(2 / (299 * 7))


def test_tables_are_built_once_per_scale_and_probability(monkeypatch):
    built = []
    monkeypatch.setattr(
        noise, "GaussianTables", lambda scale, make=noise.GaussianTables: built.append(scale) or make(scale)
    )
    trainer = Trainer(models.make("logistic", features=6), _dataset())
    for size in (40, 41, 40):
        trainer.prepare(Recipe(**{**RECIPE, "sample_size": size}))
        trainer.round(_parameters(), Recipe(**{**RECIPE, "sample_size": size}), RandomStream(KEY))
    assert built == [2.0**16]
    assert set(trainer._masks) == {(40, 400), (41, 400)}


def test_a_schedule_that_changes_every_round_does_not_fill_the_memory():
    trainer = Trainer(models.make("logistic", features=6), _dataset())
    for size in range(1, 200):
        trainer.prepare(Recipe(**{**RECIPE, "sample_size": size}))
    assert len(trainer._masks) <= 64


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sampler": "shuffle"}, "sampler"),
        ({"clip_norm": 0.0}, "clip_norm"),
        ({"clip_norm": math.inf}, "clip_norm"),
        ({"noise_multiplier": 0.0}, "noise_multiplier"),
        ({"noise_multiplier": math.nan}, "noise_multiplier"),
        ({"records": 0}, "records"),
        ({"sample_size": 0}, "sample_size"),
    ],
)
def test_recipes_that_cannot_be_are_refused(change, message):
    with pytest.raises(RecipeError, match=message):
        Recipe(**{**RECIPE, **change})


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"grid_exponent": -2}, noise.ScaleError),
        ({"grid_exponent": -40}, noise.ScaleError),
        ({"records": 99, "sample_size": 10}, sampling.SamplingError),
        ({"sampler": "fixed", "sample_size": 400}, sampling.SamplingError),
        ({"sampler": "fixed", "records": 401}, sampling.SamplingError),
    ],
)
def test_a_refused_round_has_drawn_nothing(change, error):
    trainer, recipe, source = (
        Trainer(models.make("logistic", features=6), _dataset()),
        Recipe(**{**RECIPE, **change}),
        None,
    )
    source = RandomStream(KEY)
    with pytest.raises(error):
        trainer.prepare(recipe)
    with pytest.raises(error):
        trainer.round(_parameters(), recipe, source)
    assert source.take("mask", 8) == RandomStream(KEY).take("mask", 8)
    assert source.take("noise", 8) == RandomStream(KEY).take("noise", 8)


def test_parameters_and_data_of_another_shape_are_refused():
    trainer = Trainer(models.make("logistic", features=6), _dataset())
    with pytest.raises(RecipeError, match="7 parameters"):
        trainer.round(np.zeros(8), Recipe(**RECIPE), RandomStream(KEY))
    with pytest.raises(data.DataError, match="features"):
        Trainer(models.make("logistic", features=5), _dataset())


def test_a_client_descends_by_its_own_update():
    """Line 14 with a minus: w - e 2^-p u 2^g, by hand: 1 - 300 / 1024 * 64 / 4."""
    found = dpsgd.apply(
        np.array([1.0, 0.0]), np.array([64, -64], np.int32), step_numerator=300, step_exponent=10, grid_exponent=-2
    )
    assert found.tolist() == [1 - 4.6875, 4.6875]


def test_training_without_a_server_learns():
    """Twenty noisy full rounds on separable data: far above one half, whatever the noise (signal 200 C, noise 2 C)."""
    generator = np.random.default_rng(3)
    features = generator.normal(size=(400, 6))
    labels = (features @ np.arange(1.0, 7.0) > 0).astype(np.int64)
    trainer = Trainer(models.make("logistic", features=6), data.dataset(features, labels))
    recipe = Recipe(**{**RECIPE, "sample_size": 200})
    parameters = np.zeros(7)
    for _ in range(20):
        update = trainer.round(parameters, recipe, RandomStream())
        parameters = dpsgd.apply(parameters, update, step_numerator=256, step_exponent=13, grid_exponent=-16)
    predicted = trainer.model.predict(parameters, features).argmax(axis=1)
    assert (predicted == labels).mean() > 0.9


def test_a_clip_norm_that_the_model_cannot_use_is_refused_before_the_first_round():
    """Models in float32 take 2^-40 to 2^40; a recipe beyond is refused when it is prepared, so nothing was spent."""
    generator = np.random.default_rng(2)
    dataset = data.dataset(generator.normal(size=(20, 6)), generator.integers(0, 2, 20), class_names=["0", "1"])
    trainer = Trainer(models.make("mlp", features=6, classes=2, hidden=[3], activation="tanh"), dataset)
    recipe = Recipe("poisson", 20, 5, 2.0**41, 2.0, 26)
    with pytest.raises(models.ModelError, match=r"clip_norm must be 2\^-40 to 2\^40"):
        trainer.prepare(recipe)
    trainer.prepare(Recipe("poisson", 20, 5, 2.0**40, 2.0, 25))
