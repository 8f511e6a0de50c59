"""Reads a table that a person names: a .npz or .csv file, or one of scikit-learn's built-in sets."""

from pathlib import Path
from typing import cast, get_args

import numpy as np
from hushgrad.client import data
from hushgrad.client import errors as client_errors
from hushgrad.experiments.errors import InputError
from hushgrad.experiments.tables import Table

BUILT_IN: tuple[str, ...] = get_args(data.BuiltIn)


def is_built_in(name: str) -> bool:
    """Says whether a name is that of a built-in set and of no file."""
    return name in BUILT_IN and not Path(name).exists()


def read(name: str, *, label: str, features: int | None = None) -> Table:
    """Reads a table, values as they are.

    Args:
        name: path of a file of any format that a client reads, or one of `BUILT_IN`.
        label: the .csv's label column, or the .npz's label array.
        features: f, for formats that do not say it.

    Raises:
        InputError: if it cannot be read, or holds something that is no finite number.
    """
    if is_built_in(name):
        config = data.DataConfig(sklearn=cast(data.BuiltIn, name))
    else:
        config = data.DataConfig(file=name, label=label, features=features)
    try:
        found = data.load(config)
    except client_errors.InputError as error:
        raise InputError(str(error)) from None
    return Table(found.features, found.labels, found.class_names)


def bounds_of(table: Table) -> tuple[tuple[float, float], ...]:
    """Returns [smallest, largest] of every feature, a little widened to six digits; never equal.

    Only for PUBLIC records: an extreme value is somebody's value.
    """
    return tuple(
        (_six_digits(low, -1), _six_digits(high, 1) if high > low else _six_digits(low, 1) + 1.0)
        for low, high in zip(table.features.min(axis=0), table.features.max(axis=0), strict=True)
    )


def _six_digits(value: float, direction: int) -> float:
    """Returns a number of at most six significant digits, not inside of value.

    >>> _six_digits(1.23456789, 1), _six_digits(1.23456789, -1), _six_digits(0.0, 1)
    (1.23457, 1.23456, 0.0)
    """
    if value == 0:
        return 0.0
    unit = 10.0 ** (np.floor(np.log10(abs(value))) - 5)
    rounded = float(f"{value:.5e}")
    if (rounded - value) * direction >= 0:
        return rounded
    return float(f"{value + direction * unit:.5e}")
