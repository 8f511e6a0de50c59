"""A server that does what a scenario says and writes down what it gets. One participant, everything in memory.

Without orders it is honest: it takes each update once, answers repeats as the contract says, and publishes a version
for every round that has come. It checks no content; judging what it wrote down is somebody else's work.
"""

import hashlib
import struct
import threading
import time
from collections.abc import Callable, Iterator
from concurrent import futures
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import google_crc32c
import grpc
import numpy as np
import numpy.typing as npt
from hushgrad.conformance import world
from hushgrad.conformance.world import Federation
from hushgrad.v1 import (
    common_pb2,
    membership_pb2,
    membership_pb2_grpc,
    models_pb2,
    models_pb2_grpc,
    terms_pb2_grpc,
    updates_pb2,
    updates_pb2_grpc,
)
from hushgrad.v1 import terms_pb2 as terms_messages
from hushgrad.wire import header as wire_header
from hushgrad.wire import terms as wire_terms

HEARTBEAT_SECONDS: Final = 0.5
ACCEPTED: Final = common_pb2.ANSWER_ACCEPTED

Reply = Any
"""A response message, a grpc.StatusCode to fail with, or None for the honest answer."""


@dataclass(frozen=True, slots=True)
class Submission:
    """One update as it arrived.

    Attributes:
        at: seconds of the monotonic clock.
        life: which process of the client sent it, counted from 1.
        caller: its Caller message.
        header: as sent, whatever its length.
        payload: as sent.
        crc_right: whether the checksum of the message was right; true for streams, whose chunks have their own.
        streamed: it came by UploadUpdate.
        newest: the newest version that the server had published.
    """

    at: float
    life: int
    caller: Any
    header: bytes
    payload: bytes
    crc_right: bool
    streamed: bool
    newest: int

    @property
    def round(self) -> int:
        """The round in the header; -1 when it has no room for one."""
        if len(self.header) != wire_header.HEADER_BYTES:
            return -1
        return int(struct.unpack_from("<Q", self.header, 108)[0])

    @property
    def digest(self) -> bytes:
        """SHA-256(header || payload)."""
        return wire_header.digest(self.header, self.payload)

    def update(self, parameters: int) -> npt.NDArray[np.int32] | None:
        """Returns the elements, shape (d,); None when their number is wrong."""
        if len(self.payload) != 4 * parameters:
            return None
        return np.frombuffer(self.payload, "<i4").astype(np.int32)


@dataclass(frozen=True, slots=True)
class Called:
    """A call other than a submission."""

    at: float
    life: int
    method: str
    request: Any


