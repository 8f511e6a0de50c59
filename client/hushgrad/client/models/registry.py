"""From the name of a model in a configuration file to the model."""

from hushgrad.client.models.base import Model, ModelError
from hushgrad.client.models.logistic import Logistic
from hushgrad.client.models.softmax import Softmax

KINDS = ("logistic", "softmax")


def make(kind: str, *, features: int, classes: int = 2, l2: float = 0.0) -> Model:
    """Returns the model of that kind.

    Args:
        kind: one of `KINDS`.
        features: f, the number of features of one record, >= 1.
        classes: the number of classes; exactly 2 for "logistic", >= 2 for "softmax".
        l2: lambda >= 0; every record's loss includes lambda / 2 * ||weights||^2, the bias excluded.

    Raises:
        ModelError: if the kind is not known or a number is out of range.

    >>> [spec.shape for spec in make("softmax", features=784, classes=10).arrays]
    [(784, 10), (10,)]
    """
    if kind == "logistic":
        if classes != 2:
            raise ModelError(f'model "logistic" has exactly 2 classes, found classes = {classes}; use "softmax"')
        return Logistic(features=features, l2=l2)
    if kind == "softmax":
        return Softmax(features=features, classes=classes, l2=l2)
    raise ModelError(f"model kind must be one of {', '.join(KINDS)}, found {kind!r}")
