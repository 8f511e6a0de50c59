"""A curve that never grows: new points come at its end, and old ones are thinned.

Knows nothing of what the points mean.
"""

import math
from collections.abc import Iterable
from typing import Final

Point = tuple[float | None, ...]
"""Columns of one point; the first one ascends."""

MOST_POINTS: Final = 800


def _thinned(points: list[Point], most: int) -> list[Point]:
    """Returns at most `most` + 1 points, evenly spread over the first column, the newest among them.

    One for each of equal intervals whose length is a power of two: what is dropped now is what a later thinning would
    have dropped. Dropping every second point would do it once; done again and again it would drop all old ones.
    """
    last = points[-1][0] or 0.0
    first = points[0][0] or 0.0
    step = 2.0 ** math.ceil(math.log2(max(1.0, (last - first) / (most - 1))))
    kept = {math.floor((point[0] or 0.0) / step): point for point in reversed(points)}
    return [*(point for _, point in sorted(kept.items()) if (point[0] or 0.0) < last), points[-1]]


class Series:
    """Points in order, at most `most` of them.

    Invariant: the first column ascends, and the newest point is always there.
    """

    def __init__(self, most: int = MOST_POINTS) -> None:
        self._most = most
        self._points: list[Point] = []
        self._edition = 0

    @property
    def last(self) -> float:
        """The first column of the newest point; -1 when there is none."""
        return self._points[-1][0] or 0.0 if self._points else -1.0

    def extend(self, points: Iterable[Point]) -> None:
        """Adds points; those that are not beyond the newest one are left out."""
        for point in points:
            if (point[0] or 0.0) > self.last:
                self._points.append(point)
        if len(self._points) > self._most:
            self._points = _thinned(self._points, self._most // 2)
            self._edition += 1

    def since(self, edition: int, count: int) -> tuple[int, int, list[Point]]:
        """Returns what a reader lacks who holds the first `count` points of an edition.

        Returns:
            The edition now, how many of the reader's points to keep, and what comes after those.
        """
        kept = min(count, len(self._points)) if edition == self._edition else 0
        return self._edition, kept, self._points[kept:]
