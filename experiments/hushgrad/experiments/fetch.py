"""Fetches what a federation ends with: its last model, the averaged one, and how many updates it took.

It watches like anybody else, in a thread of its own, and asks as soon as the last version is announced.
"""

import threading
import time
from dataclasses import dataclass

import grpc
import numpy as np
import numpy.typing as npt
from hushgrad.client import transport
from hushgrad.experiments.errors import ExperimentError
from hushgrad.v1 import status_pb2, status_pb2_grpc
from hushgrad.wire import terms as wire_terms

_PAUSE_SECONDS = 0.3
_STATUS_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a federation ended.

    Attributes:
        terms: of the federation.
        terms_digest: 32 bytes.
        version: the last one.
        final: its model, float32, shape (d,).
        averaged: the mean of the published models of the second half, float32, shape (d,).
        updates_accepted: over all participants.
        updates_duplicate: repeats of them.
    """

    terms: wire_terms.Terms
    terms_digest: bytes
    version: int
    final: npt.NDArray[np.float32]
    averaged: npt.NDArray[np.float32]
    updates_accepted: int
    updates_duplicate: int


class Watcher:
    """Waits in the background for the end of a federation.

    Args:
        address: of the server, host:port.
        name: under which the server logs this watcher.
    """

    def __init__(self, address: str, name: str) -> None:
        self._address = address
        self._name = name
        self._outcome: Outcome | None = None
        self._error: Exception | None = None
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watcher", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Gives up."""
        self._stopped.set()

    def outcome(self, seconds: float) -> Outcome:
        """Returns the outcome; waits at most so long for it.

        Raises:
            ExperimentError: if there is none.
        """
        self._thread.join(timeout=seconds)
        if self._outcome is None:
            raise ExperimentError(f"the last model could not be fetched from the server: {self._error or 'timeout'}")
        return self._outcome

    def _run(self) -> None:
        connection = transport.Transport(self._address, self._name)
        try:
            while not self._stopped.is_set() and self._outcome is None:
                try:
                    self._outcome = self._watch(connection)
                except transport.RetryableError as error:
                    self._error = error
                    time.sleep(_PAUSE_SECONDS)
        except Exception as error:  # handed to whoever asks for the outcome
            self._error = error
        finally:
            connection.close()

    def _watch(self, connection: transport.Transport) -> Outcome | None:
        terms_bytes, terms_digest = connection.get_terms()
        terms = wire_terms.from_bytes(terms_bytes)
        connection.use_terms(terms_digest, terms.limits)
        newest: transport.Published | None = None
        for _, news in connection.watch(None):
            if self._stopped.is_set():
                return None
            if isinstance(news, transport.Published):
                newest = news
            # An operator may end the run before its terms do.
            if newest is not None and (isinstance(news, transport.Ended) or newest.version == terms.final_version):
                final = newest.model or connection.get_model(newest.version, sha256=newest.sha256)
                # A run that ends in its first half has no average but that of its last version alone.
                averaged = connection.get_model(newest.version, kind="averaged") if newest.averaged_available else final
                accepted, duplicate = self._counts()
                return Outcome(
                    terms=terms,
                    terms_digest=terms_digest,
                    version=newest.version,
                    final=np.frombuffer(final, "<f4"),
                    averaged=np.frombuffer(averaged, "<f4"),
                    updates_accepted=accepted,
                    updates_duplicate=duplicate,
                )
        raise transport.RetryableError("the stream of versions ended before the last one")

    def _counts(self) -> tuple[int, int]:
        with grpc.insecure_channel(self._address) as channel:
            status = status_pb2_grpc.StatusServiceStub(channel).GetStatus(
                status_pb2.GetStatusRequest(), timeout=_STATUS_SECONDS
            )
        return (
            sum(participant.updates_accepted for participant in status.participants),
            sum(participant.updates_duplicate for participant in status.participants),
        )
