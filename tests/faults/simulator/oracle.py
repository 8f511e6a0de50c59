"""What must hold at every step and at the end, judged from outside: from what was sealed, sent, answered and published.

It keeps its own books and shares no arithmetic with the server. THE RULE OF ACCEPTED: an update that was answered
ACCEPTED is in the final version, or one of these is so, and its sealed bytes are still in its client's outbox:
  * the server lost its content in a crash, asked for it again, and suspended its participant because the bytes did not
    come in time (it was down, cut off, or gone), or the run ended before they came;
  * the server was restored from a backup that is older than the retention watermark (only where no backups are kept):
    then it may be LOST, bytes or not;
  * the server was restored, and its client came back only after the round had left the window;
  * the server was restored, and an operator ended the federation before the window had reached the round again;
  * its ledger was copied or rolled back;
  * the server lost its content in a crash, and an operator evicted its participant before the bytes had come again
    (bytes or not: nobody waits for the evicted, and the window may pass).
"""

import math
import struct
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from hushgrad.client import events
from hushgrad.client.messages import Verdict
from hushgrad.client.outbox import Forgotten, Mark
from hushgrad.server.administration import Ruling
from hushgrad.server.aggregation import Published
from hushgrad.server.federation import Frozen, Outcome
from hushgrad.server.records import Act, Answer, Disposition, Receipt, State, Verb
from hushgrad.wire.terms import Terms

from tests.faults.simulator.world import World

if TYPE_CHECKING:
    from tests.faults.simulator.client import Participant, Process
    from tests.faults.simulator.server import Server

Key = tuple[str, int]


class ViolationError(AssertionError):
    """A promise was broken."""


