"""From the name of a model in a configuration file to the model."""

from collections.abc import Callable
from typing import Any, Final

from hushgrad.client.models.base import Model, ModelError
from hushgrad.client.models.lenet import LeNet
from hushgrad.client.models.logistic import Logistic
from hushgrad.client.models.mlp import Mlp
from hushgrad.client.models.softmax import Softmax

OPTIONS: Final[dict[str, tuple[str, ...]]] = {
    "logistic": ("l2",),
    "softmax": ("classes", "l2", "precision", "feature_map", "image"),
    "mlp": ("classes", "hidden", "activation"),
    "lenet": ("classes", "activation", "padding", "image"),
    "torch": ("classes", "factory", "device"),
}
"""The kinds, and which settings of [model] each takes beside `kind`."""

KINDS: Final = tuple(OPTIONS)


def make(kind: str, *, features: int, classes: int = 2, l2: float = 0.0, **options: Any) -> Model:
    """Returns the model of that kind.

    Args:
        kind: one of `KINDS`.
        features: f, the number of features of one record, >= 1.
        classes: the number of classes; exactly 2 for "logistic", >= 2 for all others.
        l2: lambda >= 0; every record's loss includes lambda / 2 * ||weights||^2, the bias excluded.
        options: the others of `OPTIONS[kind]`.

    Raises:
        ModelError: if the kind is not known, has no such option, or a number is out of range.

    >>> [spec.shape for spec in make("softmax", features=784, classes=10).arrays]
    [(784, 10), (10,)]
    """
    if kind not in OPTIONS:
        raise ModelError(f"model kind must be one of {', '.join(KINDS)}, found {kind!r}")
    given = dict(options)
    if "classes" in OPTIONS[kind]:
        given["classes"] = classes
    elif classes != 2:
        raise ModelError(f'model "{kind}" has exactly 2 classes, found classes = {classes}; use "softmax"')
    if "l2" in OPTIONS[kind]:
        given["l2"] = l2
    elif l2:
        raise ModelError(f'model "{kind}" has no l2, found {l2}; leave it out')
    if unknown := sorted(set(given) - set(OPTIONS[kind])):
        raise ModelError(
            f'model "{kind}" has no {", ".join(unknown)}; beside its kind it takes {", ".join(OPTIONS[kind])}'
        )
    for name in _REQUIRED.get(kind, ()):
        if name not in given:
            raise ModelError(f'model "{kind}" needs {name}; see docs/models.md')
    return _MAKERS[kind](features=features, **given)


_REQUIRED: Final[dict[str, tuple[str, ...]]] = {
    "mlp": ("hidden", "activation"),
    "lenet": ("activation", "padding"),
    "torch": ("factory",),
}
"""What changes the model and has no usual value."""


def _torch(*, features: int, classes: int, factory: str, device: str = "cpu") -> Model:
    try:
        from hushgrad.client.models import torch_module  # takes a second, and few have it
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "torch":
            raise
        raise ModelError("model \"torch\" needs PyTorch: pip install 'hushgrad[torch]'") from None
    return torch_module.from_path(factory, features=features, classes=classes, device=device)


_MAKERS: Final[dict[str, Callable[..., Model]]] = {
    "logistic": Logistic,
    "softmax": Softmax,
    "mlp": Mlp,
    "lenet": LeNet,
    "torch": _torch,
}
