"""What one seed means: the federation, its participants, and the list of faults that will befall them.

A fault brings its own chance, so that one can be taken away without changing what the others do by themselves.
"""

import dataclasses
import functools
import random
from dataclasses import dataclass

from hushgrad.wire import terms as wire_terms
from hushgrad.wire.terms import Terms

from tests.support.federations import make_terms

VERSIONS = (30, 31, 32, 33)
FEWEST_FAULTS = 15

SERVER_POINTS = (
    "receipts before commit",
    "receipts written",
    "receipts synced",
    "answer sent",
    "checkpoint before commit",
    "checkpoint written",
    "checkpoint synced",
    "version published",
)
CLIENT_POINTS = (
    "before seal",
    "seal written",
    "seal synced",
    "before send",
    "after send",
    "answer received",
    "marks written",
    "marks synced",
)
BACKUP_POINTS = ("", "", "", "before it replaces the one before", "before the note that it is there")
"""Where a backup stops half-way; "": it does not."""
RARE_CLIENT_POINTS = ("note written", "note synced")
"""Passed only by skipped and void rounds: met by chance, never waited for."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that goes wrong.

    Attributes:
        kind: what.
        at: when it begins, in simulated seconds.
        who: a participant, "server", or "*" for every link.
        seconds: how long it lasts; 0 where it has no length.
        value: a probability, a largest delay in seconds, or a factor.
        point: with "crash": at which point of durability; with "backup": where it fails.
        seed: of the fault's own chance.
    """

    kind: str
    at: float
    who: str
    seconds: float = 0.0
    value: float = 0.0
    point: str = ""
    seed: int = 0

    def __str__(self) -> str:
        details = [f"{self.at:7.3f} s  {self.kind} {self.who}"]
        if self.point:
            details.append(f"at {self.point!r}")
        if self.seconds:
            details.append(f"for {self.seconds:.3f} s")
        if self.value:
            details.append(f"({self.value:.3f})")
        return " ".join(details)


@dataclass(frozen=True, slots=True)
class Plan:
    """One schedule.

    Attributes:
        seed: where all of it comes from.
        terms, terms_digest: of the federation.
        paces: seconds that a round takes, by participant.
        starts: when each participant's first process begins.
        keeps_backups: the retention watermark is the last backup's version, and only that backup is ever restored.
        release_interval_seconds: of the clients.
        pieces: messages that an update is uploaded in; 1: one call.
        faults: in order of time.
        orders: what operators order, in order of time; in one seed of six.
    """

    seed: int
    terms: Terms
    terms_digest: bytes
    paces: dict[str, float]
    starts: dict[str, float]
    keeps_backups: bool
    release_interval_seconds: float
    pieces: int
    faults: tuple[Fault, ...]
    orders: tuple[Fault, ...] = ()


@functools.cache
def _terms(
    parameters: int,
    participants: int,
    versions: int,
    window: int,
    kind: str,
    delay: int,
    every: int,
    start_timeout: float,
) -> tuple[Terms, bytes]:
    terms = make_terms(
        parameters=parameters,
        participants=participants,
        final_version=versions,
        window=window,
        delay=kind,
        max_delay=delay,
        # So few that "sqrt" lets somebody run ahead within the rounds of a schedule.
        sample_size=1,
        publish_every=every,
        straggler_timeout_seconds=3.0,
        start_timeout_seconds=start_timeout,
    )
    return terms, wire_terms.digest(terms.to_bytes())


def make(seed: int) -> Plan:
    """Returns the schedule of a seed."""
    chance = random.Random(seed)
    names = tuple(f"p{i}" for i in range(chance.choices((3, 4, 5, 6, 7), (50, 25, 13, 7, 5))[0]))
    kind = chance.choices(("max-delay", "sqrt", "unbounded"), (8, 1, 1))[0]
    delay = chance.choice((1, 1, 2, 3))
    start_timeout = chance.choice((0.0, 2.0))
    terms, digest = _terms(
        chance.randint(1, 3),
        len(names),
        chance.choice(VERSIONS),
        delay + chance.choice((1, 2, 4)),
        kind,
        delay,
        chance.choice((1, 1, 1, 2)) if kind == "max-delay" else 1,
        start_timeout,
    )
    paces = {name: chance.uniform(0.15, 0.4) for name in names}
    if chance.random() < 0.3:
        paces[names[0]] *= 3
    starts = {name: chance.uniform(0.0, 0.5) for name in names}
    if start_timeout and chance.random() < 0.5:
        starts[names[-1]] = chance.uniform(3.0, 8.0)
    keeps_backups = chance.random() < 0.6
    length = max(paces.values()) * terms.final_version
    plan = Plan(
        seed,
        terms,
        digest,
        paces,
        starts,
        keeps_backups,
        chance.choice((0.0, 0.0, 0.3)),
        chance.choice((1, 1, 1, 1, 3)),
        _faults(chance, names, length, keeps_backups),
    )
    # Beside everything else, so that a seed that was found means what it always meant.
    return _ordered(plan, random.Random(f"orders of {seed}"), length) if seed % 6 == 2 else plan


