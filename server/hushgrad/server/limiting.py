"""Stands before every call and holds it to the limits, before its request has arrived where that is possible.

Knows neither what calls do nor who may make them. Of uploads it sees the beginning; `update_service` holds the rest of
them to their limits.
"""

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final

import grpc
from google.protobuf.descriptor_pool import Default
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass
from hushgrad.server import counting
from hushgrad.server.border import Context
from hushgrad.server.counting import Counters
from hushgrad.server.limits import Kind, Limiter, Place, retry_after_milliseconds
from hushgrad.v1 import common_pb2
from hushgrad.wire import names
from hushgrad.wire.errors import ContractError

MAX_REQUEST_BYTES: Final = 2**20 + 2**14
"""The largest payload of one message that the contract knows, 1 MiB, and room for what goes with it."""

_PAUSE_SECONDS: Final = 0.25
_MOST_PAUSED: Final = 256
_TRY_AGAIN_SECONDS: Final = 0.5
_ARRIVAL_SECONDS: Final = 0.5
_TOO_FAST: Final = "calls come too fast"
_MALFORMED: Final = (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.UNKNOWN)


def certified_name(context: Context) -> str | None:
    """Returns who calls by the certificate of the connection; None without TLS."""
    found = context.peer_identities()
    return found[0].decode("utf-8", "replace") if found else None


def name_in(request: Any) -> str:
    """Returns the participant that a request names; empty when it names none, or something that is no name.

    It becomes a key of the books and may stand in the log, so it must be neither long nor strange.
    """
    caller = getattr(request, "caller", None)
    if not isinstance(caller, common_pb2.Caller):
        return ""
    try:
        return names.check_name(caller.participant)
    except ContractError:
        return ""


