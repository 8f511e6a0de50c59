"""Running totals that are cheap every round: one for schedules fixed beforehand, one for rounds chosen on the way.

Both add Renyi divergences, some microseconds a round. `Meter` takes the best of all orders afterwards, which is true
only for rounds that nobody chose by looking at outputs. `Filter` keeps to one order, named before the first round, and
for that its cap holds however the rounds are chosen.

In formulas: a the order, rho the divergence at it.
"""

from collections.abc import Sequence
from typing import Any

from hushgrad.accountant import _validate, pairs, rdp
from hushgrad.accountant.claims import Adjacency, Claim, RoundGroup, Sampling, rounded_up
from hushgrad.accountant.errors import AccountantError, BudgetError, RefusedError
from hushgrad.accountant.odometer import Reading


class _Divergences:
    """Divergences of round groups of one mode, remembered by (q, sigma)."""

    def __init__(self, sampling: Sampling, adjacency: Adjacency) -> None:
        _validate.choice("sampling", sampling, ("poisson", "fixed"))
        _validate.choice("adjacency", adjacency, ("add-remove", "replace-one"))
        self.sampling, self.adjacency = sampling, adjacency
        self._pair, self._factor = pairs.of(sampling, adjacency)
        self._known: dict[tuple[float, float], Any] = {}

    def of(self, event: RoundGroup) -> Any:
        """Returns shape (orders,): the sum over the group's rounds."""
        key = (event.sampling_probability, event.noise_multiplier)
        found = self._known.get(key)
        if found is None:
            if self.sampling == "fixed" and key[0] >= 1:
                raise AccountantError("fixed sampling needs a sample smaller than the data set, found q = 1")
            found = rdp.divergences(self._pair, float(key[0]), self._factor * float(key[1]))
            self._known[key] = found
        return found if event.rounds == 1 else event.rounds * found


class Meter:
    """A running total for rounds that are fixed beforehand, or follow public events only.

    The invariant: the rounds charged cost at most `epsilon` at `delta`, at some order. Since that order is found
    afterwards, the total is a guarantee only if no round depended on outputs; else use `Filter` or `Ladder`.

    >>> meter = Meter(epsilon=1.0, delta=1e-5, sampling="poisson", adjacency="add-remove")
    >>> event = RoundGroup(0.01, 2.0, 1)
    >>> while not meter.would_exceed(event):
    ...     meter.charge(event)
    >>> meter.rounds, meter.claim().epsilon <= 1.0
    (2045, True)
    """

    def __init__(self, *, epsilon: float, delta: float, sampling: Sampling, adjacency: Adjacency) -> None:
        """Starts at nothing.

        Args:
            epsilon: >= 0, the cap. Zero means that nothing may be spent; None, NaN and infinity are errors.
            delta: in (0, 1).
            sampling: "poisson" or "fixed".
            adjacency: "add-remove" or "replace-one".
        """
        import numpy as np

        self._epsilon = _validate.not_negative("epsilon", epsilon)
        self._delta = _validate.delta("delta", delta)
        self._divergences = _Divergences(sampling, adjacency)
        # At a large delta some order allows a little even for nothing; a cap of zero means nothing.
        self._limits = self._epsilon - rdp.conversions(self._delta) if self._epsilon else np.full(len(rdp.ORDERS), -1.0)
        self._total = np.zeros(len(rdp.ORDERS))
        self.rounds = 0

    def would_exceed(self, event: RoundGroup) -> bool:
        """Says whether charging these rounds would raise; changes nothing."""
        return not bool((self._total + self._divergences.of(event) <= self._limits).any())

    def charge(self, event: RoundGroup) -> None:
        """Adds rounds. When it raises, nothing has changed.

        Raises:
            BudgetError: if the total would exceed the cap.
        """
        total = self._total + self._divergences.of(event)
        if not (total <= self._limits).any():
            wanted = max(0.0, float((total + rdp.conversions(self._delta)).min()))
            raise BudgetError(
                f"{event.rounds} more rounds would cost epsilon {wanted:.4g} at delta {self._delta:g}, the cap is "
                f"{self._epsilon:g}",
                requested=(wanted, self._delta),
                left=(max(0.0, self._epsilon - self._spent()), 0.0),
            )
        self._total = total
        self.rounds += event.rounds

    def claim(self) -> Claim:
        """Returns the claim for the rounds charged so far; see the class for when it is one."""
        return Claim(
            self._spent(),
            self._delta,
            self._divergences.adjacency,
            self._divergences.sampling,
            method="rdp",
            method_version=rdp.METHOD_VERSION,
        )

    def _spent(self) -> float:
        return rdp.Curve(self._total).epsilon(self._delta)


