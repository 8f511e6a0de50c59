"""What rounds have cost so far, read from a ledger's rows: an odometer, not the claim.

The claim covers the whole schedule and is fixed before the first round. The reading says how much of it has been used.
"""

import functools
from collections import Counter
from typing import Literal

from hushgrad import accountant
from hushgrad.accountant import claims

Round = tuple[float, float]
"""(q, sigma): sampling probability and charged noise multiplier of one sealed round."""


def reading(rounds: tuple[tuple[Round, int], ...], *, sampling: Literal["poisson", "fixed"], delta: float) -> float:
    """Returns epsilon at delta after rounds given as ((q, sigma), how many).

    Sampler and tables are charged the most that a claim allows them, so the reading is never below the truth.

    >>> reading((), sampling="poisson", delta=1e-5)
    0.0
    """
    return _reading(rounds, sampling, delta)


@functools.lru_cache(maxsize=4096)
def _reading(rounds: tuple[tuple[Round, int], ...], sampling: Literal["poisson", "fixed"], delta: float) -> float:
    groups = [accountant.RoundGroup(q, sigma, count) for (q, sigma), count in rounds]
    charged = claims.MAX_CHARGED_SHARE * delta
    return accountant.from_schedule(
        groups, sampling=sampling, adjacency="add-remove", delta=delta, delta_charged=charged
    ).epsilon


def curve(rounds: list[Round], *, sampling: Literal["poisson", "fixed"], delta: float, claimed: float) -> list[float]:
    """Returns the reading before the first round and after each one; len(rounds) + 1 numbers, never falling.

    The claim's epsilon holds for every beginning of its schedule, so no reading need be larger than that.
    """
    counts: Counter[Round] = Counter()
    readings = [0.0]
    for round_ in rounds:
        counts[round_] += 1
        readings.append(min(reading(tuple(sorted(counts.items())), sampling=sampling, delta=delta), claimed))
    return readings
