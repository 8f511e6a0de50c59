"""What is fuzzed, as functions of bytes: they raise when the server does what it never may.

Knows no fuzzer: `python -m tests.fuzz` drives them with coverage, tests/fuzz/test_targets.py with the corpus.

- `decoder`: headers, terms, names and messages of strangers. Either a value or the one error that callers expect.
- `admission`: a federation of two, driven by any sequence of events. The published model is the sum of what was
  accepted, a repeat gets its first answer, and nothing that is refused leaves a trace in the model.
- `service`: requests in any order, as bytes, through the real services up to a store in memory. A call ends with an
  answer of its own type or with a status that the contract has for it.
"""

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path
from typing import Any

import google_crc32c
import grpc
import numpy as np
from google.protobuf.message import DecodeError
from hushgrad.server import content
from hushgrad.server.content import ContentCheck
from hushgrad.server.federation import Federation, Outcome
from hushgrad.server.host import Host
from hushgrad.server.limits import Limiter, LimitsConfig
from hushgrad.server.records import Answer, Caller
from hushgrad.server.services import Gate, MembershipService, StatusService, TermsService
from hushgrad.server.spool import Spool
from hushgrad.server.update_service import UpdateService
from hushgrad.server.watch import Publisher
from hushgrad.v1 import common_pb2, membership_pb2, models_pb2, status_pb2, terms_pb2, updates_pb2
from hushgrad.wire import header as wire_header
from hushgrad.wire import terms as wire_terms
from hushgrad.wire.errors import ContractError

from tests.support.federations import MemoryStore, Owner, Sender, digest_of, make_terms, senders_of

TERMS = make_terms(parameters=64, participants=2, final_version=6, window=3)
DIGEST = digest_of(TERMS)
_HONEST = [
    np.rint(np.random.default_rng(seed).normal(0, 2.5 * 0.5 * 2.0**-TERMS.grid_exponent, 64)).astype("<i4").tobytes()
    for seed in range(4)
]
_ACCEPTED_CODES = frozenset(
    {
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.NOT_FOUND,
        grpc.StatusCode.ABORTED,
        grpc.StatusCode.DATA_LOSS,
        grpc.StatusCode.UNAVAILABLE,
    }
)
_MOST_STEPS = 24


