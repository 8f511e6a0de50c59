"""Checks of single numbers, each message with the parameter's name; nothing here knows what the numbers mean."""

import math
import numbers
from typing import Any

from hushgrad.accountant.errors import AccountantError


def real(name: str, value: Any) -> float:
    """Returns value as a float; refuses bool, text, None, NaN and infinity."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise AccountantError(f"{name} must be a number, found {value!r}")
    try:
        number = float(value)
    except OverflowError:
        raise AccountantError(f"{name} must be below 1.8e308, found a larger whole number") from None
    if not math.isfinite(number):
        raise AccountantError(f"{name} must be finite, found {value!r}")
    return number


def positive(name: str, value: Any) -> float:
    """Returns value as a float > 0 and finite."""
    number = real(name, value)
    if number <= 0:
        raise AccountantError(f"{name} must be > 0, found {value!r}")
    return number


def not_negative(name: str, value: Any) -> float:
    """Returns value as a float >= 0 and finite."""
    number = real(name, value)
    if number < 0:
        raise AccountantError(f"{name} must be >= 0, found {value!r}")
    return number


def probability(name: str, value: Any) -> float:
    """Returns value as a float in (0, 1]."""
    number = real(name, value)
    if not 0 < number <= 1:
        raise AccountantError(f"{name} must be > 0 and <= 1, found {value!r}")
    return number


def delta(name: str, value: Any) -> float:
    """Returns value as a float in (0, 1)."""
    number = real(name, value)
    if not 0 < number < 1:
        raise AccountantError(f"{name} must be > 0 and < 1, found {value!r}")
    return number


def count(name: str, value: Any) -> int:
    """Returns value as an int >= 1; a bool is not a count."""
    number = integer(name, value)
    if number < 1:
        raise AccountantError(f"{name} must be >= 1, found {value!r}")
    return number


def integer(name: str, value: Any) -> int:
    """Returns value as an int; a bool or a float is not one."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise AccountantError(f"{name} must be a whole number, found {value!r}")
    return int(value)


def choice(name: str, value: Any, allowed: tuple[str, ...]) -> str:
    """Returns value if it is one of the allowed words."""
    if value not in allowed:
        raise AccountantError(f"{name} must be one of {', '.join(allowed)}, found {value!r}")
    return str(value)
