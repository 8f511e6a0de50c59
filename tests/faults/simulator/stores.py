"""Disks with two layers, written and synced: the server's store, and a participant's ledger with its outbox.

A store is a list of transactions. `sync` makes all of them durable; a crash keeps those and any number of the following
ones, in order. Memory is always what the list says, so it can be made anew from the list. Both keep what the real ones
keep, and pass the same tests.
"""

import dataclasses
import random
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from hushgrad.client import outbox
from hushgrad.client.outbox import Entry, Mark
from hushgrad.server.aggregation import Published
from hushgrad.server.backup import SESSION_BITS
from hushgrad.server.records import (
    Act,
    Disposition,
    History,
    ParticipantRecord,
    Receipt,
    Record,
    Snapshot,
    owes_a_report,
    remembered_from,
)
from hushgrad.v1 import terms_pb2
from hushgrad.wire import grid, header
from hushgrad.wire.terms import Terms

Operation = tuple[Any, ...]


class Journal:
    """Transactions in order, of which the first `synced` survive everything."""

    def __init__(self, transactions: Iterable[tuple[Operation, ...]] = ()) -> None:
        self.transactions = list(transactions)
        self.synced = 0
        self.rebuild()
        self.sync()

    def rebuild(self) -> None:
        """Makes memory anew from the transactions."""
        self.clear()
        for transaction in self.transactions:
            for operation in transaction:
                self.apply(*operation)

    def clear(self) -> None:
        """Makes memory empty."""
        raise NotImplementedError

    def apply(self, kind: str, *fields: Any) -> None:
        """Carries one operation out in memory."""
        raise NotImplementedError

    def transact(self, operations: tuple[Operation, ...]) -> None:
        """Writes one transaction, which a crash may still lose."""
        self.transactions.append(operations)
        for operation in operations:
            self.apply(*operation)

    def sync(self) -> None:
        """Makes durable what is written."""
        self.synced = len(self.transactions)

    def crash(self, chance: random.Random) -> None:
        """Loses some of what is not synced: the last transactions first."""
        kept = chance.randint(self.synced, len(self.transactions))
        if kept < len(self.transactions):
            del self.transactions[kept:]
            self.rebuild()
        self.sync()

    def image(self) -> list[tuple[Operation, ...]]:
        """Returns a copy of what is durable."""
        return self.transactions[: self.synced]