class Bytes:
    """Hands out the input piece by piece; zeros when it is used up."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def is_empty(self) -> bool:
        """Whether it is used up."""
        return self._at >= len(self._data)

    def take(self, count: int) -> bytes:
        """Returns that many bytes."""
        piece = self._data[self._at : self._at + count]
        self._at += count
        return piece.ljust(count, b"\0")

    def number(self, size: int = 1) -> int:
        """Returns a number of that many bytes."""
        return int.from_bytes(self.take(size), "little")

    def some(self) -> bytes:
        """Returns at most 65535 bytes, as many as two bytes say and are there."""
        count = min(self.number(2), max(0, len(self._data) - self._at))
        return self.take(count)


# Decoders

_MESSAGES: tuple[Any, ...] = tuple(
    cls
    for module in (common_pb2, terms_pb2, membership_pb2, updates_pb2, models_pb2, status_pb2)
    for cls in (getattr(module, name) for name in sorted(module.DESCRIPTOR.message_types_by_name))
)


def decoder(data: bytes) -> None:
    """One input: a byte that chooses, then the bytes of a stranger."""
    source = Bytes(data)
    choice, rest = source.number(), data[1:]
    if choice == 0:
        _expect_contract_error(lambda: _same_header(rest))
    elif choice == 1:
        _expect_contract_error(lambda: wire_terms.from_bytes(rest))
    else:
        kind = _MESSAGES[choice % len(_MESSAGES)]
        try:
            message = kind.FromString(rest)
        except DecodeError:
            return
        assert kind.FromString(message.SerializeToString()) == message or _has_nan(message)


def _same_header(data: bytes) -> None:
    found = wire_header.unpack(data)
    assert found.pack() == data, "a header that is read says something else than its bytes"


def _expect_contract_error(call: Callable[[], object]) -> None:
    try:
        call()
    except ContractError:
        return


def _has_nan(message: Any) -> bool:
    return "nan" in str(message)


# Admission


def admission(data: bytes) -> None:
    """One input: events for two participants, who may be honest, confused or hostile."""
    admitted(data)


def admitted(data: bytes) -> Owner:
    """Plays one input and returns what it led to."""
    source = Bytes(data)
    policy: Any = ("refuse", "accept-and-flag")[source.number() % 2]
    owner, senders = Owner(TERMS, policy=policy), senders_of(TERMS)
    owner.begin(senders)
    first: dict[tuple[str, int, bytes], Answer] = {}
    contents: dict[tuple[str, int, bytes], bytes] = {}
    for _ in range(_MOST_STEPS):
        if source.is_empty:
            break
        owner = _event(source, owner, senders, first, contents)
    _check_models(owner, contents)
    return owner


def _event(
    source: Bytes,
    owner: Owner,
    senders: list[Sender],
    first: dict[tuple[str, int, bytes], Answer],
    contents: dict[tuple[str, int, bytes], bytes],
) -> Owner:
    kind, sender = source.number() % 11, senders[source.number() % 2]
    match kind:
        case 0 | 1 | 2:
            _submit(owner, sender, _update(source, sender), first, contents)
        case 3:
            sealed = sender.sealed.get(source.number() % 8)
            if sealed is not None:
                _submit(owner, sender, (sealed.header, sealed.payload), first, contents)
        case 4:
            owner.settle(owner.federation.join(sender.caller, source.take(16)))
        case 5:
            owner.start(sender, _clamped(source.number(8)))
        case 6:
            owner.settle(owner.federation.observe(sender.caller, _clamped(source.number(8)), owner.now))
        case 7:
            owner.settle(owner.federation.leave(sender.caller, _clamped(source.number(8)), owner.now))
        case 8:
            fates = ("skipped", "void", "held")
            reports = [
                (source.number() % 6, fates[source.number() % 3], source.take(32)) for _ in range(source.number() % 5)
            ]
            begin = source.number() % 6
            outcome = owner.federation.report(sender.caller, reports, range(begin, begin + source.number() % 6))
            owner.settle(outcome)
        case 9:
            owner.wait(source.number(2) / 100)
        case 10:
            first.clear()
            owner = owner.restart()
            for one in senders:
                owner.join(one, source.take(16))
    return owner


def _clamped(round_: int) -> int:
    """The services never let more through."""
    return min(round_, TERMS.final_version)


def _update(source: Bytes, sender: Sender) -> tuple[bytes, bytes]:
    """Returns header and payload: well formed with one or two fields changed, or any bytes at all."""
    how = source.number()
    payload = _HONEST[how & 3] if how & 4 else source.some()
    if how & 8:
        return source.take(192), payload
    changes: dict[str, Any] = {}
    if how & 16:
        changes["ledger_sequence"] = max(1, source.number(8))
    if how & 32:
        changes["ledger_previous_head"] = source.take(32)
    if how & 64:
        changes["payload_bytes"] = source.number(8)
    sealed = sender.seal(source.number() % 8, payload, **changes)
    head = bytearray(sealed.header)
    if how & 128:
        at = source.number() % len(head)
        head[at : at + 8] = source.take(8)[: len(head) - at]
    return bytes(head), sealed.payload


def _submit(
    owner: Owner,
    sender: Sender,
    update: tuple[bytes, bytes],
    first: dict[tuple[str, int, bytes], Answer],
    contents: dict[tuple[str, int, bytes], bytes],
) -> None:
    head, payload = update
    digest = wire_header.digest(head, payload)
    outcome = owner.settle(owner.federation.submit(sender.caller, head, digest, payload))
    _check_outcome(outcome)
    if len(head) != wire_header.HEADER_BYTES:
        return
    key = (sender.name, int.from_bytes(head[108:116], "little"), digest)
    contents[key] = payload
    if outcome.answer is Answer.DUPLICATE:
        assert first.get(key, outcome.first_answer) == outcome.first_answer, "a repeat got another answer"
    elif outcome.answer in (Answer.ACCEPTED, Answer.INVALID) and outcome.records:
        assert key not in first or first[key] == outcome.answer, "one update was decided twice"
        first[key] = outcome.answer


def _check_outcome(outcome: Outcome) -> None:
    assert outcome.answer in Answer
    assert outcome.answer in (Answer.ACCEPTED, Answer.DUPLICATE) or outcome.detail, "a refusal that says nothing"
    assert outcome.answer is not Answer.ACCEPTED or outcome.included_in > 0
    if outcome.answer is Answer.INVALID and outcome.finding is not None:
        assert content.FALSE_ALARM <= 1e-9


def _check_models(owner: Owner, contents: dict[tuple[str, int, bytes], bytes]) -> None:
    """Computes every model anew from the receipts that it names."""
    store = owner.store
    total = [0] * TERMS.parameters
    for version in sorted({receipt.included_in for receipt in store._receipts.values() if receipt.included_in}):
        for receipt in store._receipts.values():
            if receipt.included_in != version or receipt.digest is None:
                continue
            payload = contents[receipt.participant, receipt.round, receipt.digest]
            factor = TERMS.step_numerator(receipt.round)
            for at, element in enumerate(np.frombuffer(payload, "<i4").tolist()):
                total[at] -= factor * element
    array = store._checkpoint.array.tolist()
    assert [value % 2**64 for value in array] == [value % 2**64 for value in total], "the model is not the sum"


# Services


class EndedError(Exception):
    """A call was ended with a status."""

    def __init__(self, code: grpc.StatusCode, detail: str) -> None:
        super().__init__(f"{code.name}: {detail}")
        self.code = code


class FakeContext:
    """What the services use of a call's context, on a connection without TLS."""

    async def abort(self, code: grpc.StatusCode, details: str = "") -> None:
        """Ends the call."""
        raise EndedError(code, details)

    def peer_identities(self) -> None:
        """Nobody has a certificate here."""
        return

    def auth_context(self) -> dict[str, Any]:
        """Nobody has a certificate here."""
        return {}

    def peer(self) -> str:
        """Returns where the call comes from."""
        return "memory"


