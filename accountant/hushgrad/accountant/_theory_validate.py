"""Ranges for which the theorems' formulas are meant and tested; far outside, double precision overflows."""

from typing import Any

from hushgrad.accountant import _validate
from hushgrad.accountant.errors import AccountantError

LARGEST_RECORDS, LARGEST_GRAD_COMPUTATIONS = 10**15, 10**18
SMALLEST_DELTA = 1e-300
NOISE_MULTIPLIERS = (1e-3, 1e9)
EPSILONS = (1e-12, 1e9)


def records(value: Any) -> int:
    """Returns N as an int, 1 to 10^15."""
    return _at_most("records", _validate.count("records", value), LARGEST_RECORDS)


def grad_computations(value: Any) -> int:
    """Returns K as an int, 1 to 10^18."""
    return _at_most("grad_computations", _validate.count("grad_computations", value), LARGEST_GRAD_COMPUTATIONS)


def delta(value: Any) -> float:
    """Returns delta as a float, 1e-300 to below 1."""
    number = _validate.delta("delta", value)
    if number < SMALLEST_DELTA:
        raise AccountantError(f"delta must be at least {SMALLEST_DELTA:g}, found {value!r}")
    return number


def noise_multiplier(value: Any) -> float:
    """Returns sigma as a float, 1e-3 to 1e9."""
    return _between("noise_multiplier", _validate.positive("noise_multiplier", value), NOISE_MULTIPLIERS)


def epsilon(name: str, value: Any) -> float:
    """Returns an epsilon as a float, 1e-12 to 1e9."""
    return _between(name, _validate.positive(name, value), EPSILONS)


def _at_most(name: str, number: int, largest: int) -> int:
    if number > largest:
        raise AccountantError(f"{name} must be at most {float(largest):g}, found a larger number")
    return number


def _between(name: str, number: float, limits: tuple[float, float]) -> float:
    if not limits[0] <= number <= limits[1]:
        raise AccountantError(f"{name} must be {limits[0]:g} to {limits[1]:g}, found {number:g}")
    return number
