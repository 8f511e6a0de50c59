"""The gRPC service for updates, whole or in pieces.

Pieces come in a resumable stream, are spooled and checked in whole, then submitted like any other update. Contains no
protocol decision.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Final

import google_crc32c
import grpc
from hushgrad.server import border
from hushgrad.server.border import Context
from hushgrad.server.federation import Outcome
from hushgrad.server.host import Host
from hushgrad.server.records import Answer, Caller
from hushgrad.server.services import Gate
from hushgrad.server.spool import Spool, Upload
from hushgrad.server.watch import Publisher
from hushgrad.v1 import updates_pb2, updates_pb2_grpc
from hushgrad.wire import header as wire_header
from hushgrad.wire.terms import Terms

CHUNK_TIMEOUT_SECONDS: Final = 30.0
MAX_STREAMS: Final = 16
_RETRY_MILLISECONDS: Final = 500


_HASH_OFF_LOOP_BYTES: Final = 256 * 1024


class UpdateService(updates_pb2_grpc.UpdateServiceServicer):
    """See UpdateService in updates.proto."""

    def __init__(self, host: Host, terms: Terms, spool: Spool, publisher: Publisher, gate: Gate) -> None:
        self._host = host
        self._payload_bytes = 4 * terms.parameters
        self._max_unary_bytes = terms.limits.max_unary_bytes
        self._max_chunk_bytes = terms.limits.max_chunk_bytes
        self._spool = spool
        self._publisher = publisher
        self._gate = gate
        self._time = asyncio.get_running_loop().time
        self._streams = 0

    async def SubmitUpdate(  # noqa: N802
        self, request: updates_pb2.SubmitUpdateRequest, context: Context
    ) -> updates_pb2.SubmitUpdateResponse:
        """Takes one update in one message."""
        await self._gate.enter(context)
        caller = await border.read_caller(request.caller, context)
        header, payload = request.header, request.payload
        await self._check_header_size("header", header, context)
        if len(payload) > self._max_unary_bytes:
            await border.refuse(
                context,
                f"payload must be at most {self._max_unary_bytes} bytes, found {len(payload)}; use UploadUpdate",
            )
        if google_crc32c.extend(google_crc32c.value(header), payload) != request.crc32c:
            return self._answer(self._busy(caller, "the bytes were damaged on the way (CRC-32C differs)"))
        if len(payload) > _HASH_OFF_LOOP_BYTES:
            digest = await asyncio.to_thread(wire_header.digest, header, payload)
        else:
            digest = wire_header.digest(header, payload)
        outcome = await border.answered(self._host.submit(caller, header, digest, payload), context)
        return self._answer(outcome)

    async def GetUpload(  # noqa: N802
        self, request: updates_pb2.GetUploadRequest, context: Context
    ) -> updates_pb2.GetUploadResponse:
        """Tells how much of an upload has arrived."""
        await self._gate.enter(context)
        caller = await border.read_caller(request.caller, context)
        digest = await border.read_digest(request.digest, "digest", context)
        outcome = self._host.check(caller)
        known = outcome.answer is Answer.ACCEPTED
        return updates_pb2.GetUploadResponse(
            verdict=border.verdict(outcome, self._publisher),
            received_bytes=self._spool.received_bytes(caller.participant, digest) if known else 0,
        )

    async def UploadUpdate(  # noqa: N802
        self, messages: AsyncIterator[updates_pb2.UploadUpdateRequest], context: Context
    ) -> updates_pb2.UploadUpdateResponse:
        """Takes one update in pieces."""
        await self._gate.enter(context)
        first = await self._next(messages, context)
        if first is None or first.WhichOneof("part") != "start":
            await border.refuse(context, "part must be `start` in the first message of an upload")
        start = first.start
        caller = await border.read_caller(start.caller, context)
        digest = await border.read_digest(start.digest, "start.digest", context)
        await self._check_header_size("start.header", start.header, context)
        outcome = await border.answered(self._host.preview(caller, start.header, digest), context)
        if outcome.answer is Answer.ACCEPTED:
            outcome = await self._receive(messages, start, caller, context)
        return updates_pb2.UploadUpdateResponse(result=self._answer(outcome))

    async def _check_header_size(self, path: str, header: bytes, context: Context) -> None:
        if len(header) != wire_header.HEADER_BYTES:
            await border.refuse(context, f"{path} must be {wire_header.HEADER_BYTES} bytes, found {len(header)}")

    def _answer(self, outcome: Outcome) -> updates_pb2.SubmitUpdateResponse:
        return updates_pb2.SubmitUpdateResponse(
            verdict=border.verdict(outcome, self._publisher),
            first_answer=None if outcome.first_answer is None else int(outcome.first_answer),  # type: ignore[arg-type]
            included_in=outcome.included_in,
            participation=border.participation(outcome.participation),
        )

    async def _receive(
        self,
        messages: AsyncIterator[updates_pb2.UploadUpdateRequest],
        start: updates_pb2.UploadStart,
        caller: Caller,
        context: Context,
    ) -> Outcome:
        if self._streams >= MAX_STREAMS:
            return self._busy(caller, f"{MAX_STREAMS} uploads are in progress")
        upload = self._spool.open(caller.participant, start.digest, self._payload_bytes, start.offset, self._time())
        if upload is None:
            return self._busy(caller, "the upload cannot go on from there now; ask GetUpload")
        self._streams += 1
        try:
            await self._chunks(messages, upload, caller, context)
        finally:
            self._streams -= 1
        if upload.received_bytes < upload.total_bytes:
            return self._busy(
                caller, f"{upload.received_bytes} of {upload.total_bytes} bytes have arrived; go on from there"
            )
        return await self._whole(upload, start, caller, context)

    async def _chunks(
        self,
        messages: AsyncIterator[updates_pb2.UploadUpdateRequest],
        upload: Upload,
        caller: Caller,
        context: Context,
    ) -> None:
        stream = upload.stream
        while (message := await self._next(messages, context)) is not None:
            await self._gate.enter(context)
            if message.WhichOneof("part") != "chunk":
                await border.refuse(context, "part must be `chunk` in all messages of an upload but the first")
            chunk = message.chunk
            data = chunk.data
            if upload.stream != stream or upload.is_complete:
                await context.abort(grpc.StatusCode.ABORTED, "a newer stream of this upload has taken over")
            if chunk.offset != upload.received_bytes:
                await border.refuse(context, f"chunk.offset must be {upload.received_bytes}, found {chunk.offset}")
            room = min(self._max_chunk_bytes, upload.total_bytes - upload.received_bytes)
            if not 1 <= len(data) <= room:
                await border.refuse(context, f"chunk.data must be 1 to {room} bytes, found {len(data)}")
            if google_crc32c.value(data) != chunk.crc32c:
                await context.abort(grpc.StatusCode.DATA_LOSS, "a chunk was damaged on the way; ask GetUpload")
            try:
                self._spool.append(upload, data, self._time())
            except OSError as error:
                self._spool.discard(upload)
                await context.abort(grpc.StatusCode.UNAVAILABLE, f"the spool cannot be written: {error.strerror}")
            self._host.chunk_arrived(caller)

    async def _whole(self, upload: Upload, start: updates_pb2.UploadStart, caller: Caller, context: Context) -> Outcome:
        if upload.is_complete:
            return self._busy(caller, "this upload is being checked")
        upload.is_complete = True
        try:
            payload, digest = await asyncio.to_thread(self._spool.read, upload, start.header)
            if digest != start.digest:
                return Outcome(
                    Answer.INVALID, f"expected content with digest {start.digest.hex()}, found {digest.hex()}"
                )
            return await border.answered(self._host.submit(caller, start.header, digest, payload), context)
        finally:
            self._spool.discard(upload)

    async def _next(
        self, messages: AsyncIterator[updates_pb2.UploadUpdateRequest], context: Context
    ) -> updates_pb2.UploadUpdateRequest | None:
        try:
            return await asyncio.wait_for(anext(messages, None), CHUNK_TIMEOUT_SECONDS)
        except TimeoutError:
            await context.abort(
                grpc.StatusCode.UNAVAILABLE, f"no message came for {CHUNK_TIMEOUT_SECONDS:g} s; ask GetUpload and go on"
            )
            raise

    def _busy(self, caller: Caller, detail: str) -> Outcome:
        view = self._host.check(caller).participation
        return Outcome(Answer.BUSY, detail, participation=view, retry_after_milliseconds=_RETRY_MILLISECONDS)
