"""Rows of a ledger as values: what each kind says, how it is hashed, and whether a whole chain holds together.

Files and SQL are unknown here. A row either seals an update (its body is the 192-byte header, its digest the update's)
or carries canonical JSON (its digest is the SHA-256 of those bytes).
"""

import hashlib
import hmac
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from hushgrad.client.errors import LedgerError
from hushgrad.v1 import terms_pb2
from hushgrad.wire import header
from hushgrad.wire.errors import ContractError

Kind = Literal["init", "commit", "update", "skipped", "void"]
KINDS: tuple[Kind, ...] = ("init", "commit", "update", "skipped", "void")

ELEMENT_BYTES = 4
"""Bytes of one element of an update (int32)."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a ledger.

    Attributes:
        sequence: number of the row, from 1.
        kind: what the row records.
        terms_digest: the federation, 32 bytes; None in an init row.
        round: the local round; None in init and commit rows.
        body: the header of an update (192 bytes), else canonical JSON.
        digest: 32 bytes; of an update SHA-256(header || payload), else SHA-256(body).
        head: SHA-256(head of the row before || digest), 32 bytes.
    """

    sequence: int
    kind: Kind
    terms_digest: bytes | None
    round: int | None
    body: bytes
    digest: bytes
    head: bytes


@dataclass(frozen=True, slots=True)
class Init:
    """The first row: whose ledger this is, for which data, and how much privacy its whole life may cost.

    Attributes:
        participant: its name.
        fingerprint: `keyed_fingerprint` of the data, hex. Rows are shown to others, and a plain digest of private data
            would let whoever knows all records but one test guesses of that one.
        ledger_id: 16 random bytes, hex.
        lifetime_epsilon, lifetime_delta: what all runs together may cost.
        accepted_new_budget: whether this data had another ledger before.
    """

    participant: str
    fingerprint: str
    ledger_id: str
    lifetime_epsilon: float
    lifetime_delta: float
    accepted_new_budget: bool


def keyed_fingerprint(secret: bytes, fingerprint: str) -> str:
    """Returns HMAC-SHA256 of a data set's fingerprint under the ledger's secret, hex: equal data, equal value, and
    nothing that anybody without the secret could test a guess against.
    """
    return hmac.new(secret, fingerprint.encode("ascii"), hashlib.sha256).hexdigest()


@dataclass(frozen=True, slots=True)
class Group:
    """Consecutive rounds of a committed schedule that cost the same.

    Attributes:
        sample_size: nominal s, records per round.
        sampling_probability: q = s / N.
        noise_multiplier: sigma as declared in the headers.
        charged_noise_multiplier: sigma as the accountant charges it, never larger.
        clip_norm: C, L2 norm.
        rounds: how many rounds, >= 1.
    """

    sample_size: int
    sampling_probability: float
    noise_multiplier: float
    charged_noise_multiplier: float
    clip_norm: float
    rounds: int


@dataclass(frozen=True, slots=True)
class Committed:
    """What one run may do at most, written down before its first round.

    Attributes:
        terms_digest: the federation, 32 bytes.
        federation: its name, for people.
        sampler: "poisson" or "fixed".
        adjacency: which data sets count as neighbours.
        records: N as declared in the configuration.
        parameters: d, elements of an update.
        flags: flag bits of every header.
        timing: "covered" when updates leave on a public tick, else "not covered".
        schedule: all rounds 0, 1, ..., grouped.
        claim: the privacy claim for the whole schedule, as the accountant's dictionary.
        delta: the claim's delta.
    """

    terms_digest: bytes
    federation: str
    sampler: str
    adjacency: str
    records: int
    parameters: int
    flags: int
    timing: str
    schedule: tuple[Group, ...]
    claim: Mapping[str, Any]
    delta: float

    @property
    def rounds(self) -> int:
        """Number of rounds in the schedule."""
        return sum(group.rounds for group in self.schedule)

    @property
    def epsilon(self) -> float:
        """The claim's epsilon; meaningful only beside the rest of the claim."""
        return float(self.claim["epsilon"])

    def group(self, round_: int) -> Group | None:
        """Returns what the schedule says about a round; None when the round is not in it."""
        if round_ < 0:
            return None
        first = 0
        for group in self.schedule:
            first += group.rounds
            if round_ < first:
                return group
        return None