class Filter:
    """A cap on rounds that may be chosen freely on the way, each after looking at everything before.

    The invariant: at the one order fixed at the start, the sum of divergences never exceeds what the conversion to
    (epsilon, delta) allows there. The guarantee is the cap, before the first round and after the last.

    Keeping several orders and going on while one of them allows it is wrong at the same delta: outputs decide which
    order survives, and each brings its own delta.

    >>> filter_ = Filter(epsilon=1.0, delta=1e-5, order=17, sampling="poisson", adjacency="add-remove")
    >>> filter_.charge(RoundGroup(0.01, 2.0, 100))
    >>> filter_.claim.epsilon
    1.0

    Reference:
        Feldman and Zrnic, "Individual Privacy Accounting via a Renyi Filter", arXiv 2008.11193, theorem 4.3.
    """

    def __init__(self, *, epsilon: float, delta: float, order: int, sampling: Sampling, adjacency: Adjacency) -> None:
        """Starts at nothing.

        Args:
            epsilon: >= 0 and finite, the cap.
            delta: in (0, 1).
            order: one of `rdp.ORDERS`; `best_order` suggests one for an expected schedule.
            sampling: "poisson" or "fixed".
            adjacency: "add-remove" or "replace-one".

        Raises:
            AccountantError: if a value is not allowed.
            RefusedError: if the order allows nothing at all at this epsilon and delta.
        """
        self._epsilon = _validate.not_negative("epsilon", epsilon)
        self._delta = _validate.delta("delta", delta)
        self._divergences = _Divergences(sampling, adjacency)
        if _validate.integer("order", order) not in rdp.ORDERS:
            raise AccountantError(
                f"order must be one of rdp.ORDERS (2 to 64, then steps of 7 % to 2048), found {order}"
            )
        self._index = rdp.ORDERS.index(order)
        self.order = order
        self.allowance = self._epsilon - float(rdp.conversions(self._delta)[self._index])
        if self.allowance <= 0 < self._epsilon:
            raise RefusedError(
                f"order {order} allows nothing at epsilon {epsilon:g} and delta {delta:g}; use a larger order "
                "(best_order suggests one)"
            )
        self.spent = 0.0
        self.rounds = 0

    @property
    def claim(self) -> Claim:
        """The cap, as a claim; the same at every moment."""
        return Claim(
            self._epsilon,
            self._delta,
            self._divergences.adjacency,
            self._divergences.sampling,
            method="rdp",
            method_version=f"{rdp.METHOD_VERSION}, filter at order {self.order}",
        )

    def would_exceed(self, event: RoundGroup) -> bool:
        """Says whether charging these rounds would raise; changes nothing."""
        return not self._fits(self._divergence(event))

    def charge(self, event: RoundGroup) -> None:
        """Adds rounds, before they are drawn. When it raises, nothing has changed.

        Raises:
            BudgetError: if they do not fit under the cap.
        """
        self.charge_divergence(self._divergence(event), rounds=event.rounds)

    def charge_divergence(self, divergence: float, *, rounds: int = 1) -> None:
        """As `charge`, for a mechanism whose Renyi divergence at `order`, in both directions, the caller knows."""
        _validate.not_negative("divergence", divergence)
        if not self._fits(divergence):
            raise BudgetError(
                f"{rounds} more rounds have divergence {divergence:.4g} at order {self.order}, of the allowed "
                f"{self.allowance:.4g} only {max(0.0, self.allowance - self.spent):.4g} is left",
                requested=(self._epsilon, self._delta),
                left=(max(0.0, self._epsilon - self.reading().epsilon_so_far), 0.0),
            )
        self.spent += divergence
        self.rounds += rounds

    def reading(self) -> Reading:
        """Returns what the executed rounds have used of the cap, at the filter's order."""
        if not self.rounds:
            return Reading(0, 0.0, self._delta)
        unused = self.allowance - self.spent
        return Reading(self.rounds, rounded_up(max(0.0, self._epsilon - unused)), self._delta)

    def _fits(self, divergence: float) -> bool:
        return self._epsilon > 0 and self.spent + divergence <= self.allowance

    def _divergence(self, event: RoundGroup) -> float:
        return float(self._divergences.of(event)[self._index])


def best_order(
    expected: Sequence[RoundGroup], *, epsilon: float, delta: float, sampling: Sampling, adjacency: Adjacency
) -> int:
    """Returns the order at which the expected rounds use the smallest share of what epsilon and delta allow.

    The expectation must be public and fixed before the first round; whatever happens later, the filter's cap holds.

    Raises:
        AccountantError: if a value is not allowed, or no rounds are expected.
        RefusedError: if no order allows anything.
    """
    import numpy as np

    _validate.count("the number of expected groups", len(expected))
    known = _Divergences(sampling, adjacency)
    total = sum(known.of(group) for group in expected)
    allowances = _validate.positive("epsilon", epsilon) - rdp.conversions(_validate.delta("delta", delta))
    if not (allowances > 0).any():
        raise RefusedError(f"no order to {rdp.ORDERS[-1]} allows anything at epsilon {epsilon:g} and delta {delta:g}")
    shares = np.where(allowances > 0, total / np.where(allowances > 0, allowances, 1.0), np.inf)
    return rdp.ORDERS[int(np.argmin(shares))]
