"""How far the samplers of records are from their ideals, as total variation of one round's choice.

It knows how many random words a mask may draw, and what happens to a batch that is too large; not what is summed.

In formulas: N the declared number of records, q the sampling probability, s the sample size, n_max the largest batch.
"""

import math


def mask_distance(sampling: str, records: int, sampling_probability: float) -> float:
    """Returns a bound of the total variation between one round's mask and the ideal one, for at most N + 1 records.

    The neighbour with one record more is drawn by the same code, hence n = N + 1 below.

    - "poisson": 8 max(n, 4/q, 8) 2^-64. Records are reached by geometric skips. A skip is found in a table of at most
      8/q + 2 thresholds, each within 2^-65 of its exact value; what lies beyond the table starts anew from its end
      (the geometric distribution has no memory). A probability is the difference of two thresholds, so a draw is off
      by at most (8/q + 2) 2^-65 in total variation. A mask needs on average at most n q + 1 draws that hit a record or
      the end, and n q / 8 + 1 that leave the table; a sequence of draws is off by at most the mean number of draws
      times one draw's distance: (8/q + 2)(9 n q / 8 + 2) 2^-65 <= (11.25 n + 16/q + 4) 2^-65.
    - "fixed": n^2 2^-64. At most n indices are drawn without replacement, each uniform below some number <= n made from
      64 random bits, off by at most n 2^-64.

    Args:
        sampling: "poisson" or "fixed".
        records: N >= 1.
        sampling_probability: q in (0, 1]; not used by "fixed".
    """
    n = records + 1
    if sampling == "fixed":
        return n**2 * 2.0**-64
    return 8 * max(n, 4 / sampling_probability, 8) * 2.0**-64


def log_batch_tail(records: int, sampling_probability: float, max_examples: int) -> float:
    """Returns an upper bound of log P[Binomial(N + 1, q) > n_max]; 0 where no bound below 1 is known.

    Successive probabilities beyond k = n_max + 1 shrink at least by r = (n - k) q / ((k + 1)(1 - q)), so the tail is at
    most P[= k] / (1 - r) if r < 1.

    Edges:
        n_max >= N + 1: -inf. q = 1 and n_max < N + 1: 0. n_max below the mean: 0.

    >>> round(log_batch_tail(1768, 200 / 1768, 400), 1) < -69
    True
    """
    n, q, k = records + 1, sampling_probability, max_examples + 1
    if k > n:
        return -math.inf
    if q == 1:
        return 0.0
    ratio = (n - k) * q / ((k + 1) * (1 - q))
    if k <= n * q or ratio >= 1:
        return 0.0
    log_choose = math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
    log_probability = log_choose + k * math.log(q) + (n - k) * math.log1p(-q)
    # lgamma is good to a few units in the last place of numbers as large as log n!.
    slack = 8 * 2.0**-52 * (math.lgamma(n + 1) + 1)
    return min(0.0, log_probability - math.log1p(-ratio) + slack)
