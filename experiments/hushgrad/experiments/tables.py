"""Records with labels, as one value, and as a .npz file that a client or an evaluator reads."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class Table:
    """Records with labels.

    Attributes:
        features: float64, shape (rows, features).
        labels: int64, shape (rows,), each in 0 .. classes-1.
        class_names: what each label stands for.
    """

    features: npt.NDArray[np.float64]
    labels: npt.NDArray[np.int64]
    class_names: tuple[str, ...]

    @property
    def rows(self) -> int:
        """Number of records."""
        return len(self.labels)

    @property
    def numbered(self) -> bool:
        """Whether the classes are called 0, 1, 2, ..."""
        return self.class_names == tuple(str(number) for number in range(len(self.class_names)))

    def take(self, rows: npt.NDArray[np.int64]) -> "Table":
        """Returns the records with these row numbers, in their order."""
        return Table(self.features[rows], self.labels[rows], self.class_names)

    def save(self, path: Path, *, label: str = "y") -> None:
        """Writes the features as X and the labels as an array called `label` into a compressed .npz file.

        The labels are numbers where the classes are called 0, 1, 2, ..., else names: a part that lacks a class says
        the same. Nothing is pickled.
        """
        y = self.labels if self.numbered else np.array(self.class_names, np.str_)[self.labels]
        arrays: dict[str, Any] = {"X": self.features, label: y}
        np.savez_compressed(path, **arrays)
