"""The other way round: the smallest noise, or the largest number of rounds, that keeps a claim within an epsilon.

Every answer is verified by the claim itself; a search that cannot succeed ends with an error.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from hushgrad.accountant import _validate, runs
from hushgrad.accountant.claims import Claim, Sampling
from hushgrad.accountant.errors import RefusedError
from hushgrad.accountant.mechanism import Mechanism
from hushgrad.accountant.runs import Run

SMALLEST_NOISE_MULTIPLIER = 1e-2
LARGEST_NOISE_MULTIPLIER = 1e7

# Noise multipliers of four significant digits, in order: 9000 in every decade. Index 0 is 1.000.
_PER_DECADE = 9000
_DIGITS = 1000


def noise_multiplier(
    *,
    mechanism_for: Callable[[float], Mechanism],
    sampling: Sampling,
    records: int,
    sample_sizes: Sequence[int],
    epsilon: float,
    delta: float,
) -> float:
    """Returns the smallest noise multiplier of four significant digits whose run costs at most epsilon.

    Smallest up to the discretisation of the loss distribution, a few thousandths. `runs.claim` of the run with the
    returned number has been computed and is at most epsilon.

    Args:
        mechanism_for: makes the mechanism for a noise multiplier as configured; its distances and sensitivity are
            included. If it raises an AccountantError for a noise multiplier, that one does not qualify.
        sampling: "poisson" or "fixed".
        records: N, the declared number of records.
        sample_sizes: s_0 .. s_{T-1}, at least one.
        epsilon: > 0, the most that the whole run may cost.
        delta: in (0, 1), everything included.

    Raises:
        AccountantError: if a value is not allowed.
        RefusedError: if no noise multiplier up to LARGEST_NOISE_MULTIPLIER reaches epsilon.
    """
    sizes = tuple(sample_sizes)
    _validate.count("the number of sample sizes", len(sizes))

    def run_with(sigma: float) -> Run:
        return Run(sampling, records, sizes, mechanism_for(sigma))

    return smallest_noise_multiplier(
        lambda sigma: runs.claim(run_with(sigma), delta=delta),
        epsilon=epsilon,
        quick_epsilon_for=lambda sigma: runs.quick_epsilon(run_with(sigma), delta=delta),
    )[0]


def smallest_noise_multiplier(
    claim_for: Callable[[float], Claim],
    *,
    epsilon: float,
    quick_epsilon_for: Callable[[float], float] | None = None,
) -> tuple[float, Claim]:
    """Returns the smallest noise multiplier of four significant digits whose claim is at most epsilon, and that claim.

    Args:
        claim_for: the claim as a function of the noise multiplier; a RefusedError counts as an infinite epsilon.
        epsilon: > 0 and finite.
        quick_epsilon_for: a cheaper epsilon, not above the claim's, to search with; the answer is verified by
            `claim_for` all the same.

    Raises:
        RefusedError: if none qualifies up to LARGEST_NOISE_MULTIPLIER; its cause is the last refusal, if there was one.
    """
    _validate.positive("epsilon", epsilon)
    quick = quick_epsilon_for or (lambda sigma: claim_for(sigma).epsilon)
    refusal: RefusedError | None = None

    def evaluate(index: int) -> float:
        nonlocal refusal
        try:
            return quick(_from_index(index))
        except RefusedError as error:
            refusal = error
            return math.inf

    # Indices of sigma on the grid: `low` is too little noise, `high` is enough; between them lies the answer.
    lowest, highest = _to_index(SMALLEST_NOISE_MULTIPLIER), _to_index(LARGEST_NOISE_MULTIPLIER)
    low, low_epsilon = lowest - 1, math.inf
    high = _to_index(1.0)
    high_epsilon = evaluate(high)
    while high_epsilon > epsilon:
        if high >= highest:
            reason = f": {refusal}" if refusal else ""
            raise RefusedError(
                f"no noise multiplier up to {LARGEST_NOISE_MULTIPLIER:g} reaches epsilon {epsilon:g}{reason}"
            ) from refusal
        low, low_epsilon = high, high_epsilon
        # epsilon falls at least like 1 / sigma where it is large; elsewhere a factor of two brings progress.
        growth = 2.0 if math.isinf(high_epsilon) else max(high_epsilon / epsilon, 2.0)
        high = min(_to_index(_from_index(high) * growth), highest)
        high_epsilon = evaluate(high)
    while low < lowest < high:  # the first guess qualified: look below it
        trial = max(_to_index(_from_index(high) / 2), lowest)
        trial_epsilon = evaluate(trial)
        if trial_epsilon > epsilon:
            low, low_epsilon = trial, trial_epsilon
        else:
            high, high_epsilon = trial, trial_epsilon
    slow = 0
    while high - low > 1:
        width = high - low
        halve = slow >= 2 or width <= 6
        trial = (low + high) // 2 if halve else _estimate(low, low_epsilon, high, high_epsilon, epsilon)
        trial_epsilon = evaluate(trial)
        if trial_epsilon > epsilon:
            low, low_epsilon = trial, trial_epsilon
        else:
            high, high_epsilon = trial, trial_epsilon
        slow = 0 if halve or high - low <= width // 2 else slow + 1
    return _verified(high, highest, claim_for, epsilon)


def _verified(index: int, highest: int, claim_for: Callable[[float], Claim], epsilon: float) -> tuple[float, Claim]:
    """Returns the first noise multiplier from the index on whose claim is at most epsilon, and that claim."""
    step = 1
    while index <= highest:
        try:
            claim = claim_for(_from_index(index))
        except RefusedError:
            pass
        else:
            if claim.epsilon <= epsilon:
                return _from_index(index), claim
        index, step = index + step, step * 2
    raise RefusedError(f"no noise multiplier up to {LARGEST_NOISE_MULTIPLIER:g} reaches epsilon {epsilon:g}")


def affordable_rounds(run: Run, *, epsilon: float, delta: float) -> int:
    """Returns the largest t such that the first t rounds of the run cost at most epsilon at delta; 0 to T.

    Raises:
        AccountantError: if a value is not allowed.
    """
    _validate.not_negative("epsilon", epsilon)
    _validate.delta("delta", delta)
    low, high = 0, len(run.sample_sizes) + 1
    trial = high - 1  # the whole run first: most often it fits
    while high - low > 1:
        try:
            fits = runs.claim(replace(run, sample_sizes=run.sample_sizes[:trial]), delta=delta).epsilon <= epsilon
        except RefusedError:
            fits = False  # fewer rounds cost less of everything
        low, high = (trial, high) if fits else (low, trial)
        trial = (low + high) // 2
    return low


def _from_index(index: int) -> float:
    decade, place = divmod(index, _PER_DECADE)
    return float(f"{_DIGITS + place}e{decade - 3}")


def _to_index(value: float) -> int:
    digits, exponent = f"{value:.3e}".split("e")
    return int(exponent) * _PER_DECADE + round(float(digits) * _DIGITS) - _DIGITS


def _estimate(low: int, low_epsilon: float, high: int, high_epsilon: float, epsilon: float) -> int:
    """Returns an index strictly between: about where log epsilon, taken as linear in log sigma, meets the target."""
    middle = (low + high) // 2
    if math.isinf(low_epsilon) or not 0 < high_epsilon < low_epsilon:
        return middle
    a, b = math.log(_from_index(low)), math.log(_from_index(high))
    share = math.log(low_epsilon / epsilon) / math.log(low_epsilon / high_epsilon)
    meeting = _to_index(math.exp(a + share * (b - a)))
    # The curve is bent, so every estimate errs to the same side; a step across makes the bracket narrow from both.
    step = max(min(meeting - low, high - meeting) // 6, 1)
    meeting += step if meeting < middle else -step
    return min(max(meeting, low + 1), high - 1)
