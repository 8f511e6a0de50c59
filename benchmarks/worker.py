"""One client process of a benchmark: hands over updates that were sealed beforehand and waits for versions.

Reads one JSON command per line and answers each with one line; `Worker` in `crew` is the other end. Messages are
serialized before a measurement begins, and models that arrive are counted, not decoded: what is measured is the server.

Usage: python -m benchmarks.worker PLACE
"""

import hashlib
import json
import sys
import time
from collections.abc import Iterator
from typing import Any

import google_crc32c
import grpc
from hushgrad.v1 import (
    common_pb2,
    membership_pb2,
    membership_pb2_grpc,
    models_pb2,
    terms_pb2,
    terms_pb2_grpc,
    updates_pb2,
)
from hushgrad.wire import terms as wire_terms

from benchmarks import bare_server, federation, short_hash

OPTIONS = (
    ("grpc.enable_retries", 0),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
)
_BUSY_SECONDS = 0.05


class Ours:
    """A participant of one server of ours."""

    def __init__(self, address: str, place: int, *, short: bool) -> None:
        self._address, self._place = address, place
        self._sha256 = short_hash.ShortSha256 if short else hashlib.sha256
        self._name = f"client-{place + 1}"
        self._channel = grpc.insecure_channel(address, options=OPTIONS)
        answer = terms_pb2_grpc.TermsServiceStub(self._channel).GetTerms(terms_pb2.GetTermsRequest())
        self._terms = wire_terms.from_bytes(answer.terms)
        self._digest = answer.terms_digest
        membership = membership_pb2_grpc.MembershipServiceStub(self._channel)
        self._caller = common_pb2.Caller(terms_digest=self._digest, participant=self._name)
        joined = membership.Join(membership_pb2.JoinRequest(caller=self._caller, join_id=place.to_bytes(16, "big")))
        self._caller.session = joined.session
        _accepted(membership.Start(membership_pb2.StartRequest(caller=self._caller, next_round=0)).verdict)
        self._payload = federation.payload(self._terms, place).tobytes()
        self._is_small = len(self._payload) <= self._terms.limits.max_unary_bytes
        self._chunks = [] if self._is_small else list(self._cut())
        self._head: bytes | None = None
        self._next_round = 0
        self._requests: list[Any] = []
        self._newest = 0
        self.last_model = b""
        self.busy = 0
        self._submit = self._channel.unary_unary(
            "/hushgrad.v1.UpdateService/SubmitUpdate",
            response_deserializer=updates_pb2.SubmitUpdateResponse.FromString,
        )
        self._upload = self._channel.stream_unary(
            "/hushgrad.v1.UpdateService/UploadUpdate",
            response_deserializer=updates_pb2.UploadUpdateResponse.FromString,
        )
        self._get = self._channel.unary_stream(
            "/hushgrad.v1.ModelService/GetModel", request_serializer=models_pb2.GetModelRequest.SerializeToString
        )
        watch = self._channel.unary_stream(
            "/hushgrad.v1.ModelService/WatchModels",
            request_serializer=models_pb2.WatchModelsRequest.SerializeToString,
            response_deserializer=models_pb2.WatchModelsResponse.FromString,
        )
        self._news = watch(models_pb2.WatchModelsRequest(caller=self._caller, after_version=0))

    def prepare(self, count: int) -> None:
        """Seals so many rounds and serializes what will be sent."""
        first = self._next_round + len(self._requests)
        seals, self._head = federation.seal(
            self._digest,
            self._name,
            self._place,
            self._payload,
            rounds=range(first, first + count),
            head=self._head,
            sha256=self._sha256,
        )
        for seal in seals:
            if self._is_small:
                request = updates_pb2.SubmitUpdateRequest(
                    caller=self._caller,
                    header=seal.header,
                    payload=self._payload,
                    crc32c=google_crc32c.extend(google_crc32c.value(seal.header), self._payload),
                ).SerializeToString()
            else:
                start = updates_pb2.UploadStart(caller=self._caller, header=seal.header, digest=seal.digest)
                request = updates_pb2.UploadUpdateRequest(start=start).SerializeToString()
            self._requests.append(request)

    def hand_over(self) -> float:
        """Sends the update of the next round; returns the seconds until it was accepted."""
        request = self._requests.pop(0)
        began = time.perf_counter()
        while True:
            if self._is_small:
                verdict = self._submit(request).verdict
            else:
                verdict = self._upload(iter((request, *self._chunks))).result.verdict
            if verdict.answer != common_pb2.ANSWER_BUSY:
                break
            self.busy += 1
            time.sleep(_BUSY_SECONDS)
        _accepted(verdict)
        self._next_round += 1
        return time.perf_counter() - began

    def wait(self, version: int) -> None:
        """Returns when this version, or a newer one, has arrived in whole."""
        while self._newest < version:
            message = next(self._news)
            if message.WhichOneof("event") != "published":
                continue
            published = message.published
            self.last_model = published.model
            if not published.model:
                request = models_pb2.GetModelRequest(caller=self._caller, version=published.version)
                received = sum(map(len, self._get(request)))
                if received < published.total_bytes:
                    raise RuntimeError(f"version {published.version} came with {received} bytes")
            self._newest = published.version

    def play(self, count: int) -> dict[str, Any]:
        """Does so many rounds, each as soon as the terms permit it; ends when the last version that is due has come."""
        submits, arrivals = [], []
        for _ in range(count):
            self.wait(self._next_round - self._terms.max_delay if self._terms.max_delay > 1 else self._next_round)
            submits.append(self.hand_over())
            if self._terms.publish_every == 1:
                self.wait(self._next_round)
                arrivals.append(time.monotonic())
        self.wait(self._next_round - self._next_round % self._terms.publish_every)
        return {"submits": submits, "arrivals": arrivals}

    def stop_reading(self) -> None:
        """Asks for the newest model and reads its first chunk only, for ever."""
        # On a connection of its own: a full window would hold up everything else that shares it.
        channel = grpc.insecure_channel(self._address, options=OPTIONS)
        get = channel.unary_stream(
            "/hushgrad.v1.ModelService/GetModel", request_serializer=models_pb2.GetModelRequest.SerializeToString
        )
        self._stalled = get(models_pb2.GetModelRequest(caller=self._caller, version=self._newest))
        next(self._stalled)

    def close(self) -> None:
        """Goes."""
        self._news.cancel()
        self._channel.close()

    def _cut(self) -> Iterator[bytes]:
        size = self._terms.limits.max_chunk_bytes
        for start in range(0, len(self._payload), size):
            data = self._payload[start : start + size]
            chunk = updates_pb2.UploadChunk(offset=start, data=data, crc32c=google_crc32c.value(data))
            yield updates_pb2.UploadUpdateRequest(chunk=chunk).SerializeToString()


