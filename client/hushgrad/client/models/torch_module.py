"""Any PyTorch module that classifies, as a model: per-example gradients in chunks of one fixed shape.

Needs the extra `torch`. The module is the user's; this file finds out how its per-example gradients are computed,
checks that one example's do not depend on the others, and clips and adds them.

How exact. A chunk is CHUNK rows, the last one padded, and everything up to the gradients is computed in float32. A
record's vector is v = c g: g its gradient as float32 numbers (for linear layers the exact outer product of two rows of
float32 numbers), c = min(1, C / ||g||) with the norm computed in float64, made a few units larger than it can be off,
and c rounded down to float32; so ||v|| <= C (1 + 2^-40). Adding CHUNK of them in float32, products included, errs by at
most (CHUNK + 4) 2^-24 times the sum of their norms. CHUNK_EXAMPLES is CHUNK + 8: what it says too much pays for there
being a few more chunks than n_max / CHUNK_EXAMPLES.

That g depends, bit for bit, on its own record. What a kernel does with one row of a chunk is decided by the chunk's
shape, unless the module mixes rows. Both are tried at construction, on made-up records: rows change places, and
neighbours are replaced, and the gradients must stay what they are. Where they differ by rounding, chunks have one
record. A module whose outputs depend on other rows by more, or of a kind that is known to, is refused. On a GPU
PyTorch is told to use kernels that give the same bits every time, or to refuse.

| refused | why |
| --- | --- |
| BatchNorm | an example's gradient depends on all others in the batch, so clipping it bounds nothing |
| any other module whose outputs depend on other rows | the same |
| whatever gives other outputs when it is called again | a gradient would depend on which records came before |
| InstanceNorm with running statistics, any buffer that changes | records would leave a trace that no noise covers |
| Dropout with p > 0 | its random bits make a gradient depend on its place in the batch |

| edge | result |
| --- | --- |
| no record | zeros |
| NaN or infinity in a gradient, or it is longer than 2^100 C, or an input of a linear layer is longer than 2^60 | the
  record counts as zero: whether that is so depends on it alone, and products beyond would not be normal float32 |
"""

import importlib
import math
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, cast

import numpy as np
import numpy.typing as npt
import structlog
import torch
from hushgrad.client.models import torch_checks
from hushgrad.client.models.base import ClippedSum, Floats, Labels, ModelError, Rows
from hushgrad.client.models.torch_layers import Layers, Loss, Method, Outer
from hushgrad.wire.arrays import ArraySpec
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional

CHUNK: Final = 64
CHUNK_EXAMPLES: Final = CHUNK + 8
UNIT_ROUNDOFF: Final = 2.0**-24
CLIP_ERROR: Final = 2.0**-40

_DOWN: Final = 1.0 - 2.0**-23
"""Rounding c to float32 after this factor never gives more than c."""

_SMALLEST_FACTOR: Final = 2.0**-100
"""Below it c would be no normal float32 soon."""

_TRIED: Final = 16
"""Made-up records that a module is tried on."""

_MOST_NUMBERS: Final = 2**24
"""Of a chunk's gradients, 64 MiB; chunks of large models are shorter."""


def cross_entropy(outputs: Tensor, labels: Tensor) -> Tensor:
    """Returns -log softmax(outputs)[label] for each example, shape (n,)."""
    return functional.cross_entropy(outputs, labels, reduction="none")


