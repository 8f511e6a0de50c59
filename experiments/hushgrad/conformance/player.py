"""A participant that does what a scenario says: it seals what it is told and sends it as often as it is told.

Its updates are made up. It keeps a ledger chain in memory, as a real one does on disk.
"""

import hashlib
import secrets
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import google_crc32c
import grpc
import numpy as np
import numpy.typing as npt
from hushgrad.v1 import (
    common_pb2,
    membership_pb2,
    membership_pb2_grpc,
    models_pb2,
    models_pb2_grpc,
    terms_pb2,
    terms_pb2_grpc,
    updates_pb2,
    updates_pb2_grpc,
)
from hushgrad.wire import header as wire_header
from hushgrad.wire.grid import INT32_MAX
from hushgrad.wire.header import UpdateHeader
from hushgrad.wire.terms import Terms

CALL_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class Sealed:
    """One sealed update."""

    round: int
    header: bytes
    payload: bytes

    @property
    def digest(self) -> bytes:
        """SHA-256(header || payload)."""
        return wire_header.digest(self.header, self.payload)

    @property
    def update(self) -> npt.NDArray[np.int64]:
        """The elements, shape (d,)."""
        return np.frombuffer(self.payload, "<i4").astype(np.int64)


class Player:
    """One participant or watcher.

    Args:
        address: of the server.
        name: to join with.
    """

    def __init__(self, address: str, name: str) -> None:
        self.name = name
        self.session = 0
        self.digest = bytes(32)
        self.terms: Terms | None = None
        self.sequence = 0
        self.head = wire_header.first_head(secrets.token_bytes(16))
        self.heads: dict[int, bytes] = {0: self.head}
        self._address = address
        self.connect()

    def connect(self) -> None:
        """Opens a new connection. Needed after the server was killed: a call on the old one may end with UNAVAILABLE,
        which would be nobody's fault.
        """
        self.channel = grpc.insecure_channel(
            self._address,
            [
                ("grpc.enable_retries", 0),
                ("grpc.initial_reconnect_backoff_ms", 200),
                ("grpc.min_reconnect_backoff_ms", 200),
                ("grpc.max_reconnect_backoff_ms", 500),
            ],
        )
        self._terms = terms_pb2_grpc.TermsServiceStub(self.channel)
        self._members = membership_pb2_grpc.MembershipServiceStub(self.channel)
        self._updates = updates_pb2_grpc.UpdateServiceStub(self.channel)
        self._models = models_pb2_grpc.ModelServiceStub(self.channel)

    # Calls, one method each; the wire's messages are what is judged, so they are what is returned.

    def get_terms(self) -> Any:
        """Returns GetTermsResponse; waits for a server that is still starting."""
        return self._terms.GetTerms(terms_pb2.GetTermsRequest(), timeout=CALL_SECONDS, wait_for_ready=True)

    def caller(self, **changes: Any) -> Any:
        """Returns who is asking, with some of it changed."""
        fields = {"terms_digest": self.digest, "participant": self.name, "session": self.session, **changes}
        return common_pb2.Caller(**fields)

    def join(self, join_id: bytes, **changes: Any) -> Any:
        """Joins and takes the session."""
        caller = self.caller(**{"session": 0, **changes})
        answer = self._members.Join(
            membership_pb2.JoinRequest(caller=caller, join_id=join_id), timeout=CALL_SECONDS, wait_for_ready=True
        )
        self.session = answer.session or self.session
        return answer

    def start(self, next_round: int) -> Any:
        """Starts."""
        request = membership_pb2.StartRequest(caller=self.caller(), next_round=next_round)
        return self._members.Start(request, timeout=CALL_SECONDS)

    def participation(self) -> Any:
        """Asks how the server sees this participant."""
        request = membership_pb2.GetParticipationRequest(caller=self.caller())
        return self._members.GetParticipation(request, timeout=CALL_SECONDS)

    def report_skipped(self, round_: int) -> Any:
        """Reports one round as skipped."""
        report = membership_pb2.RoundReport(round=round_, fate=membership_pb2.RoundReport.FATE_SKIPPED)
        request = membership_pb2.ReportRoundsRequest(caller=self.caller(), reports=[report])
        return self._members.ReportRounds(request, timeout=CALL_SECONDS)

    def submit(self, sealed: Sealed, *, crc_change: int = 0, **changes: Any) -> Any:
        """Sends an update in one message."""
        crc = google_crc32c.extend(google_crc32c.value(sealed.header), sealed.payload)
        request = updates_pb2.SubmitUpdateRequest(
            caller=self.caller(**changes), header=sealed.header, payload=sealed.payload, crc32c=crc ^ crc_change
        )
        return self._updates.SubmitUpdate(request, timeout=CALL_SECONDS, wait_for_ready=True)

    def upload(self, sealed: Sealed, *, offset: int = 0, stop: int | None = None) -> Any:
        """Sends an update in chunks of 7 bytes, from an offset to the end or to `stop`."""
        return self._updates.UploadUpdate(self._chunks(sealed, offset, stop), timeout=CALL_SECONDS).result

    def received(self, sealed: Sealed) -> Any:
        """Asks how much of an upload has arrived."""
        request = updates_pb2.GetUploadRequest(caller=self.caller(), digest=sealed.digest)
        return self._updates.GetUpload(request, timeout=CALL_SECONDS)

    def model(self, version: int, offset: int = 0) -> tuple[bytes, bytes]:
        """Fetches a version from an offset; returns its bytes and the digest that came with them."""
        request = models_pb2.GetModelRequest(caller=self.caller(), version=version, offset=offset)
        chunks = list(self._models.GetModel(request, timeout=CALL_SECONDS))
        return b"".join(chunk.data for chunk in chunks), chunks[0].sha256 if chunks else b""

    def manifest(self, version: int) -> Any:
        """Fetches a manifest."""
        request = models_pb2.GetManifestRequest(caller=self.caller(), version=version)
        return self._models.GetManifest(request, timeout=CALL_SECONDS)

    def watch(self, after_version: int | None = None) -> "Watch":
        """Watches from a version on."""
        request = models_pb2.WatchModelsRequest(caller=self.caller())
        if after_version is not None:
            request.after_version = after_version
        return Watch(self._models.WatchModels(request, wait_for_ready=True))

    # What it seals.

    def seal(self, round_: int, *, elements: npt.NDArray[np.int32] | None = None, **changes: Any) -> Sealed:
        """Seals an update of random elements, or of these, with some header fields changed."""
        sealed = self.forge(round_, elements=elements, **changes)
        self.sequence += 1
        self.head = wire_header.next_head(self.head, sealed.digest)
        self.heads[self.sequence] = self.head
        return sealed

    def forge(self, round_: int, *, elements: npt.NDArray[np.int32] | None = None, **changes: Any) -> Sealed:
        """Makes an update as `seal` does and keeps no row of it."""
        assert self.terms is not None
        if elements is None:
            # Elements of all sizes, up to the largest: sums must be exact modulo 2^64, not only for small ones.
            bits = np.frombuffer(secrets.token_bytes(4 * self.terms.parameters), "<i4")
            elements = np.maximum(bits, -INT32_MAX).astype(np.int32)
        payload = elements.astype("<i4").tobytes()
        head = UpdateHeader(
            terms_digest=self.digest,
            participant=self.name,
            round=round_,
            element_type=terms_pb2.ELEMENT_TYPE_INT32,
            sampler="poisson",
            noise_multiplier=1.0,
            clip_norm=1.0,
            ledger_sequence=self.sequence + 1,
            ledger_previous_head=self.head,
            flags=0,
            payload_bytes=len(payload),
        )
        return Sealed(round_, replace(head, **changes).pack(), payload)

    def _chunks(self, sealed: Sealed, offset: int, stop: int | None) -> Iterator[Any]:
        start = updates_pb2.UploadStart(caller=self.caller(), header=sealed.header, digest=sealed.digest, offset=offset)
        yield updates_pb2.UploadUpdateRequest(start=start)
        end = len(sealed.payload) if stop is None else stop
        for begin in range(offset, end, 7):
            data = sealed.payload[begin : min(begin + 7, end)]
            chunk = updates_pb2.UploadChunk(offset=begin, data=data, crc32c=google_crc32c.value(data))
            yield updates_pb2.UploadUpdateRequest(chunk=chunk)