class InlineStore:
    """Stands for `Store`: commits at once, on the event loop."""

    def __init__(self, memory: MemoryStore) -> None:
        self._memory = memory

    def write(self, records: Iterable[Any]) -> "asyncio.Future[None]":
        """Writes."""
        self._memory.write(records)
        return _done(None)

    def checkpoint(self, frozen: Any) -> "asyncio.Future[Any]":
        """Publishes."""
        published = frozen.aggregate.publish()
        self._memory.checkpoint(published, frozen.previous, frozen.folded, frozen.participants, 0)
        return _done(published)


def _done(value: Any) -> "asyncio.Future[Any]":
    future = asyncio.get_running_loop().create_future()
    future.set_result(value)
    return future


class Quiet:
    """A log that nobody reads."""

    def info(self, *_: Any, **__: Any) -> None:
        """Says nothing."""

    warning = info


class Server:
    """The services of one federation, without gRPC."""

    def __init__(self, spool: Path) -> None:
        memory = MemoryStore(TERMS)
        now = asyncio.get_running_loop().time()
        federation = Federation(
            TERMS, DIGEST, memory.snapshot(TERMS), memory, now=now, content=ContentCheck(TERMS, "refuse")
        )
        publisher = Publisher(
            server_epoch=1, final_version=6, max_inline_model_bytes=2**16, max_chunk_bytes=2**16, heartbeat_seconds=5.0
        )
        gate = Gate()
        host = Host(federation, InlineStore(memory), publisher, Quiet(), keep_sealed=False)  # type: ignore[arg-type]
        limits = LimitsConfig(calls_per_second=1e9, upload_bytes_per_second=1e12)
        room = Spool(spool, 4 * 256, of_each=2, keep_seconds=60.0)
        membership = MembershipService(host, TERMS, publisher, gate)
        updates = UpdateService(host, TERMS, room, publisher, gate, Limiter(limits))
        status = StatusService(host, TERMS, DIGEST, publisher)
        terms = TermsService(TERMS.to_bytes(), DIGEST, publisher, gate)
        self.host = host
        self.unary: tuple[tuple[Any, Any, Any], ...] = (
            (membership.Join, membership_pb2.JoinRequest, membership_pb2.JoinResponse),
            (membership.Start, membership_pb2.StartRequest, membership_pb2.StartResponse),
            (membership.Observe, membership_pb2.ObserveRequest, membership_pb2.ObserveResponse),
            (membership.Leave, membership_pb2.LeaveRequest, membership_pb2.LeaveResponse),
            (
                membership.GetParticipation,
                membership_pb2.GetParticipationRequest,
                membership_pb2.GetParticipationResponse,
            ),
            (membership.ReportRounds, membership_pb2.ReportRoundsRequest, membership_pb2.ReportRoundsResponse),
            (updates.SubmitUpdate, updates_pb2.SubmitUpdateRequest, updates_pb2.SubmitUpdateResponse),
            (updates.GetUpload, updates_pb2.GetUploadRequest, updates_pb2.GetUploadResponse),
            (status.GetStatus, status_pb2.GetStatusRequest, status_pb2.GetStatusResponse),
            (terms.GetTerms, terms_pb2.GetTermsRequest, terms_pb2.GetTermsResponse),
        )
        self.upload = updates.UploadUpdate