class TorchModule:
    """A PyTorch module with a loss; see `Model`. Not for several threads at once.

    Args:
        factory: makes the module, with the initial parameters that PyTorch's generator gives or others. The module
            takes records as float32, shape (n, features), and returns scores (logits), shape (n, classes).
            Parameters that do not require gradients stay as they are and are no part of the model that travels.
        features: f.
        classes: k >= 2.
        name: what the terms call the model.
        device: "cpu", "cuda", "cuda:1", ...
        loss: one per example.

    Raises:
        ModelError: if the module cannot be trained with bounded influence of each record; the text says why.
    """

    def __init__(
        self,
        factory: Callable[[], nn.Module],
        *,
        features: int,
        classes: int,
        name: str = "torch",
        device: str = "cpu",
        loss: Loss = cross_entropy,
    ) -> None:
        if features < 1 or classes < 2:
            raise ModelError(f"a model has features >= 1 and classes >= 2, found {features} and {classes}")
        self._factory, self._loss = factory, loss
        self._name, self._features, self._classes = name, features, classes
        try:
            self._device = torch.device(device)
            if self._device.type == "cuda":
                _same_bits_every_time()
            self._module = self._make(0).to(self._device)
        except (RuntimeError, AssertionError) as error:
            raise ModelError(f"the module cannot be put on device {device!r}: {error}") from None
        torch_checks.check_layers(self._module)
        trainable = [(key, value) for key, value in self._module.named_parameters() if value.requires_grad]
        if not trainable:
            raise ModelError("the module has no parameter that requires a gradient; there is nothing to train")
        self._names = tuple(key for key, _ in trainable)
        self._parameters = [value.requires_grad_(False) for _, value in trainable]
        self._arrays = tuple(ArraySpec(key, tuple(value.shape)) for key, value in trainable)
        self._sizes = [spec.size for spec in self._arrays]
        self._chunk, self._how, self._method = self._choose()

    # What it says; see `Model`.

    @property
    def name(self) -> str:
        """See `Model`."""
        return self._name

    @property
    def arrays(self) -> tuple[ArraySpec, ...]:
        """The module's trainable parameters, by the names that PyTorch gives them."""
        return self._arrays

    @property
    def features(self) -> int:
        """See `Model`."""
        return self._features

    @property
    def classes(self) -> int:
        """See `Model`."""
        return self._classes

    @property
    def chunk_examples(self) -> int:
        """See `Model`; derived in the module's docstring."""
        return CHUNK_EXAMPLES

    @property
    def unit_roundoff(self) -> float:
        """See `Model`."""
        return UNIT_ROUNDOFF

    @property
    def clip_error(self) -> float:
        """See `Model`."""
        return CLIP_ERROR

    @property
    def method(self) -> str:
        """How gradients are made: "layers", "vmap" or "one by one"; for people who wonder about speed."""
        return f"{self._how}, {self._chunk} at a time"

    def initial(self, seed: int) -> npt.NDArray[np.float32]:
        """Returns the parameters of a module that the factory makes after PyTorch's generator was given this seed."""
        values = dict(self._make(seed).named_parameters())
        return np.concatenate([values[key].detach().numpy().astype(np.float32).ravel() for key in self._names])

    def prepare(self, features: Rows) -> Rows:
        """Returns the records in float32; numbers beyond it become infinite, and their records count as zero."""
        with np.errstate(over="ignore"):
            return np.ascontiguousarray(features, np.float32)

    # What it does; see `Model`.

    def clipped_sum(self, parameters: Floats, rows: Rows, labels: Labels, clip_norm: float) -> ClippedSum:
        """See `Model`."""
        if not 0 < clip_norm < math.inf:
            raise ModelError(f"clip_norm must be finite and > 0, found {clip_norm}")
        if rows.ndim != 2 or rows.shape[1] != self._features or labels.shape != rows.shape[:1]:
            raise ModelError(
                f"expected records of shape (n, {self._features}) and n labels, found {rows.shape} and {labels.shape}"
            )
        total, zeroed = np.zeros(sum(self._sizes)), 0
        if len(rows) and not np.isfinite(parameters).all():
            return ClippedSum(total, len(rows))
        self._load(parameters)
        for start in range(0, len(rows), self._chunk):
            used = min(self._chunk, len(rows) - start)
            padded = np.zeros((self._chunk, self._features), np.float32)
            padded_labels = np.zeros(self._chunk, np.int64)
            padded[:used], padded_labels[:used] = rows[start : start + used], labels[start : start + used]
            gradients = self._method(self._tensor(padded), self._tensor(padded_labels))
            zeroed += self._add(gradients, used, clip_norm, total)
        return ClippedSum(total, zeroed)

    def predict(self, parameters: Floats, rows: Rows) -> Floats:
        """See `Model`."""
        self._load(parameters)
        found = [np.zeros((0, self._classes))]
        with torch.no_grad():
            for start in range(0, len(rows), 8 * CHUNK):
                scores = self._module(self._tensor(np.asarray(rows[start : start + 8 * CHUNK], np.float32)))
                found.append(torch.softmax(scores.double(), dim=1).cpu().numpy())
        return np.concatenate(found)

    # How.

    def _make(self, seed: int) -> nn.Module:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            module = self._factory()
        if not isinstance(module, nn.Module):
            raise ModelError(f"the factory must return a torch.nn.Module, found {type(module).__name__}")
        return module

    def _tensor(self, array: npt.NDArray[Any]) -> Tensor:
        return torch.from_numpy(array).to(self._device)

    def _load(self, parameters: Floats) -> None:
        flat = torch.from_numpy(np.asarray(parameters, np.float32)).to(self._device)
        with torch.no_grad():
            for parameter, values in zip(self._parameters, flat.split(self._sizes), strict=True):
                parameter.copy_(values.view(parameter.shape))

    def _add(self, gradients: list[list[Outer]], used: int, clip_norm: float, total: Floats) -> int:
        """Adds the clipped gradients of the first `used` rows; returns how many of them counted as zero."""
        parts = [self._joined(calls) for calls in gradients]
        squares = torch.zeros(self._chunk, dtype=torch.float64, device=self._device)
        for part in parts:
            squares += part.squares()
        norms = squares.sqrt() * (1.0 + (len(total) + 16) * 2.0**-52)
        bad = ~(clip_norm / norms > _SMALLEST_FACTOR)  # NaN, infinity, or far beyond
        for part in parts:
            bad |= part.beyond()
        norms, bad = norms.cpu(), bad.cpu()
        if bool(bad.any()):
            for part in parts:
                part.zero(bad.to(self._device))
        factors = (clip_norm / norms).clamp(max=1.0)
        factors = torch.where(factors < 1.0, factors * _DOWN, factors)
        factors = torch.where(bad, 0.0, factors).float()
        factors[used:] = 0.0
        factors = factors.to(self._device)
        end = 0
        for part, size in zip(parts, self._sizes, strict=True):
            total[end : end + size] += part.weighted_sum(factors).cpu().numpy()
            end += size
        return int(bad[:used].sum())

    def _joined(self, calls: list[Outer]) -> Outer:
        """A layer that is called several times has the sum of its calls' gradients."""
        if len(calls) == 1:
            return calls[0]
        if not calls:
            return Outer(torch.zeros((self._chunk, 1), device=self._device), None)
        return Outer(_added(calls), None)

    # Which way is right for this module.

    def _choose(self) -> tuple[int, str, Method]:
        """Returns the length of a chunk, and the fastest way that gives what differentiating one by one gives."""
        rows, labels = self._made_up(_TRIED)
        self._disturb()
        try:
            torch_checks.check_outputs(self._module, rows)
            rows, labels = rows[:4], labels[:4]
            reference = self._dense(self._one_by_one(rows, labels))
        except ModelError:
            raise
        except (RuntimeError, TypeError, ValueError, IndexError) as error:
            raise ModelError(
                f"the module cannot be differentiated for float32 records of shape (n, {self._features}) and labels "
                f"below {self._classes}: {error}"
            ) from None
        ways: tuple[tuple[str, Method], ...] = (("layers", self._by_layers), ("vmap", self._by_vmap))
        for how, way in ways:
            try:
                found = way(rows, labels)
                if not torch_checks.same(self._dense(found), reference):
                    continue
                numbers = sum(call.left[0].numel() for calls in found for call in calls)
                chunk = max(1, min(CHUNK, _MOST_NUMBERS // max(1, numbers)))
                if not torch_checks.independent(way, *self._made_up(chunk)):
                    chunk = 1
            except (RuntimeError, TypeError, ValueError, NotImplementedError) as error:
                structlog.get_logger().info("gradients_not_possible", how=how, why=str(error).split("\n")[0])
                continue
            return chunk, how, way
        return 1, "one by one", self._one_by_one

    def _disturb(self) -> None:
        """Moves the parameters off where they begin: a layer may do nothing there, and mix examples later."""
        with torch.no_grad():
            for parameter in self._parameters:
                waves = torch.arange(parameter.numel(), dtype=torch.float32, device=self._device).cos()
                parameter += 0.05 * waves.view(parameter.shape).to(parameter.dtype)

    def _made_up(self, count: int) -> tuple[Tensor, Tensor]:
        """Returns records in [0, 1) and labels that are the same everywhere and belong to nobody."""
        angles = np.arange(1, count * self._features + 1, dtype=np.float64) * ((math.sqrt(5) - 1) / 2)
        rows = (angles % 1.0).astype(np.float32).reshape(count, self._features)
        return self._tensor(rows), self._tensor(np.arange(count, dtype=np.int64) % self._classes)

    def _dense(self, gradients: list[list[Outer]]) -> Tensor:
        count = next(len(calls[0].left) for calls in gradients if calls)
        columns = [
            _added(calls) if calls else torch.zeros((count, size), device=self._device)
            for calls, size in zip(gradients, self._sizes, strict=True)
        ]
        return torch.cat(columns, dim=1)

    def _by_layers(self, rows: Tensor, labels: Tensor) -> list[list[Outer]]:
        if not hasattr(self, "_layers"):
            self._layers = Layers(self._module, self._names, self._loss)
        return self._layers.gradients(rows, labels)

    def _by_vmap(self, rows: Tensor, labels: Tensor) -> list[list[Outer]]:
        def loss(values: dict[str, Tensor], row: Tensor, label: Tensor) -> Tensor:
            return self._loss(functional_call(self._module, values, (row[None],)), label[None])[0]

        values = dict(zip(self._names, self._parameters, strict=True))
        gradients = vmap(grad(loss), in_dims=(None, 0, 0))(values, rows, labels)
        return [[Outer(gradients[key].reshape(len(rows), -1), None)] for key in self._names]

    def _one_by_one(self, rows: Tensor, labels: Tensor) -> list[list[Outer]]:
        found: list[list[Tensor]] = []
        for place in range(len(rows)):
            values = {
                key: parameter.detach().clone().requires_grad_(True)
                for key, parameter in zip(self._names, self._parameters, strict=True)
            }
            with torch.enable_grad():
                losses = self._loss(
                    functional_call(self._module, values, (rows[place : place + 1],)), labels[place : place + 1]
                )
                gradients = torch.autograd.grad(losses.sum(), list(values.values()), allow_unused=True)
            found.append(
                [
                    torch.zeros_like(parameter) if gradient is None else gradient
                    for gradient, parameter in zip(gradients, self._parameters, strict=True)
                ]
            )
        return [[Outer(torch.stack(column).reshape(len(rows), -1), None)] for column in zip(*found, strict=True)]


def from_path(path: str, *, features: int, classes: int, device: str = "cpu") -> TorchModule:
    """Returns the model of `package.module:factory`; the current folder is searched, too.

    Raises:
        ModelError: if there is no such factory, or `TorchModule` refuses what it makes.
    """
    module_name, _, attribute = path.partition(":")
    if not module_name or not attribute:
        raise ModelError(f'[model] factory must be "package.module:factory", found {path!r}')
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        factory = getattr(importlib.import_module(module_name), attribute)
    except (ImportError, AttributeError) as error:
        raise ModelError(f"[model] factory {path!r} cannot be imported: {error}") from None
    if not callable(factory):
        raise ModelError(f"[model] factory {path!r} must be something to call, found {type(factory).__name__}")
    return TorchModule(
        cast(Callable[[], nn.Module], factory), features=features, classes=classes, name=path, device=device
    )


def _added(calls: list[Outer]) -> Tensor:
    total = _whole(calls[0])
    for call in calls[1:]:
        total = total + _whole(call)
    return total


def _whole(call: Outer) -> Tensor:
    if call.right is None:
        return call.left
    return (call.left[:, :, None] * call.right[:, None, :]).flatten(1)


def _same_bits_every_time() -> None:
    """Has CUDA use kernels whose results do not change from call to call, in full float32."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cuda.matmul.allow_tf32 = False
