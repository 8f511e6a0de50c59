"""Runs in .bench-env: CPU seconds of a training step in PyTorch, without privacy, in Opacus' ways, or by our adapter.

A step takes rows from records in memory, and makes the gradient of the sum of the losses; the private ones clip each
record's and add noise. No data loader and no update of the model, which would both be to Opacus' loss. Each line of
input is JSON {"model": ..., "way": ..., "records": rows of one batch}; each line of output JSON {"seconds": ...}.
"""

import functools
import json
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

RECORDS = 20_000
FEATURES = {"logistic": 68}
CLIP_NORM, NOISE_MULTIPLIER = 0.5, 2.1


def network(kind: str) -> nn.Module:
    """Returns the network; pooling before the activation, which is the same function and faster."""
    if kind == "logistic":
        return nn.Sequential(nn.Linear(68, 1))
    if kind == "softmax":
        return nn.Sequential(nn.Linear(784, 10))
    if kind == "mlp":
        return nn.Sequential(nn.Linear(784, 128), nn.Tanh(), nn.Linear(128, 10))
    if kind == "lenet":
        return nn.Sequential(
            nn.Unflatten(1, (1, 28, 28)), nn.Conv2d(1, 6, 5, padding=2), nn.MaxPool2d(2), nn.Tanh(),
            nn.Conv2d(6, 16, 5), nn.MaxPool2d(2), nn.Tanh(), nn.Flatten(),
            nn.Linear(400, 120), nn.Tanh(), nn.Linear(120, 84), nn.Tanh(), nn.Linear(84, 10),
        )  # fmt: skip
    raise ValueError(f"no network {kind!r}")


@functools.cache
def records(kind: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns features and labels of all records."""
    generator = torch.Generator().manual_seed(1)
    features = torch.rand(RECORDS, FEATURES.get(kind, 784), generator=generator)
    if kind == "logistic":
        return features, torch.randint(0, 2, (RECORDS, 1), generator=generator).float()
    return features, torch.randint(0, 10, (RECORDS,), generator=generator)


def criterion(kind: str) -> nn.Module:
    """Returns the sum of the losses."""
    return nn.BCEWithLogitsLoss(reduction="sum") if kind == "logistic" else nn.CrossEntropyLoss(reduction="sum")


@functools.cache
def step(kind: str, way: str) -> Callable[[torch.Tensor], None]:
    """Returns what makes one step of a batch of rows."""
    torch.manual_seed(1)
    features, labels = records(kind)
    model, loss = network(kind), criterion(kind)
    if way == "plain":

        def plain(rows: torch.Tensor) -> None:
            model.zero_grad(set_to_none=True)
            loss(model(features[rows]), labels[rows]).backward()

        return plain
    return _adapted(kind) if way == "adapter" else _private(kind, way, model, loss)


def _adapted(kind: str) -> Callable[[torch.Tensor], None]:
    """Our own clipped sums of the same network; without noise, which is not the adapter's."""
    from hushgrad.client.models import torch_module

    features, labels = records(kind)
    model = torch_module.TorchModule(functools.partial(network, kind), features=features.shape[1], classes=10)
    rows_of_all, labels_of_all = model.prepare(features.numpy()), labels.numpy()
    parameters = model.initial(1).astype("float64")

    def adapted(rows: torch.Tensor) -> None:
        chosen = rows.numpy()
        model.clipped_sum(parameters, rows_of_all[chosen], labels_of_all[chosen], CLIP_NORM)

    return adapted


def _private(kind: str, way: str, model: nn.Module, loss: nn.Module) -> Callable[[torch.Tensor], None]:
    from opacus.grad_sample import GradSampleModule, GradSampleModuleFastGradientClipping
    from opacus.optimizers import DPOptimizer, DPOptimizerFastGradientClipping
    from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping

    features, labels = records(kind)
    common: dict[str, Any] = {
        "noise_multiplier": NOISE_MULTIPLIER, "max_grad_norm": CLIP_NORM, "expected_batch_size": 1,
        "loss_reduction": "sum",
    }  # fmt: skip
    plain = torch.optim.SGD(model.parameters(), lr=0.0)
    if way == "hooks":
        wrapped = GradSampleModule(model, loss_reduction="sum")
        optimizer = DPOptimizer(plain, **common)
        measured = loss
    elif way == "ghost":
        wrapped = GradSampleModuleFastGradientClipping(
            model, loss_reduction="sum", max_grad_norm=CLIP_NORM, use_ghost_clipping=True
        )
        optimizer = DPOptimizerFastGradientClipping(plain, **common)
        measured = DPLossFastGradientClipping(wrapped, optimizer, loss, loss_reduction="sum")
    else:
        raise ValueError(f"no way {way!r}")

    def private(rows: torch.Tensor) -> None:
        optimizer.zero_grad(set_to_none=True)
        measured(wrapped(features[rows]), labels[rows]).backward()
        optimizer.pre_step()

    return private


def main() -> None:
    """Answers line by line."""
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(2)
    for line in sys.stdin:
        asked = json.loads(line)
        rows = torch.randperm(RECORDS, generator=generator)[: asked["records"]].sort().values
        action = step(asked["model"], asked["way"])
        start = time.process_time()
        for _ in range(asked.get("times", 1)):
            action(rows)
        print(json.dumps({"seconds": (time.process_time() - start) / asked.get("times", 1)}), flush=True)


if __name__ == "__main__":
    main()
