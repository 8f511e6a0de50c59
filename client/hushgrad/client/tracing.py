"""Puts a span around every update that leaves, and its context into the call. Off unless the configuration says so."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import grpc
import structlog
from hushgrad.client.errors import InputError
from hushgrad.v1 import updates_pb2
from hushgrad.wire import tracing
from hushgrad.wire.tracing import Tracing


def start() -> Tracing:
    """Returns what makes spans and sends them to the collector that OpenTelemetry's environment variables name.

    Raises:
        InputError: without the extra `tracing`.
    """
    try:
        return tracing.start("hushgrad-client", lambda why: structlog.get_logger().warning("spans_not_sent", why=why))
    except ModuleNotFoundError as error:
        raise InputError(
            f"tracing needs {error.name}, which is not installed: pip install 'hushgrad[client,tracing]'"
        ) from None


def channel(plain: grpc.Channel, spans: Tracing) -> grpc.Channel:
    """Returns a channel whose updates have spans; what else goes through it is as before."""
    return grpc.intercept_channel(plain, _Updates(spans))


@dataclass(frozen=True, slots=True)
class _Details(grpc.ClientCallDetails):
    """Details of one call, with other metadata."""

    method: str
    timeout: float | None
    metadata: Any
    credentials: grpc.CallCredentials | None
    wait_for_ready: bool | None
    compression: Any


class _Updates(grpc.UnaryUnaryClientInterceptor, grpc.StreamUnaryClientInterceptor):
    """Stands before SubmitUpdate and UploadUpdate."""

    def __init__(self, spans: Tracing) -> None:
        self._spans = spans

    def intercept_unary_unary(self, continuation: Callable[..., Any], details: Any, request: Any) -> Any:
        if details.method not in tracing.UPDATE_CALLS:
            return continuation(details, request)
        with self._spans.sent() as (span, metadata):
            tracing.describe(span, request.caller, request.header)
            call = continuation(_with(details, metadata), request)
            _note(span, call, lambda answer: answer.verdict)
            return call

    def intercept_stream_unary(self, continuation: Callable[..., Any], details: Any, requests: Iterator[Any]) -> Any:
        with self._spans.sent() as (span, metadata):
            call = continuation(_with(details, metadata), _described(requests, span))
            _note(span, call, lambda answer: answer.result.verdict)
            return call


def _with(details: Any, metadata: tuple[tuple[str, str], ...]) -> _Details:
    return _Details(
        details.method,
        details.timeout,
        (*(details.metadata or ()), *metadata),
        details.credentials,
        details.wait_for_ready,
        details.compression,
    )


def _described(requests: Iterator[Any], span: Any) -> Iterator[Any]:
    for request in requests:
        if isinstance(request, updates_pb2.UploadUpdateRequest) and request.WhichOneof("part") == "start":
            tracing.describe(span, request.start.caller, request.start.header)
        yield request


def _note(span: Any, call: Any, verdict: Callable[[Any], Any]) -> None:
    # Our calls block: when one is here, its answer is.
    if call.code() is grpc.StatusCode.OK:
        tracing.answered(span, verdict(call.result()))
    else:
        tracing.failed(span, call.code().name)
