"""Per-example gradients of a PyTorch module, layer by layer, from one backward pass. What clips and adds is elsewhere.

A layer here is any submodule that holds trainable parameters of its own. A hook keeps what goes into it and has the
backward pass stop at what comes out: from a = input and D = dloss/doutput follow the gradients of its parameters. For a
linear layer on vectors the gradient of one example is the outer product of its rows of D and a, which is kept as these
two (its norm is a product of norms). For a convolution it is one small matrix product per example. For anything else
`vmap` of the layer's own backward pass makes it.

No generator is used here: a module that draws random numbers is refused elsewhere.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, vjp, vmap
from torch.nn import functional

Loss = Callable[[Tensor, Tensor], Tensor]
"""From outputs, shape (n, ...), and labels, shape (n,), to one loss per example, shape (n,)."""


_LONGEST_RIGHT = 2.0**60


@dataclass(slots=True)
class Outer:
    """Gradients that are outer products of rows: of example i, left[i] (x) right[i].

    Attributes:
        left: shape (n, p).
        right: shape (n, q); None: the gradient is left[i].
    """

    left: Tensor
    right: Tensor | None

    def squares(self) -> Tensor:
        """Returns squared norms, float64, shape (n,)."""
        found = _squares(self.left)
        return found if self.right is None else found * _squares(self.right)

    def beyond(self) -> Tensor:
        """Says of which examples `right` is so long that products with tiny numbers would lose what counts."""
        if self.right is None:
            return torch.zeros(len(self.left), dtype=torch.bool, device=self.left.device)
        return ~(_squares(self.right) < _LONGEST_RIGHT**2)

    def zero(self, bad: Tensor) -> None:
        """Makes the gradients of some examples zero, whatever they hold."""
        self.left = torch.where(bad[:, None], 0.0, self.left)
        if self.right is not None:
            self.right = torch.where(bad[:, None], 0.0, self.right)

    def weighted_sum(self, factors: Tensor) -> Tensor:
        """Returns the sum of factor times gradient, one number for each of the array's."""
        if self.right is None:
            return factors @ self.left
        return ((self.left * factors[:, None]).T @ self.right).flatten()


def _squares(rows: Tensor) -> Tensor:
    return torch.linalg.vector_norm(rows, dim=1, dtype=torch.float64).square()


Method = Callable[[Tensor, Tensor], list[list[Outer]]]
"""From records and labels, for each trainable parameter, to what its per-example gradient is the sum of."""


class Layers:
    """The layers of a module whose trainable parameters are loaded with the numbers to differentiate at.

    Args:
        module: its trainable parameters must not require gradients.
        names: of the trainable parameters, in order.
        loss: one per example.

    Raises:
        ValueError: if a parameter is held by two layers.
    """

    def __init__(self, module: nn.Module, names: tuple[str, ...], loss: Loss) -> None:
        self._module, self._loss = module, loss
        self._layers: dict[nn.Module, dict[str, int]] = {}
        places = {name: place for place, name in enumerate(names)}
        for prefix, layer in module.named_modules():
            own = {
                name: places[f"{prefix}.{name}" if prefix else name]
                for name, _ in layer.named_parameters(recurse=False)
                if (f"{prefix}.{name}" if prefix else name) in places
            }
            if own:
                self._layers[layer] = own
        if sum(map(len, self._layers.values())) != len(names):
            raise ValueError("a parameter is held by two layers")
        self._count = len(names)

    def gradients(self, rows: Tensor, labels: Tensor) -> list[list[Outer]]:
        """Returns, for each trainable parameter, what its per-example gradient is the sum of.

        Raises:
            RuntimeError, TypeError, ValueError: if the module is built so that this cannot be done.
        """
        calls: list[tuple[nn.Module, Tensor, Tensor]] = []
        with torch.enable_grad(), self._hooked(calls):
            losses = self._loss(self._module(rows), labels)
            if losses.shape != (len(rows),):
                raise ValueError(f"the loss must give one number per example, found shape {tuple(losses.shape)}")
            derivatives = torch.autograd.grad(losses.sum(), [output for _, _, output in calls])
        found: list[list[Outer]] = [[] for _ in range(self._count)]
        with torch.no_grad():
            for (layer, entered, _), derivative in zip(calls, derivatives, strict=True):
                own = self._layers[layer]
                for name, gradient in _of_layer(layer, entered, derivative, tuple(own)).items():
                    found[own[name]].append(gradient)
        return found

    @contextmanager
    def _hooked(self, calls: list[tuple[nn.Module, Tensor, Tensor]]) -> Iterator[None]:
        def keep(layer: nn.Module, arguments: tuple[Any, ...], output: Any) -> None:
            if len(arguments) != 1 or not isinstance(output, Tensor) or not isinstance(arguments[0], Tensor):
                raise TypeError(f"{type(layer).__name__} takes or gives something else than one tensor")
            if not output.requires_grad:
                output.requires_grad_(True)
            calls.append((layer, arguments[0].detach(), output))

        handles = [layer.register_forward_hook(keep) for layer in self._layers]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()


def _of_layer(layer: nn.Module, entered: Tensor, derivative: Tensor, own: tuple[str, ...]) -> dict[str, Outer]:
    if len(entered) != len(derivative):
        raise ValueError(f"{type(layer).__name__} changes the number of examples")
    if isinstance(layer, nn.Linear) and entered.ndim == 2:
        both = {"weight": Outer(derivative, entered), "bias": Outer(derivative, None)}
        return {name: both[name] for name in own}
    if isinstance(layer, nn.Conv2d) and entered.ndim == 4:
        plain = layer.groups == 1 and layer.padding_mode == "zeros" and not isinstance(layer.padding, str)
        if plain:
            return _of_convolution(layer, entered, derivative, own)
    return _of_any(layer, entered, derivative, own)


def _of_convolution(layer: nn.Conv2d, entered: Tensor, derivative: Tensor, own: tuple[str, ...]) -> dict[str, Outer]:
    flat = derivative.flatten(2)
    found = {}
    if "weight" in own:
        columns = functional.unfold(entered, layer.kernel_size, layer.dilation, layer.padding, layer.stride)
        found["weight"] = Outer(torch.bmm(flat, columns.transpose(1, 2)).flatten(1), None)
    if "bias" in own:
        found["bias"] = Outer(flat.sum(2), None)
    return found


def _of_any(layer: nn.Module, entered: Tensor, derivative: Tensor, own: tuple[str, ...]) -> dict[str, Outer]:
    parameters = {name: value for name, value in layer.named_parameters(recurse=False) if name in own}

    def one(example: Tensor, pull: Tensor) -> dict[str, Tensor]:
        def output(values: dict[str, Tensor]) -> Tensor:
            return functional_call(layer, values, (example[None],))[0]

        pulled: dict[str, Tensor] = vjp(output, parameters)[1](pull)[0]
        return pulled

    gradients = vmap(one)(entered, derivative)
    return {name: Outer(value.reshape(len(entered), -1), None) for name, value in gradients.items()}
