"""How far the samplers of records are from their ideals, as total variation of one round's choice.

It knows how many random words a mask may draw, and what happens to a batch that is too large; not what is summed.

In formulas: N the declared number of records, q the sampling probability, n_max the largest batch.
"""

import math


def mask_distance(sampling: str, records: int) -> float:
    """Returns a bound of the total variation between one round's mask and the ideal one.

    - "poisson": 8 N 2^-64, for up to 4 N records, so for both neighbours. Records are reached by geometric skips. One
      64-bit word is compared with J <= min(N, 2/q + 1) thresholds, each within 2^-65 of its exact value; beyond the
      last, J records are skipped and the search starts anew (the geometric distribution has no memory). The word's
      outcome has J + 1 probabilities, differences of neighbouring thresholds, so it is off by at most J 2^-65. A
      sequence of words is off by at most the mean number of words times that. A word decides (1 - (1-q)^J) / q
      records on average, and the last word at most J too many, so (Wald) the mean number of words is at most
      (4 N + J) q / (1 - (1-q)^J). With J <= N, q J <= 3 and x / (1 - e^-x) <= 3.16 for x <= 3 the whole is at most
      5 N * 3.16 * 2^-65 < 8 N 2^-64.
    - "fixed": 0. Words beyond the last full interval are thrown away, so every index, and by symmetry every set, is
      exactly uniform. (Without that it would cost up to N^2 2^-64, too much above some 10^5 records.)
    """
    return 8 * records * 2.0**-64 if sampling == "poisson" else 0.0


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
