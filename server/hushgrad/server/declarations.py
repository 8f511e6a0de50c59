"""What callers say for people to see: the claim of a participant, and the score of an evaluator.

Values in, values out. Nothing here is believed and nothing is decided by it; it is only held to what a claim or a score
can be at all.
"""

import math
from typing import Final

from hushgrad.server.records import DeclaredClaim
from hushgrad.v1 import membership_pb2, status_pb2
from hushgrad.wire import header
from hushgrad.wire.errors import ContractError

MAX_COUNT: Final = 2**53
"""Counts of rounds and examples reach so far: JSON's numbers, and so browsers', are exact up to it."""

_MAX_METHOD_LENGTH: Final = 32
_MAX_VERSION_LENGTH: Final = 64
_ADJACENCIES: Final = ("add-remove", "replace-one")


def claim(message: membership_pb2.DeclaredClaim) -> DeclaredClaim:
    """Returns what a participant declared.

    Raises:
        ContractError: if it is no claim.
    """
    if not (math.isfinite(message.epsilon) and message.epsilon >= 0):
        raise ContractError(f"claim.epsilon must be finite and >= 0, found {message.epsilon}")
    if not 0 < message.delta < 1:
        raise ContractError(f"claim.delta must be above 0 and below 1, found {message.delta}")
    if message.adjacency not in _ADJACENCIES:
        raise ContractError(f"claim.adjacency must be {' or '.join(_ADJACENCIES)}, found {message.adjacency[:32]!r}")
    sampler = header.SAMPLER_NAMES.get(message.sampler)
    if sampler is None:
        raise ContractError(f"claim.sampler must be poisson (1) or fixed (2), found {message.sampler}")
    if message.unit != "record":
        raise ContractError(f"claim.unit must be 'record', found {message.unit[:32]!r}")
    if not 1 <= message.planned_rounds <= MAX_COUNT:
        raise ContractError(f"claim.planned_rounds must be 1 to 2^53, found {message.planned_rounds}")
    return DeclaredClaim(
        epsilon=message.epsilon,
        delta=message.delta,
        adjacency=message.adjacency,
        sampler=sampler,
        unit=message.unit,
        method=_text(message.method, "claim.method", _MAX_METHOD_LENGTH),
        method_version=_text(message.method_version, "claim.method_version", _MAX_VERSION_LENGTH),
        planned_rounds=message.planned_rounds,
        timing_covered=message.timing_covered,
    )


def check_score(message: status_pb2.ReportEvaluationRequest, newest_version: int) -> None:
    """Refuses what is no score of a version that there is.

    Raises:
        ContractError: says which field.
    """
    if message.version > newest_version:
        raise ContractError(f"version must be at most {newest_version}, the newest, found {message.version}")
    _check_share(message.accuracy, "accuracy")
    if message.HasField("averaged_accuracy"):
        _check_share(message.averaged_accuracy, "averaged_accuracy")
    if not 1 <= message.examples <= MAX_COUNT:
        raise ContractError(f"examples must be 1 to 2^53, found {message.examples}")


def _check_share(value: float, what: str) -> None:
    if not 0 <= value <= 1:  # not a number is neither
        raise ContractError(f"{what} must be 0 to 1, found {value}")


def _text(value: str, what: str, longest: int) -> str:
    if not (1 <= len(value) <= longest and value.isascii() and value.isprintable()):
        raise ContractError(f"{what} must be 1 to {longest} printable ASCII characters, found {value[:longest]!r}")
    return value
