"""One run in one process: clients and a server that send each other messages with simulated delays.

The parts that decide are the product's own: a client's round (`client.dpsgd`, with clipping, grid and integer noise),
when a round may begin (`client.delay`), who is waited for and which version is next (`server.membership`), the model as
one array of integers (`server.aggregation`). What carries them elsewhere, sockets, sealed bytes, ledgers and receipts
on disk, is not here: it changes no model.

The seed decides everything, the noise too, so that the same run gives the same bits again. Noise that can be repeated
protects nobody: the result says `would_claim`.
"""

import functools
import hashlib
import heapq
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from hushgrad.client import delay, dpsgd
from hushgrad.client.data import Dataset
from hushgrad.client.stream import RandomStream
from hushgrad.experiments.errors import ExperimentError
from hushgrad.experiments.study import crashes
from hushgrad.experiments.study.resolve import NO_CLIPPING, Setup
from hushgrad.experiments.study.scores import Point, Scorer
from hushgrad.experiments.study.sources import Records
from hushgrad.server.aggregation import Aggregate, Published
from hushgrad.server.membership import Membership
from hushgrad.server.participant import Participant
from hushgrad.server.records import Disposition, Receipt, State, remembered_from
from hushgrad.wire import grid
from hushgrad.wire.grid import INT32_MAX
from hushgrad.wire.terms import Terms

Floats = npt.NDArray[np.float64]

_BLOCK = 512
"""Random times are drawn so many at once."""

