"""One run with real members: a server, clients with their ledgers and an evaluator, on one machine or several.

The same steps for all: everybody's files are made, the server starts, members join and start, and what they log says
how it goes. A client whose machine is lost is started again when the machine is back; meanwhile the federation goes on
without it, if its terms allow that.
"""

import contextlib
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from hushgrad.experiments import processes
from hushgrad.experiments.errors import ExperimentError
from hushgrad.experiments.processes import Child
from hushgrad.experiments.study import attend, crashes, machines, members
from hushgrad.experiments.study.journal import Journal
from hushgrad.experiments.study.machines import Machine
from hushgrad.experiments.study.resolve import Setup
from hushgrad.experiments.study.sources import Records

SETUP_SECONDS = 300.0
PATIENCE_SECONDS = 600.0
"""Without any round, version or score for so long, something must be wrong."""

RETRY_SECONDS = 8.0
END_SECONDS = 15.0
_POLL_SECONDS = 0.2
_AT_ONCE = 8
_NEW_BUDGET = ("--accept-new-budget",)

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Place:
    """Where the members of a run are.

    Attributes:
        server, evaluator, clients: their machines.
        folder: of the run below each machine's root.
        listen: host:port of the server.
        address: name or IP address under which others reach it; empty: what the server says.
    """

    server: Machine
    evaluator: Machine
    clients: tuple[Machine, ...]
    folder: str
    listen: str
    address: str = ""

    @property
    def secure(self) -> bool:
        """Whether members come over a network, with certificates made for the run."""
        return bool(self.address)

    @property
    def client_config(self) -> str:
        """A member's configuration, in its folder."""
        return "member/" if self.secure else ""


@dataclass(slots=True)
class _Member:
    """A process of the federation as it stands. again_at: when it is to be started again; None: it runs or is done."""

    name: str
    machine: Machine
    module: str
    arguments: list[str]
    child: Child | None = None
    is_done: bool = False
    again_at: float | None = None
    lost: dict[str, Any] | None = None