def _ordered(plan: Plan, chance: random.Random, length: float) -> Plan:
    """Adds an operator, and in some schedules a participant that never comes."""
    orders: list[Fault] = []
    starts = dict(plan.starts)
    # A copied ledger halts and stays in the base of the majority, so that nobody else may be taken out of it but that.
    copied = [fault.who for fault in plan.faults if fault.kind in ("clone", "rollback")]
    gone = [fault.who for fault in plan.faults if fault.kind == "leave" and not fault.seconds]
    others = [name for name in plan.paces if name not in gone]
    kind = chance.choice(("nobody", "absent", "evict"))
    if kind == "absent" and not copied and len(others) > 1:
        who = chance.choice(others)
        starts[who] = float("inf")
        # The terms name nobody: who never came has no name, only a seat.
        orders.append(Fault("evict", chance.uniform(0.5, 6.0), ""))
    elif kind == "evict" and (copied or len(others) > 1):
        orders.append(Fault("evict", chance.uniform(0.5, length), chance.choice(copied or others)))
    for _ in range(chance.randint(0, 2)):
        orders.append(Fault("pause", chance.uniform(0.2, length), "operator", chance.uniform(0.3, 8.0)))
    if chance.random() < 0.4:
        orders.append(Fault("ordered drain", chance.uniform(1.0, length), "operator", chance.uniform(0.1, 1.0)))
    match chance.randrange(4):
        case 0 | 1:
            orders.append(Fault("end", chance.choice((0.3, 1.0)) * length * chance.random(), "operator"))
        case 2:
            last = plan.terms.final_version - chance.randint(1, 15)
            orders.append(Fault("end", length * chance.random() / 2, "operator", value=float(last)))
    if gone and any(fault.kind == "restore" for fault in plan.faults):
        # A restored server may wait for who has gone since: with one more evicted the others are no majority.
        starts, orders = dict(plan.starts), [order for order in orders if order.kind != "evict"]
    return dataclasses.replace(plan, starts=starts, orders=tuple(sorted(orders, key=lambda order: order.at)))


def _faults(chance: random.Random, names: tuple[str, ...], length: float, keeps_backups: bool) -> tuple[Fault, ...]:
    faults: list[Fault] = []

    def add(kind: str, who: str, seconds: float = 0.0, value: float = 0.0, point: str = "") -> float:
        at = chance.uniform(0.2, length)
        faults.append(Fault(kind, at, who, seconds, value, point, chance.getrandbits(32)))
        return at

    def anyone() -> str:
        return chance.choice(names)

    # Nobody may be lost for good but a minority: the others must be able to go on.
    minority = list(chance.sample(names, (len(names) - 1) // 2))
    for _ in range(chance.randint(3, 4)):
        add("crash", "server", chance.uniform(0.05, 1.5), point=chance.choice(SERVER_POINTS))
    for _ in range(chance.randint(3, 4)):
        add("crash", anyone(), chance.choice((0.3, 1.0, 5.0)) * chance.random(), point=chance.choice(CLIENT_POINTS))
    add("duplicate", "*", chance.uniform(2, 8), chance.uniform(0.2, 0.6))
    add("loss", chance.choice(("*", anyone())), chance.uniform(1, 6), chance.uniform(0.05, 0.3))
    add("delay", chance.choice(("*", anyone())), chance.uniform(1, 6), chance.choice((0.05, 0.5, 3.0)))
    add("partition", anyone(), chance.uniform(0.5, 6.0), value=chance.choice((0.0, 1.0, 2.0)))
    add("slow", anyone(), chance.uniform(2, 8), chance.uniform(2, 20))
    extra = ("crash", "loss", "delay", "partition", "slow", "stop", "drain", "leave", "copy", "restore", "silence")
    while len(faults) < FEWEST_FAULTS or chance.random() < 0.5:
        match kind := chance.choice(extra):
            case "crash":
                add(kind, "server", chance.uniform(0.05, 1.5), point=chance.choice(SERVER_POINTS))
            case "loss":
                add(kind, anyone(), chance.uniform(0.5, 3), chance.uniform(0.1, 0.8))
            case "delay":
                add(kind, anyone(), chance.uniform(1, 6), chance.choice((0.05, 0.5, 3.0)))
            case "partition":
                add(kind, "*", chance.uniform(0.3, 4.0), value=chance.choice((0.0, 1.0, 2.0)))
            case "silence":
                add("partition", anyone(), chance.uniform(4.0, 8.0))
            case "slow":
                add(kind, anyone(), chance.uniform(1, 4), chance.uniform(10, 30))
            case "stop":
                add(kind, anyone(), chance.uniform(0.1, 5.0))
            case "drain":
                add(kind, "server", chance.uniform(0.1, 1.0))
            case "leave":
                # Somebody who comes back may be anybody; one who stays away is lost.
                if chance.random() < 0.7 or not minority:
                    add(kind, anyone(), chance.uniform(0.3, 6.0))
                else:
                    add(kind, minority.pop())
            case "copy" if minority:
                add(chance.choice(("clone", "rollback")), minority.pop(), chance.uniform(0.3, 6.0))
            case "restore":
                at = add(kind, "server", chance.uniform(0.1, 1.0))
                faults.append(Fault("backup", max(0.1, at - chance.uniform(0.1, 6.0)), "server"))
    if keeps_backups:
        faults += [
            Fault("backup", length * (i + chance.random()) / 6, "server", point=chance.choice(BACKUP_POINTS))
            for i in range(6)
        ]
    return tuple(sorted(faults, key=lambda fault: fault.at))
