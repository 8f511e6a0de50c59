"""A privacy claim: the pair (epsilon, delta) together with everything without which the pair means nothing.

Claims are computed from schedules of rounds; where the rounds come from, and whether they may run, is not decided here.

In formulas: q the sampling probability of a record, sigma the noise multiplier, N the declared number of records.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from decimal import ROUND_CEILING, Context, Decimal
from typing import Any, Literal, get_args

from hushgrad.accountant import _validate, curve, pairs
from hushgrad.accountant.curve import Curve, Method
from hushgrad.accountant.errors import AccountantError, RefusedError

Sampling = Literal["poisson", "fixed"]
Adjacency = Literal["add-remove", "replace-one"]

MAX_CHARGED_SHARE = 0.01
"""Imperfections of samplers and tables may use up at most this share of delta."""

_SIGNIFICANT_DIGITS = Context(prec=4, rounding=ROUND_CEILING)

_SAMPLING_WORDS = {
    "poisson": "Poisson sampling (every record by an independent coin each round)",
    "fixed": "sampling of a fixed number of records each round",
}
_ADJACENCY_WORDS = {
    "add-remove": "one record added or removed",
    "replace-one": "one record replaced by another",
}


@dataclass(frozen=True, slots=True)
class RoundGroup:
    """Rounds that are alike.

    Attributes:
        sampling_probability: q in (0, 1]; for `fixed` sampling of s out of N records q = s/N < 1.
        noise_multiplier: sigma > 0, the standard deviation of the noise per coordinate divided by how far one record
            can move the sum. The same meaning for every sampler: what `fixed` costs more is charged by `from_schedule`.
        rounds: how many, >= 1.
    """

    sampling_probability: float
    noise_multiplier: float
    rounds: int

    def __post_init__(self) -> None:
        _validate.probability("sampling_probability", self.sampling_probability)
        _validate.positive("noise_multiplier", self.noise_multiplier)
        _validate.count("rounds", self.rounds)


@dataclass(frozen=True, slots=True)
class Claim:
    """What is promised about one record of one data set; its parts are only ever shown together.

    Attributes:
        epsilon: >= 0, rounded up to four significant digits when the claim is made.
        delta: in (0, 1), everything included: samplers, tables, truncations.
        adjacency: how the data sets that are compared differ: "add-remove", in one record that is there or not;
            "replace-one", in what one record says.
        sampling: "poisson" or "fixed", how the records of a round are chosen.
        unit: "record", what the data sets differ in.
        method: how epsilon was computed: "pld", by the privacy loss distribution, or "rdp", by Renyi divergences.
        method_version: of the method and of the library beneath it.

    >>> Claim(0.49981, 1e-5, "add-remove", "poisson", method_version="1").epsilon
    0.4999
    """

    epsilon: float
    delta: float
    adjacency: Adjacency
    sampling: Sampling
    unit: Literal["record"] = "record"
    method: Method = "pld"
    method_version: str = field(kw_only=True)

    def __post_init__(self) -> None:
        epsilon = _validate.not_negative("epsilon", self.epsilon)
        object.__setattr__(self, "epsilon", rounded_up(epsilon))
        object.__setattr__(self, "delta", _validate.delta("delta", self.delta))
        _validate.choice("adjacency", self.adjacency, get_args(Adjacency))
        _validate.choice("sampling", self.sampling, get_args(Sampling))
        _validate.choice("unit", self.unit, ("record",))
        _validate.choice("method", self.method, get_args(Method))
        if not isinstance(self.method_version, str) or not self.method_version:
            raise AccountantError(f"method_version must be a text that is not empty, found {self.method_version!r}")

    def to_dict(self) -> dict[str, Any]:
        """Returns the claim as plain values under its seven names, for JSON and for ledgers."""
        return {
            "epsilon": self.epsilon,
            "delta": self.delta,
            "adjacency": self.adjacency,
            "sampling": self.sampling,
            "unit": self.unit,
            "method": self.method,
            "method_version": self.method_version,
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Claim":
        """Returns the claim that `to_dict` wrote.

        Raises:
            AccountantError: if a name is missing or unknown, or a value is not allowed.
        """
        expected, found = {field.name for field in fields(cls)}, set(values)
        if expected != found:
            raise AccountantError(f"a claim has the names {sorted(expected)}, found {sorted(map(str, found))}")
        return cls(**values)

    def describe(self, *, timing_covered: bool = True, clipped_by_caller: bool = False) -> str:
        """Returns the claim as one sentence.

        Args:
            timing_covered: whether updates leave on a public clock; if not, the sentence says so.
            clipped_by_caller: whether nobody but the client's owner knows that gradients were clipped; said, if so.
        """
        sentence = (
            f"({self.epsilon:g}, {self.delta:g})-differential privacy of every single {self.unit}: "
            f"{_ADJACENCY_WORDS[self.adjacency]}, {_SAMPLING_WORDS[self.sampling]}, computed by "
            f"{self.method.upper()} version {self.method_version}"
        )
        notes = [] if timing_covered else ["timing not covered"]
        notes += ["clipping: declared by caller"] if clipped_by_caller else []
        return "; ".join([sentence, *notes]) + "."


def rounded_up(epsilon: float) -> float:
    """Returns the smallest number with four significant digits that is >= epsilon.

    >>> rounded_up(0.12341), rounded_up(0.1234), rounded_up(0.0)
    (0.1235, 0.1234, 0.0)
    """
    # repr and not the binary value: 0.1234 as a double lies a little above 0.1234 and must stay what it is.
    return float(_SIGNIFICANT_DIGITS.plus(Decimal(repr(float(epsilon)))))


def from_schedule(
    groups: Sequence[RoundGroup],
    *,
    sampling: Sampling,
    adjacency: Adjacency,
    delta: float,
    delta_charged: float = 0.0,
) -> Claim:
    """Returns the claim for a whole schedule, fixed before its first round.

    It also holds for every prefix of the schedule: stopping early is post-processing. It does not hold for a schedule
    whose later rounds were chosen after looking at earlier ones.

    Args:
        groups: the rounds, in any order; none at all costs nothing.
        sampling: "poisson" or "fixed".
        adjacency: "add-remove" or "replace-one".
        delta: in (0, 1), what the claim will say.
        delta_charged: the part of it that imperfections of samplers and tables take away; at most 1 % of delta.

    Raises:
        AccountantError: if a value is not allowed, or a "fixed" group has q = 1.
        RefusedError: if more than 1 % of delta is charged, or a noise multiplier is too small to protect anybody.

    Reference:
        `pairs.of` says which pair of distributions each of the four modes composes, and why it is enough.

    >>> groups = [RoundGroup(sampling_probability=0.01, noise_multiplier=1.1, rounds=1000)]
    >>> from_schedule(groups, sampling="poisson", adjacency="add-remove", delta=1e-5).epsilon < 1.52
    True
    """
    found = privacy_curve(groups, sampling=sampling, adjacency=adjacency)
    return from_curve(found, sampling=sampling, adjacency=adjacency, delta=delta, delta_charged=delta_charged)


def privacy_curve(
    groups: Sequence[RoundGroup], *, sampling: Sampling, adjacency: Adjacency, quick: bool = False
) -> Curve:
    """Returns the curve of epsilon over delta that `from_schedule` reads at one point; `quick` as in `pld.curve`."""
    _validate.choice("sampling", sampling, get_args(Sampling))
    _validate.choice("adjacency", adjacency, get_args(Adjacency))
    pair, factor = pairs.of(sampling, adjacency)
    rounds: dict[tuple[float, float], int] = {}
    for group in groups:
        q, sigma = float(group.sampling_probability), factor * float(group.noise_multiplier)
        if sampling == "fixed" and q >= 1:
            # A data set that lacks one of N records cannot supply a sample of N.
            raise AccountantError("fixed sampling needs a sample smaller than the data set, found q = 1")
        rounds[q, sigma] = rounds.get((q, sigma), 0) + int(group.rounds)
    return curve.of(rounds, pair=pair, quick=quick)


def from_curve(found: Curve, *, sampling: Sampling, adjacency: Adjacency, delta: float, delta_charged: float) -> Claim:
    """Returns the claim at one delta of a curve; arguments and errors as in `from_schedule`."""
    _validate.delta("delta", delta)
    _validate.not_negative("delta_charged", delta_charged)
    if delta_charged > MAX_CHARGED_SHARE * delta:
        raise RefusedError(
            f"imperfections of samplers and tables cost {delta_charged:.3g} of delta, more than "
            f"{MAX_CHARGED_SHARE:.0%} of {delta:.3g}"
        )
    answer = found.answer(delta - delta_charged)
    return Claim(
        epsilon=answer.epsilon,
        delta=delta,
        adjacency=adjacency,
        sampling=sampling,
        method=answer.method,
        method_version=curve.method_version(answer.method),
    )


def check_delta(delta: float, records: int, accept_large: bool = False) -> str | None:
    """Refuses a delta that permits publishing a record outright, unless a person insists.

    A mechanism that publishes one random record of N, and nothing else, is (0, 1/N)-differentially private.

    Args:
        delta: in (0, 1).
        records: N, the declared number of records.
        accept_large: whether a person has typed that a delta above 1/N is meant.

    Returns:
        A sentence of warning if delta is 1/N or more, else None.

    Raises:
        AccountantError: if delta is above 1/N and not accepted.
    """
    _validate.delta("delta", delta)
    _validate.count("records", records)
    if delta < 1 / records:
        return None
    sentence = f"delta {delta:g} allows one random record of {records} to be published"
    if delta > 1 / records and not accept_large:
        raise AccountantError(
            f"{sentence}: it must be at most 1/{records} = {1 / records:.4g}; use {suggest_delta(records):g}, or "
            "accept a large delta explicitly"
        )
    return f"{sentence}; {suggest_delta(records):g} would be usual"


def suggest_delta(records: int) -> float:
    """Returns min(1e-5, 1/(10 N)), rounded down to one significant digit.

    >>> suggest_delta(1768), suggest_delta(1_000_000)
    (1e-05, 1e-07)
    """
    _validate.count("records", records)
    bound = min(Decimal("1e-5"), 1 / Decimal(10 * records))
    return float(Context(prec=1, rounding="ROUND_DOWN").plus(bound))
