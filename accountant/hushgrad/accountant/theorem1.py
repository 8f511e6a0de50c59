"""Theorem 1 (Abadi et al.) for comparison: it names no constants, so what is shown are those a setting would imply.

It never gives an epsilon of its own; that is the moments accountant's.

In formulas: q = s/N, T rounds, sigma the noise multiplier, L = ln(1/delta).
"""

import math
from dataclasses import dataclass

from hushgrad.accountant import moments
from hushgrad.accountant.claims import RoundGroup

STATEMENT = (
    "there are constants c1 and c2 such that, for epsilon < c1 T q^2, sigma >= c2 q sqrt(T ln(1/delta)) / epsilon "
    "suffices; the theorem gives neither constant"
)


@dataclass(frozen=True, slots=True)
class Comparison:
    """One setting in the terms of Theorem 1.

    Attributes:
        moments_epsilon, order: the moments accountant with exact moments, which is what the theorem's proof evaluates.
        z: q sqrt(T / epsilon), see (4); the theorem's premise is z > 1 / sqrt(c1).
        implied_c1: epsilon / (T q^2): the premise holds for every c1 above this.
        implied_c2: sigma epsilon / (q sqrt(T L)): the theorem would be exact here with this c2.
        c2_times_z: sigma sqrt(epsilon / L): (4) puts it in place of the sqrt 2 of (6).
    """

    sampling_probability: float
    moments_epsilon: float
    order: int
    z: float
    implied_c1: float
    implied_c2: float
    c2_times_z: float


def compare(group: RoundGroup, *, delta: float) -> Comparison:
    """Returns what Theorem 1 amounts to for rounds that are alike, under Poisson sampling.

    Raises:
        AccountantError: if a value is not allowed.

    Reference: Theorem 1; (4), (5).
    """
    spent = moments.epsilon([group], delta=delta)
    q, T, sigma, L = group.sampling_probability, group.rounds, group.noise_multiplier, -math.log(delta)
    return Comparison(
        sampling_probability=q,
        moments_epsilon=spent.epsilon,
        order=spent.order,
        z=q * math.sqrt(T / spent.epsilon),
        implied_c1=spent.epsilon / (T * q**2),
        implied_c2=sigma * spent.epsilon / (q * math.sqrt(T * L)),
        c2_times_z=sigma * math.sqrt(spent.epsilon / L),
    )
