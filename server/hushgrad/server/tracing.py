"""Puts a span around every update that arrives, below its sender's. Off unless the configuration says so."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
from hushgrad.server.border import Context
from hushgrad.server.errors import InputError
from hushgrad.v1 import updates_pb2
from hushgrad.wire import tracing
from hushgrad.wire.tracing import Tracing


def start(log: Any) -> Tracing:
    """Returns what makes spans and sends them to the collector that OpenTelemetry's environment variables name.

    Raises:
        InputError: without the extra `tracing`.
    """
    try:
        return tracing.start("hushgrad-server", lambda why: log.warning("spans_not_sent", why=why))
    except ModuleNotFoundError as error:
        raise InputError(
            f"tracing needs {error.name}, which is not installed: pip install 'hushgrad[server,tracing]'"
        ) from None


class UpdateSpans(grpc.aio.ServerInterceptor):
    """Put it behind door and limits: who is refused there makes no spans."""

    def __init__(self, spans: Tracing) -> None:
        self._spans = spans

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler | None:
        """Puts a span around the handler of an update."""
        handler = await continuation(handler_call_details)
        if handler is None or handler_call_details.method not in tracing.UPDATE_CALLS:
            return handler
        metadata = tuple(handler_call_details.invocation_metadata or ())

        async def one(request: Any, context: Context) -> Any:
            with self._spans.received(metadata) as span:
                tracing.describe(span, request.caller, request.header)
                answer = await _noting(span, handler.unary_unary(request, context), context)
                tracing.answered(span, answer.verdict)
                return answer

        async def many(requests: AsyncIterator[Any], context: Context) -> Any:
            with self._spans.received(metadata) as span:
                answer = await _noting(span, handler.stream_unary(_Described(requests, span), context), context)
                tracing.answered(span, answer.result.verdict)
                return answer

        serializers = handler.request_deserializer, handler.response_serializer
        if handler.request_streaming:
            return grpc.stream_unary_rpc_method_handler(many, *serializers)
        return grpc.unary_unary_rpc_method_handler(one, *serializers)


async def _noting(span: Any, call: Awaitable[Any], context: Context) -> Any:
    try:
        return await call
    except BaseException:
        code = context.code()
        tracing.failed(span, code.name if isinstance(code, grpc.StatusCode) else "CANCELLED")
        raise


class _Described:
    """Passes the messages of an upload on and keeps none: a generator would hold the last piece while it waits."""

    def __init__(self, requests: AsyncIterator[Any], span: Any) -> None:
        self._requests = requests
        self._span = span

    def __aiter__(self) -> "_Described":
        return self

    async def __anext__(self) -> Any:
        request = await anext(self._requests)
        if isinstance(request, updates_pb2.UploadUpdateRequest) and request.WhichOneof("part") == "start":
            tracing.describe(self._span, request.start.caller, request.start.header)
        return request
