"""How a figure is measured: beside its yardstick, interleaved, by medians. Knows nothing of what is measured.

Machines differ and neighbours come and go, so only ratios are judged: both sides run in turn within milliseconds of
each other, and the ratio is the median of the ratios of the pairs.
"""

import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeVar

Action = Callable[[], object]
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Row:
    """One figure.

    Attributes:
        name: what was measured, in words.
        value: median of what it costs or yields; NaN is never written.
        unit: of the value.
        against: the yardstick, in words.
        ratio: our cost / the yardstick's cost, median over pairs; smaller is better.
        bar: the largest ratio that holds.
        holds: ratio <= bar.
    """

    name: str
    value: float
    unit: str
    against: str
    ratio: float
    bar: float
    holds: bool

    def to_dict(self) -> dict[str, object]:
        """Returns the row as it stands in bench.json, numbers with four significant digits."""
        return rounded(asdict(self))


@dataclass(frozen=True, slots=True)
class Bound:
    """One figure that is judged as it is.

    Attributes:
        name: what was measured, in words.
        value: what was found.
        unit: of the value.
        bar: the largest or the smallest value that holds.
        sense: which of the two it is.
    """

    name: str
    value: float
    unit: str
    bar: float
    sense: Literal["at most", "at least"] = "at most"

    @property
    def holds(self) -> bool:
        """Whether the value is on the right side of the bar."""
        return self.value <= self.bar if self.sense == "at most" else self.value >= self.bar

    def to_dict(self) -> dict[str, object]:
        """Returns the figure as it stands in bench.json, numbers with four significant digits."""
        return rounded(asdict(self)) | {"holds": self.holds}


@dataclass(frozen=True, slots=True)
class Record:
    """What a measurement gave beside what is judged: a row of a table of its own.

    Attributes:
        name: what was measured, in words.
        values: by name, with the unit in the name; texts say under what conditions.
    """

    name: str
    values: Mapping[str, float | int | str]

    def to_dict(self) -> dict[str, object]:
        """Returns the record as it stands in bench.json, numbers with four significant digits."""
        return {"name": self.name} | rounded(self.values)


Figure = Row | Bound | Record


@dataclass(frozen=True, slots=True)
class Unmeasured:
    """A figure that could not be measured, and why."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class Pairs:
    """Seconds of both sides, measured in turn.

    Attributes:
        ours: seconds per action of ours, one per repeat.
        yardstick: seconds per action of the yardstick, one per repeat.
    """

    ours: tuple[float, ...]
    yardstick: tuple[float, ...]

    @property
    def seconds(self) -> float:
        """Median seconds of ours."""
        return statistics.median(self.ours)

    @property
    def ratio(self) -> float:
        """Median over the pairs of ours / yardstick."""
        return statistics.median(a / b for a, b in zip(self.ours, self.yardstick, strict=True))

    def row(self, *, name: str, value: float, unit: str, against: str, bar: float) -> Row:
        """Returns the figure, judged by the bar."""
        return Row(name, value, unit, against, self.ratio, bar, self.ratio <= bar)


def timed(action: Action, times: int) -> float:
    """Returns the seconds that one call takes, averaged over some calls in a row."""
    start = time.perf_counter()
    for _ in range(times):
        action()
    return (time.perf_counter() - start) / times


def side_by_side(ours: Action, yardstick: Action, *, ours_times: int, yardstick_times: int, repeats: int) -> Pairs:
    """Measures both sides in turn; who begins changes with every repeat, and a first round warms both up.

    Args:
        ours, yardstick: what to measure.
        ours_times, yardstick_times: calls per repeat, chosen so that one repeat takes some milliseconds.
        repeats: number of pairs.
    """
    return pairs(lambda: timed(ours, ours_times), lambda: timed(yardstick, yardstick_times), repeats=repeats)


def pairs(ours: Callable[[], float], yardstick: Callable[[], float], *, repeats: int) -> Pairs:
    """As `side_by_side`, for actions that return the seconds themselves."""
    ours(), yardstick()
    found: list[tuple[float, float]] = []
    for repeat in range(repeats):
        if repeat % 2:
            second = yardstick()
            found.append((ours(), second))
        else:
            found.append((ours(), yardstick()))
    return Pairs(tuple(a for a, _ in found), tuple(b for _, b in found))


def measure(name: str, figures: Callable[[], Iterable[_T]]) -> Iterator[_T | Unmeasured]:
    """Runs a group of figures; whatever goes wrong becomes a row that says so."""
    try:
        yield from figures()
    except Exception as error:
        yield Unmeasured(name, f"{type(error).__name__}: {error}")


def rounded(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: float(f"{value:.4g}") if isinstance(value, float) else value for key, value in values.items()}
