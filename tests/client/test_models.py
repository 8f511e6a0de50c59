"""The models pass the suite; and what is promised about linear ones, seen from inside."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
from hushgrad.client import models
from hushgrad.client.models import base, linear, logistic, products, softmax

from tests.conformance.model_suite import ModelSuite


class LogisticOracle:
    """Gradients of log(1 + exp(-m)) through log-sum-exp, one record at a time."""

    l2 = 0.0

    def model(self) -> base.Model:
        return logistic.Logistic(features=5, l2=self.l2)

    def loss(self, parameters: np.ndarray, x: np.ndarray, y: int) -> float:
        margin = (1 if y else -1) * (x @ parameters[:-1] + parameters[-1])
        return float(np.logaddexp(0.0, -margin) + self.l2 / 2 * np.sum(parameters[:-1] ** 2))

    def gradient(self, parameters: np.ndarray, x: np.ndarray, y: int) -> np.ndarray:
        sign = 1.0 if y else -1.0
        margin = sign * (x @ parameters[:-1] + parameters[-1])
        residual = -sign * np.exp(-np.logaddexp(0.0, margin))
        return np.append(residual * x + self.l2 * parameters[:-1], residual)


class SoftmaxOracle:
    """Gradients of -log p_y through log-sum-exp, one record at a time."""

    l2 = 0.0

    def model(self) -> base.Model:
        return softmax.Softmax(features=5, classes=3, l2=self.l2)

    def loss(self, parameters: np.ndarray, x: np.ndarray, y: int) -> float:
        weights, bias = parameters[:15].reshape(5, 3), parameters[15:]
        scores = x @ weights + bias
        return float(np.logaddexp.reduce(scores) - scores[y] + self.l2 / 2 * np.sum(weights**2))

    def gradient(self, parameters: np.ndarray, x: np.ndarray, y: int) -> np.ndarray:
        weights, bias = parameters[:15].reshape(5, 3), parameters[15:]
        scores = x @ weights + bias
        residual = np.exp(scores - np.logaddexp.reduce(scores)) - np.eye(3)[y]
        return np.append((np.outer(x, residual) + self.l2 * weights).ravel(), residual)


class TestLogistic(LogisticOracle, ModelSuite):
    """Without penalty."""


class TestLogisticWithPenalty(LogisticOracle, ModelSuite):
    """A penalty whose gradient is comparable to the clip norms of the suite: some tests take the slow road."""

    l2 = 0.4


class TestLogisticWithLargePenalty(LogisticOracle, ModelSuite):
    """Nearly every test takes the slow road."""

    l2 = 30.0


class TestSoftmax(SoftmaxOracle, ModelSuite):
    """Without penalty."""


class TestSoftmaxWithPenalty(SoftmaxOracle, ModelSuite):
    """See above."""

    l2 = 0.4


KINDS = [
    logistic.Logistic(features=68),
    logistic.Logistic(features=3, l2=0.1),
    softmax.Softmax(features=68, classes=2),
    softmax.Softmax(features=31, classes=7, l2=0.1),
    softmax.Softmax(features=200, classes=10),
]


def _rowwise(model: base.Model, parameters: np.ndarray, features: np.ndarray, labels: np.ndarray) -> tuple:
    """Returns what decides each row's clipped gradient: scores, residuals and norms."""
    k = 1 if isinstance(model, logistic.Logistic) else model.classes
    residuals_of = logistic._residuals if k == 1 else softmax._residuals
    weights = parameters[:-k].reshape(-1, k)
    rows, row_labels = linear._padded(features, labels)
    scores = products.rowwise(rows, weights)
    residuals = residuals_of(scores + parameters[-k:], row_labels)
    omega = float(np.linalg.norm(model.l2 * weights))
    norms = linear._norms(rows, residuals, scores, model.l2, omega)
    return tuple(array[: len(labels)] for array in (scores, residuals, norms))


@pytest.mark.parametrize("model", KINDS, ids=lambda model: f"{model.name}-{model.features}-{model.classes}-{model.l2}")
def test_what_decides_a_clipped_gradient_has_the_same_bits_among_any_neighbours(model):
    generator = np.random.default_rng(5)
    parameters = generator.normal(size=sum(spec.size for spec in model.arrays))
    features, labels = generator.normal(size=(300, model.features)), generator.integers(0, model.classes, 300)
    whole = _rowwise(model, parameters, features, labels)
    for count in (1, 5, 64, 65, 130, 256):
        order = generator.permutation(300)[:count]
        part = _rowwise(model, parameters, features[order], labels[order])
        for found, expected in zip(part, whole, strict=True):
            assert np.ascontiguousarray(found).tobytes() == np.ascontiguousarray(expected[order]).tobytes()


@pytest.mark.parametrize(("features", "classes"), [(5, 3), (200, 10)])
def test_without_row_wise_products_each_row_is_multiplied_alone(monkeypatch, features, classes):
    model, generator = softmax.Softmax(features=features, classes=classes), np.random.default_rng(1)
    parameters = generator.normal(size=(features + 1) * classes)
    data, labels = generator.normal(size=(70, features)), generator.integers(0, classes, 70)
    expected = model.clipped_sum(parameters, data, labels, 0.5).total
    monkeypatch.setattr(products, "chosen_way", lambda *shape: None)
    np.testing.assert_allclose(model.clipped_sum(parameters, data, labels, 0.5).total, expected, rtol=0, atol=1e-13)


