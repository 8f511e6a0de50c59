"""When each version was published, and the scores that evaluators reported: read from the store when somebody looks.

Reads on its own connection, so that the writing thread is not disturbed, and only what is new since the last look.
Thousands of versions are thinned on the way out of the database, not after it.
"""

from collections.abc import Callable
from typing import Any, Protocol

from hushgrad.server.web.series import MOST_POINTS, Series

_MOST_EVALUATORS = 8
_READ_AT_ONCE = MOST_POINTS // 2  # so that live points find room before everything is thinned


class Source(Protocol):
    """What a database tells of the past."""

    def publications(self, after: int, most: int) -> list[tuple[int, float | None]]:
        """Returns at most `most` (version, seconds since 1970) beyond `after`, evenly, and always the newest."""
        ...

    def evaluators(self) -> list[str]:
        """Returns the names of those who have reported scores, in order."""
        ...

    def scores(self, evaluator: str, after: int, most: int) -> list[tuple[int, float, float | None]]:
        """Returns at most `most` (version, accuracy, averaged accuracy) beyond `after`, evenly, and the newest."""
        ...


class Place:
    """How much of a history one reader has."""

    def __init__(self) -> None:
        self.have: dict[str, tuple[int, int]] = {}


class History:
    """The curves of one federation.

    Args:
        open_source: opens the database to be read; called once, when somebody looks for the first time.
    """

    def __init__(self, open_source: Callable[[], Source]) -> None:
        self._open_source = open_source
        self._source: Source | None = None
        self._versions = Series()
        self._scores: dict[str, Series] = {}

    def refresh(self) -> None:
        """Reads what is new."""
        if self._source is None:
            self._source = self._open_source()
        self._versions.extend(self._source.publications(int(self._versions.last), _READ_AT_ONCE))
        for name in self._source.evaluators()[:_MOST_EVALUATORS]:
            series = self._scores.setdefault(name, Series())
            series.extend(self._source.scores(name, int(series.last), _READ_AT_ONCE))

    def news(self, place: Place) -> dict[str, Any]:
        """Returns what a reader lacks, and notes that it has it.

        Returns:
            {"versions": {"keep": n, "points": [[version, seconds since 1970], ...]}, "scores": {evaluator: {"keep": n,
            "points": [[version, accuracy, averaged accuracy or null], ...]}}}: each reader keeps its first n points of
            a curve, and adds these. Curves without news are left out.
        """
        versions = self._news("", self._versions, place)
        scores = {name: self._news(name, series, place) for name, series in self._scores.items()}
        news: dict[str, Any] = {"versions": versions} if versions else {}
        if any(scores.values()):
            news["scores"] = {name: found for name, found in scores.items() if found}
        return news

    def _news(self, name: str, series: Series, place: Place) -> dict[str, Any] | None:
        edition, kept, points = series.since(*place.have.get(name, (-1, 0)))
        place.have[name] = edition, kept + len(points)
        return {"keep": kept, "points": points} if points else None
