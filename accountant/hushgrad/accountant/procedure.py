"""Procedure C.4 repaired: the largest sample size of the next phase that keeps Theorem 2 within an epsilon.

It differs from the printed one (`as_published`) in four things: gamma comes from closed forms and not from an iteration
that stops after one update; the whole range of s is covered; rounds are whole, with one smaller round at the end, and
the conditions are checked again for them; delta is a choice. Whether its epsilon may be shown as true is `verdict`.

Like the paper it pretends that every round had the lowest noise multiplier of all phases. Phases that are chosen after
looking at earlier noisy results are outside every theorem here: commit the ladder before the first round and let the
results decide only when to stop.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from hushgrad.accountant import _theory_validate, _validate, sizes, theorem2, theorem2_inverse
from hushgrad.accountant.claims import RoundGroup
from hushgrad.accountant.errors import AccountantError, BudgetError
from hushgrad.accountant.sizes import SampleSizes


@dataclass(frozen=True, slots=True)
class Phase:
    """Rounds of one phase as they are run.

    Attributes:
        runs: (s, T) with whole T; a planned phase ends with one smaller round where s does not divide K.
        noise_multiplier: sigma of these rounds.
    """

    runs: tuple[tuple[int, int], ...]
    noise_multiplier: float

    def __post_init__(self) -> None:
        for size, rounds in self.runs:
            _validate.count("every sample size", size)
            _validate.count("every number of rounds", rounds)
        _theory_validate.noise_multiplier(self.noise_multiplier)


@dataclass(frozen=True, slots=True)
class Plan:
    """The next phase.

    Attributes:
        phase: its rounds.
        valid: the smallest and the largest sample size that C.4 may choose (T = K/s not rounded).
        sizes: the sample sizes of all phases together.
        report: Theorem 2 for all of them at the lowest noise multiplier and the smallest epsilon that it allows.
    """

    phase: Phase
    valid: tuple[int, int]
    sizes: SampleSizes
    report: theorem2.Report


def plan(
    earlier: Sequence[Phase],
    *,
    records: int,
    grad_computations: int,
    epsilon_allowed: float,
    delta: float,
    noise_multiplier: float | None = None,
) -> Plan:
    """Returns the next phase with the largest sample size (the fewest rounds) that stays within epsilon_allowed.

    The limit that (11) sets depends on s through s_max^2 T, which falls up to the largest earlier size s* (s_max is
    fixed, rounds get fewer) and rises from there; (9) depends on s_max, which is fixed up to s* and rises from there.
    So the valid sizes form one interval, and s* lies in it unless it is empty. Both ends are found by bisection. (C.4
    starts at s = 1, which is most often the worst size of a further phase, and gives up there.)

    Args:
        earlier: the phases before; none for the first.
        records: N.
        grad_computations: K of this phase.
        epsilon_allowed: > 0, for all phases together.
        delta: in (0, 1); C.4 says 1/N.
        noise_multiplier: sigma of this phase, at most the lowest so far. None, in the first phase only: the one with
            which Theorem 2's epsilon is smallest.

    Raises:
        AccountantError: if a value is not allowed.
        BudgetError: if no sample size stays within epsilon_allowed.

    Reference: C.4.
    """
    _theory_validate.epsilon("epsilon_allowed", epsilon_allowed)
    _theory_validate.delta(delta)
    K = _theory_validate.grad_computations(grad_computations)
    N = _theory_validate.records(records)
    if noise_multiplier is not None:
        _theory_validate.noise_multiplier(noise_multiplier)
    _check_falling(earlier, noise_multiplier)
    before = tuple((size, float(rounds)) for phase in earlier for size, rounds in phase.runs)

    def answer(sample_sizes: SampleSizes) -> tuple[float, float]:
        if noise_multiplier is None:
            found = theorem2_inverse.smallest(sample_sizes, records=N, delta=delta)
            return found or (math.inf, 1.0)
        epsilon = theorem2_inverse.smallest_epsilon(
            sample_sizes, records=N, delta=delta, noise_multiplier=noise_multiplier
        )
        return epsilon, noise_multiplier

    def report(sample_sizes: SampleSizes) -> theorem2.Report | None:
        """Returns Theorem 2 at the smallest epsilon, or None if that does not do."""
        epsilon, sigma = answer(sample_sizes)
        if epsilon > epsilon_allowed:
            return None
        found = theorem2.evaluate(sample_sizes, records=N, epsilon=epsilon, delta=delta, noise_multiplier=sigma)
        return found if found.holds else None

    def with_fraction(size: int) -> SampleSizes:
        return SampleSizes((*before, (size, K / size)))

    largest = min(K, N)
    best = min(max((size for size, _ in before), default=1), largest)
    if report(with_fraction(best)) is None:
        epsilon, _ = answer(with_fraction(best))
        raise BudgetError(
            f"no sample size keeps Theorem 2 within epsilon {epsilon_allowed:g}: the best one, {best}, "
            + (f"needs epsilon {epsilon:.4g}" if epsilon > epsilon_allowed else "breaks condition (9)")
            + "; use fewer gradient computations, more noise or a larger budget",
            requested=(epsilon, delta),
            left=(epsilon_allowed, delta),
        )
    low, high = 0, best
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if report(with_fraction(middle)) else (middle, high)
    smallest_valid = high
    low, high = best, largest + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if report(with_fraction(middle)) else (low, middle)
    largest_valid = low
    # Whole rounds move theta a little: step down until all of it holds again.
    size = largest_valid
    while size >= smallest_valid:
        own = sizes.whole_rounds(size, K)
        every = SampleSizes((*before, *own.runs))
        found = report(every)
        if found:
            return Plan(Phase(own.schedule(), found.noise_multiplier), (smallest_valid, largest_valid), every, found)
        # Of all sizes with the same number of rounds the smallest is the best.
        evener = -(-K // -(-K // size))
        size = evener if evener < size else size - 1
    raise BudgetError(
        f"no sample size keeps Theorem 2 within epsilon {epsilon_allowed:g} once rounds are whole",
        requested=(answer(with_fraction(best))[0], delta),
        left=(epsilon_allowed, delta),
    )


def round_groups(phases: Sequence[Phase], records: int) -> list[RoundGroup]:
    """Returns the rounds of all phases with their own noise multipliers, for `claims.from_schedule`."""
    return [
        RoundGroup(size / records, phase.noise_multiplier, rounds) for phase in phases for size, rounds in phase.runs
    ]


def _check_falling(earlier: Sequence[Phase], noise_multiplier: float | None) -> None:
    if not earlier:
        return
    lowest = min(phase.noise_multiplier for phase in earlier)
    if noise_multiplier is None or noise_multiplier > lowest:
        raise AccountantError(
            f"noise_multiplier of a further phase must be at most the lowest so far, {lowest:g}, found "
            f"{noise_multiplier}"
        )
