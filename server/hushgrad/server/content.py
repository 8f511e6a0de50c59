"""Tells updates that the declared mechanism cannot have produced, whatever the data, from all others.

Looks only at what every server holds anyway: the noised numbers and public terms. It spends no privacy, and it knows
nothing of participants, of earlier rounds, or of what is done about a finding.

What an update is. U = v + n, with v the sum of at most B clipped gradients on the grid and n discrete Gaussian noise of
scale s = sigma C / G, d of each. Of v, which is data, only its length is used: |v| <= L = 1.001 B C / G + sqrt(d) / 2,
the second term for rounding, the thousandth for clip factors and sums in floating point. B is the terms'
max_examples_per_round; with Poisson sampling it is raised, where needed, to what a round of the nominal sample size
passes with probability below 1e-10 a run. Let T = |U|^2 / s^2 and Lambda = (L / s)^2.

What cannot be. For every v, with probability at most the right-hand side,

    T <= t d, t < 1                    exp(-(d/2) (t - 1 - ln t))
    T >= t > d + Lambda                exp(-theta t + (d/2) ln y + theta Lambda y), 1/y = 1 - 2 theta
    max |U_j| >= L + t s               2 d exp(-t^2 / 2)
    one low byte in N > d/256 of the elements, or one value of one of its bits in N > d/2 of them
                                       exp(-d KL(N/d || p)), p = 1/256 or 1/2, for each byte and bit

The first two are Chernoff bounds. By Poisson summation the moment generating function of (v_j + n_j)^2 / s^2 under the
discrete Gaussian is that of a noncentral chi-square, up to a factor 1 + 1e-70 while the tilted Gaussian is 3 grid
steps wide (so t is not taken below 9 / s^2). The upper one grows with |v|; theta is the best one for |v| = L. The lower
one is largest at v = 0, coordinate by coordinate: a decreasing function of |x| and a symmetric unimodal density overlap
most when they have one centre (Hardy and Littlewood's rearrangement inequality). The third is the subgaussian tail of
the discrete Gaussian (Canonne, Kamath, Steinke, "The discrete Gaussian for differential privacy", 2020) and a union.
The fourth holds because the noise is 2^16 grid steps wide, and more, by the terms: modulo 256 it is uniform up to
exp(-2 pi^2 2^16), and stays so when any v is added.

The imperfect sampler. Elements saturated at 2^31 - 1 are left out of the counts of bytes; they shorten U in the second
and third line, and weaken the first by a factor 1 + 1e-11 (nine standard deviations fit: `grid.check_sums_fit`). A
coordinate of a real sampler differs from the ideal one with probability <= 2e-19. At most k such coordinates are
allowed for, k the smallest number that is passed with probability below 4e-10 a run; each moves U by at most 27 s,
twice the sampler's support of 13.2 s, and each count by one. k = 0 for all but huge federations.

False alarms. 4e-10 for the bounds above, shared by all rounds of all participants and four groups of statistics,
4e-10 for k, 1e-10 for B: together below FALSE_ALARM = 1e-9 for a whole run, whatever the data.

Power. A norm says something of the noise only where noise dominates. Half the noise gives T near d/4 + |v|^2 / s^2, and
where Lambda >= d gradients could make up for what is missing: no check of one update can be sure then. docs/limits.md
has numbers.
"""

import math
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import numpy.typing as npt
from hushgrad.wire import header as wire_header
from hushgrad.wire.errors import ContractError
from hushgrad.wire.grid import INT32_MAX
from hushgrad.wire.header import UpdateHeader
from hushgrad.wire.terms import Terms

FALSE_ALARM: Final = 1e-9
"""Bound of the probability that anything of an honest run is found improbable, whatever its data."""

Policy = Literal["refuse", "accept-and-flag"]
Statistic = Literal["norm-too-small", "norm-too-large", "element-too-large", "low-bytes-not-noise"]

_TESTS_SHARE: Final = 4e-10
_BAD_SHARE: Final = 4e-10
_BATCH_SHARE: Final = 1e-10
_GROUPS: Final = 4
_BAD_COORDINATE: Final = 2e-19
_BAD_MOVES: Final = 27.0
_SIGNAL_MARGIN: Final = 1.001
_CHUNK: Final = 2**14
_BITS: Final = ((np.arange(256)[:, None] >> np.arange(8)) & 1).astype(np.int64)


@dataclass(frozen=True, slots=True)
class Measures:
    """What is looked at of a payload.

    Attributes:
        count: number of elements.
        sum_of_squares: in grid steps squared.
        largest: largest absolute value, in grid steps.
        low_bytes: how many elements have each low byte, shape (256,).
        saturated: how many elements are at +-(2^31 - 1).
    """

    count: int
    sum_of_squares: float
    largest: int
    low_bytes: npt.NDArray[np.int64]
    saturated: int


