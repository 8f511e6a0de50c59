"""The dominating pairs of one sampled round: which two distributions are as far apart as any two neighbours can be.

It knows the pairs as privacy loss distributions on a grid and as hockey-stick curves; composition happens elsewhere.

In formulas: q the sampling probability of a record, sigma the standard deviation of a pair's Gaussians in units of how
far one record moves the sum, N(m) the Gaussian of mean m and standard deviation sigma, e a privacy loss.
"""

import math
from collections.abc import Mapping
from typing import Any, Literal

Pair = Literal["add-remove", "replace", "symmetrised"]
"""The pair of one round:

- "add-remove": (1-q) N(0) + q N(1) against N(0), in both directions; exact for Poisson sampling.
- "replace": (1-q) N(0) + q N(1) against (1-q) N(0) + q N(-1); for Poisson sampling and one record replaced.
- "symmetrised": D(e), the curve of (1-q) N(0) + q N(1) against N(0) for e >= 0, and D(-e) = 1 - exp(-e) + exp(-e) D(e):
  the smallest curve that bounds a mechanism whose two directions are both bounded by D for e >= 0.
"""

_TAIL_SIGMAS = 10.0  # the library cuts a Gaussian at mass e^-50, about 9.8 standard deviations


def of(sampling: str, adjacency: str) -> tuple[Pair, float]:
    """Returns the pair of a sampler under an adjacency, and the factor by which its sigma is the noise multiplier.

    - poisson, add-remove: exact.
    - fixed, add-remove: the record that leaves makes room for another one, so the sum moves by up to twice the clip
      norm: half the noise multiplier. Attained when the record's clipped gradient is opposite to all others'.
    - poisson, replace-one: exact. Both data sets share the other records' coins. Given these, a set that has
      probability Phi(z) around the others' sum has at most Phi(z + 1 / sigma) around the sum with the record and at
      least Phi(z - 1 / sigma) around the sum with its replacement, and a half-space between two opposite gradients
      attains both at once. So no set tells the two mixtures apart better than a half-space does the pair "replace".
    - fixed, replace-one: the batches are equal with probability 1 - q and else differ in one record, by up to twice the
      clip norm: half the noise multiplier. With M0 the batches without the record, M and M' those with it or its
      replacement, advanced joint convexity gives, for y = 1 + q (x - 1) >= 1, at most q times the largest hockey-stick
      divergence of order x of M from M0 or M': the curve D of the "symmetrised" pair, in both directions.

    Reference:
        Balle, Barthe and Gaboardi, "Privacy Amplification by Subsampling", arXiv 1807.01647, theorem 2, for advanced
        joint convexity; dp-accounting composes the pair "replace" for REPLACE_ONE.
    """
    return _PAIRS[sampling, adjacency]


_PAIRS: Mapping[tuple[str, str], tuple[Pair, float]] = {
    ("poisson", "add-remove"): ("add-remove", 1.0),
    ("fixed", "add-remove"): ("add-remove", 0.5),
    ("poisson", "replace-one"): ("replace", 1.0),
    ("fixed", "replace-one"): ("symmetrised", 0.5),
}


def one_round(pair: Pair, q: float, sigma: float, interval: float) -> Any:
    """Returns the privacy loss distribution of one round on a grid of losses, rounded so that nothing is understated.

    The hockey-stick curve at the grid's points is computed here, all points at once; the library connects the dots and
    composes. Mass below e^-50 counts as an infinite loss.

    Args:
        pair: which pair.
        q: in (0, 1].
        sigma: > 0.
        interval: step of the grid of losses.

    Reference:
        Doroshenko et al., "Connect the Dots", arXiv 2207.04380.
    """
    # Imported here: with scipy it takes a second, which callers that only read claims need not pay.
    import numpy as np
    from dp_accounting.pld import privacy_loss_distribution as library

    reach = _TAIL_SIGMAS / sigma + 0.5 / sigma**2
    up, down = log_mixture(q, reach), -log_mixture(q, -reach)
    if pair == "replace":
        losses = interval * np.arange(math.ceil((up + down) / interval) + 1)
        curve = replacement_curve(losses, q, sigma)
        return library.PrivacyLossDistribution(_connected(losses, curve, losses, curve, interval))
    upward = interval * np.arange(math.ceil(up / interval) + 1)
    removed = removal_curve(upward, q, sigma)
    if pair == "symmetrised" or q == 1:
        return library.PrivacyLossDistribution(_connected(upward, removed, upward, removed, interval))
    downward = interval * np.arange(math.ceil(down / interval) + 1)
    added = addition_curve(downward, q, sigma)
    return library.PrivacyLossDistribution(
        _connected(upward, removed, downward, added, interval), _connected(downward, added, upward, removed, interval)
    )


