"""Runs schedules: one seed, many for a campaign, and a failing one again and again to find out what it takes."""

import dataclasses
import gc
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from tests.faults.simulator import plan as plan_module
from tests.faults.simulator.client import Participant
from tests.faults.simulator.operator import Operator
from tests.faults.simulator.oracle import Oracle, ViolationError
from tests.faults.simulator.plan import Fault, Plan
from tests.faults.simulator.server import Server
from tests.faults.simulator.stores import LedgerBrokenError
from tests.faults.simulator.world import FAR, World

PATIENCE_SECONDS = 300.0
"""After the last fault the final version is published within this time: 33 rounds of the slowest participant under the
longest delays (about 60 s), and suspensions that have doubled to 3 s * 2**6."""
GOODBYE_SECONDS = 60.0
MOST_STEPS = 50_000
"""A schedule takes 2,000 to 8,000; more means that somebody asks again and again without waiting."""


@dataclass(frozen=True, slots=True)
class Result:
    """What became of one schedule. `failure` is empty when all promises were kept."""

    seed: int
    failure: str
    counts: Counter[str]
    seconds: float
    versions: int


def run(plan: Plan, trace: Callable[[str], None] | None = None) -> Result:
    """Runs one schedule to its end."""
    world = World(plan, trace)
    oracle = Oracle(world)
    failure = ""
    server = None
    try:
        server = Server(world, oracle)
        _play(world, oracle, server)
    except ViolationError as violation:
        failure = str(violation)
    except (LedgerBrokenError, ValueError, KeyError, IndexError, AttributeError) as error:
        failure = f"{type(error).__name__}: {error}"
    if failure and trace:
        trace(f"{world.now:8.3f}  VIOLATION: {failure}")
    for excuse in oracle.excused:
        world.counts[f"excused: {excuse}"] += 1
    return Result(plan.seed, failure, world.counts, world.now, 0 if server is None else server.store.last.version)


def _play(world: World, oracle: Oracle, server: Server) -> None:
    plan = world.plan
    participants = {name: Participant(world, oracle, server, name) for name in plan.paces}
    oracle.participants = participants
    operator = Operator(world, server)
    server.on_restore = operator.restored
    for name, start in plan.starts.items():
        if start < FAR:
            world.after(start, participants[name].run)
    for fault in plan.faults:
        world.until(fault.at)
        world.after(fault.at, _strike, fault, world, oracle, server, participants)
    for fault in plan.orders:
        world.until(fault.at)
        world.after(fault.at, operator.strike, fault)
    while server.store.durable_version < server.store.durable_final_version:
        alive = world.step()
        if world.steps > MOST_STEPS:
            raise ViolationError(f"it runs in circles at {world.now:.3f} s")
        if not alive or world.now > world.quiet_at + PATIENCE_SECONDS:
            raise ViolationError(f"the federation waits for ever: {server.federation.waiting_for()}")
    goodbye = max(world.now, world.quiet_at) + GOODBYE_SECONDS
    everybody = list(participants.values())
    while world.now < goodbye and any(process.is_up for one in everybody for process in one.processes):
        if not world.step():
            break
    oracle.ended(server, everybody)


def _strike(
    fault: Fault, world: World, oracle: Oracle, server: Server, participants: dict[str, Participant], tries: int = 20
) -> None:
    kind, who = fault.kind, fault.who
    one = participants.get(who)
    if world.trace is not None:
        world.say(f"FAULT {fault}")
    if kind in ("clone", "rollback", "leave") and server.store.durable_version == 0:
        # Whoever is lost before version 1 is waited for, as the terms say: later.
        if tries:
            world.until(world.now + 0.5)
            world.after(0.5, _strike, fault, world, oracle, server, participants, tries - 1)
    elif kind == "crash":
        node = server if one is None else one.process
        if node is not None and node.is_up:
            world.arm(fault, node)
    elif kind in ("loss", "delay", "partition", "duplicate"):
        world.open_window(fault)
    elif kind == "drain":
        server.drain(fault.seconds)
    elif kind == "backup":
        server.backup(fault.point)
    elif kind == "restore":
        server.restore(fault.seconds)
    elif one is None or one.process is None or one.is_gone:
        pass
    elif kind == "slow":
        if one.pace > world.plan.paces[who]:
            return
        one.pace *= fault.value
        world.until(world.now + fault.seconds)
        world.after(fault.seconds, _recover, one, fault.value)
    elif kind == "stop":
        one.stop(fault.seconds)
    elif kind == "leave":
        one.leave(fault.seconds)
    elif kind == "clone":
        oracle.copied.add(who)
        one.clone()
    else:
        oracle.copied.add(who)
        copy = one.ledger.copy()
        world.until(world.now + fault.seconds)
        world.after(fault.seconds, one.roll_back, copy)


def _recover(one: Participant, factor: float) -> None:
    one.pace /= factor


def shrink(plan: Plan, budget_seconds: float = 60.0) -> Plan:
    """Returns the plan with as few faults as still make it fail, dropped one by one."""
    end = time.process_time() + budget_seconds
    at = len(plan.faults) - 1
    while at >= 0 and time.process_time() < end:
        faults = plan.faults[:at] + plan.faults[at + 1 :]
        smaller = dataclasses.replace(plan, faults=faults)
        if run(smaller).failure:
            plan = smaller
        at -= 1
    return plan


@dataclass(slots=True)
class Campaign:
    """What many schedules showed.

    Attributes:
        schedules: how many were run.
        failures: those that broke a promise.
        counts: how often each hard case occurred in all.
        schedules_with: in how many schedules each occurred.
        cpu_seconds: processor time of one core.
    """

    schedules: int = 0
    failures: list[Result] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    schedules_with: Counter[str] = field(default_factory=Counter)
    cpu_seconds: float = 0.0


def campaign(seeds: Iterable[int], *, most_failures: int = 1, most_seconds: float = float("inf")) -> Campaign:
    """Runs seeds until they are done, so many have failed, or the processor time is used up."""
    found = Campaign()
    began = time.process_time()
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        for seed in seeds:
            result = run(plan_module.make(seed))
            found.schedules += 1
            found.counts += result.counts
            found.schedules_with.update(result.counts.keys())
            if result.failure:
                found.failures.append(result)
                if len(found.failures) >= most_failures:
                    break
            if found.schedules % 100 == 0:
                gc.collect()
            if time.process_time() - began > most_seconds:
                break
    finally:
        gc.enable()
        gc.unfreeze()
    found.cpu_seconds = time.process_time() - began
    return found