class Watch:
    """One watch: keeps what came."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self.changed = threading.Condition()
        self.published: list[Any] = []
        self.newest = -1
        self.ended: Any = None
        self.over = False
        threading.Thread(target=self._read, daemon=True).start()

    def wait(self, version: int, seconds: float) -> bool:
        """Waits until a version, or a newer one, was published here."""
        with self.changed:
            return self.changed.wait_for(lambda: any(one.version >= version for one in self.published), seconds)

    def wait_end(self, seconds: float) -> bool:
        """Waits for RunEnded."""
        with self.changed:
            return (
                self.changed.wait_for(lambda: self.ended is not None or self.over, seconds) and self.ended is not None
            )

    def close(self) -> None:
        """Stops watching."""
        self._stream.cancel()

    def _read(self) -> None:
        with suppress(grpc.RpcError):
            for message in self._stream:
                with self.changed:
                    self.newest = max(self.newest, message.server.newest_version)
                    if message.HasField("published"):
                        self.published.append(message.published)
                    if message.HasField("run_ended"):
                        self.ended = message.run_ended
                    self.changed.notify_all()
        with self.changed:
            self.over = True
            self.changed.notify_all()


def digest_of(model: bytes) -> bytes:
    """Returns the SHA-256 of a model's bytes."""
    return hashlib.sha256(model).digest()
