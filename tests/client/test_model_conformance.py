"""Every model passes the suite; a model with a fault of each kind does not."""

import dataclasses
import itertools

import numpy as np
import pytest
from hushgrad.client import models
from hushgrad.conformance.model_suite import CHECKS, Case

SHORT = (1, 2, 15, 16, 17, 65)
FEW = (1, 7, 16, 33)


def _logistic(l2: float) -> Case:
    """Gradients of log(1 + exp(-m)) through log-sum-exp."""

    def loss(parameters, x, y):
        margin = (1 if y else -1) * (x @ parameters[:-1] + parameters[-1])
        return float(np.logaddexp(0.0, -margin) + l2 / 2 * np.sum(parameters[:-1] ** 2))

    def gradient(parameters, x, y):
        sign = 1.0 if y else -1.0
        margin = sign * (x @ parameters[:-1] + parameters[-1])
        residual = -sign * np.exp(-np.logaddexp(0.0, margin))
        return np.append(residual * x + l2 * parameters[:-1], residual)

    return Case(f"logistic-{l2}", models.make("logistic", features=5, l2=l2), loss, gradient)


def _softmax_of(features: int, classes: int, l2: float, mapped):
    """Gradients of -log p_y through log-sum-exp."""

    def split(parameters):
        return parameters[: features * classes].reshape(features, classes), parameters[features * classes :]

    def loss(parameters, x, y):
        weights, bias = split(parameters)
        scores = mapped(x) @ weights + bias
        return float(np.logaddexp.reduce(scores) - scores[y] + l2 / 2 * np.sum(weights**2))

    def gradient(parameters, x, y):
        weights, bias = split(parameters)
        scores = mapped(x) @ weights + bias
        residual = np.exp(scores - np.logaddexp.reduce(scores)) - np.eye(classes)[y]
        return np.append((np.outer(mapped(x), residual) + l2 * weights).ravel(), residual)

    return loss, gradient


def _softmax(l2: float = 0.0, features: int = 5, classes: int = 3, **options) -> Case:
    model = models.make("softmax", features=features, classes=classes, l2=l2, **options)
    oracle = _softmax_of(features, classes, l2, lambda x: x)
    return Case(f"softmax-{l2}-{model.precision}-{features}-{classes}", model, *oracle)


def _oriented(precision: str) -> Case:
    """The map written anew: pixel by pixel, cell by cell."""

    def mapped(x):
        image = np.zeros((10, 10))
        image[1:-1, 1:-1] = x.reshape(8, 8)
        cells = np.zeros((8, 2, 2))
        for row, column in itertools.product(range(8), range(8)):
            dy = image[row + 2, column + 1] - image[row, column + 1]
            dx = image[row + 1, column + 2] - image[row + 1, column]
            angle, length = np.arctan2(dy, dx) / (np.pi / 4) % 8, np.hypot(dx, dy)
            for direction in range(8):
                apart = min(abs(angle - direction), 8 - abs(angle - direction))
                for i, j in itertools.product(range(2), range(2)):
                    down, across = abs((row + 0.5) / 4 - 0.5 - i), abs((column + 0.5) / 4 - 0.5 - j)
                    share = max(0, 1 - apart) * max(0, 1 - down) * max(0, 1 - across)
                    cells[direction, i, j] += share * length
        cells = np.sqrt(cells)
        cells -= cells.mean(axis=(1, 2), keepdims=True)
        flat = cells.ravel()
        return 3 * flat / (np.linalg.norm(flat) + 1e-3)

    memory: dict[bytes, np.ndarray] = {}

    def remembered(x):
        if x.tobytes() not in memory:
            memory[x.tobytes()] = mapped(x)
        return memory[x.tobytes()]

    model = models.make(
        "softmax", features=64, classes=3, feature_map="oriented-gradients", image=[8, 8], precision=precision
    )
    oracle = _softmax_of(32, 3, 0.0, remembered)
    return Case(f"oriented-{precision}", model, *oracle, image=True, sizes=SHORT, crowds=FEW, roundoff=2.0**-24)