MakeUpdate = Callable[[Floats, int, RandomStream], npt.NDArray[np.int32]]


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended.

    Attributes:
        points: the scored versions, in order.
        final: the last model, float32, shape (d,).
        averaged: the mean of the published models of the second half, float32, shape (d,).
        seconds: simulated, of the whole run.
        updates: how many were added to the model.
        suspensions: how often a participant was suspended.
        crashes: client's number and round, in order.
        cpu_seconds: processor time of this process for the run, scoring excluded.
        round_cpu_seconds: the part of it in the clients' bare rounds.
    """

    points: tuple[Point, ...]
    final: npt.NDArray[np.float32]
    averaged: npt.NDArray[np.float32]
    seconds: float
    updates: int
    suspensions: int
    crashes: tuple[tuple[int, int], ...]
    cpu_seconds: float
    round_cpu_seconds: float


def run(setup: Setup, records: Records, *, measure: bool = False) -> Outcome:
    """Simulates a whole run.

    Args:
        setup: its numbers.
        records: its data.
        measure: whether to time the bare rounds; costs a little itself.

    Raises:
        ExperimentError: if the federation cannot go on: everybody waits for something that will not come.
        InputError: from the parts, if data and numbers do not fit.
    """
    return _Simulation(setup, records, measure=measure).run()


class Times:
    """Uniformly random times from one seed, drawn in blocks."""

    def __init__(self, seed: list[int], low: float, high: float) -> None:
        self._generator = np.random.default_rng(seed)
        self._low, self._high = low, high
        self._drawn: list[float] = []

    def next(self) -> float:
        """Returns the next one."""
        if not self._drawn:
            self._drawn = self._generator.uniform(self._low, self._high, _BLOCK).tolist()
        return self._drawn.pop()


def update_maker(setup: Setup, dataset: Dataset, size_of: Callable[[int], int]) -> MakeUpdate:
    """Returns what makes a client's update out of its local model, a round and random bits.

    With noise it is what `dpsgd.Trainer.round` does; without, the same but for the noise.

    Args:
        setup: the run's numbers.
        dataset: the client's records.
        size_of: from a round to its sample size.
    """
    privacy, model, recipes = setup.experiment.privacy, setup.model, setup.recipes
    dataset.check_fits(model)
    rows, labels = model.prepare(dataset.features), dataset.labels
    draws = _draws(len(labels), setup.parameters)
    with_noise = privacy.noise != "none"
    clip_norm = privacy.clip_norm if privacy.clipping else NO_CLIPPING
    for recipe in recipes.values():
        draws.prepare(recipe)

    def make(local: Floats, round_: int, stream: RandomStream) -> npt.NDArray[np.int32]:
        recipe = recipes[size_of(round_)]
        chosen = draws.choose(recipe, stream)
        total, _ = model.clipped_sum(local, rows.take(chosen, axis=0), labels.take(chosen), clip_norm)
        if with_noise:
            return draws.release(total, recipe, stream)
        update = np.rint(np.ldexp(total, -recipe.grid_exponent))
        return np.clip(update, -INT32_MAX, INT32_MAX).astype(np.int32)

    return make


@functools.lru_cache(maxsize=16)
def _draws(rows: int, parameters: int) -> dpsgd.Draws:
    """Returns what clients with so many records share: tables of noise and of gaps, which no round changes."""
    return dpsgd.Draws(rows, parameters)


@dataclass(slots=True)
class _Client:
    """A participant as it stands."""

    number: int
    name: str
    participant: Participant
    make_update: MakeUpdate
    compute: Times
    latency: Times
    slowdown: float
    losses: Times | None
    keys: bytes
    version: int = 0
    model: npt.NDArray[np.float32] = field(default_factory=lambda: np.zeros(0, np.float32))
    base: int = -1
    local: Floats = field(default_factory=lambda: np.zeros(0))
    next_round: int = 0
    is_busy: bool = False
    pauses: tuple[tuple[float, float], ...] = ()
    heard_at: float = 0.0
    crashes: dict[int, float] = field(default_factory=dict)
    whims: Times | None = None
    is_away: bool = False
    heard: list[tuple[int, npt.NDArray[np.float32]]] = field(default_factory=list)


class _Simulation:
    """Time, messages, clients and the server of one run."""

    def __init__(self, setup: Setup, records: Records, *, measure: bool) -> None:
        self._setup = setup
        self._terms: Terms = setup.terms()
        self._measure = measure
        self._now = 0.0
        self._queue: list[tuple[float, int, Callable[..., None], Any, Any]] = []
        self._number = 0
        self._round_cpu = 0.0
        self._updates = 0
        self._crashes: list[tuple[int, int]] = []
        self._made: dict[int, MakeUpdate] = {}
        terms, initial = self._terms, setup.initial()
        self._steps = [terms.step_numerator(i) for i in range(terms.final_version)]
        self._upsilon = delay.of(terms)
        self._scorer = Scorer(setup, records.test)
        g, p = terms.grid_exponent, terms.step_exponent
        array = grid.initial_array(initial, grid_exponent=g, step_exponent=p)
        self._aggregate = Aggregate(array, grid_exponent=g, step_exponent=p, final_version=terms.final_version)
        self._published = Published(0, b"", b"", array, None, 0, None)
        participants = [Participant(name, terms.final_version) for name in setup.participants]
        self._membership = Membership(terms, b"", participants, newest=0, now=0.0, since_first_start=0.0)
        for participant in participants:
            self._membership.start(participant, 0, 0.0)
        self._timer_at = math.inf
        published = grid.published_model(array, grid_exponent=g, step_exponent=p)
        self._clients = [self._client(i, one, records, published) for i, one in enumerate(participants)]
        self._forgotten = 0

    def _client(self, i: int, participant: Participant, records: Records, model: npt.NDArray[np.float32]) -> _Client:
        experiment = self._setup.experiment
        seed, clients, faults = experiment.seeds[0], experiment.clients, experiment.faults
        part = records.parts[i]
        if id(part) not in self._made:  # clients with the same records share what is made of them
            whole = len(part) == records.table.rows and bool((part == np.arange(len(part))).all())
            table = records.table if whole else records.table.take(part)
            dataset = Dataset(table.features, table.labels, "", table.class_names)
            self._made[id(part)] = update_maker(self._setup, dataset, self._terms.sample_size)
        return _Client(
            number=i,
            name=participant.name,
            participant=participant,
            make_update=self._made[id(part)],
            compute=Times([seed, 2, i], *clients.compute_seconds),
            latency=Times([seed, 3, i], *clients.latency_seconds),
            slowdown=clients.slowdown[i] if clients.slowdown else 1.0,
            losses=Times([seed, 4, i], 0.0, 1.0) if faults.loss else None,
            keys=hashlib.sha256(f"hushgrad simulated noise {seed} {i}".encode()).digest(),
            model=model,
            crashes=dict(crashes.of(experiment, i + 1)),
            whims=Times([seed, 6, i], 0.0, 2.0),
            pauses=tuple(sorted((p.at_seconds, p.at_seconds + p.seconds) for p in faults.pauses if p.client == i + 1)),
        )

    def run(self) -> Outcome:
        """Runs to the final version."""
        began, scoring = time.process_time(), self._scorer
        for client in self._clients:
            self._begin(client)
        queue = self._queue
        while not self._membership.has_ended:
            if not queue:
                raise ExperimentError(f"the simulated federation waits for ever: {self._membership.waiting_for()}")
            self._now, _, happen, one, other = heapq.heappop(queue)
            happen(one, other)
        cpu = time.process_time() - began - scoring.cpu_seconds
        published = self._published
        return Outcome(
            points=tuple(scoring.points),
            final=np.frombuffer(published.model[:], "<f4"),
            averaged=np.frombuffer((published.averaged or published.model)[:], "<f4"),
            seconds=self._now,
            updates=self._updates,
            suspensions=sum(client.participant.suspensions for client in self._clients),
            crashes=tuple(self._crashes),
            cpu_seconds=cpu,
            round_cpu_seconds=self._round_cpu,
        )

    def _after(self, seconds: float, happen: Callable[..., None], one: Any, other: Any = None) -> None:
        self._number += 1
        heapq.heappush(self._queue, (self._now + seconds, self._number, happen, one, other))

    # A client

    def _begin(self, client: _Client) -> None:
        """Begins the next round if it is permitted."""
        round_ = client.next_round
        if client.is_busy or client.is_away or round_ >= self._terms.final_version:
            return
        if round_ >= client.version + self._terms.window or not self._upsilon.permits(client.version, round_):
            return
        if client.version > client.base:
            client.base, client.local = client.version, client.model.astype(np.float64)
        client.is_busy = True
        seconds = _with_pauses(client, self._now, client.compute.next() * client.slowdown)
        away = client.crashes.pop(round_, None) if client.crashes else None
        # A whim below 1 is when the round is given up, as a share of it; else it is sealed, and not sent, at the crash.
        whim = client.whims.next() if away is not None and client.whims is not None else 1.0
        if whim < 1.0:
            self._after(whim * seconds, self._crash, client, away)
        else:
            self._after(seconds, self._finish, client, away)

    def _crash(self, client: _Client, away: float) -> None:
        """Ends a client's process: what was not sealed is gone, and nothing is heard until it is started again."""
        self._crashes.append((client.number + 1, client.next_round))
        client.is_busy, client.is_away = False, True
        self._after(away, self._restart, client)

    def _restart(self, client: _Client, _: None) -> None:
        """Starts a client's process again: it begins with the newest model that reached its machine."""
        client.is_away, client.base = False, -1
        heard, client.heard = client.heard, []
        for news in heard:
            self._hear(client, news)
        self._begin(client)

    def _finish(self, client: _Client, away: float | None) -> None:
        round_ = client.next_round
        key = hashlib.sha256(client.keys + round_.to_bytes(8, "little")).digest()
        if self._measure:
            began = time.process_time()
            update = client.make_update(client.local, round_, RandomStream(key))
            self._round_cpu += time.process_time() - began
        else:
            update = client.make_update(client.local, round_, RandomStream(key))
        terms = self._terms
        client.local = dpsgd.apply(
            client.local,
            update,
            step_numerator=self._steps[round_],
            step_exponent=terms.step_exponent,
            grid_exponent=terms.grid_exponent,
        )
        client.is_busy = False
        client.next_round = round_ + 1
        journey = self._journey(client)
        if away is not None:
            self._crash(client, away)
            self._crashes[-1] = (client.number + 1, round_)
            journey += away  # sealed bytes are sent after the restart
        self._after(journey, self._arrive, client, (round_, update))
        self._begin(client)

    def _journey(self, client: _Client) -> float:
        """Returns how long a message takes, with the times it is lost and sent again."""
        seconds = client.latency.next()
        if client.losses is not None:
            faults = self._setup.experiment.faults
            while client.losses.next() < faults.loss:
                seconds += faults.resend_seconds + client.latency.next()
        return seconds

    def _hear(self, client: _Client, news: tuple[int, npt.NDArray[np.float32]]) -> None:
        """Takes a version, and comes back if the client was suspended meanwhile."""
        version, model = news
        if client.is_away:
            client.heard.append(news)
        elif version > client.version:
            client.version, client.model = version, model
            if client.participant.state is State.SUSPENDED and version == self._membership.newest:
                self._membership.start(client.participant, client.next_round, self._now)
                client.next_round = max(client.next_round, client.participant.entry_round)
            self._begin(client)

    # The server

    def _arrive(self, client: _Client, sent: tuple[int, npt.NDArray[np.int32]]) -> None:
        round_, update = sent
        newest = self._membership.newest
        if self._membership.has_ended or round_ < newest - self._terms.window:
            return  # left the window: refused
        self._aggregate.fold(update.data, self._steps[round_])
        self._updates += 1
        self._membership.put(
            client.participant, Receipt(client.name, round_, b"", None, b"", b"", Disposition.INCLUDED, "", newest + 1)
        )
        self._advance()

    def _advance(self) -> None:
        membership = self._membership
        while membership.is_ready:
            frozen = self._aggregate.freeze(membership.freeze())
            self._published = published = frozen.publish()
            self._aggregate.published(published)
            membership.published(self._now)
            self._publish(published)
        self._set_timer()

    def _publish(self, published: Published) -> None:
        version = published.version
        self._scorer.see(published, self._now, self._updates)
        model = np.frombuffer(published.model[:], "<f4")
        for client in self._clients:
            arrival = self._now + self._journey(client)
            arrival += _with_pauses(client, arrival, 0.0)
            arrival = max(arrival, client.heard_at)  # a stream: nothing overtakes
            client.heard_at = arrival
            self._after(arrival - self._now, self._hear, client, (version, model))
        first = remembered_from(version, window=self._terms.window, publish_every=self._terms.publish_every)
        for client in self._clients:
            for round_ in range(max(0, self._forgotten), first):
                client.participant.forget(round_)
        self._forgotten = max(self._forgotten, first)

    def _set_timer(self) -> None:
        deadline = self._membership.next_deadline()
        if deadline < self._timer_at and deadline < math.inf:
            self._timer_at = deadline
            self._after(max(0.0, deadline - self._now), self._tick, deadline)

    def _tick(self, deadline: float, _: None) -> None:
        if deadline == self._timer_at:
            self._timer_at = math.inf
            self._membership.tick(self._now)
            self._advance()


def _with_pauses(client: _Client, begin: float, seconds: float) -> float:
    """Returns how long something takes that begins then and needs so many seconds in which the client is there."""
    end = begin + seconds
    for start, back in client.pauses:
        if start <= end and begin < back:
            end += back - max(start, begin)
    return end - begin
