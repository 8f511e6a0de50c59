"""Sets of records that go by a name: those that come with scikit-learn, and OpenML's."""

from pathlib import Path
from typing import Any, Literal

import numpy as np
from hushgrad.client.data.errors import DataError
from hushgrad.client.data.formats import Read

BuiltIn = Literal["breast_cancer", "digits", "iris", "wine"]


def built_in(name: BuiltIn) -> Read:
    """Returns one of scikit-learn's sets; no network."""
    from sklearn import datasets  # only those who ask for it wait for it

    loaders = {
        "breast_cancer": datasets.load_breast_cancer,
        "digits": datasets.load_digits,
        "iris": datasets.load_iris,
        "wine": datasets.load_wine,
    }
    bunch = loaders[name]()
    names = [str(target) for target in bunch.target_names]
    return Read(bunch.data, np.array(names, np.str_)[bunch.target], names=names)


def openml(name: str, version: int | None, cache: Path | None = None) -> Read:
    """Returns a set of OpenML, fetched once and kept in scikit-learn's cache.

    Args:
        name: as OpenML calls it.
        version: of the set; a name alone means other records next year.
        cache: scikit-learn's data folder; None: its default.

    Raises:
        DataError: if there is no version, the set cannot be fetched, or holds something that is no number.
    """
    if version is None or version < 1:
        raise DataError(f"[data] openml_version must be given, a number >= 1, found {version}")
    from sklearn import datasets

    where = f"OpenML's {name}, version {version}"
    try:
        bunch: Any = datasets.fetch_openml(
            name, version=version, as_frame=False, parser="liac-arff", data_home=None if cache is None else str(cache)
        )
    except (OSError, ValueError) as error:
        raise DataError(f"{where} cannot be fetched: {error}") from error
    values = bunch.data.toarray() if hasattr(bunch.data, "toarray") else np.asarray(bunch.data)
    if values.dtype.kind not in "fiub":
        raise DataError(f"{where}: features must be numbers, found {values.dtype}; use a set without texts")
    if bunch.target is None or np.ndim(bunch.target) != 1:
        raise DataError(f"{where}: there must be one target column to take as the label")
    target = np.asarray(bunch.target)
    return Read(values, target.astype(np.str_) if target.dtype.hasobject else target, list(bunch.feature_names))
