"""When anything leaves: on a public tick, whatever a round takes; the twins leave at once, and tell.

Exactly, with the session's decisions under a simulated clock; and in real time, with threads and sockets.
"""

import heapq
import random
import time
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pytest
from hushgrad.client import delay, events, session
from hushgrad.client.delay import PermissibleDelay
from hushgrad.client.messages import Participation, ServerState, Verdict
from hushgrad.client.runner import Runner
from hushgrad.client.session import Facts, Session
from hushgrad.client.stream import RandomStream
from hushgrad.client.transport import Transport
from scipy import stats

from tests.support import client_world
from tests.support.client_world import PARTICIPANT
from tests.support.fake_server import FakeServer

INTERVAL: Final = 0.3
SLOW_SECONDS: Final = 0.15
"""How much longer a round with "many records" takes: below the three quarters of an interval that are free."""

ALARM: Final = 1e-6


# Under a simulated clock.


def calls(durations: list[float], interval: float, seed: int) -> list[tuple[float, events.Call]]:
    """Returns what leaves a session, and when; only `durations`, what each round takes, is private.

    The server answers after a random time and publishes a version when the round that it waits for has come; a watch
    brings heartbeats and reconnections in between. All of that comes from the seed.
    """
    chance = random.Random(seed)
    pace = [chance.uniform(0.01, 0.7) for _ in range(1000)]
    core = Session(
        Facts(
            final_version=len(durations),
            window=4,
            straggler_timeout_seconds=chance.choice([0.8, 30.0]),
            delay=PermissibleDelay("max-delay", chance.choice([0, 1, 2]), (1,)),
            release_interval_seconds=interval,
        )
    )
    left: list[tuple[float, events.Call]] = []
    queue: list[tuple[float, int, events.Event]] = [(chance.uniform(0, interval or 1), 0, events.Tick())]
    number = newest = 0

    def at(time_: float, event: events.Event) -> None:
        nonlocal number
        number += 1
        heapq.heappush(queue, (time_, number, event))

    def state() -> ServerState:
        return ServerState(1, newest, newest)

    for index in range(40):
        happens = events.Reconnected() if index % 7 == 3 else events.ServerSeen(ServerState(1, 0, 0))
        at(chance.uniform(0, 30), happens)
    at(chance.uniform(0, 1), events.ModelArrived(0))
    while queue and not core.over:
        now, _, event = heapq.heappop(queue)
        for action in core.handle(event, now):
            if isinstance(action, events.Train):
                at(now + durations[action.round], events.Sealed(action.round))
                continue
            if not isinstance(action, events.Call):
                continue
            left.append((now, action))
            answered = now + pace[len(left)]
            verdict = Verdict("ACCEPTED", state(), "", 0.0)
            active = Participation("active", 0, None, ())
            match action:
                case events.Join():
                    at(answered, events.Joined(verdict, Participation("observing"), 0, b"", None))
                case events.Start():
                    at(answered, events.Started(verdict, active))
                case events.AskParticipation():
                    at(answered, events.ParticipationSeen(verdict, active))
                case events.Send(round=round_):
                    at(answered, events.SubmitAnswered(round_, verdict, "UNSPECIFIED", round_ + 1, active))
                    newest = max(newest, round_ + 1)
                    at(answered + pace[len(left) + 500], events.ModelArrived(round_ + 1))
        if (wake := core.wake_at()) is not None and not any(time_ == wake for time_, _, _ in queue):
            at(wake, events.Tick())
    assert core.over
    return left


def test_nothing_that_leaves_depends_on_how_long_rounds_take() -> None:
    """Which calls, in which order, at which times: all the same, exactly."""
    longest = session.FREE_SHARE * INTERVAL
    for seed in range(150):
        chance = random.Random(-seed)
        private = [[chance.uniform(0, longest) for _ in range(10)] for _ in range(3)]
        first, *others = [calls(durations, INTERVAL, seed) for durations in (*private, [0.0] * 10)]
        assert sum(isinstance(call, events.Send) for _, call in first) == 10, seed
        assert all(other == first for other in others), seed


@pytest.mark.parametrize(("interval", "took"), [(0.0, 0.1), (INTERVAL, 2.5 * INTERVAL)])
def test_without_the_tick_or_beyond_it_what_rounds_take_is_seen(interval: float, took: float) -> None:
    """The twins; the second is the limit of the promise."""
    times = [[time_ for time_, _ in calls([seconds] * 10, interval, 1)] for seconds in (0.0, took)]
    assert times[0] != times[1]


# In real time.


class TimedServer(FakeServer):
    """Notes when updates arrive, on the clock that the client's ticks are on: both are in this process."""

    def __init__(self, terms: Any) -> None:
        super().__init__(terms)
        self.arrivals: list[float] = []

    def SubmitUpdate(self, request: Any, context: Any) -> Any:  # noqa: N802
        self.arrivals.append(time.monotonic())
        return super().SubmitUpdate(request, context)


def gaps(folder: Path, interval: float, rounds: int) -> tuple[list[float], list[float]]:
    """Runs rounds, half of them slow, in an order that a seed fixes; returns the times between their departures.

    Those of quick rounds first, then those of slow ones.
    """
    slow = [index % 2 == 1 for index in range(rounds)]
    random.Random(3).shuffle(slow)

    def make_update(parameters: Any, round_: int, stream: RandomStream) -> npt.NDArray[np.int32]:
        time.sleep(SLOW_SECONDS if slow[round_] else 0.0)
        return (stream.uint64("noise", parameters.size) % 1000).astype(np.int32)

    terms = client_world.make_terms(final_version=len(slow))
    server = TimedServer(terms)
    with (
        server.serving() as address,
        client_world.make_ledger(
            folder, rounds=len(slow), parameters=terms.parameters, terms_digest=server.digest
        ) as book,
    ):
        transport = Transport(address, PARTICIPANT)
        transport.use_terms(server.digest, terms.limits)
        committed = book.committed(server.digest)
        assert committed is not None
        facts = Facts(
            final_version=terms.final_version,
            window=terms.window,
            straggler_timeout_seconds=terms.straggler_timeout_seconds,
            delay=delay.of(terms),
            release_interval_seconds=interval,
        )
        Runner(
            transport=transport, ledger=book, committed=committed, terms=terms, make_update=make_update, facts=facts
        ).run()
    assert len(server.arrivals) == len(slow)
    found = np.diff(server.arrivals)
    return (
        [float(gap) for gap, was_slow in zip(found, slow[1:], strict=True) if not was_slow],
        [float(gap) for gap, was_slow in zip(found, slow[1:], strict=True) if was_slow],
    )


def surprise(quick: list[float], slow: list[float]) -> float:
    """The chance that gaps of one law are ordered by what their rounds took as much as these: an exact rank test."""
    return float(stats.mannwhitneyu(quick, slow, method="exact").pvalue)


@pytest.mark.faults
@pytest.mark.e2e
def test_departures_on_the_public_tick_tell_nothing_about_what_rounds_take(tmp_path: Path) -> None:
    assert surprise(*gaps(tmp_path, INTERVAL, 60)) > ALARM


@pytest.mark.faults
@pytest.mark.e2e
def test_departures_at_once_tell_it(tmp_path: Path) -> None:
    """The twin, with rounds enough for a machine that is busy with other things."""
    assert surprise(*gaps(tmp_path, 0.0, 60)) < ALARM
