"""What a person sees of a running federation, put together from the events that its processes log.

Events in, values out; nothing is read or drawn here.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class ClientView:
    """One client.

    Attributes:
        state: what it is doing, in a word or two.
        round: the last round that it sealed; None before the first.
        version: the version that this round started from.
        staleness: how many versions behind its round that was.
        rounds_sealed: so far.
        rounds_committed: of the whole schedule; 0 before it was committed.
        epsilon: the claim's, for the whole schedule; None before it was committed.
    """

    state: str = "starting"
    round: int | None = None
    version: int | None = None
    staleness: int | None = None
    rounds_sealed: int = 0
    rounds_committed: int = 0
    epsilon: float | None = None


@dataclass(slots=True)
class Board:
    """The whole federation as last heard of."""

    final_version: int
    clients: dict[str, ClientView]
    address: str | None = None
    page: str | None = None
    version: int = 0
    accuracy: float | None = None
    accuracy_averaged: float | None = None
    scored_version: int | None = None
    suspended: list[str] = field(default_factory=list)

    def apply(self, source: str, event: Mapping[str, Any]) -> None:
        """Takes one logged event of the process `source`; what it does not know, it leaves alone."""
        kind = event.get("event")
        if source in self.clients:
            _apply_client(self.clients[source], kind, event)
        elif kind == "listening":
            self.address = str(event["address"])
        elif kind == "listening_for_web":
            self.page = str(event["url"])
        elif kind == "published":
            self.version = max(self.version, int(event["version"]))
        elif kind == "suspended":
            self.suspended.append(str(event["participant"]))
        elif kind == "scored":
            self.scored_version = int(event["version"])
            self.accuracy = float(event["accuracy"])
            averaged = event.get("accuracy_averaged")
            self.accuracy_averaged = None if averaged is None else float(averaged)


def _apply_client(view: ClientView, kind: object, event: Mapping[str, Any]) -> None:
    match kind:
        case "waiting_for_server":
            view.state = "waiting for the server"
        case "joined":
            view.state = "joined"
        case "committed":
            view.state = "schedule committed"
            view.rounds_committed = int(event["rounds"])
            view.epsilon = float(event["claim"]["epsilon"])
        case "started":
            view.state = "training"
        case "round_sealed":
            view.state = "training"
            view.round = int(event["round"])
            view.version = int(event["version"])
            view.staleness = int(event["staleness"])
            view.rounds_sealed += 1
            view.rounds_committed = int(event.get("rounds_committed", view.rounds_committed))
        case "finished":
            view.state = "finished"
        case _:
            pass
