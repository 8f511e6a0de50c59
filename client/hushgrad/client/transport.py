"""The calls of the contract, one method each, over one gRPC channel. Protobuf begins and ends here.

Nothing is retried here. What a fault means is decided here once, as the comment in common.proto says: try again
(`RetryableError`), ask for something else (`GoneError`), or stop (`FatalError`).
"""

import hashlib
import math
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import google_crc32c
import grpc
from hushgrad.client.errors import ClientError
from hushgrad.client.messages import Answer, Fate, Participation, ServerState, Verdict
from hushgrad.client.outbox import SealedUpdate
from hushgrad.v1 import (
    common_pb2,
    enrollment_pb2,
    enrollment_pb2_grpc,
    membership_pb2,
    membership_pb2_grpc,
    models_pb2,
    models_pb2_grpc,
    status_pb2,
    status_pb2_grpc,
    terms_pb2,
    terms_pb2_grpc,
    updates_pb2,
    updates_pb2_grpc,
)
from hushgrad.wire import header, pieces
from hushgrad.wire import terms as wire_terms

if TYPE_CHECKING:
    from hushgrad.client.tls import Credentials
    from hushgrad.wire.tracing import Tracing

CHANNEL_OPTIONS = (
    ("grpc.enable_retries", 0),
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.min_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
)

# Plain text stays where it was sent to: a proxy named in the environment could be anywhere.
_NO_PROXY = ("grpc.enable_http_proxy", 0)

CALL_SECONDS = 10.0
SUBMIT_SECONDS = 30.0
REPORT_SECONDS = 5.0
_TRANSFER_SECONDS = 3600.0
_FIRST_HEARTBEAT_SECONDS = 10.0
_MISSED_HEARTBEATS = 3
_LOOK_SECONDS = 0.3
_MAX_RETRY_AFTER_SECONDS = 60.0
_ASK_WHY_SECONDS = 10.0

_RETRYABLE = {
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.RESOURCE_EXHAUSTED,  # sizes are checked before anything is sent, so it is never ours for ever
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.ABORTED,
    grpc.StatusCode.DATA_LOSS,
}

_FATES: dict[Fate, "membership_pb2.RoundReport.Fate"] = {
    "skipped": membership_pb2.RoundReport.FATE_SKIPPED,
    "void": membership_pb2.RoundReport.FATE_VOID,
    "held": membership_pb2.RoundReport.FATE_HELD,
}
_STATES: dict[int, Literal["unspecified", "observing", "active", "suspended", "left"]] = {
    membership_pb2.PARTICIPATION_STATE_UNSPECIFIED: "unspecified",
    membership_pb2.PARTICIPATION_STATE_OBSERVING: "observing",
    membership_pb2.PARTICIPATION_STATE_ACTIVE: "active",
    membership_pb2.PARTICIPATION_STATE_SUSPENDED: "suspended",
    membership_pb2.PARTICIPATION_STATE_LEFT: "left",
}
_KINDS = {"published": models_pb2.MODEL_KIND_PUBLISHED, "averaged": models_pb2.MODEL_KIND_AVERAGED}

_T = TypeVar("_T")


class FaultError(ClientError):
    """A call got no answer."""


class RetryableError(FaultError):
    """Try again with the same bytes after a while."""


class GoneError(FaultError):
    """The version or upload that was named is not kept any longer."""


class FatalError(FaultError):
    """Repeating will not help; a person must look."""

    exit_code = 5


@dataclass(frozen=True, slots=True)
class JoinAnswer:
    """JoinResponse in membership.proto."""

    verdict: Verdict
    session: int
    participation: Participation
    anchor_sequence: int
    anchor_head: bytes


@dataclass(frozen=True, slots=True)
class SubmitAnswer:
    """SubmitUpdateResponse in updates.proto."""

    verdict: Verdict
    first_answer: Answer
    included_in: int
    participation: Participation


@dataclass(frozen=True, slots=True)
class Published:
    """A version was published. `model` is empty when it must be fetched; else its checksum is right."""

    version: int
    total_bytes: int
    sha256: bytes
    model: bytes
    averaged_available: bool


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """Nothing new."""


@dataclass(frozen=True, slots=True)
class GoingAway:
    """The server stops for a while."""

    retry_after_seconds: float


@dataclass(frozen=True, slots=True)
class Ended:
    """The federation has ended."""

    final_version: int
    reason: str


News = Published | Heartbeat | GoingAway | Ended


