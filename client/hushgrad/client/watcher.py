"""A thread that watches for new versions, fetches them, and comes back after every interruption. It decides nothing."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import structlog
from hushgrad.client.messages import ServerState
from hushgrad.client.retry import Backoff, Outage
from hushgrad.client.transport import (
    Ended,
    FatalError,
    GoingAway,
    GoneError,
    Heartbeat,
    Published,
    RetryableError,
    Transport,
)


@dataclass(frozen=True, slots=True)
class ModelReceived:
    """A version newer than all before, whole and with the right checksum: 4 * d bytes of little-endian float32."""

    server: ServerState
    version: int
    model: bytes
    averaged_available: bool


@dataclass(frozen=True, slots=True)
class StateSeen:
    """A message without a model."""

    server: ServerState


@dataclass(frozen=True, slots=True)
class SpeaksAgain:
    """The first message after an interruption has come."""

    server: ServerState


@dataclass(frozen=True, slots=True)
class ServerGoesAway:
    """The server stops for a while."""

    server: ServerState
    retry_after_seconds: float


@dataclass(frozen=True, slots=True)
class FederationEnded:
    """The last thing that a watcher delivers."""

    server: ServerState
    final_version: int


@dataclass(frozen=True, slots=True)
class WatchFailed:
    """The watch met something that repeating will not cure; the last thing that a watcher delivers then."""

    error: Exception


Seen = ModelReceived | StateSeen | SpeaksAgain | ServerGoesAway | FederationEnded | WatchFailed


class Watcher:
    """Delivers what it sees, in order, from its own thread, until the federation ends or it is stopped.

    Args:
        transport: the connection.
        deliver: called in the watcher's thread; must be quick.
        outage: says when the server does not answer.
        model_bytes: size that every version must have.
    """

    def __init__(
        self, transport: Transport, deliver: Callable[[Seen], object], outage: Outage, *, model_bytes: int
    ) -> None:
        self._transport = transport
        self._deliver = deliver
        self._outage = outage
        self._model_bytes = model_bytes
        self._stopped = threading.Event()
        self._version: int | None = None
        self._was_cut = False
        self._backoff = Backoff()

    def start(self) -> None:
        """Starts the thread."""
        threading.Thread(target=self._run, name="watch", daemon=True).start()

    def stop(self) -> None:
        """Stops it after what it is doing; closing the transport ends that at once."""
        self._stopped.set()

    def _run(self) -> None:
        try:
            while not self._stopped.is_set():
                wait = 0.0
                try:
                    wait = self._watch()
                    if wait < 0:
                        return
                except RetryableError as error:
                    if not self._stopped.is_set():
                        self._outage.failed(str(error))
                self._was_cut = True
                if wait > 0:
                    self._stopped.wait(self._backoff.next(wait))
                elif not self._stopped.is_set():
                    self._transport.wait_for_connection(self._backoff.next())
        except Exception as error:
            if not self._stopped.is_set():
                self._deliver(WatchFailed(error))

    def _watch(self) -> float:
        """Watches once. Returns how long to wait before the next watch, at least; negative: there is no next one."""
        for server, news in self._transport.watch(self._version):
            self._outage.answered()
            self._backoff.reset()
            if self._was_cut:
                self._was_cut = False
                self._deliver(SpeaksAgain(server))
            match news:
                case Published():
                    self._deliver(StateSeen(server))
                    if self._version is None or news.version > self._version:
                        model = news.model or self._fetch(news)
                        if model is not None:
                            self._check_size(news.version, model)
                            self._version = news.version
                            self._deliver(ModelReceived(server, news.version, model, news.averaged_available))
                case Heartbeat():
                    self._deliver(StateSeen(server))
                case GoingAway():
                    structlog.get_logger().info("server_goes_away", retry_after_seconds=news.retry_after_seconds)
                    self._deliver(ServerGoesAway(server, news.retry_after_seconds))
                    return news.retry_after_seconds
                case Ended():
                    self._deliver(FederationEnded(server, news.final_version))
                    return -1.0
        return 0.0

    def _fetch(self, news: Published) -> bytes | None:
        """Fetches a version in as many tries as it takes; None when it is not kept any longer."""
        held, backoff = bytearray(), Backoff()
        while not self._stopped.is_set():
            try:
                return self._transport.get_model(news.version, held=held, sha256=news.sha256)
            except GoneError:
                return None
            except RetryableError as error:
                self._outage.failed(str(error))
                self._stopped.wait(backoff.next())
        return None

    def _check_size(self, version: int, model: bytes) -> None:
        if len(model) != self._model_bytes:
            raise FatalError(
                f"version {version} must have {self._model_bytes} bytes for the arrays of the terms, found {len(model)}"
            )


def connect(
    transport: Transport,
    *,
    timeout_seconds: float,
    stopped: threading.Event,
    clock: Callable[[], float] = time.monotonic,
) -> tuple[bytes, bytes] | None:
    """Asks for the terms until the server answers, visibly.

    Returns:
        The serialized terms and their digest; None if it was stopped before.

    Raises:
        RetryableError: the last fault, if no answer came within the time.
    """
    outage, backoff = Outage(transport.address, clock), Backoff()
    deadline = clock() + timeout_seconds
    while not stopped.is_set():
        try:
            answer = transport.get_terms()
        except RetryableError as error:
            outage.failed(str(error))
            wait = backoff.next()
            if clock() + wait >= deadline:
                raise
            stopped.wait(wait)
        else:
            outage.answered()
            return answer
    return None
