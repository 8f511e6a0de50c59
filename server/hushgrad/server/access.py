"""The door: who calls, by the certificate of the connection, and whether this call is for them.

Every call is looked at before its request is parsed. Streams are looked at again while they are open: a certificate
that expires or is revoked ends them. Knows certificates and the table of roles, and nothing of what calls do.
"""

import asyncio
import contextlib
import inspect
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from dataclasses import dataclass
from typing import Any, Final

import grpc
from google.protobuf.message import DecodeError
from hushgrad.server import border, counting, roles
from hushgrad.server.border import Context
from hushgrad.server.counting import Counters
from hushgrad.server.denylist import DenyList
from hushgrad.wire.certificates import Certificate
from hushgrad.wire.errors import ContractError

LOOK_SECONDS: Final = 0.25
"""How often open streams are looked at."""

_SAY_AGAIN_SECONDS: Final = 10.0
_MOST_REMEMBERED: Final = 1000
_PAUSE_SECONDS: Final = 0.25
_MOST_PAUSED: Final = 256


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a call ends: UNAUTHENTICATED when the certificate is good for nothing, else PERMISSION_DENIED."""

    code: grpc.StatusCode
    detail: str


class Access(grpc.aio.ServerInterceptor):
    """Looks at every call of a server with TLS.

    Args:
        federation: name of the federation; certificates of another one are refused.
        admitted: names of the participants that the terms admit; empty: any.
        denied: the deny list; None: there is none.
        log: told about refusals, each kind for each certificate at most every ten seconds.
        clock: seconds since 1970; certificates are the one thing here that knows the date.
        counters: hears of every refusal.
    """

    def __init__(
        self,
        federation: str,
        admitted: Collection[str],
        denied: DenyList | None,
        log: Any,
        clock: Callable[[], float] = time.time,
        counters: Counters | None = None,
    ) -> None:
        self._federation = federation
        self._admitted = frozenset(admitted)
        self._denied = denied
        self._log = log
        self._clock = clock
        self._counters = counters or Counters()
        self._open: dict[asyncio.Task[Any], Certificate] = {}
        self._lapsed: dict[asyncio.Task[Any], str] = {}
        self._said: dict[tuple[str, str], float] = {}
        self._paused = 0

    # What holds

    def refusal(self, method: str, certificate: Certificate) -> Refusal | None:
        """Returns why a call by the holder of a certificate is refused; None when it is not."""
        identity = certificate.identity
        lapse = self.lapse(certificate)
        if lapse:
            return Refusal(grpc.StatusCode.UNAUTHENTICATED, lapse)
        if identity.federation != self._federation:
            return Refusal(
                grpc.StatusCode.UNAUTHENTICATED,
                f"the certificate of {identity} is for another federation, this one is {self._federation}",
            )
        allowed = roles.ALLOWED.get(method, frozenset())
        call = method.rpartition("/")[2]
        if identity.role not in allowed:
            may = f"for {', '.join(sorted(allowed))}" if allowed else "for nobody"
            return Refusal(grpc.StatusCode.PERMISSION_DENIED, f"{call} is {may}; the certificate is of {identity}")
        if (
            identity.role == "participant"
            and self._admitted
            and identity.name not in self._admitted
            and method in roles.FOR_THE_TERMS_PARTICIPANTS
        ):
            return Refusal(
                grpc.StatusCode.PERMISSION_DENIED, f"the terms of {self._federation} do not name {identity.name}"
            )
        return None

    def lapse(self, certificate: Certificate) -> str:
        """Returns why a certificate holds no longer; empty while it does."""
        if self._denied is not None and self._denied.holds(certificate.serial):
            return (
                f"the certificate of {certificate.identity} was revoked (serial number {certificate.serial:x}); ask "
                "the operator for a new bundle"
            )
        return certificate.lapse(self._clock())

    async def watch(self) -> None:
        """Ends open streams whose certificates hold no longer; runs until it is cancelled."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            for task, certificate in list(self._open.items()):
                lapse = self.lapse(certificate)
                if lapse and task not in self._lapsed:
                    self._lapsed[task] = lapse
                    task.cancel()

    # Around every call

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler | None:
        """Puts the door before a handler."""
        handler = await continuation(handler_call_details)
        if handler is None:
            return None
        method = handler_call_details.method
        if handler.request_streaming:
            return self._before_requests(method, handler)
        return self._before_request(method, handler)

    def _before_request(self, method: str, handler: grpc.RpcMethodHandler) -> grpc.RpcMethodHandler:
        # The request arrives as bytes and is parsed by us, so that a refused caller's is not.
        parse = handler.request_deserializer

        async def one(request: bytes, context: Context) -> Any:
            await self._enter(method, context)
            return await handler.unary_unary(await _parsed(parse, request, context), context)

        async def many(request: bytes, context: Context) -> None:
            certificate = await self._enter(method, context)
            async with self._kept(certificate, method, context):
                await _pass_on(handler.unary_stream(await _parsed(parse, request, context), context), context)

        if handler.response_streaming:
            return grpc.unary_stream_rpc_method_handler(many, None, handler.response_serializer)
        return grpc.unary_unary_rpc_method_handler(one, None, handler.response_serializer)

    def _before_requests(self, method: str, handler: grpc.RpcMethodHandler) -> grpc.RpcMethodHandler:
        # A stream's handler begins before any message is read.
        async def one(requests: AsyncIterator[Any], context: Context) -> Any:
            certificate = await self._enter(method, context)
            async with self._kept(certificate, method, context):
                return await handler.stream_unary(requests, context)

        async def many(requests: AsyncIterator[Any], context: Context) -> None:
            certificate = await self._enter(method, context)
            async with self._kept(certificate, method, context):
                await _pass_on(handler.stream_stream(requests, context), context)

        serializers = handler.request_deserializer, handler.response_serializer
        if handler.response_streaming:
            return grpc.stream_stream_rpc_method_handler(many, *serializers)
        return grpc.stream_unary_rpc_method_handler(one, *serializers)

    async def _enter(self, method: str, context: Context) -> Certificate:
        try:
            certificate = border.certificate_of(context)
        except ContractError as error:
            await self._refuse(Refusal(grpc.StatusCode.UNAUTHENTICATED, str(error)), "?", method, context)
            raise
        if certificate is None:
            detail = "a certificate was expected, found none"
            await self._refuse(Refusal(grpc.StatusCode.UNAUTHENTICATED, detail), "?", method, context)
            raise AssertionError("abort raises")
        refusal = self.refusal(method, certificate)
        if refusal is not None:
            await self._refuse(refusal, certificate.identity.uri, method, context)
        return certificate

    @contextlib.asynccontextmanager
    async def _kept(self, certificate: Certificate, method: str, context: Context) -> AsyncIterator[None]:
        """Keeps a stream open while its certificate holds.

        A task that is cancelled must end with a status of its own: gRPC sends none for it, and the caller would wait.
        """
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a call runs in a task")
        self._open[task] = certificate
        try:
            yield
        except asyncio.CancelledError:
            lapse = self._lapsed.get(task)
            if lapse is None:
                raise
            task.uncancel()
            refusal = Refusal(grpc.StatusCode.UNAUTHENTICATED, lapse)
            await self._refuse(refusal, certificate.identity.uri, method, context)
        finally:
            self._open.pop(task, None)
            self._lapsed.pop(task, None)

    async def _refuse(self, refusal: Refusal, who: str, method: str, context: Context) -> None:
        """Ends a call; who is refused for the same reason again and again waits a little, and costs little."""
        is_stranger = refusal.code is grpc.StatusCode.UNAUTHENTICATED
        self._counters.refused[counting.UNAUTHENTICATED if is_stranger else counting.NOT_PERMITTED] += 1
        now = time.monotonic()
        key = (who, refusal.detail)
        if now - self._said.get(key, -_SAY_AGAIN_SECONDS) >= _SAY_AGAIN_SECONDS:
            if len(self._said) >= _MOST_REMEMBERED:
                self._said.clear()
            self._said[key] = now
            self._log.warning("refused", who=who, call=method, peer=context.peer(), why=refusal.detail)
        elif self._paused < _MOST_PAUSED:
            self._paused += 1
            try:
                await asyncio.sleep(_PAUSE_SECONDS)
            finally:
                self._paused -= 1
        await context.abort(refusal.code, refusal.detail)


async def _parsed(parse: Callable[[bytes], Any] | None, request: bytes, context: Context) -> Any:
    if parse is None:
        return request
    try:
        return parse(request)
    except DecodeError:
        await context.abort(grpc.StatusCode.UNKNOWN, "the request is no message of this call")
        raise


async def _pass_on(answers: Any, context: Context) -> None:
    """Sends what a handler yields; one that sends by itself is awaited."""
    if not inspect.isasyncgen(answers):
        await answers
        return
    async with contextlib.aclosing(answers):
        async for answer in answers:
            await context.write(answer)
