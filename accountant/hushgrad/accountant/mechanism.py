"""One round's release as public numbers: how far a record can move it, and how far its noise is from a Gaussian.

It knows the arithmetic of a round (clipping, sums, grid, integer noise) but neither how records are sampled nor how
rounds compose.

In formulas: C the clip norm, sigma the configured noise multiplier, G = 2**g the grid step, d the number of parameters,
s = sigma * C / G the standard deviation of the noise in grid steps, u a unit roundoff.
"""

import math
from dataclasses import dataclass

from hushgrad.accountant import _validate
from hushgrad.accountant.errors import AccountantError, RefusedError

NOISE_TABLES_TOTAL_VARIATION = 2e-19
"""Per coordinate: table noise against the discrete Gaussian of scale s; derived in `Mechanism.noise_distance`."""

MIN_NOISE_STEPS = 2**8
"""Smallest s for which that constant is derived. A grid within the terms' rule has s >= 2**16."""

FLOAT64_UNIT_ROUNDOFF = 2.0**-53


@dataclass(frozen=True, slots=True)
class Mechanism:
    """How one round makes an update out of clipped gradients. Every number is public.

    Attributes:
        clip_norm: C > 0, the L2 norm that every per-example gradient is clipped to.
        noise_multiplier: sigma > 0 as configured: the noise has standard deviation sigma * C per coordinate.
        grid_exponent: g; sums are rounded to multiples of G = 2**g, noise is an integer number of G.
        parameters: d >= 1, the number of coordinates.
        max_examples_per_round: n_max >= 1, the largest batch for which the summation error is bounded.
        chunk_examples: m >= 1, how many clipped gradients are summed in the model's own precision; the sums of chunks
            are added in float64.
        unit_roundoff: of the precision within a chunk: 2**-53 for float64, 2**-24 for float32.
        clip_error: kappa >= 0; a clipped gradient has norm at most C * (1 + kappa).

    >>> mechanism = Mechanism(clip_norm=0.5, noise_multiplier=2.1, grid_exponent=-16, parameters=69,
    ...     max_examples_per_round=400, chunk_examples=64, unit_roundoff=2**-53, clip_error=1e-12)
    >>> round(mechanism.sensitivity(), 6), round(mechanism.charged_noise_multiplier(), 6)
    (0.500127, 2.099468)
    """

    clip_norm: float
    noise_multiplier: float
    grid_exponent: int
    parameters: int
    max_examples_per_round: int
    chunk_examples: int
    unit_roundoff: float
    clip_error: float

    def __post_init__(self) -> None:
        _validate.positive("clip_norm", self.clip_norm)
        _validate.positive("noise_multiplier", self.noise_multiplier)
        if not -1000 <= _validate.integer("grid_exponent", self.grid_exponent) <= 1000:
            raise AccountantError(f"grid_exponent must be -1000 to 1000, found {self.grid_exponent}")
        _validate.count("parameters", self.parameters)
        _validate.count("max_examples_per_round", self.max_examples_per_round)
        _validate.count("chunk_examples", self.chunk_examples)
        _validate.positive("unit_roundoff", self.unit_roundoff)
        _validate.not_negative("clip_error", self.clip_error)
        for what, summands, roundoff in (
            ("chunk_examples", self.chunk_examples, self.unit_roundoff),
            ("max_examples_per_round / chunk_examples", self._chunks(), FLOAT64_UNIT_ROUNDOFF),
        ):
            if summands**2 * roundoff > 1:
                raise AccountantError(
                    f"{what} must be at most {math.isqrt(int(1 / roundoff))} at unit roundoff {roundoff:.3g}, "
                    f"found {summands}: beyond, the bound of the summation error does not hold"
                )

    def _chunks(self) -> int:
        return -(-self.max_examples_per_round // self.chunk_examples)

    def noise_steps(self) -> float:
        """Returns s = sigma * C / G, the standard deviation of the noise in grid steps."""
        return math.ldexp(self.noise_multiplier * self.clip_norm, -self.grid_exponent)

    def sensitivity(self) -> float:
        """Returns Delta, the largest L2 distance between a round's sums on the grid with and without one record.

        Delta = C (1 + kappa) + G sqrt(d) + 2 e, in units of the loss:

        - C (1 + kappa): the record's own clipped gradient. The other records' gradients are bit-identical in both sums,
          because a chunk has a fixed shape.
        - G sqrt(d): each sum is moved by at most G/2 per coordinate to the grid, hence by G sqrt(d) / 2 in L2, twice.
        - 2 e: each computed sum is within e of the exact one. Adding m numbers in any order errs by at most
          (m-1)u / (1 - (m-1)u) <= m u times the sum of their absolute values, if m^2 u <= 1; over coordinates, in L2,
          m u times the sum of the norms (Minkowski). With n_max gradients of norm C in chunks of m, that is
          n_max C m u within chunks and, for n_max/m chunks added in float64, n_max C (n_max/m) 2^-53 across them.

        With `fixed` sampling one record leaves and another takes its place: at most 2 C (1 + kappa) + G sqrt(d) + 2 e,
        which is at most 2 Delta, as half the noise multiplier assumes.

        With one record replaced: under Poisson sampling the two batches are the same, or the same batch of others plus
        the one record or the other; each of these two sums is within Delta of the others' sum, which is what the pair
        "replace" assumes. Under `fixed` sampling the two batches differ in one record: at most 2 Delta again. Masks,
        the tail of the batch size and the noise's tables do not depend on which record it is.

        Reference:
            Higham, "Accuracy and Stability of Numerical Algorithms", sections 3.1 and 4.2.
        """
        C, kappa, m = self.clip_norm, self.clip_error, self.chunk_examples
        # (1 + kappa) twice and one more u: gradients may be a little longer than C, and second-order terms are real.
        e = self.max_examples_per_round * C * (1 + kappa) * (m * self.unit_roundoff)
        e += self.max_examples_per_round * C * (1 + kappa) * (1 + m * self.unit_roundoff) * self._chunks() * 2.0**-53
        return C * (1 + kappa) + math.ldexp(math.sqrt(self.parameters), self.grid_exponent) + 2 * e

    def charged_noise_multiplier(self) -> float:
        """Returns sqrt(s^2 - 1/12) * G / Delta, the noise multiplier that a schedule is charged.

        Rounding a Gaussian of variance s^2 - 1/12 to integers adds the variance 1/12 of the rounding. Sums on the grid
        plus such noise, rounded, are a function of sums plus a continuous Gaussian (an integer moves through rounding
        unchanged), so they are as private as the Gaussian mechanism with that variance. What is drawn is the discrete
        Gaussian of scale s instead; the distance between the two is paid for in delta, see `noise_distance`.

        Raises:
            RefusedError: if s < MIN_NOISE_STEPS.
        """
        self._check_noise_steps()
        s = self.noise_steps()
        return math.ldexp(math.sqrt(s**2 - 1 / 12), self.grid_exponent) / self.sensitivity()

    def noise_distance(self) -> float:
        """Returns a bound of the total variation between one round's noise and a rounded Gaussian, all coordinates.

        d * (2e-19 + 1e-3 / s^4). Coordinates are independent and each costs at most:

        - 1e-3 / s^4, the discrete Gaussian of scale s against N(0, s^2 - 1/12) rounded: `rounded_gaussian_distance`.
        - 2e-19 for the tables. A draw is b X + Y with discrete Gaussians X and Y, s_Y = 1.7 b,
          s_X = sqrt(s^2 - s_Y^2) / b, b = 2^ceil(log2(s) / 2), each from an alias table of 2^m cells:
          - Convolution. P[b X + Y = n] is the Gaussian of scale s at n, times a sum of a Gaussian of variance
            t^2 = s_X^2 b^2 s_Y^2 / s^2 over a shifted copy of b Z. By Poisson summation that sum is constant up to
            a factor 1 +- 2 exp(-2 pi^2 t^2 / b^2) (1 + tiny), and t^2 / b^2 = 1.7^2 (1 - s_Y^2 / s^2): below 4e-25
            for s >= 2^16 and below 6e-24 for s >= MIN_NOISE_STEPS, as b < 2 sqrt(s).
          - Tails. Each table holds |x| <= 9.3 standard deviations; beyond lies at most P(|Z| > 9.3) < 1.5e-20, for both
            tables 3e-20.
          - Rounding. Weights are rounded to multiples of 2^-(64+m); at most 2^m entries, each off by half a unit,
            and one that puts the total right: 2^-65 for each table in total variation; 2^-63 = 1.1e-19 covers both.

        Raises:
            RefusedError: if s < MIN_NOISE_STEPS.

        Reference:
            Micciancio and Walter, "Gaussian Sampling over the Integers", CRYPTO 2017, for sums of this shape.
        """
        self._check_noise_steps()
        return self.parameters * (NOISE_TABLES_TOTAL_VARIATION + rounded_gaussian_distance(self.noise_steps()))

    def _check_noise_steps(self) -> None:
        if self.noise_steps() < MIN_NOISE_STEPS:
            raise RefusedError(
                f"the noise must be at least {MIN_NOISE_STEPS} grid steps wide, found {self.noise_steps():.4g}; lower "
                "the grid exponent or raise the noise multiplier"
            )


def rounded_gaussian_distance(s: float) -> float:
    """Returns 1e-3 / s^4, a bound of the total variation between two integer distributions of variance s^2.

    They are the discrete Gaussian of scale s >= 2 and N(0, s^2 - 1/12) rounded to integers. The probability of an
    integer k under the second is the density, at k, of the Gaussian plus a uniform in (-1/2, 1/2). Their cumulants
    add: variance s^2, fourth cumulant -1/120, sixth 1/252, odd ones 0. So (Edgeworth) it is the density of N(0, s^2) at
    k times 1 - He4(k/s) / (2880 s^4) + O(s^-6), while the discrete Gaussian is that density up to exp(-2 pi^2 s^2). The
    total variation is half the mean of the difference: E|He4(Z)| / (5760 s^4) = 2.8 / (5760 s^4) < 4.9e-4 / s^4.
    The factor two covers the rest; the distance times s^4 is computed exactly for small s in the tests, and falls
    towards its limit as s grows.
    """
    return 1e-3 / s**4
