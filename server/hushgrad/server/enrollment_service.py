"""The gRPC service that signs certificates: for a token that an operator announced, or for whoever holds one already.

Contains no rule about tokens (`tokens`) and none about who may call (`roles`); slows down those who guess.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Any, Final

import grpc
from cryptography.hazmat.primitives import serialization
from hushgrad.server import authority as authority_module
from hushgrad.server import border, tokens
from hushgrad.server.authority import Authority
from hushgrad.server.border import Context
from hushgrad.server.errors import InputError
from hushgrad.server.services import Gate
from hushgrad.server.tokens import TokenRefusedError
from hushgrad.server.watch import Publisher
from hushgrad.v1 import enrollment_pb2, enrollment_pb2_grpc
from hushgrad.wire import certificates
from hushgrad.wire.identity import Identity

TRIES: Final = 5
"""So many wrong tokens at once for one name, then one in `REST_SECONDS`."""

REST_SECONDS: Final = 10.0

RENEWAL_SECONDS: Final = 60.0
"""Nobody needs two new certificates in a minute, and each is kept in a register for ever."""

_MOST_REMEMBERED: Final = 10_000


class Patience:
    """Counts failures by name: a bucket of `TRIES`, refilled by one every `REST_SECONDS`."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._failures: dict[str, tuple[float, float]] = {}

    def is_exhausted(self, name: str) -> bool:
        """Says whether this name has to wait."""
        return self._count(name) > TRIES - 1

    def failed(self, name: str) -> None:
        """Notes one more failure."""
        count = self._count(name)
        self._failures = {key: value for key, value in self._failures.items() if self._count(key) > 0}
        self._failures[name] = (count + 1, self._clock())

    def _count(self, name: str) -> float:
        count, since = self._failures.get(name, (0.0, 0.0))
        return max(0.0, count - (self._clock() - since) / REST_SECONDS)


class EnrollmentService(enrollment_pb2_grpc.EnrollmentServiceServicer):
    """See EnrollmentService in enrollment.proto."""

    def __init__(
        self,
        authority: Authority,
        publisher: Publisher,
        gate: Gate,
        log: Any,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._authority = authority
        self._publisher = publisher
        self._gate = gate
        self._log = log
        self._clock = clock
        self._patience = Patience()
        self._renewed_at: dict[str, float] = {}
        # One signature at a time, off the event loop: each waits for the disk.
        self._signing = asyncio.Lock()

    async def Enroll(  # noqa: N802
        self, request: enrollment_pb2.EnrollRequest, context: Context
    ) -> enrollment_pb2.EnrollResponse:
        """Trades a token for a certificate."""
        await self._gate.enter(context)
        identity = await self._identity(context)
        if self._patience.is_exhausted(identity.name):
            await context.abort(
                grpc.StatusCode.RESOURCE_EXHAUSTED, f"too many wrong tokens for {identity.name}; wait a minute"
            )
        try:
            pem = await self._signed(
                lambda: tokens.trade(
                    self._authority, identity.name, request.token, request.signing_request, now=self._clock
                ),
                context,
            )
        except TokenRefusedError as error:
            self._patience.failed(identity.name)
            self._log.warning("enrollment_refused", name=identity.name, peer=context.peer(), why=str(error))
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, str(error))
            raise
        self._log.info("enrolled", who=certificates.read(pem).identity.uri)
        return enrollment_pb2.EnrollResponse(server=self._publisher.state, certificate=_der(pem))

    async def Renew(  # noqa: N802
        self, request: enrollment_pb2.RenewRequest, context: Context
    ) -> enrollment_pb2.RenewResponse:
        """Gives the caller's own identity a certificate that holds longer."""
        await self._gate.enter(context)
        identity = await self._identity(context)

        now = time.monotonic()
        if now - self._renewed_at.get(identity.uri, -RENEWAL_SECONDS) < RENEWAL_SECONDS:
            await context.abort(
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                f"{identity} got a certificate less than {RENEWAL_SECONDS:g} s ago; use it, or wait",
            )

        def sign() -> bytes:
            key = authority_module.signing_request(request.signing_request)
            return self._authority.issue(identity, key, seconds=tokens.MEMBER_SECONDS, now=self._clock())

        pem = await self._signed(sign, context)
        if len(self._renewed_at) >= _MOST_REMEMBERED:
            self._renewed_at.clear()
        self._renewed_at[identity.uri] = now
        self._log.info("renewed", who=identity.uri)
        return enrollment_pb2.RenewResponse(server=self._publisher.state, certificate=_der(pem))

    async def _identity(self, context: Context) -> Identity:
        certificate = border.certificate_of(context)
        if certificate is None:
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, "this call is served with TLS only")
            raise AssertionError("abort raises")
        return certificate.identity

    async def _signed(self, sign: Callable[[], bytes], context: Context) -> bytes:
        try:
            async with self._signing:
                # The caller's deadline ends its waiting, never a signature that is being written down.
                return await asyncio.shield(asyncio.to_thread(sign))
        except InputError as error:
            await border.refuse(context, str(error))
        except OSError as error:
            self._log.error("authority_unwritable", why=str(error))
            await context.abort(
                grpc.StatusCode.UNAVAILABLE, "the authority's folder cannot be written; try again later"
            )
            raise


def _der(pem: bytes) -> bytes:
    return certificates.load(pem).public_bytes(serialization.Encoding.DER)
