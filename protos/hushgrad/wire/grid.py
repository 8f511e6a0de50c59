"""Integers in place of floating-point numbers: the grid of updates, the steps, and the server's int64 array.

Names in formulas: g and G = 2**g the grid exponent and step, p the step exponent, e_i the step numerators,
M the server's array, C the clip norm, sigma the noise multiplier, d the number of parameters.
"""

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import numpy.typing as npt
from hushgrad.wire.errors import ContractError

INT32_MAX = 2**31 - 1
MIN_STEP_NUMERATOR = 2**8
"""Below it, rounding a step size to an integer would change it by more than 0.2 %."""


def grid_exponent(*, clip_norm: float, noise_multiplier_min: float, parameters: int) -> int:
    """Returns the largest g with 2**g <= min(sigma_min * C / 2**16, 0.01 * C / sqrt(d)).

    The first bound makes the noise at least 2**16 grid steps wide; the second makes rounding to the grid cost at most
    1 % of the clip norm in sensitivity.

    >>> grid_exponent(clip_norm=0.5, noise_multiplier_min=2.0, parameters=69)
    -16
    """
    bound = min(noise_multiplier_min * clip_norm / 2**16, 0.01 * clip_norm / math.sqrt(parameters))
    if not math.ldexp(1.0, -200) <= bound < math.ldexp(1.0, 201):
        raise ContractError(
            f"clip norm {clip_norm} and noise multiplier {noise_multiplier_min} ask for a grid of at most {bound:.3g}, "
            "outside 2**-200 .. 2**200; scale the loss"
        )
    return math.frexp(bound)[1] - 1


def check_sums_fit(
    *, grid_exponent: int, clip_norm: float, noise_multiplier_max: float, max_examples_per_round: int
) -> None:
    """Refuses a grid on which a round's sum and nine standard deviations of noise do not fit into an int32.

    Raises:
        ContractError: unless 2**31 * G >= (n_max + 9 * sigma_max) * C.
    """
    largest = (max_examples_per_round + 9 * noise_multiplier_max) * clip_norm
    room = math.ldexp(1.0, 31 + grid_exponent)
    if room < largest:
        raise ContractError(
            f"a grid of 2**{grid_exponent} holds sums up to {room:.6g}, but {max_examples_per_round} examples clipped "
            f"to {clip_norm} and noise multiplier {noise_multiplier_max} may reach {largest:.6g}; lower "
            "max_examples_per_round or noise_multiplier_max, or raise noise_multiplier_min"
        )


def step_numerators(step_sizes: Sequence[float], step_exponent: int) -> list[int]:
    """Returns e_i = round(eta_i * 2**p), to nearest even."""
    scaled = np.rint(np.ldexp(np.asarray(step_sizes, np.float64), step_exponent))
    return [int(value) for value in scaled]


def array_bound(*, initial_max: int, participants: int, numerators_sum: int) -> int:
    """Returns the largest |M| that can ever occur: |M_0| + participants * (2^31-1) * sum e_i."""
    return initial_max + participants * INT32_MAX * numerators_sum


def step_exponent(step_sizes: Sequence[float], *, initial_max: float, grid_exponent: int, participants: int) -> int:
    """Returns the largest p for which the server's array cannot overflow.

    Args:
        step_sizes: eta_i > 0, one per round of the whole federation.
        initial_max: largest absolute value in the initial model.
        grid_exponent: g.
        participants: the number of participants that the terms allow.

    Raises:
        ContractError: if no p keeps every numerator at 2**8 or more.
    """
    if min(step_sizes) <= 0 or not math.isfinite(sum(step_sizes)):
        wrong = next((value for value in step_sizes if not 0 < value < math.inf), sum(step_sizes))
        raise ContractError(f"step sizes and their sum must be finite and > 0, found {wrong}")
    if not math.isfinite(initial_max):
        raise ContractError(f"the initial model must hold finite numbers, found {initial_max}")
    p = 62 - math.frexp(participants * 2.0**31 * sum(step_sizes))[1] + 2
    while True:
        numerators = step_numerators(step_sizes, p)
        if min(numerators) < MIN_STEP_NUMERATOR:
            raise ContractError(
                f"no step exponent holds these step sizes: the smallest, {min(step_sizes):.3g}, would be "
                f"{min(numerators)} / 2**{p}, below {MIN_STEP_NUMERATOR} / 2**{p}; use fewer rounds or participants, "
                "or step sizes that differ less"
            )
        m0 = abs(round(Fraction(initial_max) * Fraction(2) ** (p - grid_exponent)))
        bound = array_bound(initial_max=m0, participants=participants, numerators_sum=sum(numerators))
        if bound < 2**63 and p >= 0:
            return p
        p -= 1
        if p < 0:
            raise ContractError(
                f"no step exponent >= 0 keeps the server's array below 2**63; the step sizes sum to "
                f"{sum(step_sizes):.3g}; lower them or raise the clip norm"
            )


def initial_array(model: npt.NDArray[np.float32], *, grid_exponent: int, step_exponent: int) -> npt.NDArray[np.int64]:
    """Returns M_0 = round(w_0 * 2**(p-g)), to nearest even, shape (d,)."""
    return np.rint(np.ldexp(model.astype(np.float64), step_exponent - grid_exponent)).astype(np.int64)


def published_model(array: npt.NDArray[np.int64], *, grid_exponent: int, step_exponent: int) -> npt.NDArray[np.float32]:
    """Returns M as published: to float64, times 2**(g-p), to float32, nearest even each time. Shape (d,)."""
    wide = array.astype(np.float64)
    exponent = grid_exponent - step_exponent
    if exponent < -1022:
        return np.ldexp(wide, exponent).astype(np.float32)
    # The same as ldexp, several times faster: a power of two changes no digit.
    return np.multiply(wide, math.ldexp(1.0, exponent), out=wide).astype(np.float32)
