"""Bugs that would break the promise, each a small replacement in the client or the accountant, and what catches it."""

import shutil
from pathlib import Path

from tests.faults.planted import plant
from tests.faults.planted.bugs import Bug

_CLIENT = "client/hushgrad/client"

BUGS: dict[Bug, str] = {
    Bug(
        "noise halved",
        "product",
        f"{_CLIENT}/dpsgd.py",
        "math.ldexp(self.noise_multiplier * self.clip_norm, -self.grid_exponent)",
        "math.ldexp(self.noise_multiplier * self.clip_norm, -self.grid_exponent) / 2",
    ): "Poisson, record added",
    Bug(
        "clipping per batch",
        "product",
        f"{_CLIENT}/models/linear.py",
        "    factors = np.minimum(1.0, clip_norm / norm)\n",
        "    factors = np.full(len(norm), min(1.0, clip_norm / float(norm[:used].mean())))\n",
    ): "an outlier in a crowd",
    Bug(
        "realised batch size as divisor",
        "product",
        f"{_CLIENT}/dpsgd.py",
        "        self.zeroed += zeroed\n",
        "        self.zeroed += zeroed\n        total = total * (recipe.sample_size / max(1, len(chosen)))\n",
    ): "alone in a small batch",
    Bug(
        "fixed batches accounted as Poisson",
        "product",
        f"{_CLIENT}/dpsgd.py",
        "return sampling.poisson(stream, self._mask_table(recipe), self.rows)",
        "return np.sort(sampling._distinct(stream, recipe.sample_size, self.rows))",
    ): "Poisson, one among opposites",
    Bug(
        "key reused",
        "product",
        f"{_CLIENT}/runner.py",
        "train.round, RandomStream())",
        "train.round, RandomStream(2 * self._join_id))",
    ): "one round minus another",
    Bug(
        "budget re-initialised",
        "product",
        f"{_CLIENT}/commitment.py",
        "for run in runs],",
        "for run in ()],",
    ): "many runs on one ledger",
    Bug(
        "rounding not charged",
        "product",
        "accountant/hushgrad/accountant/mechanism.py",
        "return C * (1 + kappa) + math.ldexp(math.sqrt(self.parameters), self.grid_exponent) + 2 * e",
        "return C * (1 + kappa) + 2 * e",
    ): "every coordinate just rounds up",
}
"""Bug to the name of the attack that catches it."""


def tree(bug: Bug, folder: Path) -> None:
    """Makes a tree with the bug in a folder."""
    plant.copy_tree(folder)
    shutil.copytree(
        plant.ROOT / "tests/attacks", folder / "tests/attacks", ignore=shutil.ignore_patterns("__pycache__")
    )
    shutil.copytree(plant.ROOT / "tests/faults/planted", folder / "tests/faults/planted", dirs_exist_ok=True)
    plant.plant(bug, folder)
