"""Labels as people write them, numbers or names, to 0, 1, 2, ... Each is numbered by itself."""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from hushgrad.client.data.errors import DataError

_MAX_CLASSES: Final = 2**16


def numbered(
    labels: npt.NDArray[Any], class_names: Sequence[str] | None, where: str
) -> tuple[npt.NDArray[np.int64], tuple[str, ...]]:
    """Returns labels as 0, 1, ... and the classes' names.

    Args:
        labels: shape (N,), numbers or texts.
        class_names: in order, as labels are written. None: labels are 0, 1, 2, ..., or names, numbered in sorted order.
        where: what errors call the data.

    Raises:
        DataError: if a label is not one of the names, or without names is neither such a number nor a name.
    """
    texts = _as_text(labels, where)
    if class_names is not None:
        names = [str(name) for name in class_names]
        if len(set(names)) != len(names) or len(names) < 2:
            raise DataError(f"class_names must be at least 2 different names, found {names}")
    else:
        found = sorted({text.item() for text in np.unique(texts)})
        if all(text.isdecimal() for text in found):
            largest = max(int(text) for text in found)
            if largest >= _MAX_CLASSES:
                raise DataError(f"{where}: labels must be 0 to {_MAX_CLASSES - 1}; declare class_names for others")
            names = [str(number) for number in range(max(2, largest + 1))]
            texts = np.char.mod("%d", texts.astype(np.int64))
        elif any(is_number(text) for text in found):
            raise DataError(f"{where}: labels must be 0, 1, 2, ... or names; declare class_names for other numbers")
        elif len(found) < 2:
            raise DataError(f"{where}: all labels are one name, which leaves their number open; declare class_names")
        else:
            names = found
    order = np.argsort(names)
    ordered = np.array(names, np.str_)[order]
    places = np.minimum(np.searchsorted(ordered, texts), len(names) - 1)
    wrong = np.flatnonzero(ordered[places] != texts)
    if len(wrong):
        raise DataError(
            f"{where}: record {int(wrong[0])} (counted from 0) has a label that is not in class_names; "
            "correct the label or the names"
        )
    return order[places].astype(np.int64), tuple(names)


def _as_text(labels: npt.NDArray[Any], where: str) -> npt.NDArray[np.str_]:
    kind = labels.dtype.kind
    if kind == "U":
        return labels
    if kind in "iub":
        return np.char.mod("%d", labels.astype(np.int64))
    if kind == "f":
        if not np.isfinite(labels).all():
            row = int(np.flatnonzero(~np.isfinite(labels))[0])
            raise DataError(
                f"{where}: the label of record {row} (counted from 0) is NaN or infinite; clean or remove it"
            )
        whole = labels == np.rint(labels)
        if whole.all() and (np.abs(labels) < 2**53).all():
            return np.char.mod("%d", labels.astype(np.int64))
        return labels.astype(np.str_)
    raise DataError(f"{where}: labels must be whole numbers or text, found type {labels.dtype}")


def is_number(text: str) -> bool:
    """Says whether a text is a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True
