"""A ladder: all rounds of all phases written down before the first one, so that later only less can happen.

Which rounds are executed may depend on anything, outputs and accuracies included: the claim is that of the whole
ladder. What would break it is refused: a round that is not in it, comes twice, comes before one already executed, or
releases more than was written down.
"""

import itertools
from collections import Counter
from collections.abc import Sequence

from hushgrad.accountant import _validate, claims, odometer
from hushgrad.accountant.claims import Adjacency, Claim, RoundGroup, Sampling
from hushgrad.accountant.errors import AccountantError
from hushgrad.accountant.odometer import Reading


class Ladder:
    """A schedule fixed beforehand, and how far it has been climbed.

    The invariant: executed rounds have rising numbers, each released at most what its place allows. A skipped place
    releases nothing, so whatever happens is dominated, place by place, by the whole ladder.

    Order matters: choosing, after looking at outputs, which of several different rounds comes next is not covered by a
    composition of fixed places; that is why a round before the last executed one is refused.

    >>> ladder = Ladder([RoundGroup(0.01, 4.0, 500), RoundGroup(0.02, 2.0, 100)], sampling="poisson",
    ...     adjacency="add-remove", delta=1e-5)
    >>> ladder.execute(0)
    >>> ladder.execute(500)  # straight to the second phase
    >>> ladder.next_round, ladder.reading().rounds, ladder.reading().epsilon_so_far <= ladder.claim.epsilon
    (501, 2, True)
    """

    def __init__(self, phases: Sequence[RoundGroup], *, sampling: Sampling, adjacency: Adjacency, delta: float) -> None:
        """Computes the claim for the whole ladder; arguments and errors as in `claims.from_schedule`."""
        self._phases = tuple(phases)
        self._sampling, self._adjacency = sampling, adjacency
        self._ends = tuple(itertools.accumulate(phase.rounds for phase in self._phases))
        self._claim = claims.from_schedule(self._phases, sampling=sampling, adjacency=adjacency, delta=delta)
        self._executed: Counter[tuple[float, float]] = Counter()
        self._next = 0

    @property
    def claim(self) -> Claim:
        """The claim, whatever is executed, skipped or never reached."""
        return self._claim

    @property
    def rounds(self) -> int:
        """How many rounds are written down."""
        return self._ends[-1] if self._ends else 0

    @property
    def next_round(self) -> int:
        """The smallest number that may still be executed."""
        return self._next

    def allowed(self, round_: int) -> RoundGroup:
        """Returns the most that a round may release, as a group of one.

        Raises:
            AccountantError: if the round is not in the ladder, or is no longer to be had.
        """
        number = _validate.integer("round", round_)
        if not 0 <= number < self.rounds:
            raise AccountantError(f"round {number} is not in the ladder of {self.rounds} rounds, which never grows")
        if number < self._next:
            raise AccountantError(
                f"round {number} was executed or passed; the next one is {self._next}: rounds may be skipped, never "
                "repeated"
            )
        phase = next(phase for phase, end in zip(self._phases, self._ends, strict=True) if number < end)
        return RoundGroup(phase.sampling_probability, phase.noise_multiplier, 1)

    def execute(self, round_: int, *, released: RoundGroup | None = None) -> None:
        """Records a round before its output is drawn. When it raises, nothing has changed.

        Args:
            round_: its number, at least `next_round`.
            released: what is really released, if that is less: a smaller q, a larger sigma. One round.

        Raises:
            AccountantError: as in `allowed`, or if `released` is more than was written down.
        """
        most = self.allowed(round_)
        actual = most if released is None else released
        if actual.rounds != 1:
            raise AccountantError(f"one round is executed at a time, found {actual.rounds}")
        if actual.sampling_probability > most.sampling_probability or actual.noise_multiplier < most.noise_multiplier:
            raise AccountantError(
                f"round {round_} may have at most q = {most.sampling_probability:g} and at least noise multiplier "
                f"{most.noise_multiplier:g}, found {actual.sampling_probability:g} and {actual.noise_multiplier:g}"
            )
        self._executed[actual.sampling_probability, actual.noise_multiplier] += 1
        self._next = round_ + 1

    def reading(self) -> Reading:
        """Returns the odometer reading of the executed rounds."""
        groups = [RoundGroup(q, sigma, rounds) for (q, sigma), rounds in self._executed.items()]
        return odometer.reading(groups, sampling=self._sampling, adjacency=self._adjacency, delta=self._claim.delta)