class Oracle:
    """The judge of one schedule.

    Attributes:
        frozen_version: the newest version whose content is fixed.
        final_version: the last version there will be, by the terms and the orders that were taken.
        excused: accepted updates that are not in the final version, and by which part of the rule.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        terms = world.plan.terms
        self._terms = terms
        self._counts = world.counts
        self._numbers: dict[bytes, tuple[int, ...]] = {}
        self._digests: dict[tuple[int, Key], bytes] = {}
        self._counted: dict[Key, bytes] = {}
        self._pending: dict[Key, bytes] = {}
        self._totals: dict[int, list[int]] = {0: [0] * terms.parameters}
        self._sets: dict[int, dict[Key, bytes]] = {0: {}}
        self._contents: dict[tuple[int, int], bytes] = {}
        self._accepted: dict[Key, bytes] = {}
        self._on_the_way: dict[Key, bytes] = {}
        self._crashed_while_on_the_way: set[Key] = set()
        self._left_behind: set[Key] = set()
        self._at_arrival = (0, 0)
        self.frozen_version = 0
        self.final_version = terms.final_version
        self._evicted: set[str] = set()
        self._closed_seats = 0
        self._evicted_ever: set[str] = set()
        self._is_paused = self._ends_at_once = False
        self.was_restored = False
        self._final_at = 0.0
        self.copied: set[str] = set()
        self.ghosts: set[str] = set()
        self.participants: dict[str, Participant] = {}
        self._not_waited_for: set[str] = set()
        self._given_up: set[str] = set()
        self._skipped_open: set[Key] = set()
        self.excused: list[str] = []

    def _require(self, condition: bool, what: str) -> None:
        if not condition:
            raise ViolationError(what)

    # The server's life

    def booted(self, server: "Server") -> None:
        """A process began with what the disk holds."""
        version = server.store.last.version
        self._require(version in self._sets, f"the disk holds version {version}, which was never frozen")
        self._obey(server.store.acts)
        self._counted = dict(self._sets[version])
        self._pending = {}
        self.frozen_version = version
        self._check_array(server.store.last)
        if version:
            self._see_content(server.store.epoch, server.store.last)
        included = {key for key, included_in in server.store.included().items() if included_in <= version}
        self._require(
            included == set(self._counted),
            f"the manifests up to version {version} differ from its set: {included ^ set(self._counted)}",
        )

    def crashed(self, server: "Server") -> None:
        """A process died."""
        del server
        self._crashed_while_on_the_way |= set(self._on_the_way)
        self._counts["crash with updates between receipt and checkpoint"] += bool(self._pending)

    def restored(self, server: "Server", version: int) -> None:
        """The disk was replaced by a backup."""
        self.was_restored = True
        known = {one.name for one in server.store.snapshot(self._terms).participants if one.must_report}
        self._not_waited_for |= set(self.participants) - known
        self._sets = {older: keys for older, keys in self._sets.items() if older <= version}
        self._totals = {older: total for older, total in self._totals.items() if older <= version}

    # Orders

    def _obey(self, acts: Iterable[Act]) -> None:
        self.final_version, self._evicted, self._closed_seats = self._terms.final_version, set(), 0
        self._is_paused = self._ends_at_once = False
        for act in acts:
            self._obey_one(act)

    def _obey_one(self, act: Act) -> None:
        if not act.changed:
            return
        if act.verb is Verb.EVICT and not act.participant:
            self._closed_seats += 1
        elif act.verb is Verb.EVICT:
            self._evicted.add(act.participant)
            self._evicted_ever.add(act.participant)
        elif act.verb is Verb.END and act.final_version is not None:
            self.final_version, self._ends_at_once = act.final_version, act.at_once
            self._is_paused = self._is_paused and not act.at_once
        elif act.verb in (Verb.PAUSE, Verb.RESUME):
            self._is_paused = act.verb is Verb.PAUSE

    def ordered(self, server: "Server", ruling: Ruling) -> None:
        """An operator gave an order."""
        act = ruling.act
        if act is None or not ruling.records:
            return
        before = self.final_version
        what = "evicted before version 1" if not self.frozen_version else "evicted"
        self._counts[f"order: {what if act.verb is Verb.EVICT else act.verb.value}"] += act.changed
        self._obey_one(act)
        if act.verb is not Verb.END or not act.changed:
            return
        version = self.final_version
        self._require(version <= before, f"the final version is raised from {before} to {version}")
        self._require(
            version >= self.frozen_version, f"version {version} is the last and {self.frozen_version} is fixed"
        )
        self._require(
            version > self.frozen_version or not self._pending,
            f"version {version} is the last one, and accepted updates are not in it: {sorted(self._pending)}",
        )
        newest = server.federation.newest_version
        if version == newest:
            self._final_at = self._world.now

    def drained(self, server: "Server") -> None:
        """The server stops because an operator has drained it."""
        self._counts["order: a drain is done"] += 1
        if server.federation.orders.has_drained:
            self._require(not self._pending, f"a drained server loses the content of {sorted(self._pending)}")

    # Updates at the server

    def arriving(self, server: "Server", name: str, round_: int, digest: bytes) -> None:
        """An update is about to be judged."""
        key = (name, round_)
        self._at_arrival = (server.federation.newest_version, self.frozen_version)
        if self._on_the_way.get(key) == digest and not server.store.is_durable(key, digest):
            self._counts["duplicate concurrent with its original"] += 1

    def arrived(self, name: str, round_: int, digest: bytes, payload: bytes, outcome: Outcome) -> None:
        """An update was judged."""
        key, answer = (name, round_), outcome.answer
        newest, frozen = self._at_arrival
        final, window = self.final_version, self._terms.window
        where = f"round {round_} of {name} at version {newest}"
        if answer is Answer.ACCEPTED:
            self._require(key not in self._counted, f"{where} is counted a second time")
            self._require(frozen < final, f"{where} is accepted after the content of the final version was fixed")
            self._numbers[digest] = struct.unpack(f"<{self._terms.parameters}i", payload)
            self._counted[key] = self._pending[key] = self._on_the_way[key] = digest
            self._require(
                frozen < outcome.included_in <= final, f"{where} is promised for version {outcome.included_in}"
            )
            if round_ < newest:
                self._counts["late: after a version that should have held it"] += 1
            return
        if answer is Answer.DUPLICATE and outcome.first_answer is Answer.ACCEPTED:
            self._require(self._counted.get(key) == digest, f"{where} is called a duplicate and is not counted")
            return
        if answer in (Answer.STALE_SESSION, Answer.UNKNOWN_PARTICIPANT):
            return
        if answer is Answer.CONFLICT:
            self._require(name in self.copied, f"{where} is called a conflict: {outcome.detail}")
            return
        if key in self._counted:
            raise ViolationError(f"{where} is counted and answered {answer.name}")
        if answer is Answer.STALE:
            self._require(round_ < newest - window, f"{where} is called stale inside the window")
        elif answer is Answer.TOO_FAR_AHEAD:
            self._require(round_ >= newest + window, f"{where} is called too far ahead inside the window")
        elif answer is Answer.RUN_ENDED:
            self._require(newest >= final, f"{where} is told of the end before it")
        elif answer is Answer.BUSY:
            self._require(
                frozen >= final or "drains" in outcome.detail, f"{where} is told to wait for nothing: {outcome.detail}"
            )
        else:
            raise ViolationError(f"{where} is answered {answer.name}: {outcome.detail}")

    def answering(self, server: "Server", name: str, round_: int, digest: bytes, outcome: Outcome) -> None:
        """The answer to an update leaves."""
        if outcome.answer in (Answer.ACCEPTED, Answer.DUPLICATE):
            self._require(
                server.store.is_durable((name, round_), digest),
                f"round {round_} of {name} is answered {outcome.answer.name} before its receipt is durable",
            )

    def joined(self, server: "Server", process: "Process") -> None:
        """Somebody joined."""
        if not process.is_up:
            # The network held the Join of a dead process back: it fences the next one, and a person starts that again.
            self._counts["a delayed Join of a dead process"] += 1
            self.ghosts.add(process.name)
        if any(participant.wanted for participant in server.federation.participants):
            self._counts["join during recovery"] += 1

    def starting(self, server: "Server", name: str) -> None:
        """Somebody is about to start."""
        for participant in server.federation.participants:
            if participant.name == name and participant.state is State.SUSPENDED:
                self._counts["return after suspension"] += 1

    def leaving(self, server: "Server", name: str) -> None:
        """Somebody is about to leave."""
        if any(key[0] == name for key in self._pending):
            self._counts["leave with open rounds"] += 1

    # Versions

    def frozen(self, server: "Server", frozen: Frozen) -> None:
        """The content of a version was fixed."""
        version = frozen.aggregate.version
        self._require(not self._is_paused, f"version {version} is frozen while an operator has paused the federation")
        self._require(version <= self.final_version, f"version {version} is frozen after the last one")
        self._require(version > self.frozen_version, f"version {version} is frozen after {self.frozen_version}")
        self._require(
            set(frozen.folded) == set(self._pending),
            f"version {version} says that it adds {set(frozen.folded) ^ set(self._pending)} more or less than it does",
        )
        total = list(self._totals[self.frozen_version])
        for (_, round_), digest in self._pending.items():
            factor = self._terms.step_numerator(round_)
            for at, number in enumerate(self._numbers[digest]):
                total[at] -= factor * number
        untold = [one.name for one in server.federation.participants if one.must_report]
        self._require(not untold, f"version {version} is frozen before {untold} said what they hold")
        self._totals[version] = total
        self._sets[version] = dict(self._counted)
        self._pending = {}
        self._check_quorum(server, version)
        self.frozen_version = version

    def _check_quorum(self, server: "Server", version: int) -> None:
        """Enough take part, and every owed round below the version has a disposition."""
        started = suspended = 0
        for participant in server.federation.participants:
            if not participant.intervals or participant.name in self._evicted:
                continue
            if participant.state is State.SUSPENDED:
                suspended += 1
                continue
            if participant.state is not State.ACTIVE and participant.intervals[-1].exit < version:
                continue
            started += 1
            for interval in participant.intervals:
                # Those below the version before were looked at then, and may have given way to a late update since.
                for round_ in range(max(interval.entry, self.frozen_version), min(interval.exit, version)):
                    key = (participant.name, round_)
                    if key in self._counted:
                        continue
                    receipt = participant.receipts.get(round_)
                    self._require(
                        receipt is not None and receipt.disposition not in (None, Disposition.INCLUDED),
                        f"version {version} is frozen and round {round_} of {participant.name} is owed and missing",
                    )
        if self._ends_at_once:
            return
        room = self._terms.largest_number_of_participants - len(self._evicted) - self._closed_seats
        if self.frozen_version == 0:
            late = self._terms.start_timeout_seconds
            base = room if late == 0 or self._world.now < server.first_start + late else started + suspended
            needed = room if late == 0 or self._world.now < server.first_start + late else room // 2 + 1
        else:
            base = started + suspended
            needed = base // 2 + 1
        self._require(started >= needed, f"version {version} is frozen with {started} of {base} participants")

    def published(self, server: "Server", published: Published) -> None:
        """A version was announced."""
        version = published.version
        if version == self.final_version:
            self._final_at = self._world.now
        self._require(
            version == self.frozen_version, f"version {version} is published, {self.frozen_version} was frozen"
        )
        self._require(server.store.durable_version >= version, f"version {version} is published before it is durable")
        self._check_array(published)
        self._see_content(server.store.epoch, published)
        before = max(older for older in self._sets if older < version)
        added = self._sets[version].keys() - self._sets[before].keys()
        self._require(
            server.store.manifest(version) == added, f"the manifest of version {version} differs from its set"
        )
        for key_ in added:
            self._on_the_way.pop(key_, None)
            self._crashed_while_on_the_way.discard(key_)

    def _see_content(self, epoch: int, published: Published) -> None:
        known = self._contents.setdefault((epoch, published.version), published.sha256)
        self._require(known == published.sha256, f"version {published.version} changed")

    def _check_array(self, published: Published) -> None:
        total = self._totals[published.version]
        # Exactly modulo 2**64, as int64 is.
        wrapped = [(number + 2**63) % 2**64 - 2**63 for number in total]
        self._require(published.array.tolist() == wrapped, f"version {published.version} is not the sum over its set")
        scale = 2.0 ** (self._terms.grid_exponent - self._terms.step_exponent)
        model = struct.pack(f"<{len(wrapped)}f", *(float(number) * scale for number in wrapped))
        self._require(published.model == model, f"version {published.version} does not read as its sum")

    def waited_for(self, server: "Server") -> dict[str, tuple[bool, bool, int]]:
        """Returns who is suspended now, has not said yet what it holds, and holds how much that is waited for."""
        return {
            one.name: (one.state is State.SUSPENDED, one.must_report, len(one.expected))
            for one in server.federation.participants
        }

    def suspended(self, server: "Server", before: dict[str, tuple[bool, bool, int]], records: tuple[Any, ...]) -> None:
        """The server looked for stragglers."""
        receipts = [record for record in records if isinstance(record, Receipt)]
        self._require(not (records and self._is_paused), "somebody is suspended while an operator has paused")
        for receipt in receipts:
            key = (receipt.participant, receipt.round)
            self._require(key not in self._counted, "a counted round is skipped")
            if receipt.digest is not None:
                self._require_out_of_reach(server, key[0], f"round {key[1]} is skipped, which it had sent before,")
                self._skipped_open.add(key)
        blamed = {receipt.participant for receipt in receipts}
        for name, (is_suspended, must_report, expected) in self.waited_for(server).items():
            was_suspended, had_to_report, were_expected = before[name]
            if is_suspended and not was_suspended:
                self._require(name in blamed, f"{name} is suspended and held nobody up")
                if self.participants[name].is_out_of_reach(server.booted_at, self._world.now):
                    self._given_up.add(name)
                self._counts["suspension"] += 1
            if (had_to_report and not must_report) or expected < were_expected:
                self._require_out_of_reach(server, name, "what it holds is not waited for any longer")
                self._given_up.add(name)
                if had_to_report and not must_report:
                    self._counts["not heard in time after a restore"] += 1

    def _require_out_of_reach(self, server: "Server", name: str, what: str) -> None:
        """Whoever has a server that runs, a process, and a good network is heard in time."""
        one = self.participants[name]
        away = one.is_out_of_reach(server.booted_at, self._world.now)
        self._require(away or name in self.copied, f"{what} although {name} was in reach all the time")

    # Participants

    def trained(self, process: "Process", action: events.Train) -> None:
        """A round is begun."""
        terms = self._terms
        round_, version = action.round, action.version
        where = f"{process.name} begins round {round_} from version {version}"
        self._require(version == process.received, f"{where}, and the newest received is {process.received}")
        self._require(_may_begin(terms, version, round_), f"{where}: beyond the permissible delay")
        self._require(round_ < terms.final_version, f"{where}: beyond the end")
        sequence, head = process.anchor
        self._require(
            sequence == 0 or process.ledger.head_at(sequence) == head,
            f"{where} without the ledger row that the server saw",
        )
        self._require(not process.has_halted, f"{where} after it halted")
        self._require(not process.knows_that_it_is_evicted, f"{where} after it was told that it is evicted")
        exit_ = process.told_exit
        self._require(exit_ is None or round_ < exit_, f"{where} after it was told that rounds end before {exit_}")

    def sealed(self, process: "Process", round_: int) -> None:
        """A round was sealed."""
        before = process.ledger.wire.get(round_)
        self._require(before is None, f"noise was drawn again for round {round_} of {process.name}, which had left")

    def sending(self, process: "Process", round_: int, digest: bytes) -> None:
        """The first byte of an update is about to leave."""
        where = f"round {round_} of {process.name}"
        self._require(digest in process.ledger.durable_digests, f"{where} leaves before it is durably sealed")
        self._require(process.ledger.wire.setdefault(round_, digest) == digest, f"two payloads leave for {where}")

    def answered(self, process: "Process", round_: int, verdict: Verdict, first: str, included_in: int) -> None:
        """The answer to an update has arrived."""
        del included_in
        if verdict.answer == "ACCEPTED" or (verdict.answer == "DUPLICATE" and first == "ACCEPTED"):
            self._accepted[process.name, round_] = process.ledger.digest(round_)

    def recorded(self, process: "Process", marks: tuple[Mark, ...]) -> None:
        """The outbox is about to be marked."""
        for mark in marks:
            if isinstance(mark, Forgotten):
                key = (process.name, mark.round)
                digest = process.ledger.digest(mark.round)
                held = any(keys.get(key) == digest for keys in self._durable_sets(process))
                newest = process.server.store.durable_version
                behind = mark.round < newest - self._terms.window or not self._world.plan.keeps_backups
                if not held and self.was_restored and behind:
                    self._left_behind.add(key)
                    continue
                self._require(
                    held, f"the bytes of round {mark.round} of {process.name} go before a checkpoint holds them"
                )

    def _durable_sets(self, process: "Process") -> list[dict[Key, bytes]]:
        store = process.server.store
        newest = store.backup_version if self._world.plan.keeps_backups else store.durable_version
        return [self._sets[newest]] if newest in self._sets else []

    def received(self, process: "Process", epoch: int, published: Published) -> None:
        """A watcher received a version."""
        known = self._contents.get((epoch, published.version))
        if published.version > 0:
            self._require(known == published.sha256, f"{process.name} sees another version {published.version}")

    def halted(self, process: "Process", reason: str) -> None:
        """A process stopped for good."""
        if process.name in self.ghosts and "STALE_SESSION" in reason and process.name not in self.copied:
            process.has_halted = False
            self._world.after(1.0, process.participant.run)
            return
        if process.name in self._evicted and "evicted" in reason:
            self._counts["an evicted client stops"] += 1
            return
        self._counts["a copied or rolled back ledger halts"] += 1
        self._require(process.name in self.copied, f"{process.name} halts without a cause: {reason}")

    # The end

    def ended(self, server: "Server", participants: list["Participant"]) -> None:
        """The final version is published and everybody has gone."""
        final = self._sets[self.final_version]
        for participant in participants:
            for process in participant.processes:
                if participant.name not in self.copied:
                    self._require(not process.is_up, f"{process.name} does not learn of the end")
        by_name = {participant.name: participant for participant in participants}
        for (name, round_), digest in self._accepted.items():
            if final.get((name, round_)) == digest:
                continue
            self.excused.append(self._excuse(server, by_name[name], round_))

    def _excuse(self, server: "Server", participant: "Participant", round_: int) -> str:
        name = participant.name
        if name in self.copied:
            return "copied"
        receipt = server.store.find(name, round_)
        disposition = None if receipt is None else receipt.disposition
        is_stale = participant.ledger.state(round_) == ("final", "STALE")
        if (name, round_) in self._left_behind or (is_stale and self.was_restored):
            self._require(
                name in self._given_up or name in self._not_waited_for or not self._world.plan.keeps_backups,
                f"round {round_} of {name} was accepted and is lost by a restore, although it was in reach",
            )
            return "restored, and came back after the window"
        if self.was_restored and not self._world.plan.keeps_backups:
            return "restored"
        if self.was_restored and self._ends_at_once:
            return "restored, and ended at once"
        where = f"round {round_} of {name} was accepted, is not in the final version"
        self._require(
            (name, round_) in self._crashed_while_on_the_way or self.was_restored, f"{where}, and nothing had happened"
        )
        if name in self._evicted_ever:
            return "evicted before it sent again what a crash had lost"
        self._require(participant.ledger.holds(round_), f"{where}, and its bytes are gone ({disposition})")
        self._require(
            (name, round_) in self._skipped_open
            or (self._ends_at_once and name in self._given_up)
            or participant.is_out_of_reach(server.booted_at, self._final_at),
            f"{where}, and its client was in reach all the time ({disposition})",
        )
        return f"open at the end: {disposition}"


def _may_begin(terms: Terms, version: int, round_: int) -> bool:
    """The permissible delay, for constant sample sizes."""
    (size,) = set(terms.sample_sizes)
    if version >= round_ or terms.delay_kind == "unbounded":
        return True
    if terms.delay_kind == "max-delay":
        return version >= round_ - terms.max_delay
    gradients = size * round_
    return gradients >= 3 and (size * (round_ - version)) ** 2 * math.log(gradients) <= gradients * (1 + 1e-12)
