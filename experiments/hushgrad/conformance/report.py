"""What a run of the kit found: one row per check, as a table or as JSON. Knows nothing of servers and clients."""

import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

Outcome = Literal["pass", "fail", "not tried"]


@dataclass(frozen=True, slots=True)
class Check:
    """One promise that the kit holds somebody to.

    Attributes:
        name: what `--only` takes.
        promise: one sentence in the present tense; it is the reason shown when the check passes.
        false_alarm: probability that one who keeps the promise fails. Zero: nothing random decides.
    """

    name: str
    promise: str
    false_alarm: float = 0.0


@dataclass(frozen=True, slots=True)
class Result:
    """What became of one check.

    Attributes:
        name: of the check.
        outcome: "pass", "fail" or "not tried".
        why: one sentence: the promise, what broke it, or why it could not be tried.
        false_alarm: of the check.
        seconds: that its scenario took.
    """

    name: str
    outcome: Outcome
    why: str
    false_alarm: float = 0.0
    seconds: float = 0.0


class Judgement:
    """Collects the results of one scenario's checks; the first word about a check counts.

    Args:
        checks: those that the scenario must judge.
    """

    def __init__(self, checks: Iterable[Check]) -> None:
        self._checks = {check.name: check for check in checks}
        self._found: dict[str, tuple[Outcome, str]] = {}

    def fail(self, name: str, why: str) -> None:
        """Says what broke a promise."""
        self._say(name, "fail", why)

    def skip(self, name: str, why: str) -> None:
        """Says why a promise could not be tried."""
        self._say(name, "not tried", why)

    def require(self, name: str, condition: bool, why: str) -> bool:
        """Fails the check unless the condition holds; returns the condition."""
        if not condition:
            self.fail(name, why)
        return condition

    def complain(self, name: str, complaint: str | None) -> None:
        """Fails the check if there is a complaint."""
        if complaint:
            self.fail(name, complaint)

    def failed(self, name: str) -> bool:
        """Says whether a check has failed already."""
        return self._found.get(name, ("", ""))[0] == "fail"

    def passed(self, name: str) -> None:
        """Says that a promise was kept, whatever happens later."""
        self._found.setdefault(name, ("pass", self._checks[name].promise))

    def fail_rest(self, why: str) -> None:
        """The scenario could not go on: the first check without a word fails, the others were not tried."""
        failed: str | None = None
        for name in self._checks:
            if name not in self._found:
                if failed is None:
                    self.fail(name, why)
                    failed = name
                else:
                    self.skip(name, f"the scenario ended before; see {failed}")

    def results(self, seconds: float = 0.0) -> list[Result]:
        """Returns one result per check; without a word it has passed."""
        return [
            Result(name, *self._found.get(name, ("pass", check.promise)), check.false_alarm, round(seconds, 2))
            for name, check in self._checks.items()
        ]

    def _say(self, name: str, outcome: Outcome, why: str) -> None:
        if name not in self._checks:
            raise KeyError(name)
        self._found.setdefault(name, (outcome, why))


def passed(results: Iterable[Result]) -> bool:
    """Says whether nothing failed."""
    return all(result.outcome != "fail" for result in results)


def to_dict(results: Sequence[Result]) -> dict[str, Any]:
    """Returns a report for `--json`."""
    counts = {
        outcome: sum(result.outcome == outcome for result in results) for outcome in ("pass", "fail", "not tried")
    }
    return {
        "passed": passed(results),
        "counts": counts,
        "false_alarm": sum(result.false_alarm for result in results),
        "checks": [asdict(result) for result in results],
    }


def table(results: Sequence[Result], width: int = 118) -> str:
    """Returns a report for people: check, outcome, why, and the false-alarm rate where chance plays a part."""
    wide = max((len(result.name) for result in results), default=0)
    room = max(40, width - wide - 24)
    lines = [f"{'check':{wide}}  {'':9}  {'why':{room}}  chance"]
    for result in results:
        chance = f"{result.false_alarm:.0e}" if result.false_alarm else "-"
        first, *others = textwrap.wrap(result.why, room) or [""]
        lines.append(f"{result.name:{wide}}  {result.outcome:9}  {first:{room}}  {chance}")
        lines += [f"{'':{wide}}  {'':9}  {other}" for other in others]
    counts = to_dict(results)["counts"]
    chance = to_dict(results)["false_alarm"]
    word = f"somebody who keeps every promise fails with probability below {chance:.0e}" if chance else "nothing random"
    lines += ["", f"{counts['pass']} passed, {counts['fail']} failed, {counts['not tried']} not tried; {word}"]
    return "\n".join(lines)