class Transport:
    """A connection to one server. Its methods may be called from several threads.

    Args:
        address: host:port.
        participant: name of the caller.
        credentials: certificates; None: plain text.
        spans: makes a span of every update; None: nobody traces.
    """

    def __init__(
        self,
        address: str,
        participant: str,
        credentials: "Credentials | None" = None,
        spans: "Tracing | None" = None,
    ) -> None:
        self.address = address
        self._spans = spans
        self.participant = participant
        self._was_answered = False
        self._asked_why_at = -math.inf
        self.session = 0
        self._terms_digest = b""
        self._max_unary_bytes = wire_terms.MAX_UNARY_BYTES
        self._max_chunk_bytes = wire_terms.MIN_CHUNK_BYTES
        self._guard = threading.Lock()
        self._claim: membership_pb2.DeclaredClaim | None = None
        self._closing = threading.Event()
        self._waits = 0
        self._looked_at = -math.inf
        self._channels: list[grpc.Channel] = []
        self._connect(credentials)

    def _connect(self, credentials: "Credentials | None") -> None:
        """Opens a channel that later calls use; what is under way goes on where it is."""
        self._credentials = credentials
        self._channel = channel = (
            grpc.insecure_channel(self.address, options=(*CHANNEL_OPTIONS, _NO_PROXY))
            if credentials is None
            else credentials.channel(self.address, CHANNEL_OPTIONS)
        )
        self._channels.append(channel)
        self._terms = terms_pb2_grpc.TermsServiceStub(channel)
        self._membership = membership_pb2_grpc.MembershipServiceStub(channel)
        traced = channel
        if self._spans is not None:
            from hushgrad.client import tracing  # imported here: needed by few

            traced = tracing.channel(channel, self._spans)
        self._updates = updates_pb2_grpc.UpdateServiceStub(traced)
        self._upload_update = traced.stream_unary(
            "/hushgrad.v1.UpdateService/UploadUpdate",
            request_serializer=_serialized,
            response_deserializer=updates_pb2.UploadUpdateResponse.FromString,
        )
        self._models = models_pb2_grpc.ModelServiceStub(channel)
        self._enrollment = enrollment_pb2_grpc.EnrollmentServiceStub(channel)
        self._status = status_pb2_grpc.StatusServiceStub(channel)

    def close(self) -> None:
        """Ends all calls and waits under way."""
        self._closing.set()
        # gRPC's thread that looks after a channel's state writes a stack trace when the channel is closed under it.
        while self._waits or time.monotonic() < self._looked_at + _LOOK_SECONDS:
            time.sleep(0.01)
        for channel in self._channels:
            channel.close()
        if self._spans is not None:
            self._spans.close()

    def wait_for_connection(self, seconds: float) -> None:
        """Waits for so long; less when there is no connection and one comes about, or the transport is closed.

        A server that is back is found by gRPC's own tries, which are closer together than ours in a long outage.
        A fault of a connection that stands is waited for in full.
        """
        states: queue.SimpleQueue[grpc.ChannelConnectivity] = queue.SimpleQueue()
        note, channel = states.put, self._channel
        deadline = time.monotonic() + seconds
        with self._guard:
            if self._closing.is_set():
                return
            self._waits += 1
        try:
            channel.subscribe(note, try_to_connect=True)
            was_away = False
            while not self._closing.is_set() and (left := deadline - time.monotonic()) > 0:
                try:
                    state = states.get(timeout=min(left, 0.05))
                except queue.Empty:
                    continue
                if state is grpc.ChannelConnectivity.READY and was_away:
                    return
                was_away = was_away or state is not grpc.ChannelConnectivity.READY
        finally:
            channel.unsubscribe(note)
            with self._guard:
                self._looked_at = time.monotonic()
                self._waits -= 1

    def use_terms(self, terms_digest: bytes, limits: wire_terms.Limits) -> None:
        """Sets which federation all later calls are about."""
        self._terms_digest = terms_digest
        self._max_unary_bytes = limits.max_unary_bytes
        self._max_chunk_bytes = limits.max_chunk_bytes

    def get_terms(self) -> tuple[bytes, bytes]:
        """Returns the serialized terms and their digest, which has been checked."""
        with self._faults():
            response = self._terms.GetTerms(terms_pb2.GetTermsRequest(), timeout=CALL_SECONDS)
        if wire_terms.digest(response.terms) != response.terms_digest:
            raise FatalError(
                "the terms that the server sent do not have the digest that it named; update the older side"
            )
        return response.terms, response.terms_digest

    def join(self, join_id: bytes) -> JoinAnswer:
        """Opens a session, which later calls of this object name."""
        request = membership_pb2.JoinRequest(caller=self._caller(session=0), join_id=join_id)
        with self._faults():
            response = self._membership.Join(request, timeout=CALL_SECONDS)
        verdict = _verdict(response.verdict)
        if response.session:
            self.session = response.session
        return JoinAnswer(
            verdict,
            response.session,
            _participation(response.participation),
            response.ledger.sequence,
            response.ledger.head,
        )

    def declare(self, claim: Mapping[str, Any], *, planned_rounds: int, timing_covered: bool) -> None:
        """Lets `start` tell the server what this run promises its records, for people to see.

        Args:
            claim: as `accountant.Claim.to_dict` gives it: from configuration and terms alone, never from records.
            planned_rounds: how many rounds it covers.
            timing_covered: whether updates leave on a public clock.
        """
        self._claim = membership_pb2.DeclaredClaim(
            epsilon=claim["epsilon"],
            delta=claim["delta"],
            adjacency=claim["adjacency"],
            sampler=header.SAMPLER_VALUES[claim["sampling"]],
            unit=claim["unit"],
            method=claim["method"],
            method_version=claim["method_version"],
            planned_rounds=planned_rounds,
            timing_covered=timing_covered,
        )

    def report_evaluation(
        self, version: int, *, accuracy: float, averaged_accuracy: float | None, examples: int
    ) -> Verdict:
        """Reports how well a version does on public test data; shares are 0 to 1."""
        request = status_pb2.ReportEvaluationRequest(
            caller=self._caller(session=0),
            version=version,
            accuracy=accuracy,
            averaged_accuracy=averaged_accuracy,
            examples=examples,
        )
        with self._faults():
            return _verdict(self._status.ReportEvaluation(request, timeout=REPORT_SECONDS).verdict)

    def start(self, next_round: int) -> tuple[Verdict, Participation]:
        """Becomes active."""
        request = membership_pb2.StartRequest(caller=self._caller(), next_round=next_round, claim=self._claim)
        return self._member(self._membership.Start, request)

    def leave(self, exit_round: int) -> tuple[Verdict, Participation]:
        """Owes nothing from a round on."""
        request = membership_pb2.LeaveRequest(caller=self._caller(), exit_round=exit_round)
        return self._member(self._membership.Leave, request)

    def get_participation(self) -> tuple[Verdict, Participation]:
        """Asks how the server sees us."""
        request = membership_pb2.GetParticipationRequest(caller=self._caller())
        return self._member(self._membership.GetParticipation, request)

    def report_rounds(
        self, reports: list[tuple[int, Fate, bytes]], held_range: tuple[int, int] | None = None
    ) -> tuple[Verdict, Participation]:
        """Reports rounds as (round, fate, digest of a held one); `held_range` as in `events.Report`."""
        request = membership_pb2.ReportRoundsRequest(
            caller=self._caller(),
            reports=[
                membership_pb2.RoundReport(round=round_, fate=_FATES[fate], digest=digest)
                for round_, fate, digest in reports
            ],
        )
        if held_range is not None:
            request.held_from, request.held_below = held_range
        return self._member(self._membership.ReportRounds, request)

    def submit(self, update: SealedUpdate) -> SubmitAnswer:
        """Hands over one sealed update, in one message or, above the limit, in chunks from where it broke off."""
        if len(update.payload) > self._max_unary_bytes:
            return self._upload(update)
        request = updates_pb2.SubmitUpdateRequest(
            caller=self._caller(),
            header=update.header,
            payload=update.payload,
            crc32c=google_crc32c.extend(google_crc32c.value(update.header), update.payload),
        )
        with self._faults():
            response = self._updates.SubmitUpdate(request, timeout=SUBMIT_SECONDS)
        return _submit_answer(response)

    def _upload(self, update: SealedUpdate) -> SubmitAnswer:
        ask = updates_pb2.GetUploadRequest(caller=self._caller(), digest=update.digest)
        with self._faults():
            state = self._updates.GetUpload(ask, timeout=CALL_SECONDS)
        verdict = _verdict(state.verdict)
        if verdict.answer not in ("ACCEPTED", "DUPLICATE"):
            return SubmitAnswer(verdict, "UNSPECIFIED", 0, Participation("unspecified"))
        with self._faults():
            response = self._upload_update(self._upload_parts(update, state.received_bytes), timeout=_TRANSFER_SECONDS)
        return _submit_answer(response.result)

    def _upload_parts(self, update: SealedUpdate, offset: int) -> Iterator[updates_pb2.UploadUpdateRequest | bytes]:
        """Yields the messages of an upload; chunks as bytes, made without the copies that the library would make."""
        yield updates_pb2.UploadUpdateRequest(
            start=updates_pb2.UploadStart(
                caller=self._caller(), header=update.header, digest=update.digest, offset=offset
            )
        )
        for start in range(offset, len(update.payload), self._max_chunk_bytes):
            data = update.payload[start : start + self._max_chunk_bytes]
            yield pieces.upload_chunk(start, data, google_crc32c.value(data))

    def watch(self, after_version: int | None) -> Iterator[tuple[ServerState, News]]:
        """Yields news until the server ends the stream; raises RetryableError when it falls silent.

        Args:
            after_version: the newest version at hand; None: the newest one is sent at once.
        """
        request = models_pb2.WatchModelsRequest(caller=self._caller(), after_version=after_version)
        with self._faults():
            call = self._models.WatchModels(request)
            with _Watchdog(call.cancel) as watchdog:
                for message in call:
                    watchdog.hold()
                    if message.WhichOneof("event") == "heartbeat":
                        watchdog.expect(message.heartbeat.interval_milliseconds / 1000)
                    yield _server(message.server), _news(message)
                    watchdog.feed()

    def get_model(
        self,
        version: int,
        *,
        kind: Literal["published", "averaged"] = "published",
        held: bytearray | None = None,
        sha256: bytes | None = None,
    ) -> bytes:
        """Fetches one version, from where an earlier try broke off.

        Args:
            version: which.
            kind: the published array or the averaged one.
            held: what has arrived in earlier tries; grows as chunks arrive, emptied when the checksum is wrong.
            sha256: the checksum as it was announced; None: the one in the stream counts.

        Raises:
            RetryableError: call again with the same `held`.
            GoneError: this version is not kept any longer.
        """
        held = bytearray() if held is None else held
        request = models_pb2.GetModelRequest(
            caller=self._caller(), version=version, kind=_KINDS[kind], offset=len(held)
        )
        total: int | None = None
        with self._faults():
            for message in self._models.GetModel(request, timeout=_TRANSFER_SECONDS):
                total = message.total_bytes
                sha256 = sha256 or message.sha256
                data = message.data  # each access is a copy
                if message.offset != len(held) or google_crc32c.value(data) != message.crc32c:
                    raise RetryableError(f"a chunk of version {version} was damaged or out of place")
                held += data
        if total is None or len(held) < total:
            raise RetryableError(f"version {version} broke off after {len(held)} bytes")
        if hashlib.sha256(held).digest() != sha256:
            held.clear()
            raise RetryableError(f"version {version} arrived damaged")
        return bytes(held)

    def enroll(self, token: str, signing_request: bytes) -> bytes:
        """Trades a token for a certificate, DER."""
        request = enrollment_pb2.EnrollRequest(token=token, signing_request=signing_request)
        with self._faults():
            return self._enrollment.Enroll(request, timeout=CALL_SECONDS).certificate

    def renew(self, signing_request: bytes) -> bytes:
        """Returns a certificate, DER, that holds longer than the one of this connection."""
        with self._faults():
            return self._enrollment.Renew(
                enrollment_pb2.RenewRequest(signing_request=signing_request), timeout=CALL_SECONDS
            ).certificate

    @contextmanager
    def _faults(self) -> Iterator[None]:
        """Turns gRPC's errors into ours, and says why there is no connection where that can be known.

        Before the first answer such a reason is final: a person has mixed something up. Later it may pass.
        """
        used = self._credentials
        try:
            with _grpc_errors():
                yield
        except FatalError as error:
            if str(error).startswith("UNAUTHENTICATED") and self._has_renewed(used):
                raise RetryableError("the certificate was renewed; once more with the new one") from None
            raise
        except RetryableError as error:
            if self._closing.is_set() or not str(error).startswith("UNAVAILABLE"):
                raise
            lapse = "" if used is None else used.own.lapse(time.time())
            if lapse and not self._has_renewed(used):
                raise FatalError(f"{lapse}; ask the operator for a new bundle") from None
            why = self._why_refused()
            if not why:
                raise
            raise (RetryableError if self._was_answered else FatalError)(why) from None
        self._was_answered = True

    def _has_renewed(self, used: "Credentials | None") -> bool:
        """Says whether there is a newer certificate than the one that a call used; later calls use it then."""
        with self._guard:
            if self._credentials is not used:
                return True
            newer = None if used is None or self._closing.is_set() else used.newer()
            if newer is not None:
                self._connect(newer)
            return newer is not None

    def _why_refused(self) -> str:
        now = time.monotonic()
        # A server that has once answered in plain text does not speak TLS.
        if now - self._asked_why_at < _ASK_WHY_SECONDS or (self._credentials is None and self._was_answered):
            return ""
        self._asked_why_at = now
        from hushgrad.client import tls  # imported here: needed by nobody whose server answers

        return tls.why_refused(self.address, self._credentials)

    def _member(self, method: Callable[..., Any], request: object) -> tuple[Verdict, Participation]:
        with self._faults():
            response = method(request, timeout=CALL_SECONDS)
        return _verdict(response.verdict), _participation(response.participation)

    def _caller(self, session: int | None = None) -> common_pb2.Caller:
        return common_pb2.Caller(
            terms_digest=self._terms_digest,
            participant=self.participant,
            session=self.session if session is None else session,
        )