def canonical(document: Mapping[str, Any]) -> bytes:
    """Returns a document as the JSON bytes that are hashed: sorted keys, no spaces, no NaN.

    >>> canonical({"b": 0.5, "a": [1]})
    b'{"a":[1],"b":0.5}'
    """
    return json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def init_body(init: Init) -> bytes:
    """Returns the canonical bytes of an init row."""
    return canonical({"kind": "init", **asdict(init)})


def commit_body(committed: Committed) -> bytes:
    """Returns the canonical bytes of a commit row."""
    document = {
        "kind": "commit",
        "terms_digest": committed.terms_digest.hex(),
        "federation": committed.federation,
        "sampler": committed.sampler,
        "adjacency": committed.adjacency,
        "records": committed.records,
        "parameters": committed.parameters,
        "flags": committed.flags,
        "timing": committed.timing,
        "schedule": [asdict(group) for group in committed.schedule],
        "claim": dict(committed.claim),
        "delta": committed.delta,
    }
    return canonical(document)


def note_body(kind: Literal["skipped", "void"], terms_digest: bytes, round_: int) -> bytes:
    """Returns the canonical bytes of a row about a round that gets no update."""
    return canonical({"kind": kind, "terms_digest": terms_digest.hex(), "round": round_})


def read_init(row: Row) -> Init:
    """Reads an init row.

    Raises:
        LedgerError: if its body does not say what an init row says.
    """
    document = _document(row)
    try:
        return Init(**document)
    except TypeError as error:
        raise LedgerError(f"ledger row {row.sequence}: an init row does not have these fields: {error}") from None


def read_commit(row: Row) -> Committed:
    """Reads a commit row.

    Raises:
        LedgerError: if its body does not say what a commit row says.
    """
    document = _document(row)
    try:
        schedule = tuple(Group(**group) for group in document.pop("schedule"))
        terms_digest = bytes.fromhex(document.pop("terms_digest"))
        return Committed(terms_digest=terms_digest, schedule=schedule, **document)
    except (TypeError, KeyError, ValueError) as error:
        raise LedgerError(f"ledger row {row.sequence}: a commit row does not have these fields: {error}") from None


def make_header(committed: Committed, participant: str, round_: int, sequence: int, previous_head: bytes) -> bytes:
    """Returns the only header that an update of this round can have in this place of the ledger, 192 bytes.

    Raises:
        LedgerError: if the round is not in the committed schedule.
    """
    group = committed.group(round_)
    if group is None:
        raise LedgerError(
            f"round {round_} is not in the committed schedule of {committed.rounds} rounds; nothing may be drawn for it"
        )
    return header.UpdateHeader(
        terms_digest=committed.terms_digest,
        participant=participant,
        round=round_,
        element_type=terms_pb2.ELEMENT_TYPE_INT32,
        sampler=committed.sampler,
        noise_multiplier=group.noise_multiplier,
        clip_norm=group.clip_norm,
        ledger_sequence=sequence,
        ledger_previous_head=previous_head,
        flags=committed.flags,
        payload_bytes=ELEMENT_BYTES * committed.parameters,
    ).pack()


