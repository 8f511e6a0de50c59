"""The gRPC service for updates, whole or in pieces.

Pieces come in a resumable stream, are spooled and checked in whole, then submitted like any other update. Contains no
protocol decision; uploads are held to their limits here, other calls in `limiting`.
"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final

import google_crc32c
import grpc
from hushgrad.server import border, content, limiting
from hushgrad.server.border import Context
from hushgrad.server.content import Measures
from hushgrad.server.counting import Counters
from hushgrad.server.errors import StoreError
from hushgrad.server.federation import Outcome
from hushgrad.server.host import Host
from hushgrad.server.limits import Limiter, retry_after_milliseconds
from hushgrad.server.records import Answer, Caller
from hushgrad.server.services import Gate
from hushgrad.server.spool import Spool, Upload
from hushgrad.server.watch import Publisher
from hushgrad.v1 import updates_pb2, updates_pb2_grpc
from hushgrad.wire import header as wire_header
from hushgrad.wire import pieces
from hushgrad.wire.pieces import Chunk
from hushgrad.wire.terms import Terms

SERVICE_NAME: Final = "hushgrad.v1.UpdateService"

_RETRY_SECONDS: Final = 0.5
_SILENT_SECONDS: Final = 5.0
_HASH_OFF_LOOP_BYTES: Final = 256 * 1024

UploadPart = updates_pb2.UploadUpdateRequest | Chunk
"""A message of an upload; of a chunk a view, where `handler` has read it."""


@dataclass(frozen=True, slots=True)
class _Wait:
    """A stream that waits for its sender: until when at most, and since when."""

    timeout: asyncio.Timeout
    since: float


class UpdateService(updates_pb2_grpc.UpdateServiceServicer):
    """See UpdateService in updates.proto."""

    def __init__(
        self,
        host: Host,
        terms: Terms,
        spool: Spool,
        publisher: Publisher,
        gate: Gate,
        limiter: Limiter,
        counters: Counters | None = None,
    ) -> None:
        self._host = host
        self._payload_bytes = 4 * terms.parameters
        self._max_unary_bytes = terms.limits.max_unary_bytes
        self._max_chunk_bytes = terms.limits.max_chunk_bytes
        self._spool = spool
        self._publisher = publisher
        self._gate = gate
        self._limiter = limiter
        self._counters = counters or Counters()
        self._time = asyncio.get_running_loop().time
        self._waiting: dict[Upload, _Wait] = {}
        self._returns: set[asyncio.Task[None]] = set()

    def handler(self) -> grpc.GenericRpcHandler:
        """Returns what a server registers: the generated handlers, but for chunks, which are read without copies."""
        return grpc.method_handlers_generic_handler(
            SERVICE_NAME,
            {
                "SubmitUpdate": grpc.unary_unary_rpc_method_handler(
                    self.SubmitUpdate,
                    updates_pb2.SubmitUpdateRequest.FromString,
                    updates_pb2.SubmitUpdateResponse.SerializeToString,
                ),
                "GetUpload": grpc.unary_unary_rpc_method_handler(
                    self.GetUpload,
                    updates_pb2.GetUploadRequest.FromString,
                    updates_pb2.GetUploadResponse.SerializeToString,
                ),
                "UploadUpdate": grpc.stream_unary_rpc_method_handler(
                    self.UploadUpdate, pieces.read_upload, updates_pb2.UploadUpdateResponse.SerializeToString
                ),
            },
        )

    async def SubmitUpdate(  # noqa: N802
        self, request: updates_pb2.SubmitUpdateRequest, context: Context
    ) -> updates_pb2.SubmitUpdateResponse:
        """Takes one update in one message."""
        await self._gate.enter(context)
        caller = await border.read_caller(request.caller, context)
        header, payload = request.header, request.payload
        self._counters.received_bytes += len(payload)
        await self._check_header_size("header", header, context)
        if len(payload) > self._max_unary_bytes:
            await border.refuse(
                context,
                f"payload must be at most {self._max_unary_bytes} bytes, found {len(payload)}; use UploadUpdate",
            )
        known = self._host.check(caller)
        if known.answer is not Answer.ACCEPTED:
            return self._answer(known)  # before the payload has cost a checksum and a digest
        if google_crc32c.extend(google_crc32c.value(header), payload) != request.crc32c:
            return self._answer(self._busy(caller, "the bytes were damaged on the way (CRC-32C differs)"))
        if len(payload) > _HASH_OFF_LOOP_BYTES:
            digest, measures = await asyncio.to_thread(self._look, header, payload)
        else:
            digest, measures = self._look(header, payload)
        outcome = await border.answered(self._host.submit(caller, header, digest, payload, measures), context)
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
        self, messages: AsyncIterator[UploadPart], context: Context
    ) -> updates_pb2.UploadUpdateResponse:
        """Takes one update in pieces."""
        await self._gate.enter(context)
        seconds = self._limiter.config.request_seconds
        try:
            async with asyncio.timeout(seconds):
                first = await anext(messages, None)
        except TimeoutError:
            await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, f"no message came for {seconds:g} s")
            raise
        if first is None or isinstance(first, Chunk) or first.WhichOneof("part") != "start":
            await border.refuse(context, "part must be `start` in the first message of an upload")
        start = first.start
        caller = await border.read_caller(start.caller, context)
        digest = await border.read_digest(start.digest, "start.digest", context)
        await self._check_header_size("start.header", start.header, context)
        who, now = limiting.certified_name(context) or caller.participant, self._time()
        if wait := self._limiter.call(who, now):
            return updates_pb2.UploadUpdateResponse(
                result=self._answer(self._busy(caller, "calls come too fast", wait))
            )
        if not self._make_way(caller, digest, who):
            return updates_pb2.UploadUpdateResponse(
                result=self._answer(self._busy(caller, "too many uploads are in progress; finish one first"))
            )
        with self._limiter.opened(who, "upload", now):
            return await self._upload(messages, start, caller, who, context)

    async def _upload(
        self,
        messages: AsyncIterator[UploadPart],
        start: updates_pb2.UploadStart,
        caller: Caller,
        who: str,
        context: Context,
    ) -> updates_pb2.UploadUpdateResponse:
        digest = start.digest
        outcome = await border.answered(self._host.preview(caller, start.header, digest), context)
        if outcome.answer is Answer.ACCEPTED:
            outcome = await self._receive(messages, start, caller, who, context)
        return updates_pb2.UploadUpdateResponse(result=self._answer(outcome))

    def _make_way(self, caller: Caller, digest: bytes, who: str) -> bool:
        """Says whether a stream may begin; where it must, another one that waits for its sender gives way.

        One of the same upload always does: its sender has begun anew, and may have lost the connection under it long
        before this side will notice. When all places are taken, the stream that has been silent longest does, so that
        silence can keep nobody out. What has arrived of it stays in the spool.
        """
        same = self._spool.find(caller.participant, digest)
        if same is not None and same in self._waiting and self._host.check(caller).answer is Answer.ACCEPTED:
            self._displace(same)
            return True
        now = self._time()
        if self._limiter.is_free(who, "upload", now):
            return True
        is_own = self._limiter.is_full_of(who, "upload", now)
        silent = [
            (wait.since, upload)
            for upload, wait in self._waiting.items()
            if wait.since <= now - _SILENT_SECONDS and (upload.key[0] == caller.participant or not is_own)
        ]
        if not silent:
            return False
        self._displace(min(silent, key=lambda pair: pair[0])[1])
        return True

    def _displace(self, upload: Upload) -> None:
        upload.stream += 1
        self._waiting.pop(upload).timeout.reschedule(self._time())

    def _look(self, header: bytes, payload: bytes | memoryview) -> tuple[bytes, Measures | None]:
        """Returns the digest, and what the payload measures if it has the right size. Slow for large ones."""
        measures = content.measure(payload) if len(payload) == self._payload_bytes else None
        return wire_header.digest(header, payload), measures

    async def _check_header_size(self, path: str, header: bytes, context: Context) -> None:
        if len(header) != wire_header.HEADER_BYTES:
            await border.refuse(context, f"{path} must be {wire_header.HEADER_BYTES} bytes, found {len(header)}")

    def _answer(self, outcome: Outcome) -> updates_pb2.SubmitUpdateResponse:
        self._counters.updates[outcome.answer] += 1
        return updates_pb2.SubmitUpdateResponse(
            verdict=border.verdict(outcome, self._publisher),
            first_answer=None if outcome.first_answer is None else int(outcome.first_answer),  # type: ignore[arg-type]
            included_in=outcome.included_in,
            participation=border.participation(outcome.participation),
        )

    async def _receive(
        self,
        messages: AsyncIterator[UploadPart],
        start: updates_pb2.UploadStart,
        caller: Caller,
        who: str,
        context: Context,
    ) -> Outcome:
        try:
            upload = self._spool.open(caller.participant, start.digest, self._payload_bytes, start.offset, self._time())
        except OSError as error:
            await self._unwritable(error, context)
            raise
        if upload is None:
            return self._busy(caller, "the upload cannot go on from there now; ask GetUpload")
        upload.open_streams += 1
        try:
            stream = upload.stream
            await self._spool.stage(upload, self._time)
            if upload.stream != stream:
                await self._overtaken(context)
            await self._chunks(messages, upload, caller, who, context)
        finally:
            upload.open_streams -= 1
            if upload.received_bytes < upload.total_bytes:
                self._spool.rest(upload)
        if upload.received_bytes < upload.total_bytes:
            return self._busy(
                caller, f"{upload.received_bytes} of {upload.total_bytes} bytes have arrived; go on from there"
            )
        return await self._whole(upload, start, caller, context)

    async def _chunks(
        self,
        messages: AsyncIterator[UploadPart],
        upload: Upload,
        caller: Caller,
        who: str,
        context: Context,
    ) -> None:
        stream, began_at, waited = upload.stream, upload.received_bytes, 0.0
        while True:
            patience = self._limiter.config.patience(upload.received_bytes - began_at, self._max_chunk_bytes) - waited
            asked_at = self._time()
            message = await self._next(messages, upload, stream, patience, context)
            if message is None:
                return
            waited += self._time() - asked_at
            await self._gate.enter(context)
            if not isinstance(message, Chunk):
                if message.WhichOneof("part") != "chunk":
                    await border.refuse(context, "part must be `chunk` in all messages of an upload but the first")
                message = pieces.chunk_of(message)
            chunk = message
            data = bytes(chunk.data)  # what computes the checksum takes nothing else
            self._counters.received_bytes += len(data)
            if upload.stream != stream or upload.is_complete:
                await self._overtaken(context)
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
                self._spool.give_back(self._spool.discard(upload))
                await self._unwritable(error, context)
            self._host.chunk_arrived(caller)
            if wait := self._limiter.received(who, len(data), self._time()):
                await asyncio.sleep(wait)

    async def _whole(self, upload: Upload, start: updates_pb2.UploadStart, caller: Caller, context: Context) -> Outcome:
        if upload.is_complete:
            return self._busy(caller, "this upload is being checked")
        upload.is_complete = True
        try:
            try:
                payload = await self._spool.whole(upload, self._time)
            except OSError as error:
                await self._unwritable(error, context)
                raise
            digest, measures = await asyncio.to_thread(self._look, start.header, payload)
            if digest != start.digest:
                return Outcome(
                    Answer.INVALID, f"expected content with digest {start.digest.hex()}, found {digest.hex()}"
                )
            return await border.answered(self._host.submit(caller, start.header, digest, payload, measures), context)
        finally:
            if (buffer := self._spool.discard(upload)) is not None:
                returning = asyncio.ensure_future(self._give_back(buffer))
                self._returns.add(returning)
                returning.add_done_callback(self._returns.discard)

    async def _give_back(self, buffer: memoryview) -> None:
        """Gives a buffer back when nothing of what was decided reads it any more, also when nobody waits for that."""
        try:
            await self._host.settled()
        except StoreError:
            return  # the server is stopping
        self._spool.give_back(buffer)

    async def _next(
        self,
        messages: AsyncIterator[UploadPart],
        upload: Upload,
        stream: int,
        patience: float,
        context: Context,
    ) -> UploadPart | None:
        try:
            async with asyncio.timeout(max(patience, 0.0)) as timeout:
                wait = self._waiting[upload] = _Wait(timeout, self._time())
                try:
                    return await anext(messages, None)
                finally:
                    if self._waiting.get(upload) is wait:
                        del self._waiting[upload]
        except TimeoutError:
            if upload.stream != stream:
                await self._overtaken(context)
            slowest = self._limiter.config.min_bytes_per_second
            await context.abort(
                grpc.StatusCode.UNAVAILABLE,
                f"an upload must bring {slowest:g} bytes a second, found fewer; ask GetUpload and go on",
            )
            raise

    async def _overtaken(self, context: Context) -> None:
        await context.abort(grpc.StatusCode.ABORTED, "a newer stream has taken the place of this one; ask GetUpload")

    async def _unwritable(self, error: OSError, context: Context) -> None:
        await context.abort(grpc.StatusCode.UNAVAILABLE, f"the spool cannot be used: {error.strerror}; try again later")

    def _busy(self, caller: Caller, detail: str, seconds: float = _RETRY_SECONDS) -> Outcome:
        view = self._host.check(caller).participation
        wait = retry_after_milliseconds(seconds)
        return Outcome(Answer.BUSY, detail, participation=view, retry_after_milliseconds=wait)
