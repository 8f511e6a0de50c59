"""An exported ledger as values: read, with its hash chain and its headers followed byte by byte.

Written from the description in docs/ledger.md alone, so that the accountant can be used without a client. What is
wrong is collected as sentences, not raised: a reader wants to know everything that does not agree.
"""

import hashlib
import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hushgrad.accountant.claims import RoundGroup
from hushgrad.accountant.errors import AccountantError

FORMAT = 1

_HEADER = struct.Struct("<8sI32s64sQIIddQ32sIQ")
_SAMPLERS = {1: "poisson", 2: "fixed"}
_INSECURE_NOISE, _CLIPPING_DECLARED = 1, 2
CLIPPING = {False: "by the library", True: "declared by caller"}
_ELEMENT_BYTES = {1: 4, 2: 8}


@dataclass(frozen=True, slots=True)
class Group:
    """Consecutive rounds of a committed schedule, with the fields of docs/ledger.md."""

    sample_size: int
    sampling_probability: float
    noise_multiplier: float
    charged_noise_multiplier: float
    clip_norm: float
    rounds: int

    def charged(self, rounds: int | None = None) -> RoundGroup:
        """Returns what the accountant charges for these rounds, or for so many of them."""
        return RoundGroup(self.sampling_probability, self.charged_noise_multiplier, rounds or self.rounds)


@dataclass(slots=True)
class Run:
    """One committed run and its update rows, as far as they could be read.

    Attributes:
        document: the commit row's text, read.
        row: number of the commit row.
        schedule: of all rounds.
        rounds: the round of each update row -> number of that row.
        skipped: the round of each skipped row -> number of that row.
    """

    document: Mapping[str, Any]
    row: int
    schedule: tuple[Group, ...]
    rounds: dict[int, int] = field(default_factory=dict)
    skipped: dict[int, int] = field(default_factory=dict)

    @property
    def clipped_by_caller(self) -> bool:
        """Whether the flags of the run say so."""
        flags = self.document.get("flags")
        return isinstance(flags, int) and bool(flags & _CLIPPING_DECLARED)

    def group(self, round_: int) -> Group | None:
        """Returns what the schedule says about a round; None where it says nothing."""
        first = 0
        for group in self.schedule:
            first += group.rounds
            if 0 <= round_ < first:
                return group
        return None


@dataclass(slots=True)
class Exported:
    """What an exported ledger says.

    Attributes:
        init: the first row's text, read; empty if it could not be.
        runs: by terms digest, in order of commitment.
        rows: how many rows there are.
        head: the head behind the last row, recomputed.
        faults: one sentence for each thing that does not fit.
    """

    init: Mapping[str, Any] = field(default_factory=dict)
    runs: dict[str, Run] = field(default_factory=dict)
    rows: int = 0
    head: bytes = b""
    faults: list[str] = field(default_factory=list)


def read(document: Any) -> Exported:
    """Follows an exported ledger from its first row to its last.

    Raises:
        AccountantError: if it is not an exported ledger of this format at all.
    """
    if not isinstance(document, Mapping) or not isinstance(document.get("rows"), list):
        raise AccountantError("an exported ledger is a JSON object with `rows`; see docs/ledger.md")
    if document.get("format") != FORMAT:
        raise AccountantError(f"the format of an exported ledger must be {FORMAT}, found {document.get('format')!r}")
    try:
        ledger_id = bytes.fromhex(document["ledger_id"])
    except (KeyError, TypeError, ValueError):
        ledger_id = b""
    if len(ledger_id) != 16:
        raise AccountantError("ledger_id must be 16 bytes in hexadecimal")
    found = Exported(head=hashlib.sha256(b"hushgrad ledger" + ledger_id).digest())
    for number, row in enumerate(document["rows"], start=1):
        found.rows = number
        try:
            _follow(found, number, row)
        except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError, struct.error) as error:
            found.faults.append(f"row {number} cannot be read: {type(error).__name__}: {error}")
    if not found.rows:
        found.faults.append("there is no row; the first one says whose ledger it is")
    if document.get("head") != found.head.hex():
        found.faults.append("head is not that of the last row")
    _compare(
        "the ledger", document, found.init, ("participant", "ledger_id", "fingerprint", "accepted_new_budget"), found
    )
    _compare_lifetime(document, found)
    _compare_runs(document, found)
    return found


def _follow(found: Exported, number: int, row: Mapping[str, Any]) -> None:
    head, digest = found.head, bytes.fromhex(row["digest"])
    found.head = hashlib.sha256(head + digest).digest()
    if len(digest) != hashlib.sha256().digest_size:
        found.faults.append(f"row {number}: digest must be 32 bytes, found {len(digest)}")
    if row["sequence"] != number:
        found.faults.append(f"row {number} has sequence number {row['sequence']}")
    if row["head"] != found.head.hex():
        found.faults.append(f"row {number}: head is not SHA-256(previous head, digest); the chain is broken here")
        found.head = bytes.fromhex(row["head"])  # one fault, not one for every row that follows
    if (row["kind"] == "init") != (number == 1):
        found.faults.append(f"row {number}: the first row and no other is of kind init, found {row['kind']}")
    if row["kind"] == "update":
        _update(found, number, row, head)
        return
    if hashlib.sha256(row["text"].encode()).digest() != digest:
        found.faults.append(f"row {number}: digest is not the SHA-256 of text")
    text = json.loads(row["text"])
    if text["kind"] != row["kind"]:
        found.faults.append(f"row {number}: kind is {row['kind']}, its text says {text['kind']}")
    if text["kind"] == "init":
        found.init = text
    elif text["kind"] == "commit":
        if text["terms_digest"] in found.runs:
            found.faults.append(f"row {number}: this federation was committed before")
        schedule = tuple(Group(**group) for group in text["schedule"])
        found.runs[text["terms_digest"]] = Run(text, number, schedule)
        _check_schedule(found, number, text, schedule)
    elif text["kind"] in ("skipped", "void"):
        _note(found, number, text)
    else:
        found.faults.append(f"row {number}: unknown kind {text['kind']!r}")