class ServerStore(Journal):
    """The server's receipts, participants and checkpoint; see tests/conformance/store_suite.py.

    Attributes:
        epoch: how often it was restored from a backup, plus 1.
        backup_version: the newest version that a backup holds.
        durable_version: the newest version whose checkpoint is synced.
        durable_final_version: the last version there will be, by the terms and the orders that are synced.
        acts: the orders of operators.
    """

    def __init__(self, terms: Terms, transactions: Iterable[tuple[Operation, ...]] = ()) -> None:
        self._terms = terms
        super().__init__(transactions)

    def clear(self) -> None:
        """See Journal."""
        terms = self._terms
        array = grid.initial_array(
            np.zeros(terms.parameters, np.float32), grid_exponent=terms.grid_exponent, step_exponent=terms.step_exponent
        )
        self._receipts: dict[tuple[str, int], Receipt] = {}
        self._included: dict[tuple[str, int], int] = {}
        self._by_row: dict[tuple[str, int], int] = {}
        self._participants: dict[str, ParticipantRecord] = {}
        self.acts: list[Act] = []
        self.last = Published(0, bytes(4 * terms.parameters), b"", array, None, 0, None)
        self.epoch = 1
        self.backup_version = 0

    def apply(self, kind: str, *fields: Any) -> None:
        """See Journal."""
        if kind == "write":
            for record in fields[0]:
                if isinstance(record, Receipt):
                    key = (record.participant, record.round)
                    self._receipts[key] = record
                    self._included.pop(key, None)
                    if record.sequence is not None:
                        self._by_row[record.participant, record.sequence] = record.round
                elif isinstance(record, Act):
                    self.acts.append(record)
                else:
                    self._participants[record.name] = record
        elif kind == "checkpoint":
            published, folded, participants = fields
            for key in folded:
                self._included[key] = published.version
            self.apply("write", participants)
            self.last = published
        elif kind == "epoch":
            self.epoch = fields[0]
            for name, record in self._participants.items():
                session = max(record.session, self.epoch << SESSION_BITS)
                must_report = record.must_report or owes_a_report(record)
                self._participants[name] = dataclasses.replace(
                    record, session=session, joins=(), must_report=must_report
                )
        else:
            self.backup_version = fields[0]

    def write(self, records: Iterable[Record]) -> None:
        """Writes receipts and participants."""
        self.transact((("write", tuple(records)),))

    def checkpoint(
        self,
        published: Published,
        previous: int,
        folded: Iterable[tuple[str, int]],
        participants: Iterable[ParticipantRecord],
        keep_versions: int,
    ) -> None:
        """Writes one checkpoint."""
        del previous, keep_versions
        self.transact((("checkpoint", published, tuple(folded), tuple(participants)),))

    def find(self, participant: str, round_: int) -> Receipt | None:
        """See Archive."""
        key = (participant, round_)
        found = self._receipts.get(key)
        return (
            None
            if found is None
            else _stored(found, found.disposition or Disposition.INCLUDED, self._included.get(key))
        )

    def find_row(self, participant: str, sequence: int) -> Receipt | None:
        """See Archive."""
        round_ = self._by_row.get((participant, sequence))
        return None if round_ is None else self.find(participant, round_)

    def included(self) -> dict[tuple[str, int], int]:
        """Returns the version that holds each (participant, round)."""
        return self._included

    def sync(self) -> None:
        """See Journal."""
        for transaction in self.transactions[self.synced :]:
            self._note_durable(transaction)
        super().sync()

    def rebuild(self) -> None:
        """See Journal."""
        super().rebuild()
        self._durable: dict[tuple[str, int], bytes | None] = {}
        self.durable_version = 0
        self.durable_final_version = self._terms.final_version
        for transaction in self.transactions[: self.synced]:
            self._note_durable(transaction)

    def _note_durable(self, transaction: tuple[Operation, ...]) -> None:
        for kind, first, *_ in transaction:
            if kind == "write":
                self._durable.update(
                    ((one.participant, one.round), one.digest) for one in first if isinstance(one, Receipt)
                )
                for one in first:
                    if isinstance(one, Act) and one.final_version is not None:
                        self.durable_final_version = one.final_version
            elif kind == "checkpoint":
                self.durable_version = first.version

    def is_durable(self, key: tuple[str, int], digest: bytes) -> bool:
        """Whether the receipt of an update is synced. A crash that keeps what was only written has synced it."""
        return self._durable.get(key) == digest

    def manifest(self, version: int) -> set[tuple[str, int]]:
        """Returns (participant, round) of the updates that a version added."""
        return {key for key, included_in in self._included.items() if included_in == version}

    def snapshot(self, terms: Terms) -> Snapshot:
        """Returns what a server begins with."""
        last = self.last
        first = remembered_from(last.version, window=terms.window, publish_every=terms.publish_every)
        receipts = []
        for key, found in self._receipts.items():
            included_in = self._included.get(key)
            disposition = found.disposition
            if disposition is Disposition.INCLUDED and included_in is None:
                disposition = None
            receipt = _stored(found, disposition, included_in)
            if receipt.round >= first or receipt.lacks_content:
                receipts.append(receipt)
        return Snapshot(
            version=last.version,
            array=last.array,
            average_sum=last.average_sum,
            average_count=last.average_count,
            participants=tuple(self._participants[name] for name in sorted(self._participants)),
            receipts=tuple(receipts),
            histories={name: self._history(name, first) for name in {key[0] for key in self._receipts}},
            acts=tuple(self.acts),
        )

    def _history(self, name: str, first: int) -> History:
        own = [receipt for key, receipt in self._receipts.items() if key[0] == name]
        kinds = [receipt.disposition or Disposition.INCLUDED for receipt in own]
        rows = [(receipt.sequence, receipt) for receipt in own if receipt.sequence is not None]
        sequence, latest = max(rows, key=lambda row: row[0], default=(0, None))
        lost = kinds.count(Disposition.LOST)
        return History(
            accepted=kinds.count(Disposition.INCLUDED),
            invalid=kinds.count(Disposition.INVALID),
            without_update=kinds.count(Disposition.SKIPPED) + kinds.count(Disposition.VOID) + lost,
            rounds_received=max((receipt.round + 1 for receipt in own if receipt.digest is not None), default=0),
            sequence=sequence,
            head=b"" if latest is None else latest.head,
            forgotten_sequence=max((number for number, receipt in rows if receipt.round < first), default=0),
            **({"lost": lost} if "lost" in History.__slots__ else {}),
        )