class Bare:
    """A client of the bare server, for messages of one size."""

    def __init__(self, address: str, size: int) -> None:
        self._channel = grpc.insecure_channel(address, options=OPTIONS)
        self._chunks = [
            bytes(min(bare_server.CHUNK_BYTES, size - at)) for at in range(0, size, bare_server.CHUNK_BYTES)
        ]
        self._echo = self._channel.unary_unary(bare_server.ECHO)
        self._echo_stream = self._channel.stream_stream(bare_server.ECHO_STREAM)
        self._sink = self._channel.stream_unary(bare_server.SINK)

    def echo(self) -> None:
        """Sends the bytes and waits until they are back."""
        if len(self._chunks) == 1:
            self._echo(self._chunks[0])
        else:
            for _ in self._echo_stream(iter(self._chunks)):
                pass

    def sink(self) -> None:
        """Sends the bytes and waits for an empty answer."""
        self._sink(iter(self._chunks))


def _accepted(verdict: common_pb2.Verdict) -> None:
    if verdict.answer != common_pb2.ANSWER_ACCEPTED:
        raise RuntimeError(f"not accepted: {verdict}")


def main() -> None:
    """Obeys."""
    place = int(sys.argv[1])
    ours: dict[str, Ours] = {}
    bare: Bare | None = None
    for line in sys.stdin:
        command = json.loads(line)
        count, mode = command.get("count", 1), command.get("mode", "")
        answer: dict[str, Any] = {}
        began, cpu = time.monotonic(), time.process_time()
        match command["do"]:
            case "enter":
                ours[mode] = Ours(command["address"], place, short=command["short_hash"])
            case "bare":
                bare = Bare(command["address"], command["size"])
            case "prepare":
                ours[mode].prepare(count)
            case "play":
                answer = ours[mode].play(count)
            case "hand over":
                answer = {"submits": [ours[mode].hand_over() for _ in range(count)]}
            case "stop reading":
                ours[mode].stop_reading()
            case "echo" if bare is not None:
                for _ in range(count):
                    bare.echo()
            case "sink" if bare is not None:
                for _ in range(count):
                    bare.sink()
            case "model":
                answer = {"model": ours[mode].last_model.hex()}
            case "leave":
                answer = {"busy": ours[mode].busy}
                ours.pop(mode).close()
            case unknown:
                raise ValueError(f"no command {unknown!r}")
        answer |= {"began": began, "ended": time.monotonic(), "cpu": time.process_time() - cpu}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
