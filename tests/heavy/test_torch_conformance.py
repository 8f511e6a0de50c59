"""PyTorch modules under the checks that every model passes; the gradients beside them are written in NumPy."""

from collections.abc import Callable

import numpy as np
import pytest
from hushgrad.conformance import model_suite
from hushgrad.conformance.model_suite import Case, Floats

torch = pytest.importorskip("torch", reason="the heavy tests run in an environment of their own: make test-heavy")

from hushgrad.client.models.torch_module import TorchModule  # noqa: E402
from torch import nn  # noqa: E402

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(300)]
torch.set_num_threads(1)

FEATURES, HIDDEN, CLASSES = 6, 5, 3
WEIGHTS = HIDDEN * FEATURES


def unpacked(parameters: Floats) -> tuple[Floats, Floats, Floats, Floats]:
    """Returns W (hidden, features), b, V (classes, hidden), c, in PyTorch's order."""
    first, rest = parameters[:WEIGHTS].reshape(HIDDEN, FEATURES), parameters[WEIGHTS:]
    return first, rest[:HIDDEN], rest[HIDDEN:-CLASSES].reshape(CLASSES, HIDDEN), rest[-CLASSES:]


def scores(parameters: Floats, x: Floats) -> tuple[Floats, Floats]:
    w, b, v, c = unpacked(parameters)
    hidden = np.tanh(w @ x + b)
    return hidden, v @ hidden + c


def loss(parameters: Floats, x: Floats, y: int) -> float:
    z = scores(parameters, x)[1]
    return float(np.log(np.exp(z - z.max()).sum()) + z.max() - z[y])


def gradient(parameters: Floats, x: Floats, y: int) -> Floats:
    hidden, z = scores(parameters, x)
    residual = np.exp(z - z.max()) / np.exp(z - z.max()).sum()
    residual[y] -= 1.0
    back = (unpacked(parameters)[2].T @ residual) * (1 - hidden**2)
    return np.concatenate([np.outer(back, x).ravel(), back, np.outer(residual, hidden).ravel(), residual])


def layered() -> nn.Module:
    return nn.Sequential(nn.Linear(FEATURES, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, CLASSES))


class Unseen(nn.Module):
    """The same network with its parameters in no layer that hooks know."""

    def __init__(self) -> None:
        super().__init__()
        first, second = nn.Linear(FEATURES, HIDDEN), nn.Linear(HIDDEN, CLASSES)
        self.w, self.b, self.v, self.c = first.weight, first.bias, second.weight, second.bias

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return torch.tanh(rows @ self.w.T + self.b) @ self.v.T + self.c


def case(name: str, factory: Callable[[], nn.Module]) -> Case:
    model = TorchModule(factory, features=FEATURES, classes=CLASSES)
    return Case(name, model, loss, gradient, sizes=(1, 2, 63, 64, 65, 150), crowds=(1, 7, 64, 65))


def one_by_one() -> Case:
    made = case("one by one", layered)
    made.model._chunk, made.model._how, made.model._method = 1, "one by one", made.model._one_by_one  # type: ignore
    return made


def whole_vmap() -> Case:
    made = case("vmap", layered)
    made.model._how, made.model._method = "vmap", made.model._by_vmap  # type: ignore
    return made


CASES = [case("layers", layered), case("unseen", Unseen), whole_vmap(), one_by_one()]


@pytest.mark.parametrize("made", CASES, ids=lambda made: made.name)
@pytest.mark.parametrize("check", model_suite.CHECKS, ids=lambda check: check.__name__)
def test_a_module_is_a_model_like_any_other(made: Case, check: Callable[[Case], None]) -> None:
    check(made)