class Server(
    terms_pb2_grpc.TermsServiceServicer,
    membership_pb2_grpc.MembershipServiceServicer,
    updates_pb2_grpc.UpdateServiceServicer,
    models_pb2_grpc.ModelServiceServicer,
):
    """One scripted federation.

    Attributes:
        submissions: every update that arrived, in order.
        calls: every other call, in order.
        on_submit: orders for updates: gets the submission and returns a Reply.
        on_call: orders for other calls, by method name: gets the request and returns a Reply.
        publishing: publish a version when its round has come.
        model_of: the model of a version.
        life: number of the client process that is running; set by whoever starts it.
        wanted: rounds named in every participation.
        watermark: None: the newest version.
        epoch: the server_epoch.
        extra_at: when `send_extra` was called last.
    """

    def __init__(self, federation: Federation, model_of: Callable[[int], npt.NDArray[np.float32]]) -> None:
        self.federation = federation
        self.terms_bytes = federation.terms.to_bytes()
        self.digest = wire_terms.digest(self.terms_bytes)
        self.model_of = model_of
        self.changed = threading.Condition(threading.RLock())
        self.submissions: list[Submission] = []
        self.calls: list[Called] = []
        self.on_submit: Callable[[Submission], Reply] = lambda submission: None
        self.on_call: dict[str, Callable[[Any], Reply]] = {}
        self.publishing = True
        self.newest = 0
        self.ended = False
        self.life = 1
        self.wanted: list[int] = []
        self.watermark: int | None = None
        self.entry_round = 0
        self.anchor: tuple[int, bytes] = (0, b"")
        self.state = membership_pb2.PARTICIPATION_STATE_OBSERVING
        self.sessions = 0
        self.first: dict[int, tuple[bytes, Any]] = {}
        self.extra: list[Any] = []
        self.extra_at = 0.0
        self.epoch = 1
        self._watch_number = self._muted_up_to = 0
        self.watches = 0
        self._grpc: grpc.Server | None = None
        self._generation = 0
        self.port = 0

    # What scenarios do and ask.

    @contextmanager
    def serving(self) -> Iterator[str]:
        """Serves on a free port of 127.0.0.1; yields the address."""
        self.open()
        try:
            yield f"127.0.0.1:{self.port}"
        finally:
            self.close()

    def open(self) -> None:
        """Begins to serve; after `close`, on the same port as before."""
        server = grpc.server(
            futures.ThreadPoolExecutor(24), options=[("grpc.so_reuseport", 0), ("grpc.max_receive_message_length", -1)]
        )
        terms_pb2_grpc.add_TermsServiceServicer_to_server(self, server)
        membership_pb2_grpc.add_MembershipServiceServicer_to_server(self, server)
        updates_pb2_grpc.add_UpdateServiceServicer_to_server(self, server)
        models_pb2_grpc.add_ModelServiceServicer_to_server(self, server)
        deadline = time.monotonic() + 10
        while True:
            try:
                bound = server.add_insecure_port(f"127.0.0.1:{self.port}")
            except RuntimeError:
                bound = 0
            if bound or time.monotonic() > deadline:
                break
            time.sleep(0.05)
        if not bound:
            raise OSError(f"port {self.port} of 127.0.0.1 cannot be opened again")
        self.port = bound
        server.start()
        self._grpc = server

    def close(self) -> None:
        """Stops as a killed server does: every open call breaks off."""
        with self.changed:
            self._generation += 1
            self.changed.notify_all()
        if self._grpc is not None:
            self._grpc.stop(0).wait(5)
            self._grpc = None

    def settle(self) -> None:
        """Publishes from now on what is due."""
        self.publishing = True
        self.advance()

    def publish(self, version: int) -> None:
        """Makes a version the newest one; watchers get it."""
        with self.changed:
            self.newest = max(self.newest, version)
            self.changed.notify_all()

    def send_extra(self, *messages: Any) -> None:
        """Sends these messages in every open watch, as they are."""
        with self.changed:
            self.extra += messages
            self.extra_at = time.monotonic()
            self.changed.notify_all()

    def mute(self) -> None:
        """Says nothing any more in the watches that are open; later ones are served."""
        with self.changed:
            self._muted_up_to = self._watch_number

    def restore(self, *, version: int, epoch: int) -> None:
        """Goes back to what a backup of a version holds: it knows the rounds below it, and no session."""
        with self.changed:
            self.newest, self.epoch = version, epoch
            kept = [one for one in self.submissions if one.round < version]
            self.first = {round_: known for round_, known in self.first.items() if round_ < version}
            self.anchor = (0, b"")
            for one in kept:
                found = wire_header.unpack(one.header)
                self.anchor = max(
                    self.anchor,
                    (found.ledger_sequence, wire_header.next_head(found.ledger_previous_head, one.digest)),
                )
            self.sessions += 1000

    def end(self) -> None:
        """Ends the federation."""
        with self.changed:
            self.ended = True
            self.changed.notify_all()

    def wait_for(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Waits until a condition over what was written down holds; returns whether it does."""
        with self.changed:
            return self.changed.wait_for(condition, seconds)

    def speaks(self) -> bool:
        """Says whether the running process of the client has made a call."""
        with self.changed:
            return any(call.life == self.life for call in self.calls)

    def rounds(self) -> list[int]:
        """Returns the rounds of all submissions, in order of arrival."""
        with self.changed:
            return [submission.round for submission in self.submissions]

    def of_round(self, round_: int) -> list[Submission]:
        """Returns every submission of a round, in order of arrival."""
        with self.changed:
            return [submission for submission in self.submissions if submission.round == round_]

    def called(self, method: str) -> list[Called]:
        """Returns every call of a method, in order."""
        with self.changed:
            return [call for call in self.calls if call.method == method]

    def answer(self, word: Any, **fields: Any) -> Any:
        """Returns a submit answer."""
        included_in = fields.pop("included_in", 0)
        first_answer = fields.pop("first_answer", 0)
        return updates_pb2.SubmitUpdateResponse(
            verdict=self.verdict(word, **fields),
            first_answer=first_answer,
            included_in=included_in,
            participation=self.participation(),
        )

    def verdict(self, word: Any = ACCEPTED, **fields: Any) -> Any:
        """Returns a verdict with the server's present state."""
        return common_pb2.Verdict(answer=word, server=self.server_state(), **fields)

    def server_state(self) -> Any:
        """Returns how far the server's memory reaches."""
        with self.changed:
            watermark = self.newest if self.watermark is None else min(self.watermark, self.newest)
            return common_pb2.ServerState(
                server_epoch=self.epoch, retention_watermark=watermark, newest_version=self.newest
            )

    def participation(self) -> Any:
        """Returns how the server sees its participant."""
        return membership_pb2.Participation(
            state=self.state, entry_round=self.entry_round, wanted_rounds=sorted(self.wanted)
        )

    def published(self, version: int) -> Any:
        """Returns the news of a version."""
        model = world.published(self.model_of(version))
        inline = len(model) <= self.federation.terms.limits.max_inline_model_bytes
        return models_pb2.WatchModelsResponse(
            server=self.server_state(),
            published=models_pb2.Published(
                version=version,
                total_bytes=len(model),
                sha256=hashlib.sha256(model).digest(),
                model=model if inline else b"",
            ),
        )

    def take(self, submission: Submission) -> Any:
        """Answers an update as an honest server does."""
        with self.changed:
            round_, digest = submission.round, submission.digest
            if round_ in self.wanted:
                self.wanted.remove(round_)
            if round_ in self.first:
                known, word = self.first[round_]
                if known != digest:
                    return self.answer(common_pb2.ANSWER_CONFLICT, detail=f"other bytes for round {round_}")
                return self.answer(
                    common_pb2.ANSWER_DUPLICATE, first_answer=word, included_in=self._included_in(round_)
                )
            if self.ended:
                return self.answer(common_pb2.ANSWER_RUN_ENDED)
            self.remember(submission, ACCEPTED)
            return self.answer(ACCEPTED, included_in=self._included_in(round_))

    def remember(self, submission: Submission, word: Any) -> None:
        """Keeps the first answer of an update and its place in the ledger; publishes what is due."""
        with self.changed:
            self.first[submission.round] = (submission.digest, word)
            self.advance()
            try:
                found = wire_header.unpack(submission.header)
            except ValueError:
                return
            head = wire_header.next_head(found.ledger_previous_head, submission.digest)
            self.anchor = max(self.anchor, (found.ledger_sequence, head))

    def advance(self) -> None:
        """Publishes the versions whose rounds have all come, unless `publishing` is off."""
        with self.changed:
            while self.publishing and self.newest in self.first and self.newest < self.federation.terms.final_version:
                self.newest += 1
            self.changed.notify_all()

    def _included_in(self, round_: int) -> int:
        return min(round_ + 1, self.federation.terms.final_version)

    # Services.

    def GetTerms(self, request: Any, context: Any) -> Any:  # noqa: N802
        return self._call(
            "GetTerms",
            request,
            context,
            lambda: terms_messages.GetTermsResponse(
                server=self.server_state(), terms=self.terms_bytes, terms_digest=self.digest
            ),
        )

    def Join(self, request: Any, context: Any) -> Any:  # noqa: N802
        def honest() -> Any:
            self.sessions += 1
            return membership_pb2.JoinResponse(
                verdict=self.verdict(common_pb2.ANSWER_RUN_ENDED if self.ended else ACCEPTED),
                session=self.sessions,
                participation=self.participation(),
                ledger=common_pb2.LedgerPosition(sequence=self.anchor[0], head=self.anchor[1]),
            )

        return self._call("Join", request, context, honest)

    def Start(self, request: Any, context: Any) -> Any:  # noqa: N802
        def honest() -> Any:
            if self.state != membership_pb2.PARTICIPATION_STATE_ACTIVE:
                self.state = membership_pb2.PARTICIPATION_STATE_ACTIVE
                later = self.newest + 1 if self.newest else 0
                self.entry_round = max(request.next_round, later)
            return membership_pb2.StartResponse(verdict=self.verdict(), participation=self.participation())

        return self._call("Start", request, context, honest)

    def Observe(self, request: Any, context: Any) -> Any:  # noqa: N802
        def honest() -> Any:
            self.state = membership_pb2.PARTICIPATION_STATE_OBSERVING
            return membership_pb2.ObserveResponse(verdict=self.verdict(), participation=self.participation())

        return self._call("Observe", request, context, honest)

    def Leave(self, request: Any, context: Any) -> Any:  # noqa: N802
        def honest() -> Any:
            self.state = membership_pb2.PARTICIPATION_STATE_LEFT
            return membership_pb2.LeaveResponse(verdict=self.verdict(), participation=self.participation())

        return self._call("Leave", request, context, honest)

    def GetParticipation(self, request: Any, context: Any) -> Any:  # noqa: N802
        return self._call(
            "GetParticipation",
            request,
            context,
            lambda: membership_pb2.GetParticipationResponse(verdict=self.verdict(), participation=self.participation()),
        )

    def ReportRounds(self, request: Any, context: Any) -> Any:  # noqa: N802
        def honest() -> Any:
            for report in request.reports:
                if report.fate == membership_pb2.RoundReport.FATE_VOID and report.round in self.wanted:
                    self.wanted.remove(report.round)
                is_held = report.fate == membership_pb2.RoundReport.FATE_HELD
                if is_held and report.round not in self.first and report.round not in self.wanted:
                    self.wanted.append(report.round)
            return membership_pb2.ReportRoundsResponse(verdict=self.verdict(), participation=self.participation())

        return self._call("ReportRounds", request, context, honest)

    def SubmitUpdate(self, request: Any, context: Any) -> Any:  # noqa: N802
        right = google_crc32c.extend(google_crc32c.value(request.header), request.payload) == request.crc32c
        return self._submit(request.caller, request.header, request.payload, right, False, context)

    def GetUpload(self, request: Any, context: Any) -> Any:  # noqa: N802
        return self._call("GetUpload", request, context, lambda: updates_pb2.GetUploadResponse(verdict=self.verdict()))

    def UploadUpdate(self, request_iterator: Any, context: Any) -> Any:  # noqa: N802
        start = next(request_iterator).start
        payload = bytearray()
        for message in request_iterator:
            if message.chunk.offset != len(payload) or google_crc32c.value(message.chunk.data) != message.chunk.crc32c:
                context.abort(grpc.StatusCode.DATA_LOSS, "a chunk with a wrong offset or checksum")
            payload += message.chunk.data
        result = self._submit(start.caller, start.header, bytes(payload), True, True, context)
        return updates_pb2.UploadUpdateResponse(result=result)

    def WatchModels(self, request: Any, context: Any) -> Any:  # noqa: N802
        with self.changed:
            self._note("WatchModels", request)
            self.watches += 1
            self._watch_number += 1
            number = self._watch_number
            generation, extra = self._generation, len(self.extra)
            sent = request.after_version if request.HasField("after_version") else -1
        reply = self.on_call.get("WatchModels", lambda request: None)(request)
        if isinstance(reply, grpc.StatusCode):
            context.abort(reply, "as the script says")
        try:
            while context.is_active() and generation == self._generation:
                with self.changed:
                    messages: list[Any] = []
                    if self.newest > sent:
                        messages.append(self.published(self.newest))
                        sent = self.newest
                    messages += self.extra[extra:]
                    extra = len(self.extra)
                    over = self.ended
                    if over:
                        messages.append(
                            models_pb2.WatchModelsResponse(
                                server=self.server_state(), run_ended=models_pb2.RunEnded(final_version=self.newest)
                            )
                        )
                    if not messages:
                        messages.append(
                            models_pb2.WatchModelsResponse(
                                server=self.server_state(),
                                heartbeat=models_pb2.Heartbeat(interval_milliseconds=int(1000 * HEARTBEAT_SECONDS)),
                            )
                        )
                if number <= self._muted_up_to:
                    messages, over = messages[:1], False
                else:
                    yield from messages
                if over or messages[-1].WhichOneof("event") == "going_away":
                    return
                with self.changed:
                    self.changed.wait_for(
                        lambda: (
                            self.newest > sent  # noqa: B023
                            or len(self.extra) > extra  # noqa: B023
                            or self.ended
                            or generation != self._generation
                        ),
                        HEARTBEAT_SECONDS,
                    )
        finally:
            with self.changed:
                self.watches -= 1

    def GetModel(self, request: Any, context: Any) -> Any:  # noqa: N802
        with self.changed:
            self._note("GetModel", request)
        model = world.published(self.model_of(request.version))
        size = self.federation.terms.limits.max_chunk_bytes
        for offset in range(request.offset, len(model), size):
            data = model[offset : offset + size]
            yield models_pb2.GetModelResponse(
                server=self.server_state(),
                version=request.version,
                total_bytes=len(model),
                sha256=hashlib.sha256(model).digest(),
                offset=offset,
                data=data,
                crc32c=google_crc32c.value(data),
            )

    def _call(self, method: str, request: Any, context: Any, honest: Callable[[], Any]) -> Any:
        with self.changed:
            self._note(method, request)
        reply = self.on_call.get(method, lambda request: None)(request)
        if isinstance(reply, grpc.StatusCode):
            context.abort(reply, "as the script says")
        if reply is not None:
            return reply
        with self.changed:
            answer = honest()
            self.changed.notify_all()
            return answer

    def _submit(self, caller: Any, head: bytes, payload: bytes, right: bool, streamed: bool, context: Any) -> Any:
        with self.changed:
            submission = Submission(time.monotonic(), self.life, caller, head, payload, right, streamed, self.newest)
            self.submissions.append(submission)
            self.changed.notify_all()
        reply = self.on_submit(submission)
        if isinstance(reply, grpc.StatusCode):
            context.abort(reply, "as the script says")
        return reply if reply is not None else self.take(submission)

    def _note(self, method: str, request: Any) -> None:
        self.calls.append(Called(time.monotonic(), self.life, method, request))
        self.changed.notify_all()
