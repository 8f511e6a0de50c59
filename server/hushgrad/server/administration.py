"""What operators have ordered of one federation, made anew from the log of their orders.

Decides nothing by itself: `federation` judges an order, and asks here what holds. Knows no clock, file or socket.
"""

import datetime
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from hushgrad.server.records import Act, Answer, Record, Verb

LOOPBACK = "(loopback)"
"""Who gave an order on a connection without a certificate. No name in a certificate reads so."""


@dataclass(frozen=True, slots=True)
class Order:
    """What comes with every order; see `Act`."""

    at: float
    who: str
    request_id: bytes
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Ruling:
    """What became of an order.

    Attributes:
        answer: ACCEPTED, or why nothing was done.
        detail: for people.
        act: with ACCEPTED, its row; of the first time when the order is a repeat.
        records: what must be durable before the answer leaves.
    """

    answer: Answer
    detail: str = ""
    act: Act | None = None
    records: tuple[Record, ...] = ()


class Administration:
    """How the orders stand. Made from the acts in order; `apply` adds one."""

    def __init__(self, acts: Iterable[Act] = ()) -> None:
        self._acts: list[Act] = []
        self._by_request: dict[bytes, Act] = {}
        self._numbers: dict[bytes, int] = {}
        self._evicted: dict[str, Act] = {}
        self._closed_seats = 0
        self._paused_by: Act | None = None
        self._ended_by: Act | None = None
        for act in acts:
            self.apply(act)

    @property
    def acts(self) -> Sequence[Act]:
        """Every order that was taken, in order. To be read only."""
        return self._acts

    @property
    def paused_by(self) -> Act | None:
        """The order by which the federation is paused; None: it is not."""
        return self._paused_by

    @property
    def ended_by(self) -> Act | None:
        """The order by which the final version is earlier than the terms say; None: it is not."""
        return self._ended_by

    @property
    def evicted(self) -> Mapping[str, Act]:
        """Who was evicted, and by which order. To be read only."""
        return self._evicted

    @property
    def closed_seats(self) -> int:
        """So many seats that nobody had taken were closed."""
        return self._closed_seats

    @property
    def ends_at_once(self) -> bool:
        """Whether nobody is waited for any more but those whose updates were accepted."""
        return self._ended_by is not None and self._ended_by.at_once

    def find(self, request_id: bytes) -> Act | None:
        """Returns the order with this id; None: it was not taken."""
        return self._by_request.get(request_id)

    def number(self, act: Act) -> int:
        """Returns the number of an order's row, counted from 1."""
        return self._numbers[act.request_id]

    def apply(self, act: Act) -> None:
        """Adds an order to those that hold."""
        self._acts.append(act)
        self._by_request[act.request_id] = act
        self._numbers[act.request_id] = len(self._acts)
        if not act.changed:
            return
        match act.verb:
            case Verb.PAUSE:
                self._paused_by = act
            case Verb.RESUME:
                self._paused_by = None
            case Verb.EVICT if not act.participant:
                self._closed_seats += 1
            case Verb.EVICT:
                self._evicted[act.participant] = act
            case Verb.END:
                self._ended_by = act
                if act.at_once:
                    self._paused_by = None
            case Verb.DRAIN:
                pass  # for the process that got it


def said(act: Act) -> str:
    """Returns who gave an order and when, for a sentence: "alice, 2026-12-01 02:03:04 UTC"."""
    moment = datetime.datetime.fromtimestamp(act.at, datetime.UTC)
    return f"{act.who}, {moment:%Y-%m-%d %H:%M:%S} UTC"
