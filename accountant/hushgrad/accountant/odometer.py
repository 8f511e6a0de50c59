"""What executed rounds have cost so far: a reading, never a claim.

A claim is made before the first round and covers everything that may happen. A reading is made afterwards, at a moment
that may itself depend on outputs; it informs people and promises nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hushgrad.accountant import claims
from hushgrad.accountant.claims import Adjacency, RoundGroup, Sampling

LABEL = "odometer reading of the executed rounds, not a guarantee"


@dataclass(frozen=True, slots=True)
class Reading:
    """What an odometer shows.

    Attributes:
        rounds: how many were executed.
        epsilon_so_far: what a schedule of exactly these rounds would have cost, rounded up to four digits.
        delta: at which.
        label: says that this is no guarantee.
    """

    rounds: int
    epsilon_so_far: float
    delta: float
    label: str = LABEL

    def to_dict(self) -> dict[str, Any]:
        """Returns plain values; none of the names is `epsilon`, which stands only in claims."""
        return {
            "label": self.label,
            "rounds": self.rounds,
            "epsilon_so_far": self.epsilon_so_far,
            "delta": self.delta,
        }


def reading(groups: Sequence[RoundGroup], *, sampling: Sampling, adjacency: Adjacency, delta: float) -> Reading:
    """Returns the reading after these rounds; errors as in `claims.from_schedule`.

    >>> reading([], sampling="poisson", adjacency="add-remove", delta=1e-5).epsilon_so_far
    0.0
    """
    found = claims.from_schedule(groups, sampling=sampling, adjacency=adjacency, delta=delta)
    return Reading(sum(group.rounds for group in groups), found.epsilon, found.delta)
