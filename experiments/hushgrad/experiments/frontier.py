"""The picture of a plan: what each sample size asks for in noise and in bytes at one epsilon. JSON in, .png out."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hushgrad.experiments.errors import InputError


@dataclass(frozen=True, slots=True)
class Frontier:
    """What `hushgrad-accountant plan --json` wrote.

    Attributes:
        label: sampling, adjacency, epsilon and delta, for the legend.
        sample_sizes: s of each row, rising.
        rounds: T of each row.
        noise_multipliers: sigma of each row.
        paper_epsilons: Theorem 2's epsilon of each row, None where it may not be shown.
        megabytes: sent in all rounds; None where the number of parameters was not given.
    """

    label: str
    sample_sizes: tuple[int, ...]
    rounds: tuple[int, ...]
    noise_multipliers: tuple[float, ...]
    paper_epsilons: tuple[float | None, ...]
    megabytes: tuple[float, ...] | None

    @property
    def total_noise(self) -> tuple[float, ...]:
        """The noise of all rounds in the mean of all gradients, sigma sqrt(T) / (s T), in clip norms per coordinate."""
        rows = zip(self.noise_multipliers, self.rounds, self.sample_sizes, strict=True)
        return tuple(sigma * math.sqrt(rounds) / (size * rounds) for sigma, rounds, size in rows)


def read(path: Path) -> Frontier:
    """Reads a plan.

    Raises:
        InputError: if the file cannot be read or is not a plan.
    """
    try:
        document = json.loads(path.read_text())
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise InputError(f"{path} is not JSON ({error}); write it with `hushgrad-accountant plan --json`") from None
    try:
        return _frontier(document)
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path} is not what `hushgrad-accountant plan --json` writes: {error!r}") from None


def _frontier(document: Any) -> Frontier:
    rows = document["plans"]
    if not rows:
        raise ValueError("no plans")
    sent = [row["bytes_total"] for row in rows]
    return Frontier(
        label=(
            f"{document['sampling']}, {document['adjacency']}, epsilon {float(document['epsilon_allowed']):g}, "
            f"delta {float(document['delta']):g}"
        ),
        sample_sizes=tuple(int(row["sample_size"]) for row in rows),
        rounds=tuple(int(row["rounds"]) for row in rows),
        noise_multipliers=tuple(float(row["noise_multiplier"]) for row in rows),
        paper_epsilons=tuple(row["paper_epsilon"] for row in rows),
        megabytes=None if None in sent else tuple(size / 1e6 for size in sent),
    )


def draw(path: Path, frontiers: Sequence[Frontier]) -> None:
    """Draws plans: noise by sample size, and the noise that is left in the result by what has to be sent.

    Args:
        path: of the .png file.
        frontiers: one line each.

    Raises:
        InputError: if the picture cannot be written.
    """
    from hushgrad.experiments import plots

    try:
        plots.frontier(path, frontiers)
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror}") from None
