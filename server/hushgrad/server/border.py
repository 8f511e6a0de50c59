"""The border between messages and values: reads callers, writes verdicts, and refuses what is malformed.

Protobuf types end here and in `services`.
"""

import functools
from collections.abc import Awaitable
from typing import TYPE_CHECKING, NoReturn, TypeAlias, TypeVar

import grpc
from hushgrad.server.errors import StoreError
from hushgrad.server.federation import Outcome
from hushgrad.server.membership import Participation
from hushgrad.server.records import Caller
from hushgrad.server.watch import Publisher
from hushgrad.v1 import common_pb2, membership_pb2
from hushgrad.wire import header as wire_header
from hushgrad.wire import names
from hushgrad.wire.errors import ContractError

if TYPE_CHECKING:
    from hushgrad.wire.certificates import Certificate

T = TypeVar("T")
Context: TypeAlias = grpc.aio.ServicerContext


async def refuse(context: Context, detail: str) -> NoReturn:
    """Ends a call whose request is malformed; repeating it will not help."""
    await context.abort(grpc.StatusCode.INVALID_ARGUMENT, detail)
    raise AssertionError("abort raises")


def certificate_of(context: Context) -> "Certificate | None":
    """Returns what counts in the caller's certificate; None on a connection without TLS.

    Raises:
        ContractError: if it does not name its holder as it must.
    """
    found = context.auth_context().get("x509_pem_cert")
    return _read(found[0]) if found else None


@functools.lru_cache(maxsize=4096)
def _read(pem: bytes) -> "Certificate":
    from hushgrad.wire import certificates  # a server without TLS starts without it

    return certificates.read(pem)


async def read_caller(caller: common_pb2.Caller, context: Context) -> Caller:
    """Returns who calls, or ends the call: when the message cannot say it, or names somebody else than the certificate.

    Nothing else of a message is looked at before this has returned.
    """
    certificate = certificate_of(context)
    if certificate is not None and certificate.identity.name != caller.participant:
        await context.abort(
            grpc.StatusCode.PERMISSION_DENIED,
            f"caller.participant must be {certificate.identity.name}, the name in the certificate, found "
            f"{caller.participant[: names.MAX_NAME_LENGTH]!r}",
        )
    if len(caller.terms_digest) != wire_header.DIGEST_BYTES:
        await refuse(
            context, f"caller.terms_digest must be {wire_header.DIGEST_BYTES} bytes, found {len(caller.terms_digest)}"
        )
    try:
        name = names.check_name(caller.participant, what="caller.participant")
    except ContractError as error:
        await refuse(context, str(error))
    return Caller(caller.terms_digest, name, caller.session)


async def read_digest(digest: bytes, what: str, context: Context) -> bytes:
    """Returns a digest, or ends the call when it has the wrong length."""
    if len(digest) != wire_header.DIGEST_BYTES:
        await refuse(context, f"{what} must be {wire_header.DIGEST_BYTES} bytes, found {len(digest)}")
    return digest


async def answered(outcome: Awaitable[T], context: Context) -> T:
    """Awaits an outcome; a store that fails ends the call without an answer."""
    try:
        return await outcome
    except StoreError:
        await context.abort(grpc.StatusCode.UNAVAILABLE, "the server's store failed; it is stopping")
        raise


def verdict(outcome: Outcome, publisher: Publisher) -> common_pb2.Verdict:
    """Returns the head of an answer."""
    return common_pb2.Verdict(
        answer=int(outcome.answer),  # type: ignore[arg-type]
        detail=outcome.detail,
        retry_after_milliseconds=outcome.retry_after_milliseconds,
        server=publisher.state_for(outcome.watermark),
    )


def participation(view: Participation | None) -> membership_pb2.Participation | None:
    """Returns how the server sees a participant, as a message."""
    if view is None:
        return None
    return membership_pb2.Participation(
        state=int(view.state),  # type: ignore[arg-type]
        entry_round=view.entry_round,
        exit_round=view.exit_round,
        wanted_rounds=view.wanted_rounds,
        suspensions=view.suspensions,
        evicted=view.evicted,
    )
