"""Small federations for tests: their terms, participants that seal updates, and an owner of the cores in memory."""

import dataclasses
import hashlib
from collections.abc import Iterable

import numpy as np
from hushgrad.server.administration import Ruling
from hushgrad.server.aggregation import Published
from hushgrad.server.content import ContentCheck, Policy
from hushgrad.server.federation import Federation, Frozen, Outcome
from hushgrad.server.records import (
    Act,
    Caller,
    Disposition,
    History,
    ParticipantRecord,
    Receipt,
    Record,
    Snapshot,
    remembered_from,
)
from hushgrad.v1 import terms_pb2
from hushgrad.wire import grid, header, terms_file
from hushgrad.wire import terms as wire_terms
from hushgrad.wire.terms import Terms


def make_terms(
    *,
    parameters: int = 5,
    participants: int = 3,
    names: tuple[str, ...] = (),
    final_version: int = 6,
    window: int = 4,
    delay: str = "max-delay",
    max_delay: int = 1,
    sample_size: int = 10,
    publish_every: int = 1,
    straggler_timeout_seconds: float = 10.0,
    start_timeout_seconds: float = 0.0,
    max_unary_bytes: int = 2**20,
    max_inline_model_bytes: int = 2**16,
) -> Terms:
    """Returns terms of a federation with zeros as version 0."""
    file = terms_file.TermsFile(
        federation="test",
        model="logistic",
        arrays=[terms_file.ArrayEntry("w", [parameters])],
        final_version=final_version,
        window=window,
        straggler_timeout_seconds=straggler_timeout_seconds,
        start_timeout_seconds=start_timeout_seconds,
        step_size=terms_file.StepSize("inverse-sqrt", eta0=0.1, beta=0.1),
        sample_size=terms_file.SampleSize("constant", size=sample_size),
        delay=terms_file.Delay(delay, max_delay if delay == "max-delay" else 0),
        privacy=terms_file.PrivacySection(0.5, 2.0, 3.0, ["poisson"], 100),
        publish_every=publish_every,
        participants=list(names),
        largest_number_of_participants=len(names) or participants,
        limits=terms_file.LimitsSection(
            max_unary_bytes=max_unary_bytes, max_chunk_bytes=2**16, max_inline_model_bytes=max_inline_model_bytes
        ),
    )
    return terms_file.build(file, np.zeros(parameters, np.float32), bytes(range(16)))


def digest_of(terms: Terms) -> bytes:
    """Returns the digest of terms as `to_bytes` makes them."""
    return wire_terms.digest(terms.to_bytes())


@dataclasses.dataclass(frozen=True)
class Sealed:
    """One sealed update."""

    participant: str
    round: int
    header: bytes
    payload: bytes
    digest: bytes
    head: bytes


class Sender:
    """A participant's ledger and outbox, without any privacy: its updates are random integers from a seed."""

    def __init__(self, name: str, terms: Terms, terms_digest: bytes | None = None, seed: int = 0) -> None:
        self.name = name
        self.terms = terms
        self.terms_digest = terms_digest or digest_of(terms)
        self.session = 0
        self.sealed: dict[int, Sealed] = {}
        self._generator = np.random.default_rng([seed, *name.encode()])
        self._sequence = 0
        self._head = header.first_head(hashlib.sha256(name.encode()).digest()[:16])

    @property
    def caller(self) -> Caller:
        """Who calls."""
        return Caller(self.terms_digest, self.name, self.session)

    def seal(self, round_: int, payload: bytes | None = None, **changes: object) -> Sealed:
        """Seals one round; the next ledger row. `changes` replace fields of the header."""
        if payload is None:
            payload = self._generator.integers(-(2**31) + 1, 2**31, self.terms.parameters).astype("<i4").tobytes()
        self._sequence += 1
        fields = header.UpdateHeader(
            terms_digest=self.terms_digest,
            participant=self.name,
            round=round_,
            element_type=terms_pb2.ELEMENT_TYPE_INT32,
            sampler="poisson",
            noise_multiplier=2.5,
            clip_norm=0.5,
            ledger_sequence=self._sequence,
            ledger_previous_head=self._head,
            flags=0,
            payload_bytes=len(payload),
        )
        fields = dataclasses.replace(fields, **changes)
        packed = fields.pack()
        digest = header.digest(packed, payload)
        head = header.next_head(fields.ledger_previous_head, digest)
        if not {"ledger_sequence", "ledger_previous_head"} & set(changes):
            self._head = head
        sealed = Sealed(self.name, round_, packed, payload, digest, head)
        self.sealed.setdefault(round_, sealed)
        return sealed


