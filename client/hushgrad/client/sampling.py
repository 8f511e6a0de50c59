"""Which records take part in a round. Data are unknown here: rows are counted, never seen.

In formulas: N the declared number of records, s the declared sample size, q = s / N, c_j = (1 - q)^j.
"""

from dataclasses import dataclass
from fractions import Fraction
from typing import Final

import numpy as np
import numpy.typing as npt
from hushgrad.client.errors import InputError
from hushgrad.client.stream import RandomStream

_MAX_THRESHOLDS: Final = 2**16
_WORD: Final = 2**64
_GUARD_BITS: Final = 128


class SamplingError(InputError, ValueError):
    """Records cannot be sampled as configured."""


@dataclass(frozen=True, slots=True)
class PoissonTable:
    """Thresholds for the gaps between chosen rows.

    Attributes:
        records: N, declared.
        sample_size: s, declared.
        thresholds: uint64, shape (J,), ascending: 2^64 (1 - c_j) for j = 1 .. J, to nearest. Empty: everybody takes
            part.
    """

    records: int
    sample_size: int
    thresholds: npt.NDArray[np.uint64]


def poisson_table(sample_size: int, records: int) -> PoissonTable:
    """Returns the table for q = s / N.

    J <= min(N, ceil(2 / q), 2^16): long enough that most gaps end within it, short enough to be precise (see
    `poisson`).

    Raises:
        SamplingError: unless s >= 1 and N >= 1. s >= N means q = 1: everybody takes part.
    """
    _check(sample_size, records)
    if sample_size >= records:
        return PoissonTable(records, sample_size, np.zeros(0, np.uint64))
    one = _WORD << _GUARD_BITS
    thresholds, survival = [], one
    for _ in range(min(records, -(-2 * records // sample_size), _MAX_THRESHOLDS)):
        survival = survival * (records - sample_size) // records
        threshold = (one - survival + (1 << _GUARD_BITS - 1)) >> _GUARD_BITS
        if threshold == _WORD:  # no word can exceed it; a shorter table is as good
            break
        thresholds.append(threshold)
    return PoissonTable(records, sample_size, np.array(thresholds, np.uint64))


def poisson(
    stream: RandomStream, table: PoissonTable, rows: int, first: npt.NDArray[np.uint64] | None = None
) -> npt.NDArray[np.int64]:
    """Chooses every row with probability q, independently.

    A gap of j unchosen rows before a chosen one has probability c_j - c_{j+1}. One 64-bit word and one search in the
    table give a gap below J, or say that the next J rows are not chosen; then the search begins anew, for a geometric
    gap has no memory. Work and random bits are O(q * rows).

    Args:
        stream: its mask lane is used.
        table: made for the declared N and s.
        rows: how many rows there are, at most N.
        first: the first `poisson_words(table, rows)` words of the mask lane, where they were taken already.

    Returns:
        The chosen rows, ascending, shape (n,); n = 0 is possible and a valid round.

        The law of the set is within total variation 8 N 2^-64 of the ideal one. Each threshold is within 2^-65 of its
        place, so one word's outcome is within J 2^-65: its J + 1 probabilities are differences of neighbours. With
        ideal words the expected number of words is at most (rows + J) / E[step], by Wald's equation, where E[step] =
        (1 - c_J) / q. As q J < 3 and x / (1 - exp(-x)) increases, the whole is at most (rows + J) 2^-65 q J / (1 -
        c_J) <= 5 N * 3.16 * 2^-65 < 8 N 2^-64.

    Raises:
        SamplingError: if rows > N.
    """
    check_poisson(table.sample_size, table.records, rows)
    length = len(table.thresholds)
    if not length:
        return np.arange(rows, dtype=np.int64)
    batch = poisson_words(table, rows)
    chosen: list[npt.NDArray[np.int64]] = []
    end = -1  # the last row that is decided
    while end < rows - 1:
        words = stream.uint64("mask", batch) if first is None else first
        first = None
        gaps = np.searchsorted(table.thresholds, words, side="right")
        decided = np.minimum(gaps + 1, length).cumsum()
        decided += end
        chosen.append(decided[gaps < length])
        end = int(decided[-1])
    result = chosen[0] if len(chosen) == 1 else np.concatenate(chosen)
    return result[: np.searchsorted(result, rows)]


def poisson_words(table: PoissonTable, rows: int) -> int:
    """Returns how many 64-bit words `poisson` takes at a time: enough for a whole round but once in some 10,000."""
    mean = rows * table.sample_size / table.records
    return int(1.2 * mean + 4 * mean**0.5 + rows / max(len(table.thresholds), 1)) + 4


def fixed(stream: RandomStream, sample_size: int, records: int, rows: int) -> npt.NDArray[np.int64]:
    """Chooses a uniformly random set of s of all rows.

    Independent uniform rows are drawn until s different ones have come up; by symmetry every set is equally likely. A
    uniform row is a 64-bit word divided by floor(2^64 / rows), the few words beyond the last full interval thrown
    away. So the law is exactly uniform given uniform bits: its total variation from the ideal is 0. Above half of the
    rows those left out are drawn instead.

    Args:
        stream: its mask lane is used.
        sample_size: s, declared, < N.
        records: N, declared.
        rows: how many rows there are, >= N, so that s / rows <= s / N, which is accounted.

    Returns:
        The chosen rows, ascending, shape (s,).

    Raises:
        SamplingError: unless 1 <= s < N <= rows.
    """
    check_fixed(sample_size, records, rows)
    if 2 * sample_size <= rows:
        return np.sort(_distinct(stream, sample_size, rows))
    keep = np.ones(rows, bool)
    keep[_distinct(stream, rows - sample_size, rows)] = False
    return np.flatnonzero(keep)


def check_poisson(sample_size: int, records: int, rows: int) -> None:
    """Refuses numbers for which the accounting of `poisson` does not hold.

    A batch beyond the terms' largest is charged as rare as it is among N + 1 records; among more it would be less rare.

    Raises:
        SamplingError: unless s >= 1 and N >= rows, N >= 1.
    """
    _check(sample_size, records)
    if rows > records:
        raise SamplingError(
            f"there are more rows than the {records} declared records; declare at least as many records as there are"
        )


def check_fixed(sample_size: int, records: int, rows: int) -> None:
    """Refuses numbers for which the accounting of `fixed` does not hold.

    Raises:
        SamplingError: unless 1 <= s < N <= rows.
    """
    _check(sample_size, records)
    if sample_size >= records:
        raise SamplingError(
            f"with fixed sampling the sample size must be below the declared records ({records}), found {sample_size}; "
            "a neighbouring data set of one record less could not supply it"
        )
    if records > rows:
        raise SamplingError(
            f"with fixed sampling there must be at least as many rows as the {records} declared records; declare fewer"
        )


def probability(sample_size: int, records: int) -> Fraction:
    """Returns q = min(1, s / N), exactly."""
    _check(sample_size, records)
    return min(Fraction(1), Fraction(sample_size, records))


def _distinct(stream: RandomStream, count: int, rows: int) -> npt.NDArray[np.int64]:
    """Returns the first `count` different values of a sequence of independent uniform rows, count <= rows / 2 or so."""
    interval = np.uint64(_WORD // rows)
    drawn, need = np.zeros(0, np.int64), count
    while True:
        batch = int(1.5 * need) + 8
        values = stream.uint64("mask", batch) // interval
        drawn = np.concatenate([drawn, values[values < np.uint64(rows)].astype(np.int64)])
        _, first = np.unique(drawn, return_index=True)
        if len(first) >= count:
            return drawn[np.sort(first)[:count]]
        need = count - len(first)


def _check(sample_size: int, records: int) -> None:
    if sample_size < 1:
        raise SamplingError(f"the sample size must be >= 1, found {sample_size}")
    if records < 1:
        raise SamplingError(f"the declared number of records must be >= 1, found {records}")
