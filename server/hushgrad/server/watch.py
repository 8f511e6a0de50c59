"""Publishes versions to everybody who watches.

Keeps one encoded event per version, shared by all watchers, and no queue per watcher: each holds one integer, the
version it was sent last, and skips to the newest. Models too large for an event are fetched in chunks; the chunks of
the newest version are encoded once for all who fetch it at about the same time, and whoever is slower has them read
again. Knows nothing of how versions come about.
"""

import asyncio
import random
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from dataclasses import dataclass
from typing import Final

import google_crc32c
from hushgrad.server import stored
from hushgrad.server.aggregation import Published
from hushgrad.server.stored import Content, Half
from hushgrad.v1 import common_pb2, models_pb2
from hushgrad.wire import pieces

_SPREAD_MILLISECONDS: Final = 5_000
_MILLISECONDS_EACH: Final = 2
"""So far apart do watchers come back that were sent away together, and at most so long does that take."""

_KEPT_BYTES: Final = 16 * 2**20
"""So much of the newest version is kept encoded: more than those who fetch it together are ever apart."""


@dataclass(frozen=True, slots=True)
class Model:
    """One array of one version, ready to be sent.

    Attributes:
        data: little-endian float32, or what `encoding` says.
        sha256: over `data`.
        encoding: a ModelEncoding of models.proto.
        float32_sha256: with another encoding than float32, what the array is known by; else empty.
    """

    version: int
    data: Content
    sha256: bytes
    encoding: int = models_pb2.MODEL_ENCODING_FLOAT32
    float32_sha256: bytes = b""


def halved(model: Model) -> Model:
    """Returns a model in float16. Slow for a large one: call it off the event loop."""
    data: Content = Half(model.data)
    if isinstance(model.data, bytes):
        data = data[:]
    digest = stored.sha256(data)
    return Model(model.version, data, digest, models_pb2.MODEL_ENCODING_FLOAT16, model.sha256)


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
        self._chunks: dict[tuple[bytes, int], asyncio.Future[bytes]] = {}
        self._halves: dict[int, asyncio.Future[Model]] = {}
        self._half_event = b""
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
        self._halves = {}
        self._published = self._described(self.models[models_pb2.MODEL_KIND_PUBLISHED])
        self._encode()
        self._wake()

    def _described(self, model: Model) -> models_pb2.Published:
        is_inline = len(model.data) <= self._max_inline_model_bytes
        is_float32 = model.encoding == models_pb2.MODEL_ENCODING_FLOAT32
        return models_pb2.Published(
            version=model.version,
            total_bytes=len(model.data),
            sha256=model.sha256,
            model=model.data[:] if is_inline else b"",
            averaged_available=models_pb2.MODEL_KIND_AVERAGED in self.models,
            # Left out where it says nothing new, so that messages are what they always were.
            encoding=None if is_float32 else model.encoding,  # type: ignore[arg-type]
            float32_sha256=model.float32_sha256,
        )

    async def half(self, kind: int) -> Model | None:
        """Returns an array of the newest version in float16, made once for all; None when there is none of the kind."""
        model = self.models.get(kind)
        if model is None:
            return None
        if kind not in self._halves:
            self._halves[kind] = asyncio.ensure_future(asyncio.to_thread(halved, model))
        # Who goes away meanwhile does not take it from the others.
        return await asyncio.shield(self._halves[kind])

    async def _newest(self, encoding: int) -> tuple[bytes, int]:
        """Returns the event of the newest version, and that version."""
        while encoding == models_pb2.MODEL_ENCODING_FLOAT16:
            if not self._half_event:
                model = await self.half(models_pb2.MODEL_KIND_PUBLISHED)
                if model is None or model.version != self._version:
                    continue
                # All who waited come by here: the first one encodes it for the others.
                self._half_event = self._half_event or self._encoded(published=self._described(model))
            return self._half_event, self._version
        return self._event, self._version

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
        self._event = self._encoded(published=self._published)
        self._half_event = b""

    def go_away(self) -> None:
        """Sends every watcher away for a while."""
        self._is_going_away = True
        self._wake()

    def _wake(self) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(True)

    async def watch(
        self,
        after_version: int | None,
        on_end: Callable[[], None],
        encoding: int = models_pb2.MODEL_ENCODING_FLOAT32,
    ) -> AsyncGenerator[bytes, None]:
        """Yields serialized WatchModelsResponse messages until the last one, RunEnded or GoingAway.

        Args:
            after_version: the newest version that the watcher holds; None for none.
            on_end: called when RunEnded is about to be sent.
            encoding: how models are written; a value that is not known is read as float32.
        """
        sent = -1 if after_version is None else after_version
        self.watchers += 1
        try:
            while True:
                if self._version > sent:
                    event, sent = await self._newest(encoding)
                    yield event
                elif self.has_ended:
                    on_end()
                    yield self._encoded(run_ended=self._run_ended())
                    return
                elif self._is_going_away:
                    spread = min(_SPREAD_MILLISECONDS, _MILLISECONDS_EACH * self.watchers)
                    wait = random.randrange(spread)
                    yield self._encoded(going_away=models_pb2.GoingAway(retry_after_milliseconds=wait))
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

    async def chunks(self, model: Model, offset: int) -> AsyncIterator[bytes]:
        """Yields serialized GetModelResponse messages from an offset on. Their reader holds none but the present one.

        Those of the newest version are shared by all who ask for the whole of it.
        """
        for start in range(offset, len(model.data), self._max_chunk_bytes):
            if offset == 0 and model.version == self._version:
                yield await self._shared_chunk(model, start)
            else:
                yield await self._chunk(model, start, start == offset)

    async def _shared_chunk(self, model: Model, start: int) -> bytes:
        key = model.sha256, start
        if key not in self._chunks:
            while len(self._chunks) >= max(1, _KEPT_BYTES // self._max_chunk_bytes):
                del self._chunks[next(iter(self._chunks))]
            self._chunks[key] = asyncio.ensure_future(self._chunk(model, start, start == 0))
        # Who goes away meanwhile does not take it from the others.
        return await asyncio.shield(self._chunks[key])

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
            encoding=None if state is None or not model.float32_sha256 else model.encoding,  # type: ignore[arg-type]
            float32_sha256=model.float32_sha256 if state is not None else b"",
        )
        return pieces.with_bytes(message, models_pb2.GetModelResponse.DATA_FIELD_NUMBER, data)


def _expire(waiter: asyncio.Future[bool]) -> None:
    if not waiter.done():
        waiter.set_result(False)