def test_a_penalty_that_cancels_the_loss_does_not_lengthen_a_clipped_gradient():
    """x = t w with sigmoid(-t w.w) t = lambda: the weights' gradient vanishes, and the closed form loses its digits."""
    generator = np.random.default_rng(2)
    for size, share in itertools.product((0.1, 1.0, 30.0), (1e-9, 1e-3, 0.4, 0.6, 3.0)):
        weights = generator.normal(size=3) * size
        squared = float(weights @ weights)
        l2 = 0.1 / squared
        low, high = 0.0, 1.0 / squared
        for _ in range(60):
            t = (low + high) / 2
            low, high = (t, high) if t / (1 + np.exp(t * squared)) < l2 else (low, t)
        model, parameters = logistic.Logistic(features=3, l2=l2), np.append(weights, 0.0)
        clip_norm = share * l2 * float(np.sqrt(squared))  # omega / C on both sides of where the road forks
        vector = model.clipped_sum(parameters, (t * weights)[np.newaxis], np.array([1]), clip_norm).total
        found = sum(Fraction(value) ** 2 for value in vector.tolist())
        assert found <= (Fraction(clip_norm) * (1 + Fraction(linear.CLIP_ERROR) + Fraction(15, 2**53))) ** 2


def test_norms_from_the_closed_form_are_never_below_the_exact_ones():
    """Exact arithmetic on the floating-point residuals; records near cancellation, where digits are lost."""
    generator, l2 = np.random.default_rng(9), 0.25
    below_without_slack = 0
    for case in range(300):
        weights, residual = generator.normal(size=(4, 2)), generator.normal(size=(1, 2)) * 0.5
        # two outputs with opposite residuals: x along the first column's penalty
        if case % 2:
            weights[:, 1] = weights[:, 0] * residual[0, 1] / residual[0, 0]
            x = -l2 * weights[:, 0] / residual[0, 0] * (1 + 1e-9 * generator.normal(size=4))
        else:
            x = generator.normal(size=4)
        scores = (x @ weights)[np.newaxis]
        omega = float(np.linalg.norm(l2 * weights))
        found = linear._norms(x[np.newaxis], residual, scores, l2, omega)[0]
        exact = Fraction(0)
        for k in range(2):
            r = Fraction(residual[0, k].item())
            exact += r * r
            for j in range(4):
                exact += (r * Fraction(x[j].item()) + Fraction((l2 * weights)[j, k].item())) ** 2
        assert Fraction(float(found)) ** 2 >= exact * (1 - Fraction(8, 2**53))
        t2 = float(residual[0] @ residual[0]) * (float(x @ x) + 1.0)
        plain = np.sqrt(max(0.0, t2 + omega**2 + 2 * l2 * float(residual[0] @ scores[0])))
        below_without_slack += Fraction(float(plain)) ** 2 < exact * (1 - Fraction(8, 2**53))
    assert below_without_slack > 0  # the twin: without what is added, some norms are too small


def test_the_penalty_stands_inside_the_clipped_gradient_and_spares_the_bias():
    """With x = 0, r = 1/2 (label 0, score 0): gradient (lambda w, 1/2), by hand."""
    model, parameters = logistic.Logistic(features=2, l2=0.5), np.array([2.0, 0.0, 0.0])
    found = model.clipped_sum(parameters, np.zeros((1, 2)), np.array([0]), 10.0).total
    np.testing.assert_array_equal(found, [1.0, 0.0, 0.5])
    clipped = model.clipped_sum(parameters, np.zeros((1, 2)), np.array([0]), 0.5).total
    np.testing.assert_allclose(clipped, np.array([1.0, 0.0, 0.5]) * 0.5 / np.sqrt(1.25), rtol=1e-12)


def test_two_classes_of_softmax_are_logistic_regression():
    """With W = (0, w): the second column's gradient is the logistic one, the first its negative."""
    generator = np.random.default_rng(4)
    w, features, labels = generator.normal(size=6), generator.normal(size=(50, 5)), generator.integers(0, 2, 50)
    both = np.zeros((6, 2))
    both[:, 1] = w
    wide = softmax.Softmax(features=5, classes=2).clipped_sum(both.ravel(), features, labels, 1e9).total.reshape(6, 2)
    narrow = logistic.Logistic(features=5).clipped_sum(w, features, labels, 1e9).total
    np.testing.assert_allclose(wide[:, 1], narrow, atol=1e-12)
    np.testing.assert_allclose(wide[:, 0], -narrow, atol=1e-12)


def test_models_are_made_by_name():
    assert models.make("logistic", features=68).name == "logistic"
    model = models.make("softmax", features=784, classes=10, l2=0.1)
    assert [spec.name for spec in model.arrays] == ["weights", "bias"]
    assert sum(spec.size for spec in model.arrays) == 7850
    assert sum(spec.size for spec in models.make("logistic", features=68).arrays) == 69


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"kind": "forest", "features": 3}, "kind"),
        ({"kind": "logistic", "features": 0}, "feature"),
        ({"kind": "logistic", "features": 3, "classes": 3}, "softmax"),
        ({"kind": "softmax", "features": 3, "classes": 1}, "classes"),
        ({"kind": "logistic", "features": 3, "l2": -1.0}, "l2"),
        ({"kind": "logistic", "features": 3, "l2": float("nan")}, "l2"),
    ],
)
def test_models_that_cannot_be_are_refused(arguments, message):
    with pytest.raises(models.ModelError, match=message):
        models.make(**arguments)