@dataclass(frozen=True, slots=True)
class Finding:
    """Why an update is improbable.

    Attributes:
        statistic: which statistic; all that logs say.
        detail: for the sender, the operator and the export; nothing in it but what follows from the update.
    """

    statistic: Statistic
    detail: str


def measure(payload: bytes | memoryview) -> Measures:
    """Measures a payload of little-endian int32. Pure; some 6 ns an element: call it off the event loop for large ones.

    >>> measure(np.array([3, -4], "<i4").tobytes()).sum_of_squares
    25.0
    """
    elements = np.frombuffer(payload, "<i4")
    squares = 0.0
    low_bytes = np.zeros(256, np.int64)
    for start in range(0, elements.size, _CHUNK):
        part = elements[start : start + _CHUNK]
        wide = part.astype(np.float64)
        squares += float(np.square(wide, out=wide).sum())  # Not a dot product: BLAS would wake its threads.
        low_bytes += np.bincount(part.view(np.uint8)[::4], minlength=256)
    largest = max(abs(int(elements.max())), abs(int(elements.min()))) if elements.size else 0
    saturated = 0
    for start in range(0, elements.size if largest >= INT32_MAX else 0, _CHUNK):
        saturated += int(np.count_nonzero(np.abs(elements[start : start + _CHUNK]) == INT32_MAX))
    return Measures(elements.size, squares, largest, low_bytes, saturated)


class ContentCheck:
    """The check for one federation.

    Args:
        terms: the federation's.
        policy: "refuse": an improbable update is answered INVALID and stays out of the model. "accept-and-flag": it is
            counted like any other, and its receipt says why it is improbable.
    """

    def __init__(self, terms: Terms, policy: Policy) -> None:
        self.refuses: Final = policy == "refuse"
        self._terms = terms
        self._parameters = d = terms.parameters
        self._updates = terms.largest_number_of_participants * terms.final_version
        self._log_limit = math.log(_TESTS_SHARE / (self._updates * _GROUPS))
        self._bad = _allowed_bad(d, self._updates)
        self._batches: dict[int, int] = {}

    def finding(self, header_bytes: bytes, measures: Measures) -> Finding | None:
        """Says why an update is improbable; None when it is not, or when its header declares no mechanism of the terms.

        Such headers are refused elsewhere; those marked as insecure noise are taken in tests alone.
        """
        try:
            header = wire_header.unpack(header_bytes)
        except ContractError:
            return None
        if header.flags & wire_header.FLAG_INSECURE_NOISE or measures.count != self._parameters:
            return None
        privacy = self._terms.privacy
        if not privacy.noise_multiplier_min <= header.noise_multiplier <= privacy.noise_multiplier_max:
            return None
        if header.clip_norm != privacy.clip_norm:
            return None
        scale = math.ldexp(header.noise_multiplier * header.clip_norm, -self._terms.grid_exponent)
        signal = self._signal(header)
        return (
            self._norm(header, measures, scale, signal)
            or self._largest(header, measures, scale, signal)
            or self._low_bytes(measures)
        )

    def _norm(self, header: UpdateHeader, measures: Measures, scale: float, signal: float) -> Finding | None:
        d = measures.count
        norm = math.sqrt(measures.sum_of_squares) / scale
        slack = _BAD_MOVES * math.sqrt(self._bad)
        low = log_chance_below(max((norm + slack) ** 2, 9 * d / scale**2), d)
        if low < self._log_limit:
            return Finding(
                "norm-too-small",
                f"{_found(norm, d, header)}; the declared noise alone gives 1 or a little less for whatever data, and "
                f"this little {_chance(low)}; draw noise of standard deviation noise_multiplier * clip_norm for every "
                "element",
            )
        high = log_chance_above(max(norm - slack, 0.0) ** 2, d, (signal / scale) ** 2)
        if high < self._log_limit:
            return Finding(
                "norm-too-large",
                f"{_found(norm, d, header)}; noise and {self._batch(header)} gradients clipped to {header.clip_norm:g} "
                f"give this much {_chance(high)}; clip each example's gradient, and declare the noise that is drawn",
            )
        return None

    def _largest(self, header: UpdateHeader, measures: Measures, scale: float, signal: float) -> Finding | None:
        beyond = (measures.largest - signal) / scale
        log_chance = math.log(2 * measures.count) - beyond**2 / 2
        if beyond <= 0 or log_chance >= self._log_limit or (self._bad and beyond < _BAD_MOVES):
            return None
        return Finding(
            "element-too-large",
            f"one element is {beyond:.1f} standard deviations of the declared noise beyond what "
            f"{self._batch(header)} gradients clipped to {header.clip_norm:g} can add up to, which happens "
            f"{_chance(log_chance)}; clip each example's gradient",
        )

    def _low_bytes(self, measures: Measures) -> Finding | None:
        d, bad = measures.count, self._bad + measures.saturated
        tests = math.log(256 + 16)
        top = int(measures.low_bytes.max())
        ones = measures.low_bytes @ _BITS
        bits = int(np.maximum(ones, d - ones).max())
        log_chance = min(_log_chance_count(top - bad, d, 1 / 256), _log_chance_count(bits - bad, d, 1 / 2)) + tests
        if log_chance >= self._log_limit:
            return None
        return Finding(
            "low-bytes-not-noise",
            f"the lowest byte takes one value in {top} of {d} elements, and one of its bits is the same in {bits}; "
            f"integer noise this wide makes it uniform for whatever data, and this happens {_chance(log_chance)}; send "
            "little-endian int32, on the terms' grid, with noise in every element",
        )

    def _signal(self, header: UpdateHeader) -> float:
        """Returns L, in grid steps."""
        total = _SIGNAL_MARGIN * self._batch(header) * header.clip_norm
        return math.ldexp(total, -self._terms.grid_exponent) + math.sqrt(self._parameters) / 2

    def _batch(self, header: UpdateHeader) -> int:
        """Returns B."""
        largest = self._terms.privacy.max_examples_per_round
        if header.sampler != "poisson":
            return largest
        size = self._terms.sample_size(header.round)
        if size not in self._batches:
            if len(self._batches) >= 64:
                self._batches.clear()
            self._batches[size] = batch_bound(size, math.log(_BATCH_SHARE / self._updates))
        return max(largest, self._batches[size])