def verify(ledger_id: bytes, rows: Iterable[Row], payload_digest: Callable[[Row], bytes | None]) -> None:
    """Checks a whole chain, row by row.

    Args:
        ledger_id: the 16 bytes that the chain begins with.
        rows: all rows, by sequence number.
        payload_digest: returns SHA-256(header || payload) recomputed from the payload that is still held for an update
            row, or None where it has been dropped.

    Raises:
        LedgerError: at the first bad row, which it names.
    """
    head = header.first_head(ledger_id)
    init: Init | None = None
    runs: dict[bytes, Committed] = {}
    spent: set[tuple[bytes, int]] = set()
    sealed: set[tuple[bytes, int]] = set()
    void: set[tuple[bytes, int]] = set()
    expected = 0
    for expected, row in enumerate(rows, start=1):
        bad = f"ledger row {expected}"
        if row.sequence != expected:
            raise LedgerError(f"{bad}: expected sequence number {expected}, found {row.sequence}; rows are missing")
        if row.kind not in KINDS:
            raise LedgerError(f"{bad}: kind must be one of {', '.join(KINDS)}, found {row.kind!r}")
        if (row.kind == "init") != (expected == 1):
            raise LedgerError(f"{bad}: the first row and only the first must be of kind init, found {row.kind!r}")
        if row.kind == "update":
            key = _check_update(row, bad, head, init, runs)
            if key in spent:
                raise LedgerError(f"{bad}: round {row.round} was spent before; a round is never spent twice")
            found = payload_digest(row)
            if found is not None and found != row.digest:
                raise LedgerError(f"{bad}: the held payload is not the one that was sealed for round {row.round}")
            spent.add(key)
            sealed.add(key)
        else:
            if hashlib.sha256(row.body).digest() != row.digest:
                raise LedgerError(f"{bad}: the digest is not the SHA-256 of the row's bytes")
            if row.kind == "init":
                init = read_init(row)
                if init.ledger_id != ledger_id.hex():
                    raise LedgerError(f"{bad}: belongs to ledger {init.ledger_id}, found in ledger {ledger_id.hex()}")
                _check_columns(row, bad, None, None)
            elif row.kind == "commit":
                committed = read_commit(row)
                _check_columns(row, bad, committed.terms_digest, None)
                if committed.terms_digest in runs:
                    raise LedgerError(f"{bad}: this federation's schedule was committed before")
                runs[committed.terms_digest] = committed
            else:
                key = _check_note(row, bad)
                if row.kind == "skipped" and key in spent:
                    raise LedgerError(f"{bad}: round {row.round} cannot be skipped, it was spent or skipped before")
                if row.kind == "void" and (key not in sealed or key in void):
                    raise LedgerError(f"{bad}: round {row.round} cannot be void, it was not sealed or is void already")
                (spent if row.kind == "skipped" else void).add(key)
        head = header.next_head(head, row.digest)
        if row.head != head:
            raise LedgerError(f"{bad}: the head is not SHA-256(previous head || digest); the chain is broken here")
    if expected == 0:
        raise LedgerError("ledger row 1: there is no row at all; an initialised ledger has one")


def _check_update(
    row: Row, bad: str, head: bytes, init: Init | None, runs: Mapping[bytes, Committed]
) -> tuple[bytes, int]:
    if row.terms_digest is None or row.round is None:
        raise LedgerError(f"{bad}: an update must name its federation and round, found neither")
    committed = runs.get(row.terms_digest)
    if committed is None or init is None:
        raise LedgerError(f"{bad}: an update of a federation whose schedule was never committed")
    try:
        expected = make_header(committed, init.participant, row.round, row.sequence, head)
    except LedgerError as error:
        raise LedgerError(f"{bad}: {error}") from None
    if row.body != expected:
        raise LedgerError(f"{bad}: {_difference(row.body, expected)}")
    return row.terms_digest, row.round


def _difference(found: bytes, expected: bytes) -> str:
    """Says which field of a header is not what the rest of the ledger asks for."""
    try:
        a, b = header.unpack(found), header.unpack(expected)
    except ContractError as error:
        return f"the header cannot be read: {error}"
    for name in header.UpdateHeader.__slots__:
        if getattr(a, name) != getattr(b, name):
            return f"the header's {name} must be {getattr(b, name)!r}, found {getattr(a, name)!r}"
    return "the header is not the one that the committed schedule asks for"


def _check_note(row: Row, bad: str) -> tuple[bytes, int]:
    document = _document(row)
    try:
        terms_digest, round_ = bytes.fromhex(document["terms_digest"]), int(document["round"])
    except (KeyError, ValueError, TypeError) as error:
        raise LedgerError(f"{bad}: a {row.kind} row must name its federation and round: {error}") from None
    _check_columns(row, bad, terms_digest, round_)
    return terms_digest, round_


def _check_columns(row: Row, bad: str, terms_digest: bytes | None, round_: int | None) -> None:
    if row.terms_digest != terms_digest or row.round != round_:
        raise LedgerError(f"{bad}: the columns terms_digest and round differ from the row's bytes")


def _document(row: Row) -> dict[str, Any]:
    try:
        document = json.loads(row.body)
    except ValueError as error:
        raise LedgerError(f"ledger row {row.sequence}: the body must be JSON: {error}") from None
    if not isinstance(document, dict) or document.pop("kind", None) != row.kind:
        raise LedgerError(f"ledger row {row.sequence}: the body is not that of a row of kind {row.kind!r}")
    return document
