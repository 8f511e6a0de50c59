"""One server process: opens the state, serves until a signal, the end of the federation or a failed store, and stops.

Contains the order of starting and stopping, and the gRPC settings.
"""

import asyncio
import contextlib
import resource
import signal
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from hushgrad.server import administration_service, backup, initialize, overview, stored, wal
from hushgrad.server import config as config_module
from hushgrad.server import database as database_module
from hushgrad.server.administration_service import AdministrationService
from hushgrad.server.aggregation import Published, at_once
from hushgrad.server.config import ServerConfig
from hushgrad.server.content import ContentCheck
from hushgrad.server.counting import Counters
from hushgrad.server.database import Database
from hushgrad.server.errors import InputError, StoreError
from hushgrad.server.federation import Federation
from hushgrad.server.folder import StateFolder
from hushgrad.server.folding import SMALLEST_PARAMETERS, Folding
from hushgrad.server.host import Host
from hushgrad.server.limiting import MAX_REQUEST_BYTES, Limiting
from hushgrad.server.limits import Limiter, LimitsConfig
from hushgrad.server.model_service import SERVICE_NAME, ModelService
from hushgrad.server.records import Receipt, Snapshot, State
from hushgrad.server.services import Gate, MembershipService, StatusService, TermsService
from hushgrad.server.spool import Spool
from hushgrad.server.staging import Staging
from hushgrad.server.store import Store
from hushgrad.server.stored import Mean
from hushgrad.server.update_service import UpdateService
from hushgrad.server.watch import Publisher
from hushgrad.v1 import (
    admin_pb2_grpc,
    enrollment_pb2_grpc,
    membership_pb2_grpc,
    status_pb2_grpc,
    terms_pb2_grpc,
)
from hushgrad.wire import terms as wire_terms

if TYPE_CHECKING:
    from hushgrad.server.tls import Door
    from hushgrad.server.tracing import UpdateSpans
    from hushgrad.server.web.listener import Listener
    from hushgrad.wire.tracing import Tracing

CHANNEL_OPTIONS: Final = (
    # Without it a second server would silently share the port.
    ("grpc.so_reuseport", 0),
    # The name with "recv" in it, which the C macro suggests, is silently ignored.
    ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.keepalive_time_ms", 60_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    # Connections outlive certificates; a new handshake every hour does not.
    ("grpc.max_connection_age_ms", 3_600_000),
    ("grpc.max_connection_age_grace_ms", 60_000),
    ("grpc.max_receive_message_length", MAX_REQUEST_BYTES),
    # So much of each upload arrives unasked, and no more: gRPC's own estimate of the way grows to 16 MiB of memory for
    # every stream. A sender 50 ms away still brings 10 MB a second.
    ("grpc.http2.bdp_probe", 0),
    ("grpc.http2.lookahead_bytes", 2**19),
    # Of what is read at once, a single message that waits keeps all in memory.
    ("grpc.experimental.tcp_max_read_chunk_size", 2**17),
    # Bit 0 is "identity": a compressed request could be a thousand times larger than what was sent.
    ("grpc.compression_enabled_algorithms_bitset", 1),
)
_QUIET_SECONDS: Final = 1.0
_LOOK_SECONDS: Final = 0.1
# A watcher whose stream broke off waits up to 5 s between its tries.
_RETURN_SECONDS: Final = 10.0
_NOTE_SECONDS: Final = 0.5
_FILES_KEPT: Final = 256
_MOST_CONNECTIONS: Final = 2**31 - 1


def channel_options(limits: LimitsConfig) -> tuple[tuple[str, int], ...]:
    """Returns the gRPC settings that hold connections to the limits."""
    return (
        ("grpc.server_handshake_timeout_ms", round(1000 * limits.handshake_seconds)),
        ("grpc.max_connection_idle_ms", round(1000 * limits.idle_connection_seconds)),
        ("grpc.max_allowed_incoming_connections", min(limits.connections, _room_for_connections())),
        ("grpc.max_concurrent_streams", limits.streams_per_connection),
        # Between the two sizes gRPC refuses some calls and takes others; equal, there is one limit.
        ("grpc.max_metadata_size", limits.metadata_bytes),
        ("grpc.absolute_max_metadata_size", limits.metadata_bytes),
    )


