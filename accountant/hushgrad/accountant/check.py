"""Whether an exported ledger's claims hold: recomputed from the ledger alone, and said in plain sentences.

What a ledger cannot show is named too: the check trusts nobody about the chain, and the client's program about how its
charged noise multiplier came from its mechanism, and that its noise was drawn as declared.
"""

from collections import Counter
from dataclasses import dataclass
from typing import Any

from hushgrad.accountant import claims, exported, odometer
from hushgrad.accountant.budget import Budget
from hushgrad.accountant.claims import Claim
from hushgrad.accountant.errors import AccountantError
from hushgrad.accountant.exported import Exported, Run
from hushgrad.accountant.odometer import Reading

TOLERANCE = 2e-3
"""Relative; a claim that another version of the library computed on another grid may be smaller by this much."""

NOT_CHECKED = (
    "that charged_noise_multiplier follows from the mechanism (grid, summation errors): the ledger holds its result",
    "that noise and samples were drawn as declared: no record of a release can show that",
    "payload bytes: an update's digest covers them and they are not part of an export",
)


@dataclass(frozen=True, slots=True)
class RunCheck:
    """One run, beside its claim.

    Attributes:
        federation: its name.
        claim: as committed; None if it cannot be read.
        from_commit: recomputed from the committed schedule at the claim's delta, imperfections left out: no sound claim
            is below it. None if it cannot be computed.
        from_updates: the reading of the rounds that were spent.
        faults: what does not agree, one sentence each.
        clipped_by_caller: whether the chain says that only the client's owner knows that gradients were clipped.
    """

    federation: str
    claim: Claim | None
    from_commit: Claim | None
    from_updates: Reading | None
    faults: tuple[str, ...]
    clipped_by_caller: bool = False


@dataclass(frozen=True, slots=True)
class Check:
    """The outcome.

    Attributes:
        head: of the last row, hexadecimal, to compare with a server's or a friend's copy.
        rows: how many there are.
        runs: each run.
        faults: what does not agree outside the runs.
    """

    head: str
    rows: int
    runs: tuple[RunCheck, ...]
    faults: tuple[str, ...]

    @property
    def agrees(self) -> bool:
        """Whether nothing at all disagrees."""
        return not self.faults and not any(run.faults for run in self.runs)

    def to_dict(self) -> dict[str, Any]:
        """Returns plain values for JSON."""
        return {
            "agrees": self.agrees,
            "head": self.head,
            "rows": self.rows,
            "runs": [
                {
                    "federation": run.federation,
                    "agrees": not run.faults,
                    "claim": run.claim.to_dict() if run.claim else None,
                    "recomputed_from_commit": run.from_commit.to_dict() if run.from_commit else None,
                    "recomputed_from_updates": run.from_updates.to_dict() if run.from_updates else None,
                    "clipping": exported.CLIPPING[run.clipped_by_caller],
                    "faults": list(run.faults),
                }
                for run in self.runs
            ],
            "faults": list(self.faults),
            "not_checked": list(NOT_CHECKED),
        }


def check(document: Any) -> Check:
    """Recomputes everything that an exported ledger claims.

    Args:
        document: the JSON of `hushgrad-client ledger export`, read.

    Raises:
        AccountantError: if it is not an exported ledger of this format at all.
    """
    found = exported.read(document)
    runs = tuple(_run(run) for run in found.runs.values())
    faults = [*found.faults, *_lifetime(found, runs)]
    return Check(found.head.hex(), found.rows, runs, tuple(faults))


def _run(run: Run) -> RunCheck:
    faults: list[str] = []
    name = str(run.document.get("federation"))
    try:
        claim = Claim.from_dict(run.document["claim"])
        mode: Any = {"sampling": run.document["sampler"], "adjacency": run.document["adjacency"]}
        if (claim.sampling, claim.adjacency, claim.delta) != (*mode.values(), run.document["delta"]):
            faults.append("the claim names another sampling, adjacency or delta than the committed schedule")
        schedule = [group.charged() for group in run.schedule]
        recomputed = claims.from_schedule(schedule, **mode, delta=claim.delta)
        if claim.epsilon < recomputed.epsilon * (1 - TOLERANCE):
            faults.append(
                f"the claim says epsilon {claim.epsilon:g}, its schedule costs {recomputed.epsilon:g} at delta "
                f"{claim.delta:g}"
            )
        spent = Counter(run.group(round_) for round_ in run.rounds)
        groups = [group.charged(rounds) for group, rounds in spent.items() if group is not None]
        reading = odometer.reading(groups, **mode, delta=claim.delta)
        if claim.epsilon < reading.epsilon_so_far * (1 - TOLERANCE):
            faults.append(f"the spent rounds cost {reading.epsilon_so_far:g}, more than the claimed {claim.epsilon:g}")
    except (AccountantError, KeyError, TypeError) as error:
        return RunCheck(name, None, None, None, (*faults, f"the claim cannot be recomputed: {error}"))
    return RunCheck(name, claim, recomputed, reading, tuple(faults), run.clipped_by_caller)


def _lifetime(found: Exported, runs: tuple[RunCheck, ...]) -> list[str]:
    try:
        Budget(
            lifetime_epsilon=found.init.get("lifetime_epsilon"),  # type: ignore[arg-type]
            lifetime_delta=found.init.get("lifetime_delta"),  # type: ignore[arg-type]
            committed=[
                (digest, run.claim) for digest, run in zip(found.runs, runs, strict=True) if run.claim is not None
            ],
        )
    except AccountantError as error:
        return [f"the lifetime budget does not hold: {error}"]
    return []
