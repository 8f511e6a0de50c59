"""A small honest server for tests of the client: one lock, everything in memory, faults on request.

It aggregates as the contract says, so that a run against it ends; what it lacks is durability, timers and admission.
"""

import hashlib
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent import futures
from contextlib import contextmanager
from typing import Any, Literal

import google_crc32c
import grpc
import numpy as np
from hushgrad.v1 import (
    common_pb2,
    membership_pb2,
    membership_pb2_grpc,
    models_pb2,
    models_pb2_grpc,
    terms_pb2,
    terms_pb2_grpc,
    updates_pb2,
    updates_pb2_grpc,
)
from hushgrad.wire import grid, header
from hushgrad.wire import terms as wire_terms
from hushgrad.wire.terms import Terms

HEARTBEAT_SECONDS = 0.2
Fault = grpc.StatusCode | Callable[[Any], Any] | Literal["answer lost"]
"""A status to abort with, what makes an answer out of the honest one, or an answer that gets lost on its way."""


class FakeServer(
    terms_pb2_grpc.TermsServiceServicer,
    membership_pb2_grpc.MembershipServiceServicer,
    updates_pb2_grpc.UpdateServiceServicer,
    models_pb2_grpc.ModelServiceServicer,
):
    """One federation. `faults[method]` lists what happens to the next calls of a method, None for nothing.

    Attributes:
        seen: (method, request) of every call, in order.
        receipts: digest and included_in by (participant, round).
    """

    def __init__(self, terms: Terms) -> None:
        self.terms = terms
        self.terms_bytes = terms.to_bytes()
        self.digest = wire_terms.digest(self.terms_bytes)
        self.faults: dict[str, list[Fault | None]] = defaultdict(list)
        self.seen: list[tuple[str, Any]] = []
        self.receipts: dict[tuple[str, int], tuple[bytes, int]] = {}
        self.headers: list[bytes] = []
        self.anchors: dict[str, tuple[int, bytes]] = {}
        self.states: dict[str, int] = {}
        self.sessions: dict[str, int] = {}
        self.wanted: dict[str, list[int]] = defaultdict(list)
        self.uploads: dict[bytes, bytearray] = {}
        self.epoch = 1
        self.hold_versions = False
        self.going_away = False
        self.array = np.zeros(terms.parameters, np.int64)
        self.versions = [self._publish()]
        self.changed = threading.Condition()

    # What the tests look at and do.

    @contextmanager
    def serving(self, *others: Callable[[Any], None]) -> Iterator[str]:
        """Serves on a free port, other services too where a test adds them; yields its address."""
        server = grpc.server(futures.ThreadPoolExecutor(16), options=[("grpc.so_reuseport", 0)])
        terms_pb2_grpc.add_TermsServiceServicer_to_server(self, server)
        membership_pb2_grpc.add_MembershipServiceServicer_to_server(self, server)
        updates_pb2_grpc.add_UpdateServiceServicer_to_server(self, server)
        models_pb2_grpc.add_ModelServiceServicer_to_server(self, server)
        for add in others:
            add(server)
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        try:
            yield f"127.0.0.1:{port}"
        finally:
            server.stop(0).wait()

    def calls(self, method: str) -> list[Any]:
        """Returns the requests that a method has had."""
        return [request for name, request in self.seen if name == method]

    def release(self) -> None:
        """Publishes what was held back."""
        with self.changed:
            self.hold_versions = False
            self._advance()

    # Services.

    def GetTerms(self, request: Any, context: Any) -> Any:  # noqa: N802
        return self._answer(
            "GetTerms",
            request,
            context,
            lambda: terms_pb2.GetTermsResponse(server=self._server(), terms=self.terms_bytes, terms_digest=self.digest),
        )

    def Join(self, request: Any, context: Any) -> Any:  # noqa: N802
        def honest() -> Any:
            name = request.caller.participant
            self.sessions[name] = self.sessions.get(name, 0) + 1
            self.states.setdefault(name, membership_pb2.PARTICIPATION_STATE_OBSERVING)
            sequence, head = self.anchors.get(name, (0, b""))
            word = common_pb2.ANSWER_RUN_ENDED if self._ended() else common_pb2.ANSWER_ACCEPTED
            return membership_pb2.JoinResponse(
                verdict=self._verdict(word),
                session=self.sessions[name],
                participation=self._participation(name),
                ledger=common_pb2.LedgerPosition(sequence=sequence, head=head),
            )

        return self._answer("Join", request, context, honest)

    def Start(self, request: Any, context: Any) -> Any:  # noqa: N802
        def honest() -> Any:
            name = request.caller.participant
            self.states[name] = membership_pb2.PARTICIPATION_STATE_ACTIVE
            return membership_pb2.StartResponse(verdict=self._verdict(), participation=self._participation(name))

        return self._answer("Start", request, context, honest)

    def Leave(self, request: Any, context: Any) -> Any:  # noqa: N802
        def honest() -> Any:
            name = request.caller.participant
            self.states[name] = membership_pb2.PARTICIPATION_STATE_LEFT
            return membership_pb2.LeaveResponse(verdict=self._verdict(), participation=self._participation(name))

        return self._answer("Leave", request, context, honest)

    def GetParticipation(self, request: Any, context: Any) -> Any:  # noqa: N802
        return self._answer(
            "GetParticipation",
            request,
            context,
            lambda: membership_pb2.GetParticipationResponse(
                verdict=self._verdict(), participation=self._participation(request.caller.participant)
            ),
        )

    def ReportRounds(self, request: Any, context: Any) -> Any:  # noqa: N802
        def honest() -> Any:
            name = request.caller.participant
            for report in request.reports:
                if report.fate != membership_pb2.RoundReport.FATE_HELD:
                    self.receipts.setdefault((name, report.round), (b"", len(self.versions)))
                    self.wanted[name] = [round_ for round_ in self.wanted[name] if round_ != report.round]
            self._advance()
            return membership_pb2.ReportRoundsResponse(verdict=self._verdict(), participation=self._participation(name))

        return self._answer("ReportRounds", request, context, honest)

    def SubmitUpdate(self, request: Any, context: Any) -> Any:  # noqa: N802
        return self._answer("SubmitUpdate", request, context, lambda: self._take(request.header, request.payload))

    def GetUpload(self, request: Any, context: Any) -> Any:  # noqa: N802
        return self._answer(
            "GetUpload",
            request,
            context,
            lambda: updates_pb2.GetUploadResponse(
                verdict=self._verdict(), received_bytes=len(self.uploads.get(request.digest, b""))
            ),
        )

    def UploadUpdate(self, request_iterator: Any, context: Any) -> Any:  # noqa: N802
        start = next(request_iterator).start
        self.seen.append(("UploadUpdate", start))
        held = self.uploads.setdefault(start.digest, bytearray())
        assert start.offset == len(held)
        for message in request_iterator:
            fault = self._fault("UploadChunk")
            if isinstance(fault, grpc.StatusCode):
                context.abort(fault, "a fault that the test asked for")
            assert message.chunk.offset == len(held)
            assert google_crc32c.value(message.chunk.data) == message.chunk.crc32c
            held += message.chunk.data
        with self.changed:
            return updates_pb2.UploadUpdateResponse(result=self._take(start.header, bytes(held)))

    def WatchModels(self, request: Any, context: Any) -> Any:  # noqa: N802
        self.seen.append(("WatchModels", request))
        fault = self._fault("WatchModels")
        if isinstance(fault, grpc.StatusCode):
            context.abort(fault, "a fault that the test asked for")
        sent = request.after_version if request.HasField("after_version") else -1
        while context.is_active():
            with self.changed:
                newest = len(self.versions) - 1
                message = models_pb2.WatchModelsResponse(server=self._server())
                if newest > sent:
                    model = self.versions[newest]
                    inline = len(model) <= self.terms.limits.max_inline_model_bytes
                    message.published.CopyFrom(
                        models_pb2.Published(
                            version=newest,
                            total_bytes=len(model),
                            sha256=hashlib.sha256(model).digest(),
                            model=model if inline else b"",
                            averaged_available=newest > 1,
                        )
                    )
                    sent = newest
                elif self._ended():
                    message.run_ended.final_version = self.terms.final_version
                elif self.going_away:
                    self.going_away = False
                    message.going_away.retry_after_milliseconds = 10
                else:
                    message.heartbeat.interval_milliseconds = int(1000 * HEARTBEAT_SECONDS)
            kind = message.WhichOneof("event")
            fault = self._fault("WatchMessage")
            if isinstance(fault, grpc.StatusCode):
                context.abort(fault, "a fault that the test asked for")
            yield fault(message) if callable(fault) else message
            if kind in ("run_ended", "going_away"):
                return
            self._wait_for_news(sent)

    def GetModel(self, request: Any, context: Any) -> Any:  # noqa: N802
        self.seen.append(("GetModel", request))
        if request.version >= len(self.versions):
            context.abort(grpc.StatusCode.NOT_FOUND, "not kept")
        model = self.versions[request.version]
        size = self.terms.limits.max_chunk_bytes
        for offset in range(request.offset, len(model), size):
            fault = self._fault("GetModel")
            if isinstance(fault, grpc.StatusCode):
                context.abort(fault, "a fault that the test asked for")
            data = model[offset : offset + size]
            message = models_pb2.GetModelResponse(
                server=self._server(),
                version=request.version,
                total_bytes=len(model),
                sha256=hashlib.sha256(model).digest(),
                offset=offset,
                data=data,
                crc32c=google_crc32c.value(data),
            )
            yield fault(message) if callable(fault) else message

    # What it knows.

    def _answer(self, method: str, request: Any, context: Any, honest: Callable[[], Any]) -> Any:
        with self.changed:
            self.seen.append((method, request))
            fault = self._fault(method)
            if isinstance(fault, grpc.StatusCode):
                context.abort(fault, "a fault that the test asked for")
            answer = honest()
            if fault == "answer lost":
                context.abort(grpc.StatusCode.UNAVAILABLE, "the answer was lost")
            return fault(answer) if callable(fault) else answer

    def _fault(self, method: str) -> Fault | None:
        return self.faults[method].pop(0) if self.faults[method] else None

    def _wait_for_news(self, sent: int) -> None:
        with self.changed:
            self.changed.wait_for(
                lambda: len(self.versions) - 1 > sent or self._ended() or self.going_away, HEARTBEAT_SECONDS
            )

    def _take(self, head: bytes, payload: bytes) -> Any:
        found = header.unpack(head)
        digest = header.digest(head, payload)
        key = (found.participant, found.round)
        wanted = self.wanted[found.participant]
        if found.round in wanted:
            wanted.remove(found.round)
            self._advance()
        if key in self.receipts:
            same = self.receipts[key][0] == digest
            word = common_pb2.ANSWER_DUPLICATE if same else common_pb2.ANSWER_CONFLICT
        elif self._ended():
            word = common_pb2.ANSWER_RUN_ENDED
        else:
            word = common_pb2.ANSWER_ACCEPTED
            self.headers.append(head)
            self.receipts[key] = (digest, len(self.versions))
            self.array -= self.terms.step_numerator(found.round) * np.frombuffer(payload, "<i4").astype(np.int64)
            anchor = (found.ledger_sequence, header.next_head(found.ledger_previous_head, digest))
            self.anchors[found.participant] = max(anchor, self.anchors.get(found.participant, (0, b"")))
            self._advance()
        accepted = word in (common_pb2.ANSWER_ACCEPTED, common_pb2.ANSWER_DUPLICATE)
        return updates_pb2.SubmitUpdateResponse(
            verdict=self._verdict(word),
            first_answer=common_pb2.ANSWER_ACCEPTED if word == common_pb2.ANSWER_DUPLICATE else 0,
            included_in=self.receipts[key][1] if accepted else 0,
            participation=self._participation(found.participant),
        )

    def _advance(self) -> None:
        names = self.terms.participants
        while not self.hold_versions and not self._ended():
            owed = len(self.versions) - 1
            if any((name, owed) not in self.receipts or owed in self.wanted[name] for name in names):
                break
            self.versions.append(self._publish())
        self.changed.notify_all()

    def _publish(self) -> bytes:
        terms = self.terms
        model = grid.published_model(self.array, grid_exponent=terms.grid_exponent, step_exponent=terms.step_exponent)
        return model.astype("<f4").tobytes()

    def _ended(self) -> bool:
        return len(self.versions) > self.terms.final_version

    def _server(self) -> Any:
        newest = len(self.versions) - 1
        return common_pb2.ServerState(server_epoch=self.epoch, retention_watermark=newest, newest_version=newest)

    def _verdict(self, word: Any = common_pb2.ANSWER_ACCEPTED) -> Any:
        return common_pb2.Verdict(answer=word, server=self._server())

    def _participation(self, name: str) -> Any:
        return membership_pb2.Participation(
            state=self.states.get(name, membership_pb2.PARTICIPATION_STATE_OBSERVING),
            entry_round=0,
            wanted_rounds=self.wanted[name],
        )
