"""Sample size sequences as the paper's theorems see them: the mean, the maximum and their quotient.

In formulas: s_i the sample size of round i, T the number of rounds, K the sum of all s_i.
"""

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from hushgrad.accountant import _theory_validate, _validate
from hushgrad.accountant.errors import AccountantError

MAX_ROUNDS = 10_000_000
"""A polynomial sequence is written out round by round; longer ones are refused."""


@dataclass(frozen=True, slots=True)
class SampleSizes:
    """A sequence s_0 .. s_{T-1}; the order does not matter to any of the theorems.

    Attributes:
        runs: pairs (s, T): so many rounds of that size. Sizes are whole numbers >= 1. A number of rounds may be
            fractional, because the paper's T = K/s is; `schedule` rounds it up.
    """

    runs: tuple[tuple[int, float], ...]

    def __post_init__(self) -> None:
        if not self.runs:
            raise AccountantError("a sample size sequence must have at least one round, found none")
        for size, rounds in self.runs:
            _validate.real("every sample size", _validate.count("every sample size", size))
            _validate.positive("every number of rounds", rounds)
        if self.grad_computations > _theory_validate.LARGEST_GRAD_COMPUTATIONS:
            raise AccountantError(
                f"sample sizes must add up to at most {float(_theory_validate.LARGEST_GRAD_COMPUTATIONS):g}, found "
                f"{self.grad_computations:.3g}"
            )

    @property
    def rounds(self) -> float:
        """T."""
        return math.fsum(rounds for _, rounds in self.runs)

    @property
    def grad_computations(self) -> float:
        """K, the sum of all sample sizes."""
        return math.fsum(size * rounds for size, rounds in self.runs)

    @property
    def mean(self) -> float:
        """s-bar = K/T."""
        sizes = {size for size, _ in self.runs}
        return float(sizes.pop()) if len(sizes) == 1 else self.grad_computations / self.rounds

    @property
    def largest(self) -> int:
        """s_max."""
        return max(size for size, _ in self.runs)

    @property
    def theta(self) -> float:
        """How much the sizes vary: s_max / s-bar, 1 for a constant sequence and near p + 1 for q * i^p (56)."""
        return self.largest / self.mean

    def schedule(self) -> tuple[tuple[int, int], ...]:
        """Returns (s, T) with whole numbers of rounds: what can be run, never less than the sequence says."""
        return tuple((size, math.ceil(rounds)) for size, rounds in self.runs)

    def check_fits(self, records: int) -> None:
        """Refuses sizes above the number of records.

        Raises:
            AccountantError: if some s_i > N, or N is not a whole number >= 1.
        """
        if self.largest > _theory_validate.records(records):
            raise AccountantError(f"a sample size must be 1 to {records}, the number of records, found {self.largest}")


def constant(sample_size: int, grad_computations: float) -> SampleSizes:
    """Returns K/s rounds of s, the fraction of a round kept as the paper keeps it.

    >>> constant(26, 50_000).theta, constant(26, 50_000).schedule()
    (1.0, ((26, 1924),))
    """
    size = _validate.count("sample_size", sample_size)
    total = _validate.positive("grad_computations", grad_computations)
    if size > total:
        raise AccountantError(f"grad_computations must be at least the sample size {size} (one round), found {total:g}")
    return SampleSizes(((size, total / size),))


def whole_rounds(sample_size: int, grad_computations: int) -> SampleSizes:
    """Returns floor(K/s) rounds of s and one smaller round with what is left: exactly K, every round whole.

    >>> whole_rounds(26, 50_000).runs
    ((26, 1923), (2, 1))
    """
    size = _validate.count("sample_size", sample_size)
    rounds, rest = divmod(_validate.count("grad_computations", grad_computations), size)
    runs = ((size, rounds),) if rounds else ()
    return SampleSizes((*runs, (rest, 1)) if rest else runs)


def listed(sample_sizes: Iterable[int]) -> SampleSizes:
    """Returns the sequence that is written out, equal sizes joined.

    >>> listed([10, 20, 10]).runs
    ((10, 2), (20, 1))
    """
    counted = Counter(_validate.count("every sample size", size) for size in sample_sizes)
    return SampleSizes(tuple(sorted(counted.items())))


def polynomial(factor: float, power: float, rounds: int) -> SampleSizes:
    """Returns s_i = max(1, ceil(q * i^p)) for i = 0 .. T-1.

    Args:
        factor: q > 0.
        power: p >= 0; 0 is a constant sequence.
        rounds: T, 1 to MAX_ROUNDS.

    >>> polynomial(2.0, 1.0, 5).runs
    ((1, 1), (2, 1), (4, 1), (6, 1), (8, 1))
    """
    q, p = _validate.positive("factor", factor), _validate.not_negative("power", power)
    count = _validate.count("rounds", rounds)
    if count > MAX_ROUNDS:
        raise AccountantError(f"rounds of a polynomial must be at most {MAX_ROUNDS}, found {count}")
    try:
        return listed(max(1, math.ceil(q * float(i) ** p)) for i in range(count))
    except OverflowError:
        raise AccountantError(f"q * i^p grows beyond every number with q = {q:g}, p = {p:g}, {count} rounds") from None
