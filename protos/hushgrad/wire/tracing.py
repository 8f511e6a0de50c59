"""Trace context between client and server: one span on each side for one update, the server's a child of the client's.

Needs the extra `tracing` once it is started, and is off until then. What travels is one W3C `traceparent` in the call's
metadata; whoever does not know it ignores it. A span says whose update of which round was answered how, and when it was
sent and answered: a client's begins when sealed bytes leave, so that it says nothing about the training before.
"""

import contextlib
import logging
import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from hushgrad.v1 import common_pb2
from hushgrad.wire import header as wire_header
from hushgrad.wire import names
from hushgrad.wire.errors import ContractError

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Span

UPDATE_CALLS: Final = ("/hushgrad.v1.UpdateService/SubmitUpdate", "/hushgrad.v1.UpdateService/UploadUpdate")
"""The calls that have spans."""

_KEY: Final = "traceparent"
_SAY_AGAIN_SECONDS: Final = 60.0
_CLOSE_SECONDS: Final = 3.0


class Tracing:
    """Makes spans with a provider of OpenTelemetry's."""

    def __init__(self, provider: "TracerProvider") -> None:
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._provider = provider
        self._tracer = provider.get_tracer("hushgrad")
        self._propagator = TraceContextTextMapPropagator()

    @contextmanager
    def sent(self) -> "Iterator[tuple[Span, tuple[tuple[str, str], ...]]]":
        """A client's span around one call; gives the span, and the metadata that the call has to carry."""
        from opentelemetry.trace import SpanKind

        with self._span("send update", SpanKind.CLIENT, None) as span:
            carrier: dict[str, str] = {}
            self._propagator.inject(carrier)
            # No tracestate: nothing of ours needs it, and what others put there is not ours to pass on.
            yield span, tuple((key, value) for key, value in carrier.items() if key == _KEY)

    @contextmanager
    def received(self, metadata: Iterable[Any]) -> "Iterator[Span]":
        """A server's span around one call, the child of what its metadata name; a root where they name nothing."""
        from opentelemetry.trace import SpanKind

        carrier = {str(key): str(value) for key, value in metadata if key == _KEY}
        with self._span("receive update", SpanKind.SERVER, self._propagator.extract(carrier)) as span:
            yield span

    @contextmanager
    def _span(self, name: str, kind: Any, parent: Any) -> "Iterator[Span]":
        # Neither exceptions nor their text: they stand in the log, where it was decided what may stand there.
        with self._tracer.start_as_current_span(
            name, parent, kind, record_exception=False, set_status_on_exception=False
        ) as span:
            yield span

    def close(self) -> None:
        """Sends what is left, for three seconds at most: nobody waits longer for a collector that is gone."""
        last = threading.Thread(target=self._provider.shutdown, name="last spans", daemon=True)
        last.start()
        last.join(_CLOSE_SECONDS)


def describe(span: "Span", caller: common_pb2.Caller, header: bytes) -> None:
    """Notes whose update of which round a span is about."""
    with contextlib.suppress(ContractError):  # The answer will say what is wrong with it.
        span.set_attribute("hushgrad.participant", names.check_name(caller.participant))
        span.set_attribute("hushgrad.round", wire_header.unpack(header).round)


def answered(span: "Span", verdict: common_pb2.Verdict) -> None:
    """Notes the answer."""
    name = common_pb2.Answer.Name(verdict.answer) if verdict.answer in common_pb2.Answer.values() else "unknown"
    span.set_attribute("hushgrad.answer", name.removeprefix("ANSWER_").lower())


def failed(span: "Span", code: str) -> None:
    """Notes that a call ended without an answer, with a gRPC status."""
    from opentelemetry.trace import Status, StatusCode

    span.set_attribute("rpc.grpc.status", code)
    span.set_status(Status(StatusCode.ERROR, code))


def start(service: str, on_trouble: Callable[[str], None]) -> Tracing:
    """Returns what sends spans to the collector that OpenTelemetry's environment variables name.

    Args:
        service: the spans' service.name, unless OTEL_SERVICE_NAME says otherwise.
        on_trouble: told in one line, on any thread and at most once a minute, when spans could not be sent.

    Raises:
        ModuleNotFoundError: without the extra `tracing`.
    """
    import os

    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import SERVICE_NAME, Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    log = logging.getLogger("opentelemetry")
    log.propagate = False
    log.handlers = [_Teller(on_trouble)]
    name = os.environ.get("OTEL_SERVICE_NAME") or service
    provider = TracerProvider(resource=Resource.create({SERVICE_NAME: name}), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return Tracing(provider)


class _Teller(logging.Handler):
    """Passes what OpenTelemetry would write to stderr on to a log of ours."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        super().__init__(logging.WARNING)
        self._tell = tell
        self._told_at = -math.inf

    def emit(self, record: logging.LogRecord) -> None:
        if time.monotonic() >= self._told_at + _SAY_AGAIN_SECONDS:
            self._told_at = time.monotonic()
            self._tell(record.getMessage().split("\n")[0])
