"""The moments accountant at integer orders: exact moments of the sampled Gaussian, and Lemma 1's bound of them.

Exact moments give a true epsilon for Poisson sampling; Lemma 1's bound is the paper's, with its premises checked. The
tight number is neither: see `claims`.

In formulas: q = s/N, sigma the noise multiplier, lambda the order (a positive integer), L = ln(1/delta), T rounds.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from hushgrad.accountant import _theory_validate, _validate
from hushgrad.accountant.claims import RoundGroup
from hushgrad.accountant.errors import AccountantError
from hushgrad.accountant.theorem2 import Condition, compare

MAX_ORDER = 2**17
"""Orders above are not tried; epsilon is then a little larger than the smallest, and still true."""

_SMALLEST_SIGMA = 216 / 215


@dataclass(frozen=True, slots=True)
class Spent:
    """What the moments accountant says: epsilon, and the integer order lambda at which it is smallest."""

    epsilon: float
    order: int


def log_moment(order: int, *, sampling_probability: float, noise_multiplier: float) -> float:
    """Returns alpha(lambda), the log of the lambda-th moment of one round's privacy loss, exact for Poisson sampling.

    alpha = ln sum_k C(lambda+1, k) (1-q)^(lambda+1-k) q^k exp((k^2 - k) / (2 sigma^2)), which is lambda times the Renyi
    divergence of order lambda + 1. The binomial weights add up to one, so with exp - 1 in place of exp the sum is what
    exceeds one; nothing cancels, however small q is.

    Args:
        order: lambda, 1 to MAX_ORDER.
        sampling_probability: q in (0, 1].
        noise_multiplier: sigma > 0.

    Reference: Abadi et al., "Deep Learning with Differential Privacy", section 3.2; Mironov et al., arXiv 1908.10530,
    section 3.3.

    >>> f"{log_moment(3, sampling_probability=1e-6, noise_multiplier=1.1):.6e}"
    '7.711129e-12'
    """
    if _validate.count("order", order) > MAX_ORDER:
        raise AccountantError(f"order must be at most {MAX_ORDER}, found {order}")
    q = _validate.probability("sampling_probability", sampling_probability)
    sigma = _theory_validate.noise_multiplier(noise_multiplier)
    n = order + 1
    if q == 1:
        return n * order / (2 * sigma**2)
    import numpy as np

    k, log_choose = _log_choose(n)
    exponent = k * (k - 1) / (2 * sigma**2)
    # ln(e^x - 1) = x + ln(1 - e^-x)
    terms = log_choose + k * math.log(q) + (n - k) * math.log1p(-q) + exponent + np.log(-np.expm1(-exponent))
    top = float(terms.max())
    log_excess = top + math.log(float(np.exp(terms - top).sum()))
    return log_excess + math.log1p(math.exp(-log_excess)) if log_excess > 0 else math.log1p(math.exp(log_excess))


@lru_cache(maxsize=64)
def _log_choose(n: int) -> tuple[Any, Any]:
    """Returns k = 2 .. n and ln C(n, k)."""
    import numpy as np
    from scipy.special import gammaln

    k = np.arange(2, n + 1, dtype=np.float64)
    return k, gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1)


def lemma1_premises(order: int, *, sample_size: int, records: int, noise_multiplier: float) -> tuple[Condition, ...]:
    """Returns the premises of Lemma 1 at an order, with r0 = s sigma / N, u0 = U0(lambda) and u1 = U1(lambda).

    Raises:
        AccountantError: if a value is not allowed, or s > N. (At s = N a premise fails for every sigma.)
    """
    _validate.count("order", order)
    _theory_validate.noise_multiplier(noise_multiplier)
    if _validate.count("sample_size", sample_size) > _theory_validate.records(records):
        raise AccountantError(f"sample_size must be at most {records}, the number of records, found {sample_size}")
    sigma = noise_multiplier
    r0 = sample_size * sigma / records
    u0, u1 = _u(order, sigma, r0)
    return (
        compare("r0", r0, "<", 1.0),
        compare("sigma", sigma, ">=", _SMALLEST_SIGMA),
        compare("order", float(order), "<=", sigma**2 * math.log(1 / r0)),
        compare("U0", u0, "<", 1.0),
        compare("U1", u1, "<", 1.0),
    )


def lemma1_bound(order: int, *, sample_size: int, records: int, noise_multiplier: float) -> float | None:
    """Returns Lemma 1's bound of alpha(lambda) for one round; None where one of its premises fails.

    s^2 lambda (lambda+1) / (N (N-s) sigma^2) + (r/r0) s^3 lambda^2 (lambda+1) / (N (N-s)^2 sigma^3).
    """
    premises = lemma1_premises(order, sample_size=sample_size, records=records, noise_multiplier=noise_multiplier)
    if not all(premise.holds for premise in premises):
        return None
    s, N, sigma = sample_size, records, noise_multiplier
    u0, u1 = _u(order, sigma, s * sigma / N)
    r_over_r0 = 8 * (1 / (1 - u0) + math.exp(3) / (sigma**3 * (1 - u1))) * math.exp(3 / sigma**2)
    first = s**2 * order * (order + 1) / (N * (N - s) * sigma**2)
    return first + r_over_r0 * s**3 * order**2 * (order + 1) / (N * (N - s) ** 2 * sigma**3)


def _u(order: int, sigma: float, r0: float) -> tuple[float, float]:
    if r0 >= sigma:
        return math.inf, math.inf
    u0 = 2 * math.sqrt(order * r0 / sigma) / (sigma - r0)
    return u0, math.e * u0 / sigma


def epsilon(groups: Sequence[RoundGroup], *, delta: float) -> Spent:
    """Returns the smallest (sum of alpha(lambda) + L) / lambda over integer lambda: true for Poisson sampling.

    The sum of log moments is convex in lambda and 0 at 0, so the quotient falls and then rises: doubling and an integer
    section search find its minimum.

    Raises:
        AccountantError: if a value is not allowed.

    Reference: Abadi et al., Theorem 2; (20) with the minimum over lambda.
    """
    L = -math.log(_theory_validate.delta(delta))
    if not groups:
        return Spent(0.0, 1)

    def spent(order: int) -> float:
        alphas = (
            group.rounds
            * log_moment(
                order, sampling_probability=group.sampling_probability, noise_multiplier=group.noise_multiplier
            )
            for group in groups
        )
        return (math.fsum(alphas) + L) / order

    return _minimum(spent, MAX_ORDER)


def epsilon_by_lemma1(phases: Sequence[tuple[int, int, float]], *, records: int, delta: float) -> Spent | None:
    """Returns the same with Lemma 1's bound in place of the exact moments, over the orders that its premises allow.

    Args:
        phases: (s, T, sigma).
        records: N.
        delta: in (0, 1).

    Returns:
        None if the premises fail for every order.
    """
    L = -math.log(_theory_validate.delta(delta))

    def spent(order: int) -> float:
        total = 0.0
        for size, rounds, sigma in phases:
            bound = lemma1_bound(order, sample_size=size, records=records, noise_multiplier=sigma)
            if bound is None:
                return math.inf
            total += rounds * bound
        return (total + L) / order

    if math.isinf(spent(1)):  # every premise is a bound of lambda from above
        return None
    return _minimum(spent, MAX_ORDER)


def _minimum(spent: Callable[[int], float], largest: int) -> Spent:
    low, high = 1, 2
    while high < largest and spent(high) < spent(high // 2):
        low, high = high // 2, min(high * 2, largest)
    while high - low > 2:
        left, right = low + (high - low) // 3, high - (high - low) // 3
        # Where both are infinite the minimum lies to the left: the premises bound lambda from above.
        low, high = (left, high) if spent(left) > spent(right) else (low, right)
    order = min(range(low, high + 1), key=spent)
    return Spent(spent(order), order)
