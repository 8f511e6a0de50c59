"""Spans of updates: a server's is its sender's child, nothing private is in them, and nobody has to know of them."""

import sys
import time
from collections.abc import Iterator
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from hushgrad.client import tracing as client_tracing
from hushgrad.client.errors import InputError
from hushgrad.client.outbox import SealedUpdate
from hushgrad.client.transport import RetryableError, Transport
from hushgrad.v1 import common_pb2
from hushgrad.wire import header, tracing
from hushgrad.wire.tracing import Tracing
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from tests.support import client_world
from tests.support.client_world import PARTICIPANT
from tests.support.fake_server import FakeServer
from tests.support.federations import Sender, make_terms, senders_of
from tests.support.servers import Client, ServerProcess, configure, make_state

TERMS = make_terms(parameters=20_000, participants=2, final_version=4, window=4, max_unary_bytes=1000)
SMALL = make_terms(participants=2, final_version=4, window=4)


class Collector(trace_service_pb2_grpc.TraceServiceServicer):
    """What a collector of OpenTelemetry is to those who send to it."""

    def __init__(self) -> None:
        self.spans: list[Any] = []
        self.services: set[str] = set()

    def Export(self, request: Any, context: Any) -> Any:  # noqa: N802
        for resource in request.resource_spans:
            attributes = {one.key: one.value.string_value for one in resource.resource.attributes}
            self.services.add(attributes["service.name"])
            for scope in resource.scope_spans:
                self.spans += scope.spans
        return trace_service_pb2.ExportTraceServiceResponse()


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    found = Collector()
    server = grpc.server(futures.ThreadPoolExecutor(4))
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(found, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{port}")
    yield found
    server.stop(0)


class Memory:
    """Spans of this process, in memory."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracing = Tracing(provider)

    @property
    def spans(self) -> tuple[ReadableSpan, ...]:
        return self._exporter.get_finished_spans()


def attributes_of(span: Any) -> dict[str, Any]:
    return {one.key: one.value.string_value or one.value.int_value for one in span.attributes}


def test_the_servers_span_is_the_child_of_the_clients(tmp_path: Path, collector: Collector) -> None:
    make_state(tmp_path, TERMS)
    configure(tmp_path, tracing=True)
    memory = Memory()
    with ServerProcess(tmp_path) as server:
        [one, two] = [Client(server.address, sender) for sender in senders_of(TERMS)]
        for client in (one, two):
            client.join()
            client.start()
        transport = Transport(server.address, "client-1", spans=memory.tracing)
        transport.use_terms(one.sender.terms_digest, TERMS.limits)
        transport.session = one.sender.session
        for _ in range(2):
            answer = transport.submit(as_update(one.sender, 0))
        transport.close()
        # A foreign client that knows nothing of this, and one that says nonsense.
        assert two.updates.UploadUpdate(two.pieces(two.sender.seal(0)), timeout=10).result.verdict.answer == 1
        nonsense = (("traceparent", "00-zz-nonsense-01"), ("tracestate", "x=1"), ("baggage", "y=2"))
        pieces = two.pieces(two.sender.seal(1))
        assert two.updates.UploadUpdate(pieces, timeout=10, metadata=nonsense).result.verdict.answer == 1
        server.stop()
    assert answer.verdict.answer == "DUPLICATE"
    assert collector.services == {"hushgrad-server"}
    sent = {span.context.span_id: span for span in memory.spans}
    assert [dict(span.attributes or {}) for span in memory.spans] == [
        {"hushgrad.participant": "client-1", "hushgrad.round": 0, "hushgrad.answer": "accepted"},
        {"hushgrad.participant": "client-1", "hushgrad.round": 0, "hushgrad.answer": "duplicate"},
    ]
    children = [span for span in collector.spans if span.parent_span_id]
    assert len(children) == 2
    for child in children:
        parent = sent[int.from_bytes(child.parent_span_id)]
        assert int.from_bytes(child.trace_id) == parent.context.trace_id
        assert attributes_of(child)["hushgrad.answer"] == (parent.attributes or {})["hushgrad.answer"]
        assert parent.start_time <= child.start_time_unix_nano <= child.end_time_unix_nano <= parent.end_time
    roots = [attributes_of(span) for span in collector.spans if not span.parent_span_id]
    assert [(root["hushgrad.participant"], root["hushgrad.round"]) for root in roots] == [
        ("client-2", 0),
        ("client-2", 1),
    ]
    assert not [event for span in collector.spans for event in span.events], "an event may carry an exception's text"


_SEALED: dict[tuple[str, int], SealedUpdate] = {}


def as_update(sender: Sender, round_: int) -> SealedUpdate:
    if (sender.name, round_) not in _SEALED:
        sealed = sender.seal(round_)
        _SEALED[sender.name, round_] = SealedUpdate(round_, sealed.header, sealed.payload, sealed.digest)
    return _SEALED[sender.name, round_]


class Listening(FakeServer):
    """A server of somebody else's, which writes down what metadata it sees."""

    def __init__(self) -> None:
        super().__init__(client_world.make_terms())
        self.metadata: list[dict[str, str]] = []

    def SubmitUpdate(self, request: Any, context: Any) -> Any:  # noqa: N802
        self.metadata.append({key: value for key, value in context.invocation_metadata() if key != "user-agent"})
        return super().SubmitUpdate(request, context)


def own_update(server: FakeServer, round_: int) -> SealedUpdate:
    payload = np.arange(server.terms.parameters, dtype="<i4").tobytes()
    head = header.UpdateHeader(
        server.digest, PARTICIPANT, round_, 1, "poisson", 2.0, 0.5, 3, bytes(32), 0, len(payload)
    ).pack()
    return SealedUpdate(round_, head, payload, header.digest(head, payload))


def test_one_traceparent_travels_and_only_when_it_is_asked_for() -> None:
    server, memory = Listening(), Memory()
    with server.serving() as address:
        for spans in (None, memory.tracing):
            transport = Transport(address, PARTICIPANT, spans=spans)
            transport.use_terms(server.digest, server.terms.limits)
            transport.join(bytes(16))
            transport.start(0)
            assert transport.submit(own_update(server, 0)).verdict.answer in ("ACCEPTED", "DUPLICATE")
            transport.close()
    [span] = memory.spans
    assert span.context is not None
    untraced, traced = server.metadata
    assert untraced == {}
    assert set(traced) == {"traceparent"}
    assert traced["traceparent"].startswith(f"00-{span.context.trace_id:032x}-{span.context.span_id:016x}-")


def test_a_call_without_an_answer_is_an_error_without_its_text() -> None:
    server, memory = Listening(), Memory()
    server.faults["SubmitUpdate"] = [grpc.StatusCode.UNAVAILABLE]
    with server.serving() as address:
        transport = Transport(address, PARTICIPANT, spans=memory.tracing)
        transport.use_terms(server.digest, server.terms.limits)
        with pytest.raises(RetryableError):
            transport.submit(own_update(server, 3))
        transport.close()
    [span] = memory.spans
    assert (span.status.status_code, span.status.description) == (StatusCode.ERROR, "UNAVAILABLE")
    assert dict(span.attributes or {}) == {
        "hushgrad.participant": PARTICIPANT,
        "hushgrad.round": 3,
        "rpc.grpc.status": "UNAVAILABLE",
    }
    assert not span.events


def test_a_collector_that_is_gone_stops_nobody_and_is_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "20")
    monkeypatch.setattr(tracing, "_CLOSE_SECONDS", 0.5)  # three in earnest
    troubles: list[str] = []
    server = Listening()
    with server.serving() as address:
        transport = Transport(address, PARTICIPANT, spans=tracing.start("hushgrad-client", troubles.append))
        transport.use_terms(server.digest, server.terms.limits)
        transport.join(bytes(16))
        transport.start(0)
        for _ in range(3):
            assert transport.submit(own_update(server, 0)).verdict.answer in ("ACCEPTED", "DUPLICATE")
            time.sleep(0.05)
        began = time.monotonic()
        transport.close()
    assert time.monotonic() - began < 3
    assert len(troubles) == 1
    assert "127.0.0.1:1" in troubles[0]


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("opentelemetry")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter", None)
    with pytest.raises(InputError, match=r"pip install 'hushgrad\[client,tracing\]'"):
        client_tracing.start()


def test_a_strange_participant_makes_no_attribute() -> None:
    memory = Memory()
    with memory.tracing.received(()) as span:
        tracing.describe(span, common_pb2.Caller(participant="x" * 100_000), b"no header")
    [found] = memory.spans
    assert dict(found.attributes or {}) == {}