@contextmanager
def _grpc_errors() -> Iterator[None]:
    """Turns gRPC's errors into ours."""
    try:
        yield
    except grpc.RpcError as error:
        code = error.code() if isinstance(error, grpc.Call) else grpc.StatusCode.UNKNOWN
        details = error.details() if isinstance(error, grpc.Call) else str(error)
        text = f"{code.name}: {' '.join((details or '').split())}"
        if code is grpc.StatusCode.NOT_FOUND:
            raise GoneError(text) from None
        raise (RetryableError if code in _RETRYABLE else FatalError)(text) from None
    except ValueError as error:
        if "closed channel" in str(error).lower():
            raise RetryableError("the connection was closed") from None
        raise


class _Watchdog:
    """Cancels a stream that has been silent for three heartbeat intervals; held while its reader is busy."""

    def __init__(self, cancel: Callable[[], object]) -> None:
        self._interval_seconds = _FIRST_HEARTBEAT_SECONDS
        self._cancel = cancel
        self._changed = threading.Condition()
        self._fed = 0
        self._held = False
        self._over = False

    def __enter__(self) -> "_Watchdog":
        threading.Thread(target=self._run, name="watchdog", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._over = True
            self._changed.notify()
        self._cancel()

    def hold(self) -> None:
        """The reader has a message and may take its time."""
        self._held = True

    def expect(self, interval_seconds: float) -> None:
        """The other side has said how often it speaks. Call it while held."""
        if interval_seconds != self._interval_seconds:
            with self._changed:
                self._interval_seconds = interval_seconds
                self._changed.notify()  # the wait under way may be for a much longer one

    def feed(self) -> None:
        """The reader waits for the next message."""
        self._held = False
        self._fed += 1

    def _run(self) -> None:
        fed = -1
        with self._changed:
            while not self._over:
                if not self._held and fed == self._fed:
                    self._cancel()
                    return
                fed = self._fed
                self._changed.wait(_MISSED_HEARTBEATS * self._interval_seconds)


def _serialized(part: updates_pb2.UploadUpdateRequest | bytes) -> bytes:
    return part if isinstance(part, bytes) else part.SerializeToString()


def _answer(value: int) -> Answer:
    try:
        name = common_pb2.Answer.Name(value).removeprefix("ANSWER_")
    except ValueError:
        return "UNSPECIFIED"
    return name  # type: ignore[return-value]


def _server(message: common_pb2.ServerState) -> ServerState:
    return ServerState(message.server_epoch, message.retention_watermark, message.newest_version)


def _verdict(message: common_pb2.Verdict) -> Verdict:
    retry_after = min(message.retry_after_milliseconds / 1000, _MAX_RETRY_AFTER_SECONDS)
    return Verdict(_answer(message.answer), _server(message.server), message.detail, retry_after)


def _participation(message: membership_pb2.Participation) -> Participation:
    return Participation(
        _STATES.get(message.state, "unspecified"),
        message.entry_round,
        message.exit_round if message.HasField("exit_round") else None,
        tuple(message.wanted_rounds),
        message.evicted,
    )


def _submit_answer(message: updates_pb2.SubmitUpdateResponse) -> SubmitAnswer:
    return SubmitAnswer(
        _verdict(message.verdict),
        _answer(message.first_answer),
        message.included_in,
        _participation(message.participation),
    )


def _news(message: models_pb2.WatchModelsResponse) -> News:
    match message.WhichOneof("event"):
        case "published":
            published = message.published
            if published.model and hashlib.sha256(published.model).digest() != published.sha256:
                raise RetryableError(f"version {published.version} arrived damaged")
            return Published(
                published.version,
                published.total_bytes,
                published.sha256,
                published.model,
                published.averaged_available,
            )
        case "going_away":
            wait = min(message.going_away.retry_after_milliseconds / 1000, _MAX_RETRY_AFTER_SECONDS)
            return GoingAway(wait)
        case "run_ended":
            return Ended(message.run_ended.final_version, message.run_ended.reason)
    return Heartbeat()