def service(data: bytes) -> None:
    """One input: calls in order, each with a byte for the method, a byte of repairs, and the request's bytes."""
    folder = Path(tempfile.mkdtemp(prefix="hushgrad-fuzz-", dir="/dev/shm"))
    try:
        with asyncio.Runner() as runner:
            runner.run(_serve(data, folder))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


async def _serve(data: bytes, folder: Path) -> None:
    source, server, senders = Bytes(data), Server(folder), senders_of(TERMS)
    for sender in senders:
        sender.session = (await server.host.join(sender.caller, bytes(16))).session
        await server.host.start(sender.caller, 0)
    for _ in range(_MOST_STEPS):
        if source.is_empty:
            break
        await _call(source, server, senders[source.number() % 2])


async def _call(source: Bytes, server: Server, sender: Sender) -> None:
    which, repairs = source.number() % (len(server.unary) + 1), source.number()
    context: Any = FakeContext()
    try:
        if which == len(server.unary):
            answer = await server.upload(_pieces(source, sender, repairs), context)
            assert isinstance(answer, updates_pb2.UploadUpdateResponse)
            return
        method, kind, answer_kind = server.unary[which]
        try:
            request = kind.FromString(source.some())
        except DecodeError:
            return
        _repair(request, sender, repairs)
        answer = await method(request, context)
        assert isinstance(answer, answer_kind)
        answer.SerializeToString()
    except EndedError as error:
        if error.code not in _ACCEPTED_CODES:
            raise AssertionError(f"the contract has no such status for this call: {error}") from error


def _repair(request: Any, sender: Sender, repairs: int) -> None:
    """Makes right what no mutation would find: who calls, whose terms, which checksum."""
    if repairs & 1 and hasattr(request, "caller"):
        _caller(request.caller, sender.caller)
    if isinstance(request, updates_pb2.SubmitUpdateRequest):
        if repairs & 2:
            head, payload = _sealed(sender, repairs)
            request.header, request.payload = head, payload
        if repairs & 4:
            request.crc32c = google_crc32c.extend(google_crc32c.value(request.header), request.payload)


