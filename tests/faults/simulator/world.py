"""The world around the cores: a clock, a queue of what happens next, and a network as bad as it is told to be."""

import heapq
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.faults.simulator.plan import Fault, Plan

FAR = float("inf")
RECOVERY_SECONDS = 7.0
"""After a fault of the network: a call that waits for its answer (2 s), and the longest wait before the next (5 s)."""


class CrashError(Exception):
    """A process dies here and now."""

    def __init__(self, node: Any, seconds: float) -> None:
        super().__init__()
        self.node = node
        self.seconds = seconds


@dataclass(slots=True)
class _Window:
    """A fault of the network that is in force."""

    kind: str
    who: str
    value: float
    chance: random.Random


class World:
    """Time, events, messages and crash points of one schedule.

    Attributes:
        now: simulated seconds.
        counts: how often each hard case occurred.
        steps: how many things have happened.
        quiet_at: when the last fault is over.
        trace: called with a line for people; None: nobody looks.
    """

    def __init__(self, plan: Plan, trace: Callable[[str], None] | None = None) -> None:
        self.plan = plan
        self.chance = random.Random(plan.seed ^ 0x5EED)
        self.now = 0.0
        self.counts: Counter[str] = Counter()
        self.quiet_at = 0.0
        self.trace = trace
        self._queue: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._number = 0
        self.steps = 0
        self._windows: list[_Window] = []
        self._troubles: list[tuple[str, float, float]] = []
        self._armed: dict[tuple[str, str], Fault] = {}

    # Time

    def after(self, seconds: float, happen: Callable[..., None], *args: Any) -> None:
        """Lets something happen in so many seconds."""
        self._number += 1
        heapq.heappush(self._queue, (self.now + seconds, self._number, happen, args))

    def step(self) -> bool:
        """Lets the next thing happen; False when nothing will."""
        if not self._queue:
            return False
        self.steps += 1
        self.now, _, happen, args = heapq.heappop(self._queue)
        try:
            happen(*args)
        except CrashError as crash:
            crash.node.crash(crash.seconds)
        return True

    def say(self, text: str) -> None:
        """Writes a line of the trace. Ask for `trace` first where the text costs time."""
        if self.trace is not None:
            self.trace(f"{self.now:8.3f}  {text}")

    # Crashes

    def arm(self, fault: Fault, node: Any) -> None:
        """Lets a node die at the next passing of a point; wherever it is when that takes too long."""
        key = (fault.who, fault.point)
        self._armed[key] = fault

        def anyway() -> None:
            if self._armed.get(key) is fault:
                del self._armed[key]
                self._crash(fault, node, "between events")

        self.after(2.0, anyway)
        self.until(self.now + 2.0 + fault.seconds)

    def point(self, node: Any, who: str, name: str) -> None:
        """Marks a point of durability; whoever is to die here dies here."""
        if self._armed:
            fault = self._armed.pop((who, name), None)
            if fault is not None:
                self._crash(fault, node, name)

    def _crash(self, fault: Fault, node: Any, where: str) -> None:
        side = "server" if fault.who == "server" else "client"
        if node.is_up:
            self.counts[f"crash of the {side}: {where}"] += 1
            self.say(f"{fault.who} dies: {where}")
            raise CrashError(node, fault.seconds)

    def until(self, moment: float) -> None:
        """Notes that trouble lasts until then."""
        self.quiet_at = max(self.quiet_at, moment)

    # The network

    def open_window(self, fault: Fault) -> None:
        """Lets the network misbehave for a while."""
        window = _Window(fault.kind, fault.who, fault.value, random.Random(fault.seed))
        self._windows.append(window)
        if fault.kind != "duplicate":
            late = fault.value if fault.kind == "delay" else 0.0
            self._troubles.append((fault.who, self.now, self.now + fault.seconds + late + RECOVERY_SECONDS))
        self.until(self.now + fault.seconds)
        self.after(fault.seconds, self._windows.remove, window)

    def has_trouble(self, link: str, since: float, until: float) -> bool:
        """Whether the network between a participant and the server was bad at any time of an interval."""
        return any(who in ("*", link) and begin < until and end > since for who, begin, end in self._troubles)

    def send(self, link: str, upward: bool, deliver: Callable[..., None], *args: Any) -> bool:
        """Sends one message between a participant and the server; False when it is lost."""
        seconds, copies = self._journey(link, upward)
        if seconds < 0:
            return False
        self.after(seconds, deliver, *args)
        for _ in range(copies):
            self.after(seconds + self.chance.choice((0.0, 0.002, 0.1, 2.0)) * self.chance.random(), deliver, *args)
        return True

    def stream(self, link: str, not_before: float, deliver: Callable[..., None], *args: Any) -> float:
        """Sends one message of a stream, in which nothing overtakes; returns when it arrives, or -1 when it is lost."""
        seconds, _ = self._journey(link, False)
        if seconds < 0:
            return -1.0
        arrival = max(self.now + seconds, not_before + 1e-6)
        self.after(arrival - self.now, deliver, *args)
        return arrival

    def _journey(self, link: str, upward: bool) -> tuple[float, int]:
        """Returns how long a message takes, negative when it is lost, and how many copies of it arrive beside it."""
        seconds = 0.001 + 0.02 * self.chance.random()
        copies = 0
        for window in self._windows:
            if window.who != "*" and window.who != link:
                continue
            kind = window.kind
            if kind == "partition":
                # 0: both ways; 1: nothing comes up; 2: nothing comes down.
                if window.value == 0.0 or (window.value == 1.0) is upward:
                    return -1.0, 0
            elif kind == "loss":
                if window.chance.random() < window.value:
                    return -1.0, 0
            elif kind == "delay":
                seconds += window.chance.random() * window.value
            elif upward and window.chance.random() < window.value:
                copies += 1
        return seconds, copies
