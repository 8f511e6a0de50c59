"""Several runs together: of one data set over its life, and of a record that sits at several clients.

Runs committed one after the other add up by `Budget` alone. One distribution over several runs is tighter, and true
only where no run was chosen after another's outputs: all of them were committed before the first release of any.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hushgrad.accountant import _validate, claims
from hushgrad.accountant.claims import Adjacency, Claim, RoundGroup, Sampling
from hushgrad.accountant.errors import AccountantError, RefusedError


@dataclass(frozen=True, slots=True)
class CommittedRun:
    """A run as a ledger shows it.

    Attributes:
        name: of the run.
        groups: the committed schedule.
        sampling: "poisson" or "fixed".
        adjacency: "add-remove" or "replace-one".
        committed: the number of the ledger row that committed it, >= 0.
        first_release: the number of the row of its first update; None if nothing was released.
    """

    name: str
    groups: tuple[RoundGroup, ...]
    sampling: Sampling
    adjacency: Adjacency
    committed: int
    first_release: int | None = None

    def __post_init__(self) -> None:
        if _validate.integer("committed", self.committed) < 0:
            raise AccountantError(f"committed must be >= 0, found {self.committed}")
        if self.first_release is not None and _validate.integer("first_release", self.first_release) <= self.committed:
            raise AccountantError(
                f"run {self.name!r} was committed in row {self.committed} after its first release in row "
                f"{self.first_release}"
            )


def together(runs: Sequence[CommittedRun], *, delta: float, delta_charged: float = 0.0) -> Claim:
    """Returns one claim for several runs of one data set.

    Args:
        runs: at least one.
        delta: in (0, 1), of the whole.
        delta_charged: what the imperfections of all runs take of it, as in `claims.from_schedule`.

    Raises:
        AccountantError: if there are none, or they differ in sampling or adjacency: a claim names one of each.
        RefusedError: if a run was committed after the first release of any; its choice may have depended on it, so the
            runs add up by `Budget` and not here.
    """
    _validate.count("the number of runs", len(runs))
    _one_mode([(run.sampling, run.adjacency) for run in runs])
    releases = [run.first_release for run in runs if run.first_release is not None]
    late = [run.name for run in runs if releases and run.committed > min(releases)]
    if late:
        raise RefusedError(
            f"run {late[0]!r} was committed after the first release, in row {min(releases)}: it may have been chosen "
            "by what was released, so the claims of the runs add up instead"
        )
    groups = [group for run in runs for group in run.groups]
    return claims.from_schedule(
        groups, sampling=runs[0].sampling, adjacency=runs[0].adjacency, delta=delta, delta_charged=delta_charged
    )


@dataclass(frozen=True, slots=True)
class RecordClaim:
    """What is promised about a record that may sit at several clients.

    Attributes:
        claim: for the record: all rounds of all its clients together.
        per_client: by client, the claim of its own rounds alone. Not a promise about the record.
    """

    claim: Claim
    per_client: Mapping[str, Claim]

    def to_dict(self) -> dict[str, Any]:
        """Returns plain values: the claim, and each client's number as `epsilon_per_client`."""
        return {
            "claim": self.claim.to_dict(),
            "epsilon_per_client": {name: claim.epsilon for name, claim in self.per_client.items()},
        }


def of_record(
    clients: Mapping[str, Sequence[RoundGroup]],
    *,
    sampling: Sampling,
    adjacency: Adjacency,
    delta: float,
    delta_charged: float = 0.0,
) -> RecordClaim:
    """Returns the claim for a record whose copies sit at all of these clients.

    Every client commits its schedule before the first round of any. The clients' rounds interleave as messages arrive;
    that is concurrent composition of fixed schedules, which costs no more than one after the other.

    Args:
        clients: by name, the schedule; q is that of the client's own records.
        sampling: of all of them.
        adjacency: of all of them: every copy is added, removed or replaced at once.
        delta: in (0, 1), of each of the claims.
        delta_charged: what the imperfections of all clients take of it, as in `claims.from_schedule`.

    Reference:
        Vadhan and Zhang, "Concurrent Composition Theorems for Differential Privacy", arXiv 2207.08335.

    >>> half = [RoundGroup(0.02, 4.0, 100)]
    >>> found = of_record({"north": half, "south": half}, sampling="poisson", adjacency="add-remove", delta=1e-5)
    >>> found.per_client["north"].epsilon < found.claim.epsilon < 2 * found.per_client["north"].epsilon
    True
    """
    _validate.count("the number of clients", len(clients))

    def claim(groups: Sequence[RoundGroup]) -> Claim:
        return claims.from_schedule(
            groups, sampling=sampling, adjacency=adjacency, delta=delta, delta_charged=delta_charged
        )

    per_client = {name: claim(groups) for name, groups in clients.items()}
    return RecordClaim(claim([group for groups in clients.values() for group in groups]), per_client)


def _one_mode(modes: Sequence[tuple[str, str]]) -> None:
    if len(set(modes)) > 1:
        found = ", ".join(sorted(f"{sampling} {adjacency}" for sampling, adjacency in set(modes)))
        raise AccountantError(f"one claim covers one sampling and one adjacency, found {found}")
