"""Theorem 2 for a question as people ask it: whichever of epsilon and the noise multiplier is missing is found.

Nothing is compared with tight numbers here: that is `verdict`.
"""

import math
from dataclasses import dataclass
from typing import Literal

from hushgrad.accountant import _theory_validate, as_published, theorem2, theorem2_inverse
from hushgrad.accountant.errors import AccountantError
from hushgrad.accountant.sizes import SampleSizes
from hushgrad.accountant.theorem2 import Condition

_RELATIONS: tuple[tuple[str, Literal["<=", ">="]], ...] = (("9", "<="), ("10", "<="), ("11", ">="), ("12", ">="))


@dataclass(frozen=True, slots=True)
class Answer:
    """Theorem 2's answer; epsilon, gamma and abar are None where no epsilon meets (10), (11) and (12).

    Attributes:
        epsilon, noise_multiplier, gamma, alpha_bar, theta, mean_sample_size: as in `theorem2.Report`.
        delta: what it was computed with: 1/N as published, else as asked.
        conditions: (9) to (12); where they could not be evaluated, sides are None.
        epsilon_range: what (9) allows, empty where the first is the larger.
    """

    epsilon: float | None
    noise_multiplier: float | None
    delta: float
    gamma: float | None
    alpha_bar: float | None
    theta: float
    mean_sample_size: float
    conditions: tuple[Condition, ...]
    epsilon_range: tuple[float, float]

    @property
    def failed(self) -> tuple[Condition, ...]:
        """The conditions that do not hold."""
        return tuple(condition for condition in self.conditions if not condition.holds)


def answer(
    sizes: SampleSizes,
    *,
    records: int,
    delta: float,
    epsilon: float | None = None,
    noise_multiplier: float | None = None,
) -> Answer:
    """Returns Theorem 2 at the numbers given, or at the best ones that they leave.

    | given | answer |
    | --- | --- |
    | neither | the smallest (epsilon, sigma) with (12) as an equality, as the paper chooses its noise |
    | noise multiplier | the smallest epsilon |
    | epsilon | sigma by (6) |
    | both | the conditions there |

    Raises:
        AccountantError: if a value is not allowed.
    """
    _theory_validate.delta(delta)
    if epsilon is not None:
        _theory_validate.epsilon("epsilon", epsilon)
    if noise_multiplier is not None:
        _theory_validate.noise_multiplier(noise_multiplier)
    allowed = theorem2_inverse.epsilon_range(sizes, records=records, delta=delta)
    point = _point(sizes, records, delta, epsilon, noise_multiplier)
    if point is None:
        return _without_epsilon(sizes, records, delta, noise_multiplier, allowed)
    epsilon, noise_multiplier = point
    report = theorem2.evaluate(sizes, records=records, epsilon=epsilon, delta=delta, noise_multiplier=noise_multiplier)
    return Answer(
        epsilon,
        noise_multiplier,
        delta,
        report.gamma,
        report.alpha_bar,
        report.theta,
        report.mean_sample_size,
        report.conditions,
        allowed,
    )


def published(sizes: SampleSizes, *, records: int, delta: float, noise_multiplier: float | None = None) -> Answer:
    """Returns the numbers that the paper's tables would show, and the conditions at them; see `as_published`.

    Args:
        delta: 1/N, or its first digits: 1/N is what counts.
        noise_multiplier: for tables that fix it.

    Raises:
        AccountantError: if delta is not 1/N to three digits, or a value is not allowed.
    """
    exact = as_published.paper_delta(records)
    if not abs(delta * records - 1) <= 1e-3:
        raise AccountantError(f"as published, delta is 1/N = {exact:.6g}, found {delta:g}")
    reading = as_published.table_reading(sizes, records=records, noise_multiplier=noise_multiplier)
    report = theorem2.evaluate(
        sizes,
        records=records,
        epsilon=reading.epsilon,
        delta=exact,
        noise_multiplier=reading.noise_multiplier,
    )
    return Answer(
        reading.epsilon,
        reading.noise_multiplier,
        exact,
        reading.gamma,
        reading.alpha_bar,
        sizes.theta,
        sizes.mean,
        report.conditions,
        theorem2_inverse.epsilon_range(sizes, records=records, delta=exact),
    )


def _point(
    sizes: SampleSizes, records: int, delta: float, epsilon: float | None, sigma: float | None
) -> tuple[float, float] | None:
    """Returns (epsilon, sigma), what is missing chosen as the table of `answer` says; None if no epsilon is left."""
    if sigma is None and epsilon is None:
        return theorem2_inverse.at_equality(sizes, records=records, delta=delta) or theorem2_inverse.smallest(
            sizes, records=records, delta=delta
        )
    if sigma is None and epsilon is not None:
        return epsilon, theorem2.noise_at_equality(epsilon, delta)
    if sigma is not None and epsilon is None:
        found = theorem2_inverse.smallest_epsilon(sizes, records=records, delta=delta, noise_multiplier=sigma)
        return (found, sigma) if math.isfinite(found) else None
    return (epsilon, sigma) if epsilon is not None and sigma is not None else None


def _without_epsilon(
    sizes: SampleSizes, records: int, delta: float, sigma: float | None, allowed: tuple[float, float]
) -> Answer:
    """Returns which condition leaves no epsilon: (12) up to sigma = sqrt 2, else (11) with (10)."""
    conditions = tuple(
        Condition(name, None, relation, None, False)
        for name, relation in _RELATIONS
        # The right-hand side of (12) falls towards sqrt 2 as epsilon grows and never reaches it.
        if sigma is None or name != "12"
    )
    if sigma is not None:
        smallest = theorem2_inverse.epsilon_of_noise(sigma, delta)
        if math.isfinite(smallest):
            conditions = theorem2.evaluate(
                sizes, records=records, epsilon=smallest, delta=delta, noise_multiplier=sigma
            ).conditions
        else:
            conditions = (*conditions, Condition("12", sigma, ">=", math.sqrt(2), False))
    return Answer(None, sigma, delta, None, None, sizes.theta, sizes.mean, conditions, allowed)