def _connected(losses: Any, curve: Any, back_losses: Any, back_curve: Any, interval: float) -> Any:
    """Returns the library's distribution of a pair from its curve, and from that of the reversed pair below 0.

    For e >= 0 the reversed pair's curve B gives D(-e) = 1 - exp(-e) + exp(-e) B(e).
    """
    import numpy as np
    from dp_accounting.pld import pld_pmf

    below = -np.expm1(-back_losses[:0:-1]) + np.exp(-back_losses[:0:-1]) * back_curve[:0:-1]
    connected = pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(
        interval, 1 - len(back_losses), len(losses) - 1, np.concatenate([below, curve])
    )
    # The library keeps small grids as dictionaries, whose composition with themselves takes time in proportion to T.
    return connected.to_dense_pmf()


def scale(pair: Pair, q: float, sigma: float) -> float:
    """Returns about the standard deviation of one round's loss where it is small."""
    return (2 if pair == "replace" else 1) * q / sigma


def loss_range(pair: Pair, q: float, sigma: float) -> float:
    """Returns about the distance between the largest and the smallest loss that `one_round` keeps."""
    reach = _TAIL_SIGMAS / sigma + 0.5 / sigma**2
    up, down = log_mixture(q, reach), log_mixture(q, -reach)
    return {"add-remove": up - down, "replace": 2 * (up - down), "symmetrised": 2 * up}[pair]


def log_mixture(q: float, exponent: float) -> float:
    """Returns log(1 - q + q * e^exponent)."""
    if q == 1:
        return exponent
    a, b = math.log1p(-q), math.log(q) + exponent
    return max(a, b) + math.log1p(math.exp(-abs(a - b)))


def removal_curve(losses: Any, q: float, sigma: float) -> Any:
    """Returns D(e) for losses e >= 0: the hockey-stick divergence of (1-q) N(0) + q N(1) from N(0).

    D(e) = q (P[N(1) > x] - exp(e0) P[N(0) > x]), where exp(e0) = 1 + (exp(e) - 1)/q and x = sigma^2 e0 + 1/2 is where
    the loss of N(1) against N(0) is e0. In this form nothing is lost when q is small.

    Args:
        losses: shape (n,), each >= 0.

    Returns:
        Shape (n,), falling, each in [0, 1].
    """
    import numpy as np
    from scipy import special

    inner = _unsampled(losses, q)
    x = sigma**2 * inner + 0.5
    curve = q * (special.ndtr((1 - x) / sigma) - np.exp(inner + special.log_ndtr(-x / sigma)))
    return np.clip(np.minimum.accumulate(curve), 0.0, 1.0)


def addition_curve(losses: Any, q: float, sigma: float) -> Any:
    """Returns, for losses e >= 0, the hockey-stick divergence of N(0) from (1-q) N(0) + q N(1); shapes as above.

    Zero from e = -log(1-q) on. Below, with exp(e0) = q / (exp(-e) - (1-q)): the weight w = 1 - exp(e)(1-q) of what is
    not covered by the common part, times P[N(0) < x] - exp(e0) P[N(1) < x] with x = 1/2 - sigma^2 e0.
    """
    import numpy as np
    from scipy import special

    losses = np.minimum(losses, 700.0)
    weight = -np.expm1(losses) + q * np.exp(losses)
    with np.errstate(divide="ignore", invalid="ignore"):
        inner = np.log(q) + losses - np.log(weight)
        x = 0.5 - sigma**2 * inner
        curve = weight * (special.ndtr(x / sigma) - np.exp(inner + special.log_ndtr((x - 1) / sigma)))
    return np.where(weight > 0, np.clip(curve, 0.0, 1.0), 0.0)


def replacement_curve(losses: Any, q: float, sigma: float) -> Any:
    """Returns, for losses e >= 0, the hockey-stick divergence of the pair "replace"; shapes as above.

    The loss is e at x = sigma^2 (asinh(r sinh(e/2)) + e/2) with r = exp(1/(2 sigma^2)) (1-q)/q, and grows with x.
    """
    import numpy as np
    from scipy import special

    with np.errstate(divide="ignore"):
        log_sinh = losses / 2 + np.log(-np.expm1(-losses) / 2)
        log_ratio = 0.5 / sigma**2 + np.log1p(-q) - np.log(q)
    asinh = np.logaddexp(log_ratio + log_sinh, 0.5 * np.logaddexp(0.0, 2 * (log_ratio + log_sinh)))
    x = sigma**2 * (asinh + losses / 2)
    one_way = special.ndtr((1 - x) / sigma) - np.exp(losses + special.log_ndtr((-1 - x) / sigma))
    with np.errstate(divide="ignore"):
        both = (1 - q) * np.exp(np.log(np.expm1(np.minimum(losses, 700.0))) + special.log_ndtr(-x / sigma))
    return np.clip(np.minimum.accumulate(q * one_way - both), 0.0, 1.0)


def _unsampled(losses: Any, q: float) -> Any:
    """Returns log(1 + (exp(e) - 1)/q), without overflow."""
    import numpy as np

    if q == 1:
        return losses
    large = losses > 40
    small = np.log1p(np.expm1(np.where(large, 0.0, losses)) / q)
    return np.where(large, losses - math.log(q), small)
