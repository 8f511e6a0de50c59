"""The gRPC service for models. Its streams pass bytes that were serialized once per version and are shared by all."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import TypeVar

import grpc
from hushgrad.server import border, watch
from hushgrad.server.border import Context
from hushgrad.server.database import Database
from hushgrad.server.errors import StoreError
from hushgrad.server.services import Gate
from hushgrad.server.watch import Model, Publisher
from hushgrad.v1 import models_pb2

SERVICE_NAME = "hushgrad.v1.ModelService"
MAX_LOADS = 4
"""So many old versions are read from disk at a time."""

MOST_LISTED = 1000
"""So many versions are listed in one answer."""

T = TypeVar("T")
_MAX_VERSION = 2**63 - 1
_MAX_REMEMBERED = 10_000


class ModelService:
    """See ModelService in models.proto.

    Attributes:
        told_the_end: names of those who were told that the run ended.
    """

    def __init__(
        self,
        publisher: Publisher,
        open_database: Callable[[], Database],
        terms_digest: bytes,
        gate: Gate,
    ) -> None:
        """Args: open_database opens a connection of its own, for one read on any thread."""
        self._publisher = publisher
        self._open_database = open_database
        self._terms_digest = terms_digest
        self._gate = gate
        self._loads = asyncio.Semaphore(MAX_LOADS)
        self._time = asyncio.get_running_loop().time
        self.told_the_end: set[str] = set()
        self._cut_off: dict[str, float] = {}

    def handler(self) -> grpc.GenericRpcHandler:
        """Returns what a server registers."""
        return grpc.method_handlers_generic_handler(
            SERVICE_NAME,
            {
                "WatchModels": grpc.unary_stream_rpc_method_handler(
                    self.watch_models, models_pb2.WatchModelsRequest.FromString
                ),
                "GetModel": grpc.unary_stream_rpc_method_handler(self.get_model, models_pb2.GetModelRequest.FromString),
                "ListModels": grpc.unary_unary_rpc_method_handler(
                    self.list_models,
                    models_pb2.ListModelsRequest.FromString,
                    models_pb2.ListModelsResponse.SerializeToString,
                ),
                "GetManifest": grpc.unary_unary_rpc_method_handler(
                    self.get_manifest,
                    models_pb2.GetManifestRequest.FromString,
                    models_pb2.GetManifestResponse.SerializeToString,
                ),
            },
        )

    async def watch_models(self, request: models_pb2.WatchModelsRequest, context: Context) -> AsyncIterator[bytes]:
        """Streams news of versions."""
        name = await self._enter(request, context)
        after = request.after_version if request.HasField("after_version") else None
        self._cut_off.pop(name, None)
        try:
            watching = self._publisher.watch(after, lambda: self.told_the_end.add(name), request.encoding)
            async with contextlib.aclosing(watching) as news:
                async for message in news:
                    yield message
        except (asyncio.CancelledError, GeneratorExit):
            self._note_cut(name)
            raise

    def _note_cut(self, name: str) -> None:
        self._cut_off.pop(name, None)
        self._cut_off[name] = self._time()
        if len(self._cut_off) > _MAX_REMEMBERED:
            del self._cut_off[next(iter(self._cut_off))]

    def expects(self, seconds: float) -> bool:
        """Returns whether somebody whose watch broke off so recently has neither come back nor been told the end."""
        since = self._time() - seconds
        return any(at > since and name not in self.told_the_end for name, at in self._cut_off.items())

    async def get_model(self, request: models_pb2.GetModelRequest, context: Context) -> AsyncIterator[bytes]:
        """Streams one version in chunks."""
        await self._enter(request, context)
        kind = request.kind or models_pb2.MODEL_KIND_PUBLISHED
        model = self._publisher.models.get(kind)
        is_newest = model is not None and model.version == request.version
        if is_newest and request.encoding == models_pb2.MODEL_ENCODING_FLOAT16:
            model = await self._publisher.half(kind)
        if model is None or model.version != request.version:
            model = await self._old_model(request, kind, context)
        if request.offset > len(model.data):
            await border.refuse(context, f"offset must be at most {len(model.data)}, found {request.offset}")
        async for message in self._publisher.chunks(model, request.offset):
            self._gate.touch()
            yield message

    async def _old_model(self, request: models_pb2.GetModelRequest, kind: int, context: Context) -> Model:
        found = None
        if kind == models_pb2.MODEL_KIND_PUBLISHED and request.version <= _MAX_VERSION:
            found = await self._read(lambda database: database.content(request.version), context)
        if found is None:
            what = "averaged model of version" if kind == models_pb2.MODEL_KIND_AVERAGED else "version"
            await context.abort(
                grpc.StatusCode.NOT_FOUND,
                f"{what} {request.version} is not kept; the newest is {self._publisher.state.newest_version}",
            )
            raise AssertionError("abort raises")
        model = Model(request.version, *found)
        if request.encoding == models_pb2.MODEL_ENCODING_FLOAT16:
            async with self._loads:
                return await asyncio.to_thread(watch.halved, model)
        return model

    async def list_models(
        self, request: models_pb2.ListModelsRequest, context: Context
    ) -> models_pb2.ListModelsResponse:
        """Lists the versions whose models are kept."""
        await self._enter(request, context)
        after = min(request.after_version, _MAX_VERSION) if request.HasField("after_version") else -1
        found = await self._read(lambda database: database.kept(after, MOST_LISTED + 1), context)
        averaged = self._publisher.models.get(models_pb2.MODEL_KIND_AVERAGED)
        newest = self._publisher.models[models_pb2.MODEL_KIND_PUBLISHED]
        return models_pb2.ListModelsResponse(
            server=self._publisher.state,
            models=[
                models_pb2.KeptModel(
                    version=one.version,
                    sha256=one.sha256,
                    published_at_milliseconds=0 if one.published_at is None else round(1000 * one.published_at),
                    averaged_available=averaged is not None and averaged.version == one.version,
                )
                # What is durable and not published yet is nobody's business.
                for one in found[:MOST_LISTED]
                if one.version <= newest.version
            ],
            more=len(found) > MOST_LISTED,
            total_bytes=len(newest.data),
        )

    async def get_manifest(
        self, request: models_pb2.GetManifestRequest, context: Context
    ) -> models_pb2.GetManifestResponse:
        """Lists the updates that a version added."""
        await self._enter(request, context)
        found = None
        if request.version <= self._publisher.state.newest_version:
            found = await self._read(lambda database: database.manifest(request.version), context)
        if found is None:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"version {request.version} is not published")
            raise AssertionError("abort raises")
        previous, receipts = found
        return models_pb2.GetManifestResponse(
            server=self._publisher.state,
            version=request.version,
            previous_version=previous,
            entries=[
                models_pb2.ManifestEntry(participant=receipt.participant, round=receipt.round, digest=receipt.digest)
                for receipt in receipts
            ],
        )

    async def _enter(
        self,
        request: models_pb2.WatchModelsRequest
        | models_pb2.GetModelRequest
        | models_pb2.GetManifestRequest
        | models_pb2.ListModelsRequest,
        context: Context,
    ) -> str:
        await self._gate.enter(context)
        caller = await border.read_caller(request.caller, context)
        if caller.terms_digest != self._terms_digest:
            await border.refuse(
                context,
                f"this server's terms have digest {self._terms_digest.hex()}, found {caller.terms_digest.hex()}; "
                "compare the address with the one you were given",
            )
        return caller.participant

    async def _read(self, read: Callable[[Database], T], context: Context) -> T:
        def job() -> T:
            database = self._open_database()
            try:
                return read(database)
            finally:
                database.close()

        try:
            async with self._loads:
                return await asyncio.to_thread(job)
        except StoreError as error:
            await context.abort(grpc.StatusCode.INTERNAL, str(error))
            raise