class MemoryStore:
    """A store in memory that passes the store suite: what was committed survives `snapshot()`, nothing else does."""

    def __init__(self, terms: Terms) -> None:
        self._terms = terms
        array = grid.initial_array(
            np.zeros(terms.parameters, np.float32), grid_exponent=terms.grid_exponent, step_exponent=terms.step_exponent
        )
        self._receipts: dict[tuple[str, int], Receipt] = {}
        self._participants: dict[str, ParticipantRecord] = {}
        self._acts: list[Act] = []
        self._checkpoint = Published(0, b"", b"", array, None, 0, None)

    def write(self, records: Iterable[Record]) -> None:
        """Writes receipts, participants and acts."""
        for record in records:
            if isinstance(record, Act):
                self._acts.append(record)
            elif isinstance(record, Receipt):
                disposition = record.disposition or Disposition.INCLUDED
                record = dataclasses.replace(record, disposition=disposition, included_in=None)
                self._receipts[record.participant, record.round] = record
            else:
                self._participants[record.name] = record

    def checkpoint(
        self,
        published: Published,
        previous: int,
        folded: Iterable[tuple[str, int]],
        participants: Iterable[ParticipantRecord],
        keep_versions: int,
    ) -> None:
        """Writes one checkpoint."""
        for key in folded:
            self._receipts[key] = dataclasses.replace(self._receipts[key], included_in=published.version)
        self.write(participants)
        self._checkpoint = published

    def find(self, participant: str, round_: int) -> Receipt | None:
        """See Archive."""
        return self._receipts.get((participant, round_))

    def find_row(self, participant: str, sequence: int) -> Receipt | None:
        """See Archive."""
        for receipt in self._receipts.values():
            if receipt.participant == participant and receipt.sequence == sequence:
                return receipt
        return None

    def snapshot(self, terms: Terms) -> Snapshot:
        """Returns what a server begins with."""
        checkpoint = self._checkpoint
        first = remembered_from(checkpoint.version, window=terms.window, publish_every=terms.publish_every)
        kept = [
            dataclasses.replace(receipt, disposition=None)
            if receipt.disposition is Disposition.INCLUDED and receipt.included_in is None
            else receipt
            for receipt in self._receipts.values()
        ]
        return Snapshot(
            version=checkpoint.version,
            array=checkpoint.array,
            average_sum=checkpoint.average_sum,
            average_count=checkpoint.average_count,
            participants=tuple(self._participants[name] for name in sorted(self._participants)),
            receipts=tuple(receipt for receipt in kept if receipt.round >= first or receipt.lacks_content),
            histories={name: self._history(name, first) for name in {key[0] for key in self._receipts}},
            acts=tuple(self._acts),
        )

    def _history(self, name: str, first: int) -> History:
        own = [receipt for receipt in self._receipts.values() if receipt.participant == name]
        rows = [receipt for receipt in own if receipt.sequence is not None]
        latest = max(rows, key=lambda receipt: receipt.sequence, default=None)
        old = [receipt.sequence for receipt in rows if receipt.round < first]
        without = (Disposition.SKIPPED, Disposition.VOID, Disposition.LOST)
        return History(
            accepted=sum(receipt.disposition is Disposition.INCLUDED for receipt in own),
            invalid=sum(receipt.disposition is Disposition.INVALID for receipt in own),
            without_update=sum(receipt.disposition in without for receipt in own),
            rounds_received=max((receipt.round + 1 for receipt in own if receipt.digest), default=0),
            sequence=0 if latest is None else latest.sequence,
            head=b"" if latest is None else latest.head,
            forgotten_sequence=max(old, default=0),
            flagged=sum(receipt.is_flagged for receipt in own),
        )


class Owner:
    """Owns a federation as a server does, with a store that is durable at once.

    Attributes:
        models: published float32 bytes by version.
        now: the clock, in seconds; tests move it.
    """

    def __init__(
        self, terms: Terms, store: MemoryStore | None = None, now: float = 0.0, policy: Policy | None = None
    ) -> None:
        """Args: policy is what becomes of improbable updates; None: nobody looks."""
        self.terms = terms
        self.policy = policy
        self.store = store or MemoryStore(terms)
        self.now = now
        self.models: dict[int, Published] = {}
        self.frozen: list[Frozen] = []
        content = None if policy is None else ContentCheck(terms, policy)
        snapshot = self.store.snapshot(terms)
        self.federation = Federation(terms, digest_of(terms), snapshot, self.store, now=now, content=content)

    def restart(self, policy: Policy | None = None) -> "Owner":
        """Returns the owner after a crash: everything but the store is lost; another policy may hold from now on."""
        return Owner(self.terms, self.store, self.now, policy or self.policy)

    def settle(self, outcome: Outcome) -> Outcome:
        """Commits an outcome and publishes what can be published."""
        self.store.write(outcome.records)
        self.advance()
        return outcome

    def advance(self) -> None:
        """Publishes what can be published."""
        while (frozen := self.federation.freeze()) is not None:
            published = frozen.aggregate.publish()
            self.store.checkpoint(published, frozen.previous, frozen.folded, frozen.participants, 0)
            self.federation.published(published, self.now)
            self.models[published.version] = published
            self.frozen.append(frozen)

    def wait(self, seconds: float) -> tuple[Record, ...]:
        """Lets time pass."""
        self.now += seconds
        records = self.federation.tick(self.now)
        self.store.write(records)
        self.advance()
        return records

    def join(self, sender: Sender, join_id: bytes = bytes(16)) -> Outcome:
        """Joins."""
        outcome = self.settle(self.federation.join(sender.caller, join_id))
        sender.session = outcome.session
        return outcome

    def start(self, sender: Sender, next_round: int = 0) -> Outcome:
        """Starts."""
        return self.settle(self.federation.start(sender.caller, next_round, self.now))

    def submit(self, sender: Sender, sealed: Sealed) -> Outcome:
        """Submits."""
        return self.settle(self.federation.submit(sender.caller, sealed.header, sealed.digest, sealed.payload))

    def order(self, ruling: Ruling) -> Ruling:
        """Commits an order and publishes what can be published."""
        self.store.write(ruling.records)
        self.advance()
        return ruling

    def begin(self, senders: Iterable[Sender]) -> None:
        """Joins and starts all."""
        senders = list(senders)
        for sender in senders:
            self.join(sender)
        for sender in senders:
            self.start(sender)


def senders_of(terms: Terms, seed: int = 0) -> list[Sender]:
    """Returns as many senders as the terms have room for."""
    names = terms.participants or tuple(f"client-{i + 1}" for i in range(terms.largest_number_of_participants))
    return [Sender(name, terms, seed=seed) for name in names]
