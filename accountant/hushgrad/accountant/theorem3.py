"""Theorem 3 of arXiv 2102.09030: the smallest epsilon from the moments of a sample size sequence, and its premises.

Printed as the paper has it; `proof="repaired"` uses the u0 and u1 that Lemma 1's proof supports. Whether the epsilon
may be shown as true is `verdict`.

In formulas: N records, s_i the sample sizes, T rounds, sigma the noise multiplier (the same in every round),
L = ln(1/delta), r0 = sigma s_max / N (the smallest that the theorem allows).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from hushgrad.accountant import _theory_validate, theorem2
from hushgrad.accountant.errors import AccountantError
from hushgrad.accountant.sizes import SampleSizes
from hushgrad.accountant.theorem2 import Condition, Proof

SMALLEST_SIGMA = 216 / 215


@dataclass(frozen=True, slots=True)
class Report:
    """Theorem 3 at the smallest epsilon that it allows.

    Attributes:
        epsilon: inf if sigma <= sqrt 2, or u0 or u1 reaches 1.
        r0, u0, u1, r: the constants of (18); r is inf where u0 or u1 reaches 1.
        moments: S-hat_1, S-hat_2, S-hat_3.
        rho, rho_hat: the smallest that the theorem allows, S1 S3 / S2^2 and S1^2 / S2.
        c1, c0: c1 = epsilon / (T S1^2), c0 = c(c1); None without an epsilon.
        branch: which of the two expressions is the smaller in c: "root" or "2/(rho_hat x)".
        conditions: the premises, each with both sides.
    """

    epsilon: float
    r0: float
    u0: float
    u1: float
    r: float
    moments: tuple[float, float, float]
    rho: float
    rho_hat: float
    c1: float | None
    c0: float | None
    branch: Literal["root", "2/(rho_hat x)"] | None
    conditions: tuple[Condition, ...]

    @property
    def failed(self) -> tuple[Condition, ...]:
        """The premises that do not hold."""
        return tuple(condition for condition in self.conditions if not condition.holds)


def moments(sizes: SampleSizes, records: int) -> tuple[float, float, float]:
    """Returns S-hat_j = (1/T) sum s_i^j / (N (N - s_i)^(j-1)) for j = 1, 2, 3.

    Raises:
        AccountantError: if some s_i >= N.
    """
    sizes.check_fits(records)
    if sizes.largest == records:
        raise AccountantError(
            f"Theorem 3 divides by N - s: a sample size must be at most {records - 1}, found {sizes.largest}"
        )
    N = records
    first, second, third = (
        math.fsum(rounds * size**j / (N * (N - size) ** (j - 1)) for size, rounds in sizes.runs) / sizes.rounds
        for j in (1, 2, 3)
    )
    return first, second, third


def constants(sigma: float, r0: float, proof: Proof = "printed") -> tuple[float, float, float]:
    """Returns (u0, u1, r) of Theorem 3; r is inf where u0 or u1 reaches 1, all are inf where r0 >= sigma.

    Reference: Theorem 3; (18).
    """
    if r0 >= sigma:
        return math.inf, math.inf, math.inf
    if proof == "printed":
        u0 = 2 * math.sqrt(r0 * sigma) / (sigma - r0)
        u1 = math.e * u0 / sigma
    else:
        kappa, a = math.exp(1.5 / sigma**2), r0 / sigma
        u0 = 2 * math.exp(0.5) * kappa * sigma * a / (1 - a)
        u1 = math.e * u0 / sigma
    if max(u0, u1) >= 1:
        return u0, u1, math.inf
    r = r0 * 8 * (1 / (1 - u0) + math.exp(3) / (sigma**3 * (1 - u1))) * math.exp(3 / sigma**2)
    return u0, u1, r


def c(x: float, *, r: float, rho: float, rho_hat: float) -> float:
    """Returns c(x) = min{(sqrt(2 r rho x + 1) - 1) / (r rho x), 2 / (rho_hat x)} without cancellation."""
    return min(_root_branch(r * rho * x), 2 / (rho_hat * x))


def _root_branch(y: float) -> float:
    """Returns (sqrt(2 y + 1) - 1) / y = 2 / (sqrt(2 y + 1) + 1)."""
    return 2 / (math.sqrt(2 * y + 1) + 1)


def smallest_epsilon(
    sizes: SampleSizes, *, records: int, delta: float, noise_multiplier: float, proof: Proof = "printed"
) -> Report:
    """Returns the smallest epsilon for which Theorem 3 holds at a noise multiplier, with everything it rests on.

    The bound on sigma is c(c1) epsilon^2 / (epsilon + L) >= 4 S2 T / sigma^2. Where 2/(rho_hat x) is the smaller in c
    it reads epsilon >= 2 L / (sigma^2 - 2), the same as (12); where the root is, bisection finds it. Both left sides
    increase in epsilon, so the answer is the larger of the two.

    Args:
        sizes: the sample size sequence, 1 <= s_i < N.
        records: N.
        delta: in (0, 1).
        noise_multiplier: sigma > 0.

    Raises:
        AccountantError: if a value is not allowed.

    Reference: Theorem 3; (29), (32).
    """
    S1, S2, S3 = moments(sizes, records)
    L = -math.log(_theory_validate.delta(delta))
    sigma = _theory_validate.noise_multiplier(noise_multiplier)
    T, r0 = sizes.rounds, sizes.largest * sigma / records
    rho, rho_hat = S1 * S3 / S2**2, S1**2 / S2
    # Below this sigma the exponentials overflow; the first premise has failed long before.
    u0, u1, r = constants(sigma, r0, proof) if sigma > 0.1 else (math.inf, math.inf, math.inf)
    premises = (
        theorem2.compare("sigma", sigma, ">=", SMALLEST_SIGMA),
        theorem2.compare("r0", r0, "<=", 1 / math.e),
        theorem2.compare("u0", u0, "<", 1.0),
        theorem2.compare("u1", u1, "<", 1.0),
    )
    if math.isinf(r) or sigma**2 <= 2:
        return Report(math.inf, r0, u0, u1, r, (S1, S2, S3), rho, rho_hat, None, None, None, premises)

    def enough(epsilon: float) -> bool:
        root = _root_branch(r * rho * epsilon / (T * S1**2))
        return root * epsilon**2 >= 4 * S2 * T * (epsilon + L) / sigma**2

    epsilon = max(2 * L / (sigma**2 - 2), _first(enough))
    c1 = epsilon / (T * S1**2)
    c0 = c(c1, r=r, rho=rho, rho_hat=rho_hat)
    # epsilon = c1 T S1^2 has no premise of its own: it defines c1.
    bound = 2 / math.sqrt(c0) * math.sqrt(S2 * T * (epsilon + L)) / epsilon
    return Report(
        epsilon,
        r0,
        u0,
        u1,
        r,
        (S1, S2, S3),
        rho,
        rho_hat,
        c1,
        c0,
        "root" if _root_branch(r * rho * c1) < 2 / (rho_hat * c1) else "2/(rho_hat x)",
        (*premises, theorem2.compare("noise", sigma, ">=", bound)),
    )


def _first(enough: Callable[[float], bool]) -> float:
    """Returns the smallest number from which on a monotone predicate is true, to the last bit."""
    high = 1.0
    while not enough(high):
        high *= 2
    low = high / 2
    while enough(low):
        high, low = low, low / 2
    while True:
        middle = (low + high) / 2
        if middle in (low, high):
            return high
        low, high = (low, middle) if enough(middle) else (middle, high)
