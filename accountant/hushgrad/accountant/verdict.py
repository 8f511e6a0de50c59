"""Whether an epsilon of the paper may be shown as true: only if its conditions hold and a tight number confirms it.

The paper's proof writes both neighbours' sums as the same x plus the record, which is right for Poisson sampling only;
with a fixed sample size another record leaves when one comes. And the proof has gaps beyond that. So no epsilon of the
paper is believed on the strength of its conditions alone.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from hushgrad.accountant import claims
from hushgrad.accountant.claims import Adjacency, Claim, RoundGroup, Sampling
from hushgrad.accountant.errors import RefusedError
from hushgrad.accountant.theorem2 import Condition


@dataclass(frozen=True, slots=True)
class Verdict:
    """What may be said about a run.

    Attributes:
        claim: the tight claim for the sampler and adjacency in force; None if none can be computed.
        claimable: whether the paper's epsilon is true as well, and may be shown as true.
        why_not: one sentence if it is not, else None.
    """

    claim: Claim | None
    claimable: bool
    why_not: str | None


def judge(
    paper_epsilon: float | None,
    *,
    source: str,
    failed: Sequence[Condition],
    groups: Sequence[RoundGroup],
    sampling: Sampling,
    adjacency: Adjacency,
    delta: float,
    never: str | None = None,
) -> Verdict:
    """Returns the tight claim of a schedule and whether an epsilon of the paper may stand beside it as true.

    Args:
        paper_epsilon: the paper's number; None or inf if its formulas give none.
        source: where it comes from, for the sentence: "Theorem 2".
        failed: the conditions that do not hold.
        groups: the rounds as they are run, with the plain noise multiplier.
        sampling, adjacency, delta: as in `claims.from_schedule`.
        never: why the number may not be shown as true whatever else holds, or None.

    Raises:
        AccountantError: if a value is not allowed.
    """
    claim: Claim | None = None
    refusal = ""
    try:
        claim = claims.from_schedule(groups, sampling=sampling, adjacency=adjacency, delta=delta)
    except RefusedError as error:
        refusal = str(error)
    why_not = _why_not(paper_epsilon, source, failed, claim, refusal)
    if never:
        why_not = f"{never}: {_described(failed)}." if failed else f"{never}."
    return Verdict(claim, why_not is None, why_not)


def _why_not(
    paper_epsilon: float | None, source: str, failed: Sequence[Condition], claim: Claim | None, refusal: str
) -> str | None:
    if failed:
        return f"{source} does not apply: {_described(failed)}."
    if paper_epsilon is None or math.isinf(paper_epsilon):
        return f"{source} allows no epsilon here."
    if claim is None:
        return f"{source}'s epsilon cannot be confirmed: {refusal}."
    if paper_epsilon < claim.epsilon:
        if claim.method != "pld":  # a loose number disproves nothing
            return (
                f"{source}'s epsilon {paper_epsilon:.5g} cannot be confirmed: the best number for this sampler is "
                f"{claim.epsilon:g}, by {claim.method.upper()}."
            )
        return (
            f"{source}'s epsilon {paper_epsilon:.5g} does not hold for this sampler: the tight epsilon is "
            f"{claim.epsilon:g} ({claim.sampling}, {claim.adjacency})."
        )
    return None


def _described(failed: Sequence[Condition]) -> str:
    """Returns the first failed condition that has numbers to show, or the first."""
    return describe(next((condition for condition in failed if condition.rhs is not None), failed[0]))


def describe(condition: Condition) -> str:
    """Returns the condition as words, with both its sides."""
    name = f"condition ({condition.name})" if condition.name.isdigit() else f"the premise on {condition.name}"
    if condition.lhs is None or condition.rhs is None:
        return f"{name} cannot be met, because no epsilon is left"
    if condition.holds:
        return f"{name} holds, {condition.lhs:.6g} {condition.relation} {condition.rhs:.6g}"
    return f"{name} fails, {condition.lhs:.6g} is not {condition.relation} {condition.rhs:.6g}"