def _check_schedule(found: Exported, number: int, text: Mapping[str, Any], schedule: tuple[Group, ...]) -> None:
    if text["flags"] & _INSECURE_NOISE:
        found.faults.append(f"row {number}: flags say that the noise is insecure; nothing can be claimed")
    for group in schedule:
        if group.sampling_probability != group.sample_size / text["records"]:
            found.faults.append(f"row {number}: sampling_probability is not sample_size / records")
        if group.charged_noise_multiplier > group.noise_multiplier:
            found.faults.append(f"row {number}: more noise is charged than is declared")


def _note(found: Exported, number: int, text: Mapping[str, Any]) -> None:
    run, round_ = found.runs.get(text["terms_digest"]), text["round"]
    if run is None or run.group(round_) is None:
        found.faults.append(f"row {number}: round {round_} is not in a schedule that was committed before")
    elif text["kind"] == "void" and round_ not in run.rounds:
        found.faults.append(f"row {number}: round {round_} is void and was never sealed")
    elif text["kind"] == "skipped":
        if round_ in run.rounds or round_ in run.skipped:
            found.faults.append(f"row {number}: round {round_} is skipped and was spent or skipped before")
        run.skipped[round_] = number


def _update(found: Exported, number: int, row: Mapping[str, Any], previous_head: bytes) -> None:
    run = found.runs.get(row["terms_digest"])
    if run is None:
        found.faults.append(f"row {number}: an update of a federation that was not committed before")
        return
    group, round_ = run.group(row["round"]), row["round"]
    if group is None:
        found.faults.append(f"row {number}: round {round_} is not in the committed schedule")
        return
    if round_ in run.rounds:
        found.faults.append(f"row {number}: round {round_} was spent in row {run.rounds[round_]} already")
    if round_ in run.skipped:
        found.faults.append(f"row {number}: round {round_} was skipped in row {run.skipped[round_]} already")
    run.rounds[round_] = number
    for name in ("sample_size", "sampling_probability", "noise_multiplier", "charged_noise_multiplier", "clip_norm"):
        if row[name] != getattr(group, name):
            found.faults.append(f"row {number}: {name} is {row[name]}, committed was {getattr(group, name)}")
    (
        magic,
        layout,
        terms,
        participant,
        header_round,
        element,
        sampler,
        sigma,
        clip_norm,
        sequence,
        head,
        flags,
        size,
    ) = _HEADER.unpack(bytes.fromhex(row["header"]))
    for name, says, expected in (
        ("magic and layout", (magic, layout), (b"HGUPDATE", 1)),
        ("terms digest", terms.hex(), row["terms_digest"]),
        ("participant", participant.rstrip(b"\0").decode(), found.init.get("participant")),
        ("round", header_round, round_),
        ("sampler", _SAMPLERS.get(sampler), run.document["sampler"]),
        ("noise multiplier", sigma, group.noise_multiplier),
        ("clip norm", clip_norm, group.clip_norm),
        ("ledger sequence", sequence, number),
        ("previous head", head, previous_head),
        ("flags", flags, run.document["flags"]),
        ("payload size", size, _ELEMENT_BYTES.get(element, 0) * run.document["parameters"]),
        ("row's sampling", row["sampling"], run.document["sampler"]),
    ):
        if says != expected:
            found.faults.append(f"row {number}: the header's {name} must be {_show(expected)}, found {_show(says)}")


def _compare(what: str, shown: Any, chained: Mapping[str, Any], names: tuple[str, ...], found: Exported) -> None:
    for name in names:
        if shown.get(name) != chained.get(name):
            found.faults.append(
                f"{what}: {name} is {_show(shown.get(name))} at the top, {_show(chained.get(name))} in the chain"
            )


def _compare_lifetime(document: Mapping[str, Any], found: Exported) -> None:
    shown = document.get("lifetime") or {}
    pair = {"lifetime_epsilon": shown.get("epsilon"), "lifetime_delta": shown.get("delta")}
    _compare("the ledger", pair, found.init, ("lifetime_epsilon", "lifetime_delta"), found)


def _compare_runs(document: Mapping[str, Any], found: Exported) -> None:
    shown = {run.get("terms_digest"): run for run in document.get("runs") or [] if isinstance(run, Mapping)}
    if list(shown) != list(found.runs) or len(document.get("runs") or []) != len(shown):
        found.faults.append("runs does not list the federations that the chain commits")
    for digest, run in found.runs.items():
        if digest in shown:
            names = ("federation", "adjacency", "records", "parameters", "timing", "claim", "delta", "schedule")
            _compare(f"run {run.document.get('federation')}", shown[digest], run.document, names, found)
            if shown[digest].get("clipping", CLIPPING[run.clipped_by_caller]) != CLIPPING[run.clipped_by_caller]:
                found.faults.append(f"run {run.document.get('federation')}: clipping differs from the chain's flags")
            if shown[digest].get("sampling") != run.document.get("sampler"):
                found.faults.append(f"run {run.document.get('federation')}: sampling differs from the chain's sampler")


def _show(value: Any) -> str:
    text = value.hex() if isinstance(value, bytes) else json.dumps(value, default=repr)
    return text if len(text) <= 60 else f"{text[:57]}..."
