"""What is promised about the models, seen from inside; that they pass the suite is in test_model_conformance."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
from hushgrad.client import models
from hushgrad.client.models import (
    base,
    convolution,
    dense,
    lenet,
    linear,
    logistic,
    mlp,
    oriented_gradients,
    products,
    softmax,
)

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


@pytest.mark.parametrize(
    ("widths", "activation"), [((784, 10), "tanh"), ((784, 128, 10), "tanh"), ((31, 20, 7), "relu")]
)
def test_what_decides_a_networks_clipped_gradient_has_the_same_bits_among_any_neighbours(widths, activation):
    generator = np.random.default_rng(5)
    stack = dense.layers(dense.initial(widths, activation, 1), widths)
    features = generator.normal(size=(256, widths[0])).astype(np.float32)
    labels = generator.integers(0, widths[-1], 256)

    def decide(rows: np.ndarray, row_labels: np.ndarray) -> tuple:
        values = dense.forward(stack, mlp.padded(rows, mlp.ROWS), activation)
        derivatives = dense.backward(
            stack, values, dense.residuals(values[-1], row_labels), activation, to_inputs=False
        )
        return (*values, *derivatives, dense.squared_norms(values, derivatives))

    whole = decide(features, labels)
    for count in (1, 5, 63, 64, 65, 130, 256):
        order = generator.permutation(256)[:count]
        for found, expected in zip(decide(features[order], labels[order]), whole, strict=True):
            assert np.ascontiguousarray(found[:count]).tobytes() == np.ascontiguousarray(expected[order]).tobytes()


@pytest.mark.parametrize(("activation", "padding"), [("tanh", 2), ("relu", 0)])
def test_what_decides_a_lenets_clipped_gradient_has_the_same_bits_among_any_neighbours(activation, padding):
    """Full-size images; twelve records alone, and in other places of other crowds."""
    generator = np.random.default_rng(6)
    model = lenet.LeNet(784, 10, activation, padding)
    single = model.initial(2)
    first, second, stack = model._unpacked(single)
    images = generator.uniform(size=(40, 784)).astype(np.float32)
    labels = generator.integers(0, 10, 40)

    def decide(order: np.ndarray) -> list[bytes]:
        shared = convolution.shared(model.geometry, lenet.ROWS)
        values = dense.forward(stack, shared.forward(images[order], first, second, activation), activation)
        residuals = dense.residuals(values[-1], labels[order])
        at_outputs, *derivatives = dense.backward(stack, values, residuals, activation, to_inputs=True)
        gradients = shared.gradients(at_outputs, second, activation)
        squared = dense.squared_norms(values, derivatives) + dense.squares(gradients)
        parts = (*values, *derivatives, gradients, squared)
        return [b"".join(np.ascontiguousarray(part[i]).tobytes() for part in parts) for i in range(len(order))]

    alone = [decide(np.array([record]))[0] for record in range(12)]
    for count in (2, 7, 15, 16):
        for _ in range(8):
            order = generator.permutation(40)[:count]
            for record, found in zip(order.tolist(), decide(order), strict=True):
                assert record >= 12 or found == alone[record]


def test_a_product_whose_rows_depend_on_their_place_is_not_used(monkeypatch):
    """A planted kernel that treats the last four rows differently, as real ones do in float32."""

    def crooked(rows, weights, way):
        found = (rows @ weights).copy()
        if way.rows == 64:
            found[-4:] = np.nextafter(found[-4:], np.inf)
        return found

    monkeypatch.setattr(products, "_product", crooked)
    assert not products.is_rowwise(products.Way(64, False), 6, 3, np.float64)
    products.chosen_way.cache_clear()
    chosen = products.chosen_way(64, 6, 3, np.dtype(np.float64))
    products.chosen_way.cache_clear()
    assert chosen is None or chosen.rows < 64


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


def test_lenets_have_the_textbooks_number_of_parameters():
    """61,706 with padding 2 and 44,426 without, for 28 x 28 pixels and 10 classes."""
    for padding, expected in ((2, 61_706), (0, 44_426)):
        model = models.make("lenet", features=784, classes=10, activation="tanh", padding=padding)
        assert sum(spec.size for spec in model.arrays) == expected
        assert model.name == f"lenet-tanh-{padding}"
    mapped = models.make("softmax", features=784, classes=10, feature_map="oriented-gradients")
    assert sum(spec.size for spec in mapped.arrays) == 3_930


def test_images_of_another_shape_than_a_square_are_convolved(monkeypatch):
    """A record turned on its side, and a model turned with it, have the same loss for symmetric weights."""
    wide = models.make("lenet", features=16 * 20, classes=3, activation="tanh", padding=0, image=[16, 20])
    tall = models.make("lenet", features=16 * 20, classes=3, activation="tanh", padding=0, image=[20, 16])
    parameters = np.random.default_rng(0).normal(scale=0.1, size=sum(spec.size for spec in wide.arrays))
    for start, shape in ((0, (6, 1)), (156, (16, 6))):
        size = shape[0] * shape[1] * 25
        window = parameters[start : start + size].reshape(*shape, 5, 5)
        parameters[start : start + size] = (window + window.swapaxes(2, 3)).ravel()
    images = np.random.default_rng(1).uniform(size=(5, 16, 20))
    turned = parameters.copy()
    dense_part = turned[156 + 2416 :]
    rows = dense_part[: 32 * 120].reshape(16, 1, 2, 120)  # 16 channels of 1 x 2 for the wide, of 2 x 1 for the tall
    assert rows.size == wide.widths[0] * 120
    expected = wide.predict(parameters, wide.prepare(images.reshape(5, -1)))
    found = tall.predict(turned, tall.prepare(images.swapaxes(1, 2).reshape(5, -1)))
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_a_flat_image_maps_to_zeros_and_any_other_to_norm_three():
    images = np.random.default_rng(0).uniform(size=(3, 64))
    images[1] = 0.0
    found = oriented_gradients.of(images, (8, 8))
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), [3, 0, 3], rtol=1e-2)
    assert not found[1].any()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"kind": "forest", "features": 3}, "kind"),
        ({"kind": "logistic", "features": 0}, "feature"),
        ({"kind": "logistic", "features": 3, "classes": 3}, "softmax"),
        ({"kind": "softmax", "features": 3, "classes": 1}, "classes"),
        ({"kind": "logistic", "features": 3, "l2": -1.0}, "l2"),
        ({"kind": "logistic", "features": 3, "l2": float("nan")}, "l2"),
        ({"kind": "logistic", "features": 3, "hidden": [3]}, "has no hidden"),
        ({"kind": "softmax", "features": 3, "l2": 0.1, "precision": "float32"}, "float64"),
        ({"kind": "softmax", "features": 3, "image": [1, 3]}, "image"),
        ({"kind": "softmax", "features": 30, "feature_map": "oriented-gradients"}, "image"),
        ({"kind": "softmax", "features": 784, "feature_map": "oriented-gradients", "image": [784, 1]}, "multiples"),
        ({"kind": "softmax", "features": 784, "feature_map": "edges"}, "feature_map"),
        ({"kind": "mlp", "features": 3, "classes": 3}, "needs hidden"),
        ({"kind": "mlp", "features": 3, "classes": 3, "hidden": [0], "activation": "tanh"}, "hidden"),
        ({"kind": "mlp", "features": 3, "classes": 3, "hidden": [4], "activation": "sigmoid"}, "activation"),
        ({"kind": "mlp", "features": 3, "classes": 3, "hidden": [4], "activation": "tanh", "l2": 0.1}, "no l2"),
        ({"kind": "lenet", "features": 784, "classes": 10, "activation": "tanh"}, "needs padding"),
        ({"kind": "lenet", "features": 784, "classes": 10, "activation": "tanh", "padding": 1}, "multiples of 4"),
        ({"kind": "lenet", "features": 785, "classes": 10, "activation": "tanh", "padding": 0}, "pixels"),
        ({"kind": "lenet", "features": 64, "classes": 10, "activation": "tanh", "padding": -1}, "padding"),
    ],
)
def test_models_that_cannot_be_are_refused(arguments, message):
    with pytest.raises(models.ModelError, match=message):
        models.make(**arguments)