def _room_for_connections() -> int:
    """Lets this process open as many files as the system permits; returns how many of them connections may take.

    The others are for the store: connections that use up all files would make it fail, and the server stop.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
    return _MOST_CONNECTIONS if soft == resource.RLIM_INFINITY else max(1, soft - min(_FILES_KEPT, soft // 2))


def run(config: ServerConfig, log: Any, *, terms_path: Path | None = None) -> None:
    """Serves until told to stop; returns when everything is durable.

    Args:
        config: with an absolute state folder.
        terms_path: a terms file that must agree with the state.

    Raises:
        InputError: if state, terms or address cannot be used.
        StoreError: if the store failed.
    """
    import uvloop

    folder = StateFolder(Path(config.state))
    if not folder.database.exists():
        # Says what is wrong without making folders in the wrong place.
        Database.open(folder)
    folder.make()
    folder.lock()
    wal.check(folder.database)
    database = Database.open(folder)
    try:
        if terms_path is not None:
            initialize.check_terms_file(database_module.stored_terms(database), terms_path, folder)
        database_module.remove_orphans(folder, database)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_Server(config, folder, database, log).serve())
    except (sqlite3.Error, OSError) as error:
        raise StoreError(f"the state in {folder.root} cannot be used: {error}") from error
    finally:
        database.close()
        folder.unlock()


class _FailStopArchive:
    """Looks old receipts up; an error ends the process like any other error of the store."""

    def __init__(self, database: Database, on_failure: Callable[[StoreError], None]) -> None:
        self._database = database
        self._on_failure = on_failure

    def find(self, participant: str, round_: int) -> Receipt | None:
        return self._guarded(lambda: self._database.find(participant, round_))

    def find_row(self, participant: str, sequence: int) -> Receipt | None:
        return self._guarded(lambda: self._database.find_row(participant, sequence))

    def _guarded(self, look_up: Callable[[], Receipt | None]) -> Receipt | None:
        try:
            return look_up()
        except StoreError as error:
            failure = StoreError(f"the store failed, stopping: {error}")
            self._on_failure(failure)
            raise failure from error

    def close(self) -> None:
        self._database.close()


class _Server:
    """The parts of one running server, in the order in which they start and stop."""

    def __init__(self, config: ServerConfig, folder: StateFolder, database: Database, log: Any) -> None:
        self._config = config
        self._folder = folder
        self._database = database
        self._log = log
        self._failure: StoreError | None = None
        self._counters = Counters()
        self._stop = asyncio.Event()

    async def serve(self) -> None:
        """Serves; see `run`."""
        loop = asyncio.get_running_loop()
        terms_bytes = self._database.terms_bytes()
        terms, terms_digest = wire_terms.from_bytes(terms_bytes), wire_terms.digest(terms_bytes)
        self._started_at, self._terms_digest = loop.time(), terms_digest
        self._open_door(terms)
        snapshot = self._database.snapshot(terms)
        first_start = self._note_first_start()
        self._publisher = Publisher(
            server_epoch=self._database.server_epoch(),
            final_version=terms.final_version,
            max_inline_model_bytes=terms.limits.max_inline_model_bytes,
            max_chunk_bytes=terms.limits.max_chunk_bytes,
            heartbeat_seconds=self._config.heartbeat_seconds,
        )
        self._publisher.publish(*self._last_published(snapshot))
        archive = _FailStopArchive(Database.open(self._folder, read_only=True), self._fail)
        folding = Folding(self._fail) if terms.parameters >= SMALLEST_PARAMETERS else None
        federation = Federation(
            terms,
            terms_digest,
            snapshot,
            archive,
            now=loop.time(),
            since_first_start=max(0.0, time.time() - first_start),
            backup_version=backup.noted_version(self._folder) if self._config.backups else None,
            content=ContentCheck(terms, self._config.improbable_updates),
            restore_wait_seconds=self._config.restore_wait_seconds,
            in_order=folding.in_order if folding else at_once,
            reuses_copies=True,
        )
        scores = self._database.latest_scores()
        del snapshot  # its array is as large as the one that was made of it
        if self._config.keep_versions is not None:
            self._log.warning("renamed_key", key="keep_versions", write="keep_last")
        self._store = Store(
            self._database,
            keep_last=0 if self._config.keep_sealed else self._config.keep_last,
            keep_every=self._config.keep_every,
            on_failure=self._fail,
            counters=self._counters,
        )
        self._host = Host(
            federation,
            self._store,
            self._publisher,
            self._log,
            keep_sealed=self._config.keep_sealed,
            counters=self._counters,
            folding=folding,
            scores=scores,
        )
        self._gate = Gate()
        self._expects_until = loop.time() + _RETURN_SECONDS if federation.newest_version > 0 else 0.0
        self._models = ModelService(
            self._publisher, lambda: Database.open(self._folder, read_only=True), terms_digest, self._gate
        )
        limits = self._config.limits
        limiter = Limiter(limits)
        self._spool = spool = Spool(
            self._folder.spool,
            limits.spool_quota(4 * terms.parameters),
            of_each=limits.spool_uploads_of_each,
            keep_seconds=limits.spool_keep_seconds,
            staging=Staging(4 * terms.parameters),
        )
        server = grpc.aio.server(
            options=(*CHANNEL_OPTIONS, *channel_options(limits)),
            # The door first: who may not call costs nothing, not even the reading of a request.
            interceptors=[
                *([self._door.access] if self._door else []),
                Limiting(limiter, lambda: self._publisher.state, self._log, self._counters),
                *self._update_spans(),
            ],
        )
        terms_pb2_grpc.add_TermsServiceServicer_to_server(
            TermsService(terms_bytes, terms_digest, self._publisher, self._gate), server
        )
        membership_pb2_grpc.add_MembershipServiceServicer_to_server(
            MembershipService(self._host, terms, self._publisher, self._gate), server
        )
        updates = UpdateService(self._host, terms, spool, self._publisher, self._gate, limiter, self._counters)
        server.add_generic_rpc_handlers((updates.handler(),))
        self._status = StatusService(self._host, terms, terms_digest, self._publisher, has_tls=self._door is not None)
        status_pb2_grpc.add_StatusServiceServicer_to_server(self._status, server)
        self._administration = AdministrationService(self._host, self._publisher, self._gate)
        if administration_service.is_served_on(self._config.listen, has_tls=self._door is not None):
            admin_pb2_grpc.add_AdministrationServiceServicer_to_server(self._administration, server)
        server.add_generic_rpc_handlers((self._models.handler(),))
        if self._door is not None and self._door.authority is not None:
            from hushgrad.server.enrollment_service import EnrollmentService

            enrollment_pb2_grpc.add_EnrollmentServiceServicer_to_server(
                EnrollmentService(self._door.authority, self._publisher, self._gate, self._log), server
            )
        self._health = health.aio.HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        try:
            await self._serve_on(server)
        finally:
            if folding is not None:
                folding.close()
            self._store.close()
            archive.close()
            if self._spans is not None:
                await asyncio.to_thread(self._spans.close)
        if self._failure is not None:
            raise self._failure

    async def _serve_on(self, server: grpc.aio.Server) -> None:
        address = self._bind(server)
        admin_server = await self._serve_admin()
        page = self._make_page()
        loop = asyncio.get_running_loop()
        for signal_ in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(signal_, self._stop.set)
        self._host.begin()
        await server.start()
        await self._tell_health(health_pb2.HealthCheckResponse.SERVING)
        if page is not None:
            page.start()
        self._log.info("listening", address=address)
        stop = asyncio.create_task(self._stop.wait())
        end = asyncio.create_task(self._linger())
        beside = [asyncio.create_task(self._follow_backups())]
        if self._door is not None:
            beside.append(asyncio.create_task(self._door.access.watch()))
        drained = asyncio.create_task(self._host.drained.wait())
        await asyncio.wait((stop, end, drained), return_when=asyncio.FIRST_COMPLETED)
        for task in (stop, end, drained, *beside):
            task.cancel()
        await self._drain(server)
        if page is not None:
            await page.stop()
        if admin_server is not None:
            await admin_server.stop(0)

    def _update_spans(self) -> "list[UpdateSpans]":
        self._spans: Tracing | None = None
        if not self._config.tracing:
            return []
        from hushgrad.server import tracing  # needed by few

        self._spans = tracing.start(self._log)
        return [tracing.UpdateSpans(self._spans)]

    def _make_page(self) -> "Listener | None":
        if not self._config.web_listen:
            return None
        try:
            from hushgrad.server import metrics  # a server without a page starts without them
            from hushgrad.server.web.listener import Listener
        except ModuleNotFoundError as error:
            raise InputError(
                f"web_listen needs {error.name}, which is not installed: pip install 'hushgrad[web]'"
            ) from None

        terms = self._host.federation.terms
        surroundings = metrics.Surroundings(
            straggler_timeout_seconds=terms.straggler_timeout_seconds,
            participants_allowed=terms.largest_number_of_participants,
            state=self._folder.root,
            database=self._folder.database,
            is_serving=lambda: self._gate.is_open and self._failure is None,
            spool_bytes=lambda: self._spool.bytes_on_disk,
            certificate_expiry=lambda: None if self._door is None else self._door.rotation.expires_at,
            backup_seconds=lambda: backup.noted_seconds(self._folder) if self._config.backups else None,
        )
        return Listener(
            self._config,
            federation=terms.federation,
            take=self._picture,
            open_database=lambda: Database.open(self._folder, read_only=True),
            metrics=metrics.Metrics(self._counters, surroundings).render,
            log=self._log,
        )

    def _picture(self) -> overview.Overview:
        now = asyncio.get_running_loop().time()
        facts = overview.Facts(
            now=now,
            wall_seconds=time.time(),
            started_at=self._started_at,
            published_at=self._host.published_at,
            server_epoch=self._publisher.state.server_epoch,
            watchers=self._publisher.watchers,
            waiting_jobs=self._store.waiting,
            scores=self._host.scoreboard.scores,
        )
        return overview.take(self._host.federation, self._terms_digest, self._counters, facts)

    async def _serve_admin(self) -> grpc.aio.Server | None:
        if not self._config.admin_listen:
            return None
        from hushgrad.server import admin

        server, address = await admin.serve(self._config.admin_listen, self._status, self._administration, self._health)
        self._log.info("listening_for_admin", address=address)
        return server

    def _open_door(self, terms: wire_terms.Terms) -> None:
        self._door: Door | None = None
        if self._config.tls is not None:
            from hushgrad.server import tls  # a server without TLS starts without it

            self._door = tls.door(self._config.tls, terms, self._log, self._counters)
        elif self._config.insecure_plaintext_to_anyone:
            self._log.warning(
                "insecure_plaintext_to_anyone", why="whoever reaches this address may take part as anybody"
            )

    def _bind(self, server: grpc.aio.Server) -> str:
        host, port = config_module.split_address(self._config.listen)
        try:
            if self._door is not None:
                bound = server.add_secure_port(f"{host}:{port}", self._door.rotation.credentials())
            else:
                bound = server.add_insecure_port(f"{host}:{port}")
        except RuntimeError as error:
            raise InputError(
                f"cannot listen on {host}:{port}; another program uses the port, or the address is not this machine's"
            ) from error
        return f"{host}:{bound}"

    async def _drain(self, server: grpc.aio.Server) -> None:
        """Stops in the order that lets every caller know: health, watchers, new calls, commits, open calls."""
        self._gate.is_open = False
        await self._tell_health(health_pb2.HealthCheckResponse.NOT_SERVING)
        if self._failure is not None:
            await server.stop(0)
            return
        self._log.info("stopping")
        self._publisher.go_away()
        try:
            await self._store.barrier()
        except StoreError:
            await server.stop(0)
            return
        await server.stop(self._config.drain_seconds)

    async def _linger(self) -> None:
        """Returns when the federation has ended and nobody needs this server any longer."""
        await self._host.ended.wait()
        loop = asyncio.get_running_loop()
        ended_at = loop.time()
        limit = self._config.linger_seconds
        while not self._is_done(ended_at, loop.time()):
            if limit > 0 and loop.time() - ended_at >= limit:
                return
            await asyncio.sleep(_LOOK_SECONDS)

    def _is_done(self, ended_at: float, now: float) -> bool:
        if now - max(ended_at, self._gate.last_call_at) < _QUIET_SECONDS or self._publisher.watchers > 0:
            return False
        if now < self._expects_until or self._models.expects(_RETURN_SECONDS):
            return False
        participants = self._host.federation.participants
        return all(
            participant.state is State.LEFT or participant.name in self._models.told_the_end
            for participant in participants
        )

    async def _follow_backups(self) -> None:
        """Raises the watermark after each verified backup, which leaves a note beside the state."""
        while self._config.backups:
            await asyncio.sleep(_NOTE_SECONDS)
            try:
                version = await asyncio.to_thread(backup.noted_version, self._folder)
            except StoreError as error:
                self._log.error("backup_note_unreadable", why=str(error))
                continue
            if self._host.backed_up(version):
                self._log.info("backed_up", version=version)

    def _fail(self, error: StoreError) -> None:
        self._failure = error
        self._stop.set()

    async def _tell_health(self, status: health_pb2.HealthCheckResponse.ServingStatus) -> None:
        services = ("TermsService", "MembershipService", "UpdateService", "StatusService")
        for name in ("", SERVICE_NAME, *(f"hushgrad.v1.{service}" for service in services)):
            await self._health.set(name, status)

    def _note_first_start(self) -> float:
        self._database.begin()
        first_start = self._database.first_start(time.time())
        self._database.commit()
        return first_start

    def _last_published(self, snapshot: Snapshot) -> tuple[Published, bytes]:
        found = self._database.content(snapshot.version)
        if found is None:
            raise StoreError(f"{self._folder.database} lacks version {snapshot.version}; restore it from a backup")
        total, count = snapshot.average_sum, snapshot.average_count
        averaged = None if total is None else Mean(total, count)
        published = Published(snapshot.version, found[0], found[1], snapshot.array, total, count, averaged)
        return published, b"" if averaged is None else stored.sha256(averaged)
