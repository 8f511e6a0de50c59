"""Theorem 2 the other way round: the smallest epsilon, noise or number of rounds that meets its four conditions.

In formulas as in `theorem2`, and A = theta^2 K s-bar / N^2, a0 = theta^2 s-bar / N. Three facts make everything closed
or monotone:

- (11) with equality has abar = a0, whatever gamma is. So (11) is epsilon >= A * gamma_bound(sigma, a0).
- (12) is epsilon >= 2 L / (sigma^2 - 2), and no epsilon at all if sigma <= sqrt 2.
- (9) bounds the x of g from both sides: 2 e sqrt(m) / (1 - m) <= x <= 1 / (e m), where x^2 = 2 (epsilon + L) / epsilon.
  So it bounds epsilon from both sides too: raising epsilon can break (9).
- (10) says that abar is on the branch on which gamma is defined: it always holds here.
"""

import math
from collections.abc import Callable

from hushgrad.accountant import _theory_validate, sizes, theorem2
from hushgrad.accountant.sizes import SampleSizes
from hushgrad.accountant.theorem2 import Proof

_LARGEST_SIGMA = _theory_validate.NOISE_MULTIPLIERS[1]


def epsilon_of_noise(sigma: float, delta: float) -> float:
    """Returns the smallest epsilon that (12) allows at sigma; inf if sigma <= sqrt 2.

    >>> round(epsilon_of_noise(8.0, 1e-4), 6), epsilon_of_noise(1.4, 1e-4)
    (0.297108, inf)
    """
    return 2 * -math.log(delta) / (sigma**2 - 2) if sigma**2 > 2 else math.inf


def epsilon_of_rounds(sample_sizes: SampleSizes, *, records: int, sigma: float, proof: Proof = "printed") -> float:
    """Returns the smallest epsilon that (11) allows at sigma; inf if a0 is outside the branch."""
    A, a0 = _scales(sample_sizes, records)
    return A * theorem2.gamma_bound(sigma, a0, proof)


def epsilon_range(sample_sizes: SampleSizes, *, records: int, delta: float) -> tuple[float, float]:
    """Returns (low, high): (9) holds for low <= epsilon <= high and no other. Empty if low > high; high may be inf."""
    sample_sizes.check_fits(records)
    L, m = -math.log(_theory_validate.delta(delta)), sample_sizes.largest / records
    largest_x = 1 / (math.e * m)
    smallest_x = 2 * math.e * math.sqrt(m) / (1 - m) if m < 1 else math.inf
    low = 2 * L / (largest_x**2 - 2) if largest_x**2 > 2 else math.inf
    high = 2 * L / (smallest_x**2 - 2) if smallest_x**2 > 2 else math.inf
    return low, high


def smallest_epsilon(
    sample_sizes: SampleSizes, *, records: int, delta: float, noise_multiplier: float, proof: Proof = "printed"
) -> float:
    """Returns the smallest epsilon for which (10), (11) and (12) hold at a noise multiplier, and (9) where it can.

    (9) can fail at the answer only by its upper limit, and then no epsilon meets all four: evaluate and see.

    Returns:
        epsilon > 0, or inf if sigma <= sqrt 2 or a0 is outside the branch.

    Raises:
        AccountantError: if a value is not allowed.
    """
    sigma = _theory_validate.noise_multiplier(noise_multiplier)
    low, high = epsilon_range(sample_sizes, records=records, delta=delta)
    found = max(
        epsilon_of_noise(sigma, delta), epsilon_of_rounds(sample_sizes, records=records, sigma=sigma, proof=proof)
    )
    return max(found, low) if low <= high else found


def at_equality(
    sample_sizes: SampleSizes, *, records: int, delta: float, proof: Proof = "printed"
) -> tuple[float, float] | None:
    """Returns the smallest (epsilon, sigma) with (12), and with it (6), as an equality; None if there is none.

    This is how the paper chooses its noise. Where that puts sigma below about 4.2, more noise would allow a smaller
    epsilon: see `smallest`.
    """
    sample_sizes.check_fits(records)
    L = -math.log(_theory_validate.delta(delta))
    A, a0 = _scales(sample_sizes, records)
    if a0 >= 1:
        return None

    def excess(sigma: float) -> float:  # > 0: (11) asks for more than (12) gives
        return A * theorem2.gamma_bound(sigma, a0, proof) * (sigma**2 - 2) - 2 * L

    best = _best_sigma(a0, proof)
    # Right of the best sigma the excess increases. Left of it the largest root counts, so come from the right.
    low = max(best, math.sqrt(2))
    if excess(low) <= 0:
        high = low
        while excess(high) <= 0:
            high *= 2
            if high > _LARGEST_SIGMA:
                return None
        return _with_lower_limit(_root(excess, low, high), sample_sizes, records, delta)
    high = low
    while excess(low) > 0:
        high, low = low, low * 0.99
        if low < math.sqrt(2):
            low = math.sqrt(2) * (1 + 1e-15)
            if excess(low) > 0:
                return None
    return _with_lower_limit(_root(excess, low, high), sample_sizes, records, delta)