class _Network:
    """A network of any layers, backwards, one record at a time, in float64."""

    def __init__(self, shapes, activation):
        self.shapes, self.activation = shapes, activation

    def arrays(self, parameters):
        places = np.cumsum([0, *(int(np.prod(shape)) for shape in self.shapes)])
        return [parameters[a:b].reshape(shape) for a, b, shape in zip(places, places[1:], self.shapes, strict=False)]

    def phi(self, values):
        return np.tanh(values) if self.activation == "tanh" else np.maximum(values, 0)

    def slope(self, values):
        return 1 - np.tanh(values) ** 2 if self.activation == "tanh" else (values > 0).astype(float)

    def dense(self, arrays, x, y, gradient):
        """Returns the loss, and gradients of all dense arrays and of the inputs."""
        pairs = list(zip(arrays[::2], arrays[1::2], strict=True))
        inputs, scores = [x], []
        for weights, bias in pairs:
            scores.append(inputs[-1] @ weights + bias)
            inputs.append(self.phi(scores[-1]))
        loss = float(np.logaddexp.reduce(scores[-1]) - scores[-1][y])
        if not gradient:
            return loss, None, None
        residual = np.exp(scores[-1] - np.logaddexp.reduce(scores[-1])) - np.eye(len(scores[-1]))[y]
        found = []
        for layer in reversed(range(len(pairs))):
            found = [np.outer(inputs[layer], residual), residual, *found]
            residual = pairs[layer][0] @ residual
            if layer:
                residual = residual * self.slope(scores[layer - 1])
        return loss, found, residual


def _mlp(hidden: tuple[int, ...], activation: str) -> Case:
    widths = (5, *hidden, 10)
    shapes = [s for a, b in itertools.pairwise(widths) for s in ((a, b), (b,))]
    network = _Network(shapes, activation)

    def loss(parameters, x, y):
        return network.dense(network.arrays(parameters), x, y, False)[0]

    def gradient(parameters, x, y):
        return np.concatenate([g.ravel() for g in network.dense(network.arrays(parameters), x, y, True)[1]])

    model = models.make("mlp", features=5, classes=10, hidden=list(hidden), activation=activation)
    return Case(f"mlp-{hidden}-{activation}", model, loss, gradient)


