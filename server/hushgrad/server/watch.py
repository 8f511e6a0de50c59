"""Publishes versions to everybody who watches.

Keeps one encoded event per version, shared by all watchers, and no queue per watcher: each holds one integer, the
version it was sent last, and skips to the newest. Models too large for an event are fetched in chunks; the chunks of
the newest version are encoded once for all who fetch it at about the same time, and whoever is slower has them read
again. Knows nothing of how versions come about.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from dataclasses import dataclass
from typing import Final

import google_crc32c
from hushgrad.server.aggregation import Published
from hushgrad.server.stored import Content
from hushgrad.v1 import common_pb2, models_pb2
from hushgrad.wire import pieces

_KEPT_BYTES: Final = 16 * 2**20
"""So much of the newest version is kept encoded: more than those who fetch it together are ever apart."""


@dataclass(frozen=True, slots=True)
class Model:
    """One array of one version, ready to be sent: little-endian float32 bytes and their SHA-256."""

    version: int
    data: Content
    sha256: bytes


class Publisher:
    """The newest version, and the news for its watchers."""

    def __init__(
        self,
        *,
        server_epoch: int,
        final_version: int,
        max_inline_model_bytes: int,
        max_chunk_bytes: int,
        heartbeat_seconds: float,
    ) -> None:
        self._watermark: int | None = None
        self._published: models_pb2.Published | None = None
        self._server_epoch = server_epoch
        self._final_version = final_version
        self._reason = f"the final version, {final_version}, is published"
        self._max_inline_model_bytes = max_inline_model_bytes
        self._max_chunk_bytes = max_chunk_bytes
        self._heartbeat_seconds = heartbeat_seconds
        self._version = -1
        self._event = b""
        self._state = common_pb2.ServerState(server_epoch=server_epoch)
        self._chunks: dict[tuple[int, int], asyncio.Future[bytes]] = {}
        self._is_going_away = False
        self._loop = asyncio.get_running_loop()
        self._waiters: set[asyncio.Future[bool]] = set()
        self.models: dict[int, Model] = {}
        self.watchers = 0

    @property
    def state(self) -> common_pb2.ServerState:
        """How far the server's memory reaches. To be read only."""
        return self._state

    def end_with(self, version: int, reason: str) -> None:
        """Makes a version the last one, earlier than the terms say. When it is published, every watcher is told so."""
        self._final_version, self._reason = version, reason
        self._wake()

    @property
    def has_ended(self) -> bool:
        """Whether the final version is published."""
        return self._version >= self._final_version

    def state_for(self, watermark: int | None) -> common_pb2.ServerState:
        """Returns the state with the retention watermark of one participant; None: with the one for all."""
        if watermark is None or watermark == self._state.retention_watermark:
            return self._state
        return common_pb2.ServerState(
            server_epoch=self._server_epoch, retention_watermark=watermark, newest_version=self._version
        )

    def publish(self, published: Published, averaged_sha256: bytes, watermark: int | None = None) -> None:
        """Makes a version the newest one. Its checkpoint must be durable.

        Args:
            watermark: as in `set_watermark`; None: as before.
        """
        version = published.version
        self._version = version
        if watermark is not None:
            self._watermark = watermark
        self.models = {models_pb2.MODEL_KIND_PUBLISHED: Model(version, published.model, published.sha256)}
        if published.averaged is not None:
            self.models[models_pb2.MODEL_KIND_AVERAGED] = Model(version, published.averaged, averaged_sha256)
        self._chunks = {}
        is_inline = len(published.model) <= self._max_inline_model_bytes
        self._published = models_pb2.Published(
            version=version,
            total_bytes=len(published.model),
            sha256=published.sha256,
            model=published.model[:] if is_inline else b"",
            averaged_available=published.averaged is not None,
        )
        self._encode()
        self._wake()

    def set_watermark(self, watermark: int) -> None:
        """Takes the retention watermark that holds for all participants. Watchers hear of it next time."""
        self._watermark = watermark
        if self._published is not None:
            self._encode()

    def _encode(self) -> None:
        self._state = common_pb2.ServerState(
            server_epoch=self._server_epoch,
            retention_watermark=self._version if self._watermark is None else min(self._watermark, self._version),
            newest_version=self._version,
        )
        self._event = models_pb2.WatchModelsResponse(server=self._state, published=self._published).SerializeToString()

    def go_away(self) -> None:
        """Sends every watcher away for a while."""
        self._is_going_away = True
        self._wake()

    def _wake(self) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(True)

    async def watch(self, after_version: int | None, on_end: Callable[[], None]) -> AsyncGenerator[bytes, None]:
        """Yields serialized WatchModelsResponse messages until the last one, RunEnded or GoingAway.

        Args:
            after_version: the newest version that the watcher holds; None for none.
            on_end: called when RunEnded is about to be sent.
        """
        sent = -1 if after_version is None else after_version
        self.watchers += 1
        try:
            while True:
                if self._version > sent:
                    sent = self._version
                    yield self._event
                elif self.has_ended:
                    on_end()
                    yield self._encoded(run_ended=self._run_ended())
                    return
                elif self._is_going_away:
                    yield self._encoded(going_away=models_pb2.GoingAway())
                    return
                elif not await self._has_news():
                    milliseconds = round(self._heartbeat_seconds * 1000)
                    yield self._encoded(heartbeat=models_pb2.Heartbeat(interval_milliseconds=milliseconds))
        finally:
            self.watchers -= 1

    async def _has_news(self) -> bool:
        waiter: asyncio.Future[bool] = self._loop.create_future()
        timer = self._loop.call_later(self._heartbeat_seconds, _expire, waiter)
        self._waiters.add(waiter)
        try:
            return await waiter
        finally:
            timer.cancel()
            self._waiters.discard(waiter)

    def _run_ended(self) -> models_pb2.RunEnded:
        return models_pb2.RunEnded(final_version=self._final_version, reason=self._reason)

    def _encoded(self, **event: object) -> bytes:
        return models_pb2.WatchModelsResponse(server=self._state, **event).SerializeToString()  # type: ignore[arg-type]

    async def chunks(self, model: Model, offset: int, kind: int | None) -> AsyncIterator[bytes]:
        """Yields serialized GetModelResponse messages from an offset on. Their reader holds none but the present one.

        Args:
            kind: the key of `models` under which the model was found, so that the messages are shared by all who ask
                for the whole of it; None when it is another one.
        """
        for start in range(offset, len(model.data), self._max_chunk_bytes):
            if offset == 0 and kind is not None and self.models.get(kind) is model:
                yield await self._shared_chunk(model, start, kind)
            else:
                yield await self._chunk(model, start, start == offset)

    async def _shared_chunk(self, model: Model, start: int, kind: int) -> bytes:
        if (kind, start) not in self._chunks:
            while len(self._chunks) >= max(1, _KEPT_BYTES // self._max_chunk_bytes):
                del self._chunks[next(iter(self._chunks))]
            self._chunks[kind, start] = asyncio.ensure_future(self._chunk(model, start, start == 0))
        # Who goes away meanwhile does not take it from the others.
        return await asyncio.shield(self._chunks[kind, start])

    async def _chunk(self, model: Model, start: int, is_first: bool) -> bytes:
        state = self._state if is_first else None
        if isinstance(model.data, bytes):
            return self._encode_chunk(model, start, state)
        return await asyncio.to_thread(self._encode_chunk, model, start, state)

    def _encode_chunk(self, model: Model, start: int, state: common_pb2.ServerState | None) -> bytes:
        data = model.data[start : start + self._max_chunk_bytes]
        message = models_pb2.GetModelResponse(
            version=model.version,
            total_bytes=len(model.data),
            offset=start,
            crc32c=google_crc32c.value(data),
            server=state,
            sha256=model.sha256 if state is not None else b"",
        )
        return pieces.with_bytes(message, models_pb2.GetModelResponse.DATA_FIELD_NUMBER, data)


def _expire(waiter: asyncio.Future[bool]) -> None:
    if not waiter.done():
        waiter.set_result(False)