@dataclass(slots=True)
class Federation:
    """A run on the way. `run` makes it, or goes on with it.

    Attributes:
        version: the newest one that was heard of.
        cause: the last thing that a lost machine said.
    """

    setup: Setup
    records: Records
    place: Place
    journal: Journal
    group: processes.Group
    say: Say
    version: int = 0
    cause: str = ""
    _members: dict[str, _Member] = field(default_factory=dict)
    _moved_at: float = 0.0
    _beat_at: float = 0.0
    _address: str = ""

    def run(self) -> None:
        """Makes the run to its end.

        Raises:
            ExperimentError: if a member failed, or nothing moves any more. What is there can be gone on with.
        """
        self.journal.state.starts += 1
        self._make_server()
        self._start_server()
        self._join()
        self._add(members.EVALUATOR, self.place.evaluator, "hushgrad.client",
                  ["evaluate", "--config", f"{self.place.client_config}evaluator.toml", "--server", self._address,
                   "--log-format", "json"])  # fmt: skip
        accept = ["--accept-large-delta"] if self.setup.experiment.privacy.accept_large_delta else []
        for name, machine in zip(self.setup.participants, self.place.clients, strict=True):
            self._add(name, machine, "hushgrad.client",
                      ["run", "--config", f"{self.place.client_config}client.toml", "--server", self._address, *accept,
                       "--log-format", "json"])  # fmt: skip
        for member in self._members.values():
            if member.child is None:
                self._launch(member)
        self._moved_at = time.monotonic()
        while not self._is_over():
            self._turn()
        self.group.finish()
        self._turn()
        self.journal.save()

    # Before the first round

    def _make_server(self) -> None:
        state, place = self.journal.state, self.place
        if state.server_is_made:
            return
        self.say("making the server's state")
        files = members.server(self.setup, listen=place.listen, secure=place.secure)
        if place.secure:
            client = self._table(0)
            files |= {f"{name}.toml": members.client(self.setup, name, client) for name in self.setup.participants}
            files["evaluator.toml"] = members.evaluator(self.setup, self.records.test)
        place.server.put(self._folder("server"), files)
        machines.told(place.server, self._folder("server"), "server", "server.toml", self.setup.experiment.name,
                      place.address)  # fmt: skip
        state.server_is_made = True
        self.journal.save()

    def _start_server(self) -> None:
        server = self._add("server", self.place.server, "hushgrad.server",
                           ["run", "--config", "server.toml", "--log-format", "json"])  # fmt: skip
        self._launch(server)
        deadline = time.monotonic() + SETUP_SECONDS
        while not self._address:
            self._turn()
            if time.monotonic() > deadline:
                raise ExperimentError(f"the server did not say where it listens; see {self.journal.folder / 'logs'}")
        server.arguments += ["--listen", self._address if not self.place.secure else self.place.listen]

    def _join(self) -> None:
        """Gives every member that has none its records, its configuration and, as a client, a ledger."""
        state, place = self.journal.state, self.place
        tables = {name: i for i, name in enumerate(self.setup.participants)}
        missing = [name for name in (*tables, members.EVALUATOR) if name not in state.members]
        if not missing:
            return
        bundles: dict[str, Any] = {}
        if place.secure:
            roles = [f"{'participant' if name in tables else 'evaluator'}:{name}" for name in missing]
            self.say("enrolling everybody")
            bundles = machines.told(
                place.server, self._folder("server"), "bundles", "server.toml", self._address, *roles
            )
        shared: dict[int, bytes] = {}  # clients with the same records have the same file

        def join(name: str) -> None:
            if name in tables:
                i = tables[name]
                part, machine = self.records.parts[i], place.clients[i]
                if id(part) not in shared:
                    shared[id(part)] = members.records(self._table(i))
                data, config = shared[id(part)], members.client(self.setup, name, self.records.table)
            else:
                machine = place.evaluator
                data, config = members.records(self.records.test), members.evaluator(self.setup, self.records.test)
            self._admit(name, machine, data, config, bundles.get(name))

        with ThreadPoolExecutor(_AT_ONCE) as pool:
            for done, (name, _) in enumerate(zip(missing, pool.map(join, missing), strict=True), start=1):
                self.say(f"{done} of {len(missing)} members have joined")
                state.members.append(name)
                state.hosts[name] = (place.evaluator if name not in tables else place.clients[tables[name]]).name
                self.journal.save()
                self._beat()

    def _admit(self, name: str, machine: Machine, data: bytes, config: bytes, bundle: str | None) -> None:
        folder, is_client = self._folder(name), name != members.EVALUATOR
        if bundle is not None:
            machine.put(folder, {"data.npz": data, "bundle": bundle.encode()})
            machines.ask(machine, folder, "hushgrad.client",
                         ["enroll", "bundle", "--data", "data.npz", "--folder", "member", "--yes", "--json",
                          *(_NEW_BUDGET if is_client else [])])  # fmt: skip
            return
        file = "client.toml" if is_client else "evaluator.toml"
        machine.put(folder, {"data.npz": data, file: config})
        if is_client:
            # The runs of a sweep share their records: each has a budget of its own, and its ledger says so.
            with _expected("there is a ledger"):
                machines.ask(machine, folder, "hushgrad.client", ["ledger", "init", "--config", file, *_NEW_BUDGET])

    def _table(self, client: int) -> Any:
        return self.records.table.take(self.records.parts[client])

    def _folder(self, name: str) -> str:
        return f"{self.place.folder}/{name}"

    # Afterwards

    def _add(self, name: str, machine: Machine, module: str, arguments: Sequence[str]) -> _Member:
        away = [one for one in self.journal.state.lost if one["member"] == name and not one["returned"]]
        self._members[name] = _Member(name, machine, module, list(arguments), lost=away[-1] if away else None)
        return self._members[name]

    def _launch(self, member: _Member) -> None:
        member.again_at = None
        arguments = list(member.arguments)
        if member.name == members.EVALUATOR:  # each start has a curve of its own: the evaluator replaces what is there
            self.journal.state.started.append(time.time())
            self.journal.save()
            arguments += ["--output", f"curve-{len(self.journal.state.started)}.csv"]
        command = member.machine.command(self._folder(member.name), member.module, arguments)
        member.child = self.group.launch(member.name, command)

    def _is_over(self) -> bool:
        ended = self.version >= self.setup.rounds
        return all(
            member.is_done or (ended and member.again_at is not None)
            for member in self._members.values()
            if member.name != members.SERVER
        )

    def _turn(self) -> None:
        """Hears what has happened, and does what is due."""
        for source, event in self.group.events(_POLL_SECONDS):
            self._hear(source, event)
        self._beat()
        now = time.monotonic()
        for member in self._members.values():
            if member.child is not None and (code := member.child.process.poll()) is not None:
                self._ended(member, code)
            elif member.child is None and member.again_at is not None and now >= member.again_at:
                self._launch(member)
        if self._moved_at and now - self._moved_at > PATIENCE_SECONDS:
            raise ExperimentError(self._stuck())

    def _beat(self) -> None:
        if time.monotonic() - self._beat_at >= attend.BEAT_SECONDS:
            self._beat_at = time.monotonic()
            for member in self._members.values():
                if member.child is not None:
                    self.group.say(member.child, b"")

    def _ended(self, member: _Member, code: int) -> None:
        child, member.child = member.child, None
        assert child is not None
        last = self.group.forget(child)
        if code == 0:
            member.is_done = True
            return
        is_lost = code == machines.LOST or code < 0 or code > 128
        if not is_lost and member.lost is not None and not member.lost["returned"]:
            is_lost = True  # what ran there before may still hold the ledger
        if not is_lost:
            log = self.journal.folder / "logs" / f"{member.name}.log"
            raise ExperimentError(f"{member.name} ended with exit code {code}; its log is {log}\n  {last}")
        if member.again_at is not None:
            return  # a crash that was planned
        self.cause = last
        if member.lost is None or member.lost["returned"]:
            member.lost = {
                "member": member.name, "host": member.machine.name, "at_version": self.version, "returned": False,
            }  # fmt: skip
            self.journal.state.lost.append(member.lost)
            self.journal.save()
            self.say(f"{member.name} on {member.machine.name} is lost")
        member.again_at = time.monotonic() + RETRY_SECONDS

    def _hear(self, source: str, event: dict[str, Any]) -> None:
        state, kind = self.journal.state, event.get("event")
        member = self._members.get(source)
        match kind:
            case "listening" if source == members.SERVER:
                port = str(event["address"]).rpartition(":")[2]
                self._address = f"{self.place.address}:{port}" if self.place.secure else str(event["address"])
            case "published" if source == members.SERVER:
                self.version = max(self.version, int(event["version"]))
                self._moved()
                lost = [one.name for one in self._members.values() if one.lost and not one.lost["returned"]]
                without = f", without {', '.join(lost)}" if lost else ""
                self.say(f"version {self.version} of {self.setup.rounds}{without}")
            case "suspended" if source == members.SERVER:
                state.suspensions += 1
            case "committed" if member is not None:
                state.claims[source] = dict(event["claim"])
                self.journal.save()
            case "round_sealed" | "scored":
                self._moved()
                if kind == "round_sealed" and member is not None:
                    self._crash(member, int(event["round"]))
            case _:
                pass
        if member is not None and member.lost is not None and kind in ("joined", "listening", "scored"):
            member.lost["returned"] = True
            member.lost.setdefault("returned_at_version", self.version)

    def _moved(self) -> None:
        self._moved_at = time.monotonic()

    def _crash(self, member: _Member, round_: int) -> None:
        """Kills a client whose file says that it crashes in this round, and has it started again later."""
        number = self.setup.participants.index(member.name) + 1
        crash = crashes.of(self.setup.experiment, number).get(round_)
        done = self.journal.state.crashes
        if crash is None or (number, round_) in done or member.child is None:
            return
        done.append((number, round_))
        self.group.say(member.child, b"kill")
        member.again_at = time.monotonic() + crash
        self.journal.save()

    def _stuck(self) -> str:
        lost = [member for member in self._members.values() if member.again_at is not None]
        words = f"nothing has moved since version {self.version} for {PATIENCE_SECONDS:g} s"
        if lost:
            names = ", ".join(f"{member.name} on {member.machine.name}" for member in lost)
            wait = self.setup.experiment.training.straggler_timeout_seconds
            words += f"; lost: {names} ({self.cause}); the terms wait for it for {wait:g} s (straggler_timeout_seconds)"
        return f"{words}; see {self.journal.folder / 'logs'}. Started again, the run goes on where it is"


@contextlib.contextmanager
def _expected(words: str) -> Any:
    """Lets an error pass whose text has these words: what was to be done had been done before."""
    try:
        yield
    except ExperimentError as error:
        if words not in str(error):
            raise
