"""Theorem 2 of arXiv 2102.09030 as it is printed: h, g, gamma, and the four conditions with both their sides.

It evaluates the theorem at given numbers; which numbers meet it is `theorem2_inverse`, and whether its epsilon may be
shown as true is `verdict`.

In formulas: N records, K gradient computations, s-bar and s_max the mean and largest sample size, m = s_max / N,
sigma the noise multiplier, L = ln(1/delta), x = epsilon N / K, abar = x / gamma. Numbers in parentheses are equations
of the paper.
"""

import math
from dataclasses import dataclass
from typing import Literal

from hushgrad.accountant import _theory_validate, _validate
from hushgrad.accountant.errors import AccountantError
from hushgrad.accountant.sizes import SampleSizes

Proof = Literal["printed", "repaired"]
"""Which u0 and u1 stand in (18): those of the paper, or those that its proof of Lemma 1 supports for lambda <= sigma^2:
u0 = 2 e^(1/2) kappa sigma a / (1-a), u1 = 2 e^(3/2) kappa a / (1-a), kappa = e^(3 / (2 sigma^2))."""

EQUALITY = 1e-12
"""Sides that differ by less than this, relatively, count as equal: the inverse problems meet conditions with equality,
and double precision cannot tell more."""


@dataclass(frozen=True, slots=True)
class Condition:
    """One inequality of a theorem: its number or name in the paper, both sides, and whether it holds.

    A side that cannot be computed for the numbers given is None, and then the condition does not hold.
    """

    name: str
    lhs: float | None
    relation: Literal["<=", ">=", "<"]
    rhs: float | None
    holds: bool


@dataclass(frozen=True, slots=True)
class Report:
    """Theorem 2 at given numbers.

    Attributes:
        epsilon, delta, noise_multiplier: where it was evaluated.
        gamma: the smallest solution of (52) with abar < h(sigma).
        alpha_bar: abar = epsilon N / (gamma K).
        theta: s_max / s-bar.
        mean_sample_size: s-bar.
        conditions: (9), (10), (11), (12), in this order.
    """

    epsilon: float
    delta: float
    noise_multiplier: float
    gamma: float
    alpha_bar: float
    theta: float
    mean_sample_size: float
    conditions: tuple[Condition, ...]

    @property
    def holds(self) -> bool:
        """Whether all four conditions hold."""
        return all(condition.holds for condition in self.conditions)

    @property
    def failed(self) -> tuple[Condition, ...]:
        """The conditions that do not hold."""
        return tuple(condition for condition in self.conditions if not condition.holds)


def compare(name: str, lhs: float, relation: Literal["<=", ">=", "<"], rhs: float) -> Condition:
    """Returns the condition; `<=` and `>=` allow for EQUALITY, `<` does not."""
    slack = EQUALITY * max(abs(lhs), abs(rhs)) if math.isfinite(lhs) and math.isfinite(rhs) else 0.0
    holds = {"<=": lhs <= rhs + slack, ">=": lhs + slack >= rhs, "<": lhs < rhs}[relation]
    return Condition(name, lhs, relation, rhs, holds)


def h(x: float) -> float:
    """Returns h(x) = (sqrt(1 + (e/x)^2) - e/x)^2 for x > 0, without cancellation; in (0, 1), increasing.

    Reference: Theorem 2; (51).

    >>> round(h(2.0), 6)
    0.107743
    """
    y = math.e / x
    return (math.hypot(1.0, y) + y) ** -2


def g(x: float) -> float:
    """Returns g(x) = min(1 / (e x), h(x)) for x > 0. Reference: Theorem 2."""
    return min(1 / (math.e * x), h(x))


def largest_alpha(sigma: float, proof: Proof = "printed") -> float:
    """Returns where the right-hand side of (52) stops making sense, as a bound of abar: h(sigma), (51).

    In the repaired proof: where the larger of u0 and u1 reaches 1.
    """
    if proof == "printed":
        return h(sigma)
    kappa = math.exp(1.5 / sigma**2)
    y = 1 / (2 * kappa * max(math.exp(0.5) * sigma, math.exp(1.5)))
    return y / (1 + y)


