"""Whether a PyTorch module treats every example by itself: what is refused, and what is tried on made-up records."""

from collections.abc import Iterator
from typing import Final

import torch
from hushgrad.client.models.base import ModelError
from hushgrad.client.models.torch_layers import Method, Outer
from torch import Tensor, nn

_MIXES: Final = 1e-3
"""Relative difference above which another example's presence is no rounding."""


def check_layers(module: nn.Module) -> None:
    """Refuses layers that are known to mix examples, to keep what they saw, or to draw random numbers.

    Raises:
        ModelError: names the layer and the reason.
    """
    for name, layer in module.named_modules():
        kind, where = type(layer).__name__, f"layer {name!r}" if name else "the module"
        if isinstance(layer, nn.modules.batchnorm._BatchNorm):
            raise ModelError(
                f"{where} is {kind}: it computes means over the batch, so an example's gradient depends on all "
                "others and clipping it bounds nothing; use GroupNorm or LayerNorm"
            )
        if isinstance(layer, nn.modules.instancenorm._InstanceNorm) and layer.track_running_stats:
            raise ModelError(
                f"{where} is {kind} with running statistics: records leave a trace in them that no noise covers; set "
                "track_running_stats=False"
            )
        if isinstance(layer, nn.modules.dropout._DropoutNd) and layer.p > 0:
            raise ModelError(
                f"{where} is {kind} with p = {layer.p}: its random bits make a gradient depend on its place in the "
                "batch; remove it, the noise regularises as well"
            )


def check_outputs(module: nn.Module, rows: Tensor) -> None:
    """Refuses a module whose outputs depend on other rows, on earlier calls, or on chance.

    Args:
        module: its parameters are somewhere where no layer does nothing.
        rows: made-up records.

    Raises:
        ModelError: with the reason.
    """
    before = {key: value.clone() for key, value in module.named_buffers()}
    with torch.no_grad():
        outputs, again = module(rows), module(rows)
        alone = torch.cat([module(rows[place : place + 1]) for place in range(len(rows))])
    for key, value in module.named_buffers():
        if not torch.equal(value, before[key]):
            raise ModelError(
                f"the module changes its buffer {key!r} when it sees records: they would leave a trace that no noise "
                "covers; use a layer that keeps no running statistics"
            )
    if not torch.isfinite(outputs).all():
        raise ModelError("the module gives NaN or infinity for records in [0, 1), so nothing can be tried on it")
    if not torch.equal(outputs, again):
        raise ModelError(
            "the module gives other outputs when it is called again: it draws random numbers or keeps a state, so a "
            "gradient depends on which records came before; take that out"
        )
    if not all(same(one, other) for one, other in zip(outputs, alone, strict=True)):
        raise ModelError(
            "the module's output for one example depends on the other examples of the batch: clipping its gradient "
            "would not bound what one record can change; replace the layer that mixes examples"
        )


def independent(way: Method, rows: Tensor, labels: Tensor) -> bool:
    """Says whether a row's gradient has the same bits in every place and among all neighbours."""
    expected = way(rows, labels)
    for shift in (1, 2, 3, 7, 8, 17, 32, len(rows) - 1):
        moved = way(rows.roll(shift, 0), labels.roll(shift, 0))
        if not all(torch.equal(a.roll(shift, 0), b) for a, b in _pairs(expected, moved)):
            return False
    for place in {0, 1, 5, 31, len(rows) - 1} & set(range(len(rows))):
        others = torch.zeros_like(rows)
        others[place] = rows[place]
        alone = way(others, labels)
        if not all(torch.equal(a[place], b[place]) for a, b in _pairs(expected, alone)):
            return False
    return True


def same(one: Tensor, other: Tensor) -> bool:
    """Says whether two tensors are the same but for rounding; NaN is not."""
    return bool(_distance(one, other) <= _MIXES)


def _distance(a: Tensor, b: Tensor) -> float:
    return float((a - b).double().norm() / b.double().norm().clamp(min=1e-30))


def _pairs(one: list[list[Outer]], other: list[list[Outer]]) -> Iterator[tuple[Tensor, Tensor]]:
    """Yields the tensors that two sets of gradients are made of, side by side."""
    for calls, others in zip(one, other, strict=True):
        for a, b in zip(calls, others, strict=True):
            yield a.left, b.left
            if a.right is not None and b.right is not None:
                yield a.right, b.right