def log_chance_below(t: float, d: int) -> float:
    """Returns a bound of log P(T <= t), t > 0, whatever the data; 0 when it says nothing.

    >>> round(log_chance_below(50.0, 100), 2)
    -9.66
    """
    ratio = t / d
    if ratio >= 1:
        return 0.0
    return -(d / 2) * (ratio - 1 - math.log(ratio))


def log_chance_above(t: float, d: int, noncentrality: float) -> float:
    """Returns a bound of log P(T >= t) for data whose (|v| / s)^2 is at most `noncentrality`; 0 when it says nothing.

    The bound at its best theta: y solves Lambda y^2 + d y = T.

    >>> round(log_chance_above(200.0, 100, 0.0), 2)
    -15.34
    """
    if t <= d + noncentrality:
        return 0.0
    y = 2 * t / (d + math.sqrt(d**2 + 4 * noncentrality * t))
    theta = (1 - 1 / y) / 2
    return -theta * t + d / 2 * math.log(y) + theta * noncentrality * y


def batch_bound(mean: int, log_chance: float) -> int:
    """Returns a number of examples that Poisson sampling with this mean passes with at most this probability.

    Chernoff: P(X >= k) <= exp(-(k ln(k / mean) - k + mean)) for every binomial X with that mean, or a smaller one.

    >>> batch_bound(26, math.log(1e-15))
    79
    """
    low, high = mean, mean + 1
    while _log_batch(high, mean) > log_chance:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _log_batch(middle, mean) > log_chance else (low, middle)
    return high


def _log_batch(k: int, mean: int) -> float:
    return -(k * math.log(k / mean) - k + mean)


def _log_chance_count(count: int, d: int, p: float) -> float:
    """Returns a bound of log P(X >= count), X binomial(d, p): Chernoff, by relative entropy."""
    share = count / d
    if share <= p:
        return 0.0
    entropy = share * math.log(share / p)
    if share < 1:
        entropy += (1 - share) * math.log((1 - share) / (1 - p))
    return -d * entropy


def _allowed_bad(d: int, updates: int) -> int:
    mean, bad = d * _BAD_COORDINATE, 0
    while updates * mean ** (bad + 1) / math.factorial(bad + 1) > _BAD_SHARE:
        bad += 1
    return bad


def _found(norm: float, d: int, header: UpdateHeader) -> str:
    return (
        f"the update's root mean square is {norm / math.sqrt(d):.3g} times the noise that noise_multiplier "
        f"{header.noise_multiplier:g} declares"
    )


def _chance(log_chance: float) -> str:
    exponent = math.floor(-log_chance / math.log(10)) if math.isfinite(log_chance) else math.inf
    return f"with a probability below 1e-{min(exponent, 999):.0f}"
