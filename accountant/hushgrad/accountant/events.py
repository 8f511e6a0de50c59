"""Schedules as dp-accounting's DpEvents and back, so that anybody can account a ledger with Google's library.

An event must cost there what it costs here. What has no such event, or an event whose meaning is open, is refused.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from hushgrad.accountant import _validate, pairs
from hushgrad.accountant.claims import Adjacency, RoundGroup, Sampling
from hushgrad.accountant.errors import AccountantError, RefusedError

NoiseUnit = Literal["clip norm", "twice the clip norm"]


@dataclass(frozen=True, slots=True)
class Schedule:
    """Rounds with the sampling that they were drawn by.

    Attributes:
        groups: in order; empty if nothing is released.
        sampling: of all of them.
    """

    groups: tuple[RoundGroup, ...]
    sampling: Sampling


def to_dp_event(
    groups: Sequence[RoundGroup], *, sampling: Sampling, adjacency: Adjacency, records: int | None = None
) -> Any:
    """Returns a DpEvent that dp-accounting, told the same adjacency, charges at least what these rounds cost.

    - poisson: PoissonSampled(q, Gaussian(sigma)), for ADD_OR_REMOVE_ONE and REPLACE_ONE. Also where q = 1: a
      bare Gaussian under REPLACE_ONE is noise / clip norm to one of the library's accountants and noise / sensitivity
      to the other.
    - fixed, add-remove: PoissonSampled(q, Gaussian(sigma / 2)), the pair that bounds it; the library has no event of
      its own for it.
    - fixed, replace-one: SampledWithoutReplacement(N, s, Gaussian(sigma / 2)): under REPLACE_ONE the library's
      multiplier is noise / sensitivity there, and a replaced record moves the sum by twice the clip norm. Only its
      Renyi accountant takes it, and answers two to three times our number.

    Args:
        groups: the rounds; none gives NoOp.
        sampling: "poisson" or "fixed".
        adjacency: "add-remove" or "replace-one".
        records: N; needed for fixed, replace-one alone.

    Raises:
        AccountantError: if a value is not allowed.
    """
    from dp_accounting import dp_event

    _validate.choice("sampling", sampling, ("poisson", "fixed"))
    _validate.choice("adjacency", adjacency, ("add-remove", "replace-one"))
    _, factor = pairs.of(sampling, adjacency)
    rounds = []
    for group in groups:
        q, gaussian = group.sampling_probability, dp_event.GaussianDpEvent(factor * group.noise_multiplier)
        if (sampling, adjacency) == ("fixed", "replace-one"):
            size = _sample_size(q, records)
            one = dp_event.SampledWithoutReplacementDpEvent(int(records or 0), size, gaussian)
        elif sampling == "fixed" and q >= 1:
            raise AccountantError("fixed sampling needs a sample smaller than the data set, found q = 1")
        else:
            one = dp_event.PoissonSampledDpEvent(q, gaussian)
        rounds.append(one if group.rounds == 1 else dp_event.SelfComposedDpEvent(one, group.rounds))
    if len(rounds) == 1:
        return rounds[0]
    return dp_event.ComposedDpEvent(rounds) if rounds else dp_event.NoOpDpEvent()


def from_dp_event(event: Any, *, adjacency: Adjacency, noise_relative_to: NoiseUnit | None = None) -> Schedule:
    """Returns the schedule that a DpEvent describes.

    Gaussian, PoissonSampled(Gaussian), SampledWithoutReplacement(Gaussian), SelfComposed, Composed and NoOp are read. A
    multiplier is read as noise / clip norm, under both adjacencies, which never costs less than any other reading.

    Args:
        event: a dp_accounting.DpEvent.
        adjacency: under which the result will be claimed; events do not say.
        noise_relative_to: what a multiplier inside SampledWithoutReplacement is a multiple of. The library means the
            sensitivity, "twice the clip norm" under REPLACE_ONE; several callers pass noise / "clip norm". There is no
            default, because the wrong one doubles the noise.

    Raises:
        AccountantError: if a value in the event is not allowed, or noise_relative_to is needed and missing.
        RefusedError: if the event holds anything else, or mixes the two kinds of sampling.
    """
    from dp_accounting import dp_event

    _validate.choice("adjacency", adjacency, ("add-remove", "replace-one"))
    groups: list[RoundGroup] = []
    samplings: set[Sampling] = set()

    def visit(part: Any, count: int) -> None:
        if isinstance(part, dp_event.NoOpDpEvent):
            return
        if isinstance(part, dp_event.SelfComposedDpEvent):
            visit(part.event, count * _validate.count("the count of a SelfComposedDpEvent", part.count))
        elif isinstance(part, dp_event.ComposedDpEvent):
            for one in part.events:
                visit(one, count)
        elif isinstance(part, dp_event.GaussianDpEvent):
            samplings.add("poisson")
            groups.append(RoundGroup(1.0, part.noise_multiplier, count))
        elif isinstance(part, dp_event.PoissonSampledDpEvent):
            samplings.add("poisson")
            groups.append(RoundGroup(part.sampling_probability, _gaussian(part.event), count))
        elif isinstance(part, dp_event.SampledWithoutReplacementDpEvent):
            samplings.add("fixed")
            if noise_relative_to is None:
                raise AccountantError(
                    "say noise_relative_to for SampledWithoutReplacementDpEvent: 'twice the clip norm' if its noise "
                    "multiplier is noise / sensitivity as the library means it, 'clip norm' if it is noise / clip norm"
                )
            factor = {"clip norm": 1, "twice the clip norm": 2}[
                _validate.choice("noise_relative_to", noise_relative_to, ("clip norm", "twice the clip norm"))
            ]
            q = part.sample_size / part.source_dataset_size
            groups.append(RoundGroup(q, factor * _gaussian(part.event), count))
        else:
            raise RefusedError(f"a {type(part).__name__} is not supported; nothing is guessed about it")

    def _gaussian(inner: Any) -> float:
        if not isinstance(inner, dp_event.GaussianDpEvent):
            raise RefusedError(f"sampling of a {type(inner).__name__} is not supported, of a GaussianDpEvent it is")
        return float(inner.noise_multiplier)

    visit(event, 1)
    if len(samplings) > 1:
        raise RefusedError("an event with both Poisson and without-replacement sampling is not supported")
    return Schedule(tuple(groups), next(iter(samplings), "poisson"))


def _sample_size(q: float, records: int | None) -> int:
    if records is None:
        raise AccountantError("give records: an event for fixed sampling with a replaced record names N")
    size = round(q * _validate.count("records", records))
    if not 1 <= size < records or abs(size / records - q) > 1e-12:
        raise AccountantError(f"q must be s / {records} with 1 <= s < {records}, found {q!r}")
    return size