def _caller(message: common_pb2.Caller, caller: Caller) -> None:
    message.terms_digest, message.participant, message.session = (
        caller.terms_digest,
        caller.participant,
        caller.session,
    )


def _sealed(sender: Sender, repairs: int) -> tuple[bytes, bytes]:
    round_ = repairs >> 5
    sealed = sender.sealed.get(round_) or sender.seal(round_, _HONEST[round_ & 3])
    return sealed.header, sealed.payload


async def _pieces(source: Bytes, sender: Sender, repairs: int) -> AsyncIterator[updates_pb2.UploadUpdateRequest]:
    if repairs & 1:
        head, payload = _sealed(sender, repairs)
        start = updates_pb2.UploadStart(header=head, digest=wire_header.digest(head, payload))
        _caller(start.caller, sender.caller)
        start.offset = source.number()
        yield updates_pb2.UploadUpdateRequest(start=start)
        if repairs & 2:
            at = start.offset
            while at < len(payload):
                size = max(1, source.number() % 200)
                piece = payload[at : at + size]
                yield _chunk(at, piece)
                at += len(piece)
            return
    for _ in range(source.number() % 6):
        try:
            message = updates_pb2.UploadUpdateRequest.FromString(source.some())
        except DecodeError:
            return
        if repairs & 4 and message.HasField("chunk"):
            message.chunk.crc32c = google_crc32c.value(message.chunk.data)
        yield message


def _chunk(offset: int, data: bytes) -> updates_pb2.UploadUpdateRequest:
    chunk = updates_pb2.UploadChunk(offset=offset, data=data, crc32c=google_crc32c.value(data))
    return updates_pb2.UploadUpdateRequest(chunk=chunk)


TARGETS: dict[str, Callable[[bytes], None]] = {"decoder": decoder, "admission": admission, "service": service}


# Seeds


def seeds(name: str) -> list[bytes]:
    """Returns inputs to begin with: the golden messages, the header of the golden ledger, and some short runs."""
    golden = Path(__file__).resolve().parents[1] / "golden" / "wire"
    stored = {path.name.split(".")[0]: path.read_bytes() for path in sorted(golden.glob("*.bin"))}
    honest = Sender("client-1", TERMS).seal(0, _HONEST[0])
    if name == "decoder":
        names = [cls.DESCRIPTOR.name for cls in _MESSAGES]
        messages = [bytes([_choice(names.index(kind))]) + data for kind, data in stored.items() if kind in names]
        return [b"\0" + honest.header, b"\1" + TERMS.to_bytes(), *messages]
    if name == "admission":
        rounds = bytes([0]) + b"".join(
            bytes([0, who, 4 + who, round_]) for round_ in range(4) for who in (0, 1)
        )  # submit, of whom, honest payload, round
        return [rounds, bytes([1]) + rounds[1:], rounds + bytes([10, 0]) + bytes(32) + bytes([3, 0, 3, 3, 1, 3])]
    inputs = []
    for at, kind in enumerate(_REQUESTS):
        data = stored[kind]
        inputs.append(bytes([0, at, 1]) + len(data).to_bytes(2, "little") + data)
    whole = b"".join(bytes([who, 6, 7 + 32 * round_, 0, 0]) for round_ in range(4) for who in (0, 1))
    uploads = b"".join(bytes([who, 10, 3 + 32 * round_, 0, 100, 100, 100]) for round_ in range(4) for who in (0, 1))
    return [*inputs, whole, uploads, whole + uploads]


_REQUESTS = (
    "JoinRequest",
    "StartRequest",
    "ObserveRequest",
    "LeaveRequest",
    "GetParticipationRequest",
    "ReportRoundsRequest",
    "SubmitUpdateRequest",
    "GetUploadRequest",
    "GetStatusRequest",
    "GetTermsRequest",
)
"""In the order of `Server.unary`."""


def _choice(at: int) -> int:
    """Returns a byte above 1 that chooses this message."""
    return at if at > 1 else at + len(_MESSAGES)
