"""What evaluators report of versions, on public test data: the latest score of each, and who may report how many.

Nothing of the federation depends on it. Scores are kept for people; the curve of all of them is in the store.
"""

from typing import Final

from hushgrad.server.records import Score

MOST_EVALUATORS: Final = 16
"""So many names may report: without certificates a caller may take any, and the store must not fill with them."""


class Scoreboard:
    """The latest score of each evaluator."""

    def __init__(self, scores: tuple[Score, ...] = ()) -> None:
        """Args: scores are those that the store has, one of each evaluator at most."""
        self._latest = {score.evaluator: score for score in scores}

    @property
    def scores(self) -> tuple[Score, ...]:
        """The latest score of each evaluator, by name."""
        return tuple(score for _, score in sorted(self._latest.items()))

    def has_room_for(self, evaluator: str) -> bool:
        """Says whether this name may report."""
        return evaluator in self._latest or len(self._latest) < MOST_EVALUATORS

    def put(self, score: Score) -> None:
        """Takes a score that is durable; one of an older version than the latest leaves that one where it is."""
        known = self._latest.get(score.evaluator)
        if known is None or score.version >= known.version:
            self._latest[score.evaluator] = score
