"""Draws a federation that is being watched: a screen that is redrawn, or one plain line for each change."""

from typing import Any, Final

from hushgrad.experiments.watching import Seen
from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

NARROW: Final = 64
"""Below so many columns, what is nice to know is left out."""

_AROUND = 9
"""Lines of the screen that are not participants."""

_STYLES = {"active": "green", "suspended": "bold red", "observing": "dim", "left": "dim"}


def headline(seen: Seen) -> str:
    """Returns one sentence: what the federation waits for right now."""
    status = seen.status
    if seen.silent_seconds is not None:
        return f"the server has not answered for {seen.silent_seconds:.0f} s; asking again and again"
    if seen.has_ended:
        return f"the federation has ended with version {status['newest_version']}"
    # From the network: nothing that a terminal would take for an order.
    return "".join(letter for letter in status["waiting_for"] if letter.isprintable()) or "nothing is waited for"


def line(seen: Seen) -> str:
    """Returns one line without colours, for a log or a pipe."""
    status = seen.status
    states = _states(status["participants"])
    parts = [
        f"version {status['newest_version']} of {status['final_version']}",
        f"{sum(one['updates_accepted'] for one in status['participants'])} updates",
        *([states] if states else []),
        *([_accuracy(status)] if _accuracy(status) else []),
        headline(seen),
    ]
    return "; ".join(parts)


class Screen:
    """What is drawn on a terminal; it asks for its size when it is drawn."""

    def __init__(self, seen: Seen) -> None:
        self._seen = seen

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Group(*self._parts(options.max_width, options.size.height))

    def _parts(self, width: int, height: int) -> list[RenderableType]:
        seen, status = self._seen, self._seen.status
        trouble = seen.silent_seconds is not None
        head = Text(headline(seen), style="bold red" if trouble else "bold")
        title = Text.assemble((status["federation"], "cyan"), "  ", (_phase(status), _phase_style(status)))
        if seen.restarts:
            title.append(f"  server restarted {seen.restarts}x", style="yellow")
        course = Table.grid(padding=(0, 1))
        course.add_row(
            Text(f"version {status['newest_version']} of {status['final_version']}"),
            ProgressBar(
                total=status["final_version"] or 1, completed=status["newest_version"], width=min(30, width // 3)
            ),
        )
        facts = [_rate(seen), _accuracy(status)]
        if width >= NARROW:
            facts += [f"{status['watchers']} watching", f"up {_span(status['uptime_seconds'])}"]
        parts: list[RenderableType] = [
            title,
            head,
            course,
            Text("   ".join(fact for fact in facts if fact), style="dim"),
        ]
        parts.append(_participants(status, width, max(3, height - _AROUND)))
        return parts


def _participants(status: dict[str, Any], width: int, room: int) -> RenderableType:
    everybody = status["participants"]
    if not everybody:
        return Text("nobody has joined yet", style="dim")
    wide = width >= NARROW
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1), collapse_padding=True)
    table.add_column("participant" if wide else "name", overflow="ellipsis", no_wrap=True)
    table.add_column("state", no_wrap=True)
    table.add_column("round", justify="right", no_wrap=True)
    table.add_column("stale" if wide else "st", justify="right", no_wrap=True)
    table.add_column("updates" if wide else "upd", justify="right", no_wrap=True)
    if wide:
        table.add_column("repeats", justify="right", no_wrap=True)
        table.add_column("without", justify="right", no_wrap=True)
    shown = everybody
    if len(everybody) > room:
        # Those that are furthest behind are those that one wants to see.
        shown = sorted(everybody, key=lambda one: (one["state"] == "left", one["next_owed_round"]))[: room - 1]
    for one in shown:
        state = Text("evicted" if one["evicted"] else one["state"], style=_STYLES.get(one["state"], ""))
        if one["updates_invalid"] or one["rounds_lost"] or one["updates_flagged"]:
            state.append(" !", style="bold red")
        cells: list[RenderableType] = [
            Text(one["participant"]),
            state,
            Text(str(one["rounds_received"] - 1) if one["rounds_received"] else "-"),
            Text(str(staleness(status, one))),
            Text(str(one["updates_accepted"])),
        ]
        if wide:
            cells += [Text(str(one["updates_duplicate"])), Text(str(one["rounds_without_update"]))]
        table.add_row(*cells)
    parts: list[RenderableType] = [table]
    if len(shown) < len(everybody):
        parts.append(Text(f"the {len(shown)} furthest behind of {len(everybody)}: {_states(everybody)}", style="dim"))
    troubled = [_trouble(one) for one in everybody if _trouble(one)]
    if troubled:
        parts.append(Text("! " + "; ".join(troubled[:3]), style="red"))
    return Group(*parts)


def staleness(status: dict[str, Any], participant: dict[str, Any]) -> int:
    """Returns how many versions the newest one is behind a participant's newest round; 0 where it is not.

    The model that the round began with was at least as stale.
    """
    return max(0, participant["rounds_received"] - 1 - status["newest_version"])


def _trouble(one: dict[str, Any]) -> str:
    what = [
        f"{one[key]} {word}"
        for key, word in (("updates_invalid", "invalid"), ("rounds_lost", "lost"), ("updates_flagged", "improbable"))
        if one[key]
    ]
    return f"{one['participant']}: {', '.join(what)}" if what else ""


def _states(participants: list[dict[str, Any]]) -> str:
    counts: dict[str, int] = {}
    for one in participants:
        counts[one["state"]] = counts.get(one["state"], 0) + 1
    return ", ".join(f"{number} {state}" for state, number in sorted(counts.items()))


def _phase(status: dict[str, Any]) -> str:
    if status.get("is_paused"):
        return "paused"
    return "draining" if status.get("is_draining") else str(status["phase"])


def _phase_style(status: dict[str, Any]) -> str:
    return {"running": "green", "ended": "bold"}.get(_phase(status), "yellow")


def _rate(seen: Seen) -> str:
    if seen.versions_per_second is None or seen.updates_per_second is None:
        return ""
    return f"{seen.versions_per_second:.2g} versions/s   {seen.updates_per_second:.2g} updates/s"


def _accuracy(status: dict[str, Any]) -> str:
    scores = status.get("scores") or []
    if not scores:
        return ""
    newest = max(scores, key=lambda score: score["version"])
    averaged = newest.get("averaged_accuracy")
    text = f"accuracy {newest['accuracy']:.2%} at version {newest['version']}"
    return text if averaged is None else f"{text}, averaged {averaged:.2%}"


def _span(seconds: float) -> str:
    hours, rest = divmod(int(seconds), 3600)
    minutes, small = divmod(rest, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {small} s" if minutes else f"{small} s"
