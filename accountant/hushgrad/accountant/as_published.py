"""Procedure C.4 and the paper's tables read exactly as they were published, slips included; never a source of claims.

Three slips matter for the numbers: C.4 starts from gamma = 2 and its stop test is signed, so it makes one update and
keeps a gamma that is 7 to 27 % too large; the tables were computed with sigma = sqrt(2 ln(1/delta) / epsilon), without
the epsilon in the numerator of (12); C.4 scans s = 1, 2, ... and gives up at the first failure. `procedure` is the
repaired one.

In formulas: N records, K gradient computations, s-bar and theta of the sizes, A = theta^2 s-bar K / N^2.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from hushgrad.accountant import _theory_validate, theorem2
from hushgrad.accountant.errors import AccountantError
from hushgrad.accountant.sizes import SampleSizes

Stop = Literal["signed", "absolute"]
_TOLERANCE = 1e-4
_MAX_UPDATES = 1000


@dataclass(frozen=True, slots=True)
class Iteration:
    """Steps 1 to 5 of C.4 for one sample size.

    Attributes:
        sizes: every phase, with the fractional T = K/s.
        trace: gamma as it was updated, 2 first; `gamma` is the last but one and `gamma_new` the last.
        epsilon: max(gamma A, what (12) asks for at a chosen sigma).
        noise_multiplier: (12) with equality, or the chosen sigma.
        alpha_bar: epsilon N / (gamma K).
    """

    sizes: SampleSizes
    trace: tuple[float, ...]
    epsilon: float
    noise_multiplier: float
    alpha_bar: float

    @property
    def gamma(self) -> float:
        """The gamma that epsilon was computed with."""
        return self.trace[-2]

    @property
    def gamma_new(self) -> float:
        """The update that ended the iteration."""
        return self.trace[-1]


def dropped_noise(epsilon: float, delta: float) -> float:
    """Returns sqrt(2 ln(1/delta) / epsilon): (12) as the tables have it, without epsilon in the numerator.

    >>> round(dropped_noise(0.10787620872586737, 1e-4), 5)
    13.06742
    """
    return math.sqrt(2 * -math.log(delta) / epsilon)


def iterate(
    sizes: SampleSizes,
    *,
    records: int,
    delta: float,
    stop: Stop,
    noise_multiplier: float | None = None,
    noise_of: Callable[[float, float], float] = theorem2.noise_at_equality,
) -> Iteration:
    """Returns steps 1 to 5 of C.4.

    Args:
        sizes: every phase so far and the next one.
        records: N.
        delta: C.4 says 1/N.
        stop: "signed" as printed, or "absolute".
        noise_multiplier: sigma of a further phase; None in the first one, where it follows from epsilon.
        noise_of: sigma as a function of epsilon and delta in the first phase; `dropped_noise` for the tables.

    Reference: C.4, steps 1 to 5.
    """
    sizes.check_fits(records)
    _theory_validate.delta(delta)
    N, K = records, sizes.grad_computations
    A = sizes.theta**2 * sizes.mean * K / N**2
    trace = [2.0]
    while True:
        gamma = trace[-1]
        epsilon = gamma * A
        if noise_multiplier is None:
            sigma = noise_of(epsilon, delta)
        else:
            sigma = noise_multiplier
            epsilon = max(epsilon, 2 * -math.log(delta) / (sigma**2 - 2) if sigma**2 > 2 else math.inf)
        alpha = epsilon * N / (gamma * K)
        trace.append(theorem2.gamma_bound(sigma, alpha))  # inf off the branch: (10) fails
        change = trace[-1] - gamma
        change = change if stop == "signed" else abs(change)
        if change <= _TOLERANCE * gamma or not math.isfinite(trace[-1]) or len(trace) > _MAX_UPDATES:
            return Iteration(sizes, tuple(trace), epsilon, sigma, alpha)


def accepts(iteration: Iteration, *, records: int, delta: float, epsilon_allowed: float) -> bool:
    """Returns whether step 6 of C.4 keeps a sample size: (9), (10) and epsilon <= epsilon_allowed."""
    sizes, epsilon = iteration.sizes, iteration.epsilon
    return (
        epsilon <= epsilon_allowed
        and math.isfinite(iteration.gamma_new)
        and iteration.alpha_bar <= theorem2.h(iteration.noise_multiplier)
        and sizes.largest <= theorem2.g(theorem2.noise_at_equality(epsilon, delta)) * records
    )


def scan(
    earlier: Sequence[tuple[int, float]],
    *,
    records: int,
    grad_computations: int,
    epsilon_allowed: float,
    stop: Stop,
    noise_multiplier: float | None = None,
    whole_range: bool = False,
) -> tuple[Iteration, Iteration] | None:
    """Returns the smallest and the largest sample size that C.4 keeps for the next phase, with delta = 1/N.

    Args:
        earlier: (s, T) of the phases before.
        records: N.
        grad_computations: K of the next phase.
        epsilon_allowed: the budget.
        stop: of the iteration.
        noise_multiplier: sigma of the next phase; None for the first.
        whole_range: False stops at the first size that is not kept, as printed.

    Returns:
        None if none is kept: C.4 then says that the client cannot take part.
    """
    first: Iteration | None = None
    last: Iteration | None = None
    # (9) and g < 0.16 rule out anything larger.
    for size in range(1, min(grad_computations, records // 6 + 1) + 1):
        sizes = SampleSizes((*earlier, (size, grad_computations / size)))
        found = iterate(sizes, records=records, delta=1 / records, stop=stop, noise_multiplier=noise_multiplier)
        if accepts(found, records=records, delta=1 / records, epsilon_allowed=epsilon_allowed):
            first, last = first or found, found
        elif not whole_range:
            break
    return (first, last) if first and last else None


@dataclass(frozen=True, slots=True)
class TableReading:
    """The one reading under which the paper's tables 4 and 5 reproduce: gamma after one update, dropped epsilon."""

    gamma: float
    alpha_bar: float
    epsilon: float
    noise_multiplier: float


def table_reading(sizes: SampleSizes, *, records: int, noise_multiplier: float | None = None) -> TableReading:
    """Returns (epsilon, sigma) as the tables have them, with delta = 1/N.

    Args:
        sizes: the sample size sequence.
        records: N >= 2.
        noise_multiplier: sigma, for tables 2 and 3, which fix it and vary s: epsilon is then 2 ln(1/delta) / sigma^2.

    >>> from hushgrad.accountant import sizes
    >>> found = table_reading(sizes.constant(103, 50_000), records=10_000)
    >>> round(found.epsilon, 5), round(found.noise_multiplier, 5)
    (0.24956, 8.59143)
    """
    delta = paper_delta(records)
    found = iterate(sizes, records=records, delta=delta, stop="signed", noise_of=dropped_noise)
    if noise_multiplier is None:
        return TableReading(found.gamma, found.alpha_bar, found.epsilon, found.noise_multiplier)
    sigma = _theory_validate.noise_multiplier(noise_multiplier)
    epsilon = 2 * -math.log(delta) / sigma**2
    return TableReading(found.gamma, epsilon * records / (found.gamma * sizes.grad_computations), epsilon, sigma)


def paper_delta(records: int) -> float:
    """Returns 1/N, the delta of C.4 and of every table.

    Raises:
        AccountantError: if N < 2, where 1/N is no delta.
    """
    if _theory_validate.records(records) < 2:
        raise AccountantError(f"records must be at least 2 where delta is 1/N, found {records}")
    return 1 / records