def smallest(
    sample_sizes: SampleSizes, *, records: int, delta: float, proof: Proof = "printed"
) -> tuple[float, float] | None:
    """Returns the smallest epsilon that any noise multiplier allows, and the smallest such noise multiplier.

    With more noise than (12) asks for, (11) may allow a smaller epsilon, down to the sigma at which gamma_bound is
    smallest. The epsilon for which the better of the two meets (11) is unique: more epsilon only leaves more choice.

    Returns:
        (epsilon, sigma), or None if a0 is outside the branch for every sigma up to 1e9. (9) holds at the answer unless
        its upper limit is lower.
    """
    sample_sizes.check_fits(records)
    _theory_validate.delta(delta)
    A, a0 = _scales(sample_sizes, records)
    if a0 >= 1:
        return None
    best = _best_sigma(a0, proof)
    if math.isinf(theorem2.gamma_bound(best, a0, proof)):
        return None

    def excess(log_epsilon: float) -> float:
        epsilon = math.exp(log_epsilon)
        sigma = max(theorem2.noise_at_equality(epsilon, delta), best)
        return epsilon - A * theorem2.gamma_bound(sigma, a0, proof)

    low = high = 0.0
    while excess(high) < 0:
        high += 5
    while excess(low) >= 0:
        low -= 5
    epsilon = math.exp(_root(excess, low, high))
    lower, upper = epsilon_range(sample_sizes, records=records, delta=delta)
    if lower <= upper:
        epsilon = max(epsilon, lower)
    return epsilon, max(theorem2.noise_at_equality(epsilon, delta), best)


def largest_sample_size(
    *,
    records: int,
    grad_computations: int,
    epsilon: float,
    delta: float,
    noise_multiplier: float | None = None,
) -> tuple[int, int] | None:
    """Returns the largest constant sample size s that meets (9) to (12), and the fewest rounds T = ceil(K/s).

    Args:
        records: N.
        grad_computations: K.
        epsilon: > 0.
        delta: in (0, 1).
        noise_multiplier: sigma; None is what (12) asks for with equality.

    Returns:
        (s, T), or None if not even s = 1 meets them. Both sides of (9) and (11) are monotone in s, so bisection is
        exact.
    """
    _theory_validate.epsilon("epsilon", epsilon)
    _theory_validate.delta(delta)
    _theory_validate.records(records)
    K = _theory_validate.grad_computations(grad_computations)
    sigma = theorem2.noise_at_equality(epsilon, delta) if noise_multiplier is None else noise_multiplier

    def fits(size: int) -> bool:
        return theorem2.evaluate(
            sizes.constant(size, K), records=records, epsilon=epsilon, delta=delta, noise_multiplier=sigma
        ).holds

    if not fits(1):
        return None
    low, high = 1, min(records, K) + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low, -(-K // low)


def _scales(sample_sizes: SampleSizes, records: int) -> tuple[float, float]:
    """Returns A and a0; theta^2 s-bar is s_max^2 / s-bar."""
    sample_sizes.check_fits(records)
    spread = sample_sizes.largest**2 / sample_sizes.mean
    return spread * sample_sizes.grad_computations / records**2, spread / records


def _best_sigma(a0: float, proof: Proof) -> float:
    """Returns the sigma at which gamma_bound(sigma, a0) is smallest; it is convex in sigma where it is finite."""
    high = 2.0
    while math.isinf(theorem2.gamma_bound(high, a0, proof)) or _slope(high, a0, proof) < 0:
        high *= 2
        if high > _LARGEST_SIGMA:
            return _LARGEST_SIGMA
    low = high / 1024
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if _slope(middle, a0, proof) < 0 else (low, middle)
    return high


def _slope(sigma: float, a0: float, proof: Proof) -> float:
    bound = theorem2.gamma_bound(sigma, a0, proof)
    return -1.0 if math.isinf(bound) else theorem2.gamma_bound(sigma * (1 + 1e-6), a0, proof) - bound


def _with_lower_limit(sigma: float, sample_sizes: SampleSizes, records: int, delta: float) -> tuple[float, float]:
    epsilon = epsilon_of_noise(sigma, delta)
    low, high = epsilon_range(sample_sizes, records=records, delta=delta)
    if epsilon < low <= high:
        return low, theorem2.noise_at_equality(low, delta)
    return epsilon, sigma


def _root(function: Callable[[float], float], low: float, high: float) -> float:
    """Returns the last number before an increasing function becomes >= 0, between low (negative) and high, or low."""
    while True:
        middle = (low + high) / 2
        if middle in (low, high):
            return low
        low, high = (middle, high) if function(middle) < 0 else (low, middle)