def gamma_bound(sigma: float, alpha: float, proof: Proof = "printed") -> float:
    """Returns the right-hand side of (52) at abar = alpha; inf from `largest_alpha` on.

    Increasing in alpha, >= 2 / (1 - alpha); convex in sigma. Beyond `largest_alpha` the printed formula has negative
    denominators and spurious small values; they are no solutions.
    """
    if alpha >= largest_alpha(sigma, proof):
        return math.inf
    if proof == "printed":
        root = math.sqrt(alpha)
        denominator = sigma * (1 - alpha) - 2 * math.e * root
        if denominator <= 0:  # a rounding away from the end of the branch
            return math.inf
        inner = sigma / (1 - root) ** 2 + math.exp(3) / (sigma * denominator)
    else:
        kappa = math.exp(1.5 / sigma**2)
        u0 = 2 * math.exp(0.5) * kappa * sigma * alpha / (1 - alpha)
        u1 = 2 * math.exp(1.5) * kappa * alpha / (1 - alpha)
        if max(u0, u1) >= 1:
            return math.inf
        # (18) in (46), with 1/(1-u0) as it is and not as (36) simplifies it.
        inner = sigma / (1 - alpha) * (1 / (1 - u0) + math.exp(3) / (sigma**3 * (1 - u1)))
    exponent = 3 / sigma**2
    if exponent > 700:
        return math.inf
    return 2 / (1 - alpha) + 16 * alpha / (1 - alpha) * inner * math.exp(exponent)


def gamma(sigma: float, x: float, proof: Proof = "printed") -> float:
    """Returns the smallest gamma >= gamma_bound(sigma, x / gamma) with x / gamma below `largest_alpha`.

    In a = x / gamma the equation is a * gamma_bound(sigma, a) = x. Its left side increases from 0 to infinity on the
    branch, so there is exactly one solution, and bisection finds it to the last bit. (Iterating from gamma = 2 does
    not: it starts outside the branch when x/2 >= h(sigma).)

    Args:
        sigma: 1e-3 to 1e9, as everywhere here.
        x: epsilon N / K > 0.

    Reference: Theorem 2; (52).

    >>> round(gamma(5.0, 0.1), 6)
    4.938505
    """
    _theory_validate.noise_multiplier(sigma)
    _validate.positive("x", x)
    high = min(x / 2, largest_alpha(sigma, proof))  # the bound is at least 2
    low = high / 2
    while not low * gamma_bound(sigma, low, proof) < x:
        high, low = low, low / 2
        if low == 0:
            raise AccountantError(f"gamma is beyond double precision at noise multiplier {sigma:.3g}, x = {x:.3g}")
    while True:
        middle = (low + high) / 2
        if middle in (low, high):
            return x / low
        if middle * gamma_bound(sigma, middle, proof) < x:
            low = middle
        else:
            high = middle


def noise_at_equality(epsilon: float, delta: float) -> float:
    """Returns sqrt(2 (epsilon + ln(1/delta)) / epsilon), the right-hand side of (12), which is (3) and (6)."""
    return math.sqrt(2 * (epsilon - math.log(delta)) / epsilon)


def evaluate(
    sizes: SampleSizes,
    *,
    records: int,
    epsilon: float,
    delta: float,
    noise_multiplier: float,
    proof: Proof = "printed",
) -> Report:
    """Returns what Theorem 2 says at given numbers.

    Args:
        sizes: the sample size sequence, 1 <= s_i <= N.
        records: N.
        epsilon: > 0.
        delta: in (0, 1).
        noise_multiplier: sigma > 0.
        proof: which right-hand side of (52).

    Raises:
        AccountantError: if a value is not allowed.

    Reference: Theorem 2, (9) to (12).
    """
    sizes.check_fits(records)
    _validate.positive("epsilon", epsilon)
    _theory_validate.delta(delta)
    sigma = _theory_validate.noise_multiplier(noise_multiplier)
    N, K, mean, theta = records, sizes.grad_computations, sizes.mean, sizes.theta
    found = gamma(sigma, epsilon * N / K, proof)
    needed = noise_at_equality(epsilon, delta)
    return Report(
        epsilon=epsilon,
        delta=delta,
        noise_multiplier=sigma,
        gamma=found,
        alpha_bar=epsilon * N / (found * K),
        theta=theta,
        mean_sample_size=mean,
        conditions=(
            compare("9", mean, "<=", g(needed) / theta * N),
            compare("10", epsilon, "<=", found * largest_alpha(sigma, proof) * K / N),
            compare("11", epsilon, ">=", found * theta**2 * (K / N) * (mean / N)),
            compare("12", sigma, ">=", needed),
        ),
    )