def _lenet(side: int, padding: int, activation: str) -> Case:
    """Convolutions as sums over the window, the activation before the pooling, the largest found by argmax."""
    flat = 16 * ((((side + 2 * padding - 4) // 2) - 4) // 2) ** 2
    shapes = [(6, 1, 5, 5), (6,), (16, 6, 5, 5), (16,), (flat, 120), (120,), (120, 84), (84,), (84, 4), (4,)]
    network = _Network(shapes, activation)

    def convolve(image, weights, bias):
        out = image.shape[1] - 4
        found = np.zeros((len(weights), out, out)) + bias[:, None, None]
        for i, j in itertools.product(range(5), range(5)):
            found += np.tensordot(weights[:, :, i, j], image[:, i : i + out, j : j + out], 1)
        return found

    def pool(values):
        channels, side = values.shape[0], values.shape[1] // 2
        windows = values.reshape(channels, side, 2, side, 2).swapaxes(2, 3).reshape(channels, side, side, 4)
        best = windows.argmax(axis=3)
        return np.take_along_axis(windows, best[..., None], 3)[..., 0], best

    def unpool(derivatives, best):
        channels, side = best.shape[:2]
        windows = np.zeros((channels, side, side, 4))
        np.put_along_axis(windows, best[..., None], derivatives[..., None], 3)
        return windows.reshape(channels, side, side, 2, 2).swapaxes(2, 3).reshape(channels, 2 * side, 2 * side)

    def weights_gradient(image, derivatives):
        out = derivatives.shape[1]
        found = np.empty((len(derivatives), len(image), 5, 5))
        for i, j in itertools.product(range(5), range(5)):
            found[:, :, i, j] = np.tensordot(derivatives, image[:, i : i + out, j : j + out], ([1, 2], [1, 2]))
        return found

    def evaluate(parameters, x, y, gradient):
        w1, b1, w2, b2, *dense = network.arrays(parameters)
        image = np.pad(x.reshape(1, side, side), ((0, 0), (padding, padding), (padding, padding)))
        z1 = convolve(image, w1, b1)
        a1, best1 = pool(network.phi(z1))
        z2 = convolve(a1, w2, b2)
        a2, best2 = pool(network.phi(z2))
        loss, found, at = network.dense(dense, a2.ravel(), y, gradient)
        if not gradient:
            return loss
        d2 = unpool(at.reshape(a2.shape), best2) * network.slope(z2)
        at1 = np.zeros_like(a1)
        out = d2.shape[1]
        for i, j in itertools.product(range(5), range(5)):
            at1[:, i : i + out, j : j + out] += np.tensordot(w2[:, :, i, j].T, d2, 1)
        d1 = unpool(at1, best1) * network.slope(z1)
        parts = [weights_gradient(image, d1), d1.sum(axis=(1, 2)), weights_gradient(a1, d2), d2.sum(axis=(1, 2))]
        return np.concatenate([part.ravel() for part in (*parts, *found)])

    def loss(parameters, x, y):
        return evaluate(parameters, x, y, False)

    def gradient(parameters, x, y):
        return evaluate(parameters, x, y, True)

    model = models.make("lenet", features=side**2, classes=4, activation=activation, padding=padding)
    return Case(
        f"lenet-{side}-{padding}-{activation}", model, loss, gradient, scale=0.2, image=True, sizes=SHORT, crowds=FEW
    )


CASES = [
    _logistic(0.0),
    _logistic(0.4),  # a penalty whose gradient is comparable to the clip norms: some tests take the slow road
    _logistic(30.0),  # nearly every test does
    _softmax(),
    _softmax(0.4),
    _softmax(precision="float32"),
    _softmax(precision="float32", features=100, classes=10),  # wide enough for another way to multiply
    _oriented("float64"),
    _oriented("float32"),
    _mlp((), "tanh"),
    _mlp((7, 4), "tanh"),
    _mlp((7,), "relu"),
    _lenet(16, 0, "tanh"),
    _lenet(12, 2, "relu"),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_a_model_passes(check, case):
    check(case)


class _Faulty:
    """A good model with one fault in its sums."""

    def __init__(self, fault):
        self._good, self._fault = CASES[0].model, fault

    def __getattr__(self, name):
        return getattr(self._good, name)

    def clipped_sum(self, parameters, rows, labels, clip_norm):
        return self._fault(self._good, parameters, rows, labels, clip_norm)


def _mean(model, parameters, rows, labels, clip_norm):
    total, zeroed = model.clipped_sum(parameters, rows, labels, clip_norm)
    return models.ClippedSum(total / max(1, len(rows)), zeroed)


def _clips_the_batch(model, parameters, rows, labels, clip_norm):
    model.clipped_sum(parameters, rows, labels, clip_norm)  # refuses what the good one refuses
    total, zeroed = model.clipped_sum(parameters, rows, labels, 1e6)
    return models.ClippedSum(total / max(1.0, np.linalg.norm(total) / clip_norm / max(1, len(rows))), zeroed)


def _a_little_too_long(model, parameters, rows, labels, clip_norm):
    total, zeroed = model.clipped_sum(parameters, rows, labels, clip_norm * (1 + 2.0**-40))
    return models.ClippedSum(total, zeroed)


def _rounds_by_place(model, parameters, rows, labels, clip_norm):
    parts = [model.clipped_sum(parameters, rows[i : i + 1], labels[i : i + 1], clip_norm) for i in range(len(rows))]
    total = np.zeros_like(parameters)
    for place, part in enumerate(parts):
        total += part.total * (1 + 2.0**-52 * (place >= 60))
    return models.ClippedSum(total, sum(part.zeroed for part in parts))


def _lets_nan_through(model, parameters, rows, labels, clip_norm):
    total, zeroed = model.clipped_sum(parameters, rows, labels, clip_norm)
    return models.ClippedSum(total + (np.nan if zeroed else 0.0), zeroed)


def _counts_nothing(model, parameters, rows, labels, clip_norm):
    return models.ClippedSum(model.clipped_sum(parameters, rows, labels, clip_norm).total, 0)


def _forgets_the_last(model, parameters, rows, labels, clip_norm):
    keep = len(rows) if len(rows) % 16 else max(0, len(rows) - 1)
    return model.clipped_sum(parameters, rows[:keep], labels[:keep], clip_norm)


FAULTS = [
    _mean,
    _clips_the_batch,
    _a_little_too_long,
    _rounds_by_place,
    _lets_nan_through,
    _counts_nothing,
    _forgets_the_last,
]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_a_model_with_a_fault_does_not_pass(fault):
    case = dataclasses.replace(CASES[0], model=_Faulty(fault))
    failed = []
    for check in CHECKS:
        try:
            check(case)
        except AssertionError:
            failed.append(check.__name__)
    assert failed
