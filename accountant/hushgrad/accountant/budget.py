"""The lifetime budget of a ledger: claims of runs add up, and a run that does not fit is refused before it starts.

It keeps numbers in memory; whoever owns the ledger makes them durable.
"""

from collections.abc import Iterable
from fractions import Fraction
from typing import Any

from hushgrad.accountant import _validate
from hushgrad.accountant.claims import Claim
from hushgrad.accountant.errors import AccountantError, BudgetError


class Budget:
    """What one data set may spend in all its runs, by basic composition: epsilons add up, deltas add up.

    The invariant: the committed claims never add up to more than the lifetime pair. Sums are exact in decimals, so five
    runs of 0.1 fit into 0.5.

    >>> budget = Budget(lifetime_epsilon=0.5, lifetime_delta=2e-5)
    >>> budget.charge("first", Claim(0.3, 1e-5, "add-remove", "poisson", method_version="1"))
    >>> budget.left()
    (0.2, 1e-05)
    """

    def __init__(
        self, *, lifetime_epsilon: float, lifetime_delta: float, committed: Iterable[tuple[str, Claim]] = ()
    ) -> None:
        """Takes the lifetime pair and what was committed before, for instance from a ledger.

        Args:
            lifetime_epsilon: finite and >= 0. Zero means that nothing may be spent; None, NaN and infinity are errors
                and never mean "no cap".
            lifetime_delta: in (0, 1).
            committed: (name of the run, its claim), each name once.

        Raises:
            AccountantError: if a value is not allowed.
            BudgetError: if the committed runs do not fit.
        """
        self._lifetime = (
            _validate.not_negative("lifetime_epsilon", lifetime_epsilon),
            _validate.delta("lifetime_delta", lifetime_delta),
        )
        self._committed: dict[str, Claim] = {}
        for run, claim in committed:
            self.charge(run, claim)

    @property
    def lifetime(self) -> tuple[float, float]:
        """The lifetime pair (epsilon, delta)."""
        return self._lifetime

    @property
    def committed(self) -> tuple[tuple[str, Claim], ...]:
        """The runs that are committed and their claims, in the order of commitment."""
        return tuple(self._committed.items())

    def spent(self) -> tuple[float, float]:
        """Returns the sums of the committed epsilons and deltas."""
        epsilon, delta = self._sums()
        return float(epsilon), float(delta)

    def left(self) -> tuple[float, float]:
        """Returns what is left of (epsilon, delta), both >= 0."""
        epsilon, delta = self._sums()
        return float(_decimal(self._lifetime[0]) - epsilon), float(_decimal(self._lifetime[1]) - delta)

    def check(self, run: str, claim: Claim) -> None:
        """Raises what `charge` would raise; changes nothing.

        Raises:
            AccountantError: if the run's name is empty or already committed, or the claim is for another adjacency or
                unit than those before.
            BudgetError: if the claim does not fit into what is left.
        """
        if not isinstance(run, str) or not run:
            raise AccountantError(f"a run must have a name, found {run!r}")
        if not isinstance(claim, Claim):
            raise AccountantError(f"a run is charged with a Claim, found {claim!r}")
        if run in self._committed:
            raise AccountantError(f"run {run!r} is already committed; a run is charged once")
        for earlier in self._committed.values():
            if (earlier.adjacency, earlier.unit) != (claim.adjacency, claim.unit):
                raise AccountantError(
                    f"claims add up only for one adjacency and unit: expected {earlier.adjacency} of a {earlier.unit}, "
                    f"found {claim.adjacency} of a {claim.unit}"
                )
        spent = self._sums()
        requested = (claim.epsilon, claim.delta)
        if any(
            used + _decimal(more) > _decimal(cap)
            for used, more, cap in zip(spent, requested, self._lifetime, strict=True)
        ):
            left = self.left()
            raise BudgetError(
                f"run {run!r} would spend epsilon {claim.epsilon:g} and delta {claim.delta:g}, but of the lifetime "
                f"pair ({self._lifetime[0]:g}, {self._lifetime[1]:g}) only ({left[0]:g}, {left[1]:g}) is left; use "
                "more noise or fewer rounds",
                requested=requested,
                left=left,
            )

    def charge(self, run: str, claim: Claim) -> None:
        """Commits a run. When it raises, nothing has changed; errors as in `check`."""
        self.check(run, claim)
        self._committed[run] = claim

    def _sums(self) -> tuple[Fraction, Fraction]:
        claims = self._committed.values()
        return (
            sum((_decimal(claim.epsilon) for claim in claims), Fraction(0)),
            sum((_decimal(claim.delta) for claim in claims), Fraction(0)),
        )


def _decimal(value: Any) -> Fraction:
    """Returns the number that a person reads: 0.1 is one tenth."""
    return Fraction(repr(float(value)))
