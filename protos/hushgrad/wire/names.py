"""Names and numbers that must not be mixed up."""

import re
from typing import NewType

from hushgrad.wire.errors import ContractError

Round = NewType("Round", int)
"""Counts one participant's local rounds from 0."""

Version = NewType("Version", int)
"""Counts published global models from 0."""

MAX_NAME_LENGTH = 63

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")


def check_name(name: str, *, what: str = "participant") -> str:
    """Returns the name if the contract allows it.

    Raises:
        ContractError: if it is not 1 to 63 characters from a-z, 0-9, '.', '_', '-', beginning with a letter or digit.

    >>> check_name("client-1")
    'client-1'
    """
    if not _NAME.fullmatch(name):
        raise ContractError(
            f"{what} must be 1 to {MAX_NAME_LENGTH} characters from a-z, 0-9, '.', '_', '-' and begin with a letter or "
            f"digit, found {name[: MAX_NAME_LENGTH + 1]!r}"
        )
    return name