def _stored(found: Receipt, disposition: Disposition | None, included_in: int | None) -> Receipt:
    return Receipt(
        found.participant,
        found.round,
        found.digest,
        found.sequence,
        found.previous_head,
        found.head,
        disposition,
        found.reason,
        included_in,
    )


class LedgerBrokenError(Exception):
    """The ledger was asked for what a real one refuses."""


Point = Callable[[str], None]
"""Called at every point of durability with its name; a crash is raised there."""


class SimulatedLedger(Journal):
    """A participant's ledger and outbox; see tests/conformance/ledger_suite.py.

    Attributes:
        wire: digests that left in a Send, by round; what a copy has sent before it was copied, it has sent too.
        spent, skipped: rounds.
    """

    def __init__(
        self, participant: str, terms: Terms, terms_digest: bytes, transactions: Iterable[tuple[Operation, ...]] = ()
    ) -> None:
        self.participant = participant
        self._terms = terms
        self._terms_digest = terms_digest
        self.wire: dict[int, bytes] = {}
        self._first_heads = _first_heads(participant)
        self.durable_digests: set[bytes] = set()
        super().__init__(transactions)

    def clear(self) -> None:
        """See Journal."""
        self._heads = list(self._first_heads)
        self.spent: set[int] = set()
        self.skipped: set[int] = set()
        self._states: dict[int, Entry] = {}
        self._bytes: dict[int, tuple[bytes, bytes]] = {}
        self._digests: dict[int, bytes] = {}

    def apply(self, kind: str, *fields: Any) -> None:
        """See Journal."""
        if kind == "seal":
            round_, packed, payload, digest, head = fields
            self.spent.add(round_)
            self._bytes[round_] = (packed, payload)
            self._digests[round_] = digest
            self._states[round_] = Entry(round_, digest, "sealed")
            self._heads.append(head)
        elif kind == "marks":
            for mark in fields[0]:
                self._mark(mark)
        else:
            round_, head = fields
            self._heads.append(head)
            if kind == "skip":
                self.spent.add(round_)
                self.skipped.add(round_)
            else:
                was = self._states[round_]
                self._states[round_] = Entry(
                    round_, was.digest, "final", "VOID", was.included_in, was.server_epoch, held=False
                )
                self._bytes.pop(round_, None)

    def sync(self) -> None:
        """See Journal."""
        for transaction in self.transactions[self.synced :]:
            self.durable_digests.update(operation[4] for operation in transaction if operation[0] == "seal")
        super().sync()

    def _mark(self, mark: Mark) -> None:
        round_ = mark.round
        new = outbox.marked(self._states[round_], mark)
        self._states[round_] = new
        if not new.held:
            self._bytes.pop(round_, None)

    @property
    def position(self) -> tuple[int, bytes]:
        """Number and head of the newest row."""
        return len(self._heads) - 1, self._heads[-1]

    def head_at(self, sequence: int) -> bytes | None:
        """Returns the head behind a row; None if there is no such row."""
        return self._heads[sequence] if 0 <= sequence < len(self._heads) else None

    def entries(self) -> list[Entry]:
        """Returns the outbox, in the order of sealing."""
        return list(self._states.values())

    def state(self, round_: int) -> tuple[str, str]:
        """Returns state and reason of a sealed update."""
        entry = self._states[round_]
        return entry.state, entry.reason

    def digest(self, round_: int) -> bytes:
        """Returns the digest of a sealed round."""
        return self._digests[round_]

    def holds(self, round_: int) -> bool:
        """Whether the sealed bytes of a round are here."""
        return round_ in self._bytes

    def sendable(self, round_: int) -> tuple[bytes, bytes, bytes]:
        """Returns header, payload and digest of a sealed round."""
        entry = self._states.get(round_)
        if entry is None or entry.state == "final" or round_ not in self._bytes:
            raise LedgerBrokenError(f"round {round_} of {self.participant} cannot be sent")
        return (*self._bytes[round_], entry.digest)

    def seal(self, round_: int, payload: bytes, point: Point) -> bytes:
        """Records a round as spent and its bytes as sendable, in one transaction; returns the digest."""
        self._check_unspent(round_)
        sequence, previous = self.position
        packed = header.UpdateHeader(
            terms_digest=self._terms_digest,
            participant=self.participant,
            round=round_,
            element_type=terms_pb2.ELEMENT_TYPE_INT32,
            sampler="poisson",
            noise_multiplier=2.5,
            clip_norm=0.5,
            ledger_sequence=sequence + 1,
            ledger_previous_head=previous,
            flags=0,
            payload_bytes=len(payload),
        ).pack()
        digest = header.digest(packed, payload)
        point("before seal")
        self.transact((("seal", round_, packed, payload, digest, header.next_head(previous, digest)),))
        point("seal written")
        self.sync()
        point("seal synced")
        return digest

    def skip(self, round_: int, point: Point) -> None:
        """Records that nothing will ever be sealed for a round."""
        self._check_unspent(round_)
        self._note("skip", round_, point)

    def void(self, round_: int, point: Point) -> None:
        """Records that the sealed bytes of a round cannot be sent any more."""
        if round_ not in self._states:
            raise LedgerBrokenError(f"nothing was sealed for round {round_} of {self.participant}")
        if self._states[round_].reason != "VOID":
            self._note("void", round_, point)

    def record(self, marks: tuple[Mark, ...], point: Point) -> None:
        """Records what became of sealed updates."""
        if any(mark.round not in self._states for mark in marks):
            raise LedgerBrokenError(f"marks {marks} of {self.participant} name rounds that were never sealed")
        self.transact((("marks", marks),))
        point("marks written")
        self.sync()
        point("marks synced")

    def _note(self, kind: str, round_: int, point: Point) -> None:
        digest = header.digest(kind.encode(), round_.to_bytes(8, "little"))
        self.transact(((kind, round_, header.next_head(self._heads[-1], digest)),))
        point("note written")
        self.sync()
        point("note synced")

    def _check_unspent(self, round_: int) -> None:
        if round_ in self.spent:
            raise LedgerBrokenError(f"round {round_} of {self.participant} was spent before")

    def copy(self) -> "SimulatedLedger":
        """Returns another ledger with what is durable in this one."""
        found = SimulatedLedger(self.participant, self._terms, self._terms_digest, self.image())
        found.wire = dict(self.wire)
        return found


_HEADS: dict[str, list[bytes]] = {}


def _first_heads(participant: str) -> list[bytes]:
    """Heads before and behind the first two rows of a real ledger, its beginning and its committed schedule."""
    if participant not in _HEADS:
        first = header.first_head(participant.encode().ljust(16)[:16])
        second = header.next_head(first, header.digest(b"init", b""))
        _HEADS[participant] = [first, second, header.next_head(second, header.digest(b"commit", b""))]
    return _HEADS[participant]