class Limiting(grpc.aio.ServerInterceptor):
    """Put it before all other interceptors but the door (`access`), which reads nothing.

    A request is read as a stream of one message: gRPC would else read all of it, however slowly it comes, before
    anything of ours runs. What is sent on the wire is the same.

    Args:
        limiter: the books.
        state: how far the server's memory reaches, for answers.
        log: hears who is told to wait, once in ten seconds for each.
        counters: hears of every call, and of every one that is refused here.
    """

    def __init__(
        self,
        limiter: Limiter,
        state: Callable[[], common_pb2.ServerState],
        log: Any,
        counters: Counters | None = None,
    ) -> None:
        self._limiter = limiter
        self._state = state
        self._log = log
        self._counters = counters or Counters()
        self._time = asyncio.get_running_loop().time
        self._paused = 0
        self._arriving: dict[Kind, dict[asyncio.Timeout, float]] = {"call": {}, "watch": {}, "download": {}}

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler | None:
        """Puts the limits before a handler."""
        handler = await continuation(handler_call_details)
        if handler is None:
            return None
        method = handler_call_details.method
        name = method.rpartition("/")[2]
        self._counters.calls[name] = self._counters.calls.get(name, 0) + 1
        if handler.request_streaming:
            return self._before_upload(method, handler)
        if handler.response_streaming:
            return self._before_stream(method, handler)
        return self._before_call(method, handler)

    def _before_call(self, method: str, handler: grpc.RpcMethodHandler) -> grpc.RpcMethodHandler:
        async def call(requests: AsyncIterator[Any], context: Context) -> Any:
            name = certified_name(context)
            if name and (wait := self._limiter.call(name, self._time())):
                return await self._busy(method, _TOO_FAST, wait, name, context)
            if not self._make_way(name, "call"):
                return await self._busy(method, "too many calls are in progress", _TRY_AGAIN_SECONDS, name, context)
            with self._limiter.opened(name, "call", self._time()):
                request = await self._arrival(requests, "call", context)
                who = name or name_in(request) or context.peer()
                if not name and (wait := self._limiter.call(who, self._time())):
                    return await self._busy(method, _TOO_FAST, wait, who, context)
                try:
                    return await handler.unary_unary(request, context)
                except grpc.aio.AbortError:
                    self._note_malformed(context)
                    raise

        return grpc.stream_unary_rpc_method_handler(call, handler.request_deserializer, handler.response_serializer)

    def _before_stream(self, method: str, handler: grpc.RpcMethodHandler) -> grpc.RpcMethodHandler:
        kind: Kind = "download" if method.endswith("/GetModel") else "watch"

        async def stream(requests: AsyncIterator[Any], context: Context) -> None:
            name = certified_name(context)
            if name and (wait := self._limiter.call(name, self._time())):
                await self._exhausted(method, _TOO_FAST, wait, name, context)
            if not self._make_way(name, kind):
                why = f"too many streams of this kind ({kind}) are open"
                await self._exhausted(method, why, _TRY_AGAIN_SECONDS, name, context)
            with self._limiter.opened(name, kind, self._time()) as place:
                request = await self._arrival(requests, kind, context)
                who = name or name_in(request) or context.peer()
                if not name and (wait := self._limiter.call(who, self._time())):
                    await self._exhausted(method, _TOO_FAST, wait, who, context)
                answers = handler.unary_stream(request, context)
                try:
                    if hasattr(answers, "__aiter__"):
                        await self._send(answers, place, context)
                    else:
                        await answers
                except grpc.aio.AbortError:
                    self._note_malformed(context)
                    raise

        return grpc.stream_stream_rpc_method_handler(stream, handler.request_deserializer, handler.response_serializer)

    def _before_upload(self, method: str, handler: grpc.RpcMethodHandler) -> grpc.RpcMethodHandler:
        async def upload(requests: AsyncIterator[Any], context: Context) -> Any:
            name = certified_name(context)
            if not self._make_way(name, "call"):
                await self._exhausted(method, "too many calls are in progress", _TRY_AGAIN_SECONDS, name, context)
            # Until it says whose it is, an upload is a call like any other.
            with self._limiter.opened(name, "call", self._time()):
                first = await self._arrival(requests, "call", context)
            try:
                return await handler.stream_unary(_from(first, requests), context)
            except grpc.aio.AbortError:
                self._note_malformed(context)
                raise

        return grpc.stream_unary_rpc_method_handler(upload, handler.request_deserializer, handler.response_serializer)

    def _make_way(self, name: str | None, kind: Kind) -> bool:
        """Says whether a call may begin. When all places are taken, the request that arrives for longest gives way.

        So nobody can keep others out by requests that never end.
        """
        now = self._time()
        if self._limiter.is_free(name, kind, now):
            return True
        if name is not None and self._limiter.is_full_of(name, kind, now):
            return False
        arriving = self._arriving[kind]
        oldest = next(iter(arriving), None)  # A dictionary keeps the order in which they began.
        if oldest is None or arriving[oldest] > now - _ARRIVAL_SECONDS:
            return False
        del arriving[oldest]
        oldest.reschedule(now)
        return True

    async def _arrival(self, requests: AsyncIterator[Any], kind: Kind, context: Context) -> Any:
        seconds = self._limiter.config.request_seconds
        try:
            async with asyncio.timeout(seconds) as timeout:
                self._arriving[kind][timeout] = self._time()
                try:
                    return await anext(requests)
                finally:
                    self._arriving[kind].pop(timeout, None)
        except TimeoutError:
            await context.abort(
                grpc.StatusCode.DEADLINE_EXCEEDED,
                f"the request did not arrive within {seconds:g} s, or others waited for its place; send it again",
            )
        except StopAsyncIteration:
            self._counters.refused[counting.MALFORMED] += 1
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "a request was expected, found none")
        except DecodeError:
            self._counters.refused[counting.MALFORMED] += 1
            await context.abort(grpc.StatusCode.UNKNOWN, "a message of the contract was expected, found other bytes")
        raise AssertionError("abort raises")

    def _note_malformed(self, context: Context) -> None:
        if context.code() in _MALFORMED:
            self._counters.refused[counting.MALFORMED] += 1

    async def _send(self, answers: Any, place: Place, context: Context) -> None:
        """Passes answers on. A caller who reads too slowly is served at its pace, but keeps no place from others.

        It cannot be sent away: gRPC would queue the status behind what is not read.
        """
        loop = asyncio.get_running_loop()
        sent, waited = 0, 0.0
        async with contextlib.aclosing(answers):
            async for answer in answers:
                size = len(answer) if isinstance(answer, bytes) else 0
                begin = self._time()
                patience = self._limiter.config.patience(sent, size) - waited
                timer = loop.call_later(max(patience, 0.0), place.leave_to_others)
                try:
                    await context.write(answer)
                finally:
                    timer.cancel()
                waited += self._time() - begin
                sent += size
                self._counters.sent_bytes += size

    async def _busy(self, method: str, why: str, wait: float, who: str | None, context: Context) -> Any:
        """Returns the answer BUSY, or ends a call whose answer has no verdict."""
        answer = _answer_with_verdict(method)
        if answer is None:
            await self._exhausted(method, why, wait, who, context)
            raise AssertionError("abort raises")
        await self._pause(method, why, wait, who, context)
        message = answer()
        message.verdict.answer = common_pb2.ANSWER_BUSY
        message.verdict.detail = f"{why}; wait, then send the same again"
        message.verdict.retry_after_milliseconds = retry_after_milliseconds(wait)
        message.verdict.server.CopyFrom(self._state())
        return message

    async def _exhausted(self, method: str, why: str, wait: float, who: str | None, context: Context) -> None:
        await self._pause(method, why, wait, who, context)
        await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, f"{why}; wait for {wait:.2g} s, then try again")

    async def _pause(self, method: str, why: str, wait: float, who: str | None, context: Context) -> None:
        """Lets who asks too often wait, so that asking again at once costs the server little."""
        self._counters.refused[counting.TOO_FAST if why == _TOO_FAST else counting.TOO_MANY] += 1
        who = who or context.peer()
        if self._limiter.may_say(who, self._time()):
            self._log.warning("told_to_wait", who=who, call=method, why=why)
        if self._paused >= _MOST_PAUSED:
            return
        self._paused += 1
        try:
            await asyncio.sleep(min(wait, _PAUSE_SECONDS))
        finally:
            self._paused -= 1


async def _from(first: Any, rest: AsyncIterator[Any]) -> AsyncIterator[Any]:
    yield first
    async for message in rest:
        yield message


@functools.cache
def _answer_with_verdict(method: str) -> type[Any] | None:
    _, service, name = method.split("/")
    try:
        answer = Default().FindServiceByName(service).methods_by_name[name].output_type
    except KeyError:
        return None
    return GetMessageClass(answer) if "verdict" in answer.fields_by_name else None
