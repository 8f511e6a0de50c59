"""One process that is hundreds of small clients, each with a connection of its own: participants, or mere watchers.

Reads and answers as `worker` does. Usage: python -m benchmarks.crowd_worker PLACE, with PLACE from 0.
"""

import asyncio
import json
import sys
import time
from typing import Any

import google_crc32c
import grpc
import uvloop
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

from benchmarks import federation, worker

_BUSY_SECONDS = 0.02


class Small:
    """One participant."""

    def __init__(self, address: str, place: int) -> None:
        self._channel = grpc.aio.insecure_channel(address, options=worker.OPTIONS)
        self._place = place
        self._name = f"client-{place + 1}"
        self._requests: list[bytes] = []
        self._head: bytes | None = None
        self._next_round = 0
        self._newest = 0
        self.busy = 0

    async def enter(self) -> None:
        """Joins, starts, and begins to watch."""
        answer = await terms_pb2_grpc.TermsServiceStub(self._channel).GetTerms(terms_pb2.GetTermsRequest())
        self._digest = answer.terms_digest
        self._payload = federation.payload(wire_terms.from_bytes(answer.terms), self._place).tobytes()
        membership = membership_pb2_grpc.MembershipServiceStub(self._channel)
        self._caller = common_pb2.Caller(terms_digest=self._digest, participant=self._name)
        join_id = self._place.to_bytes(16, "big")
        joined = await membership.Join(membership_pb2.JoinRequest(caller=self._caller, join_id=join_id))
        self._caller.session = joined.session
        await membership.Start(membership_pb2.StartRequest(caller=self._caller, next_round=0))
        self._submit = self._channel.unary_unary(
            "/hushgrad.v1.UpdateService/SubmitUpdate",
            response_deserializer=updates_pb2.SubmitUpdateResponse.FromString,
        )
        watch = self._channel.unary_stream(
            "/hushgrad.v1.ModelService/WatchModels",
            request_serializer=models_pb2.WatchModelsRequest.SerializeToString,
            response_deserializer=models_pb2.WatchModelsResponse.FromString,
        )
        self._news = watch(models_pb2.WatchModelsRequest(caller=self._caller, after_version=0))

    def prepare(self, count: int) -> None:
        """Seals so many rounds and serializes what will be sent."""
        seals, self._head = federation.seal(
            self._digest,
            self._name,
            self._place,
            self._payload,
            rounds=range(self._next_round, self._next_round + count),
            head=self._head,
        )
        self._requests = [
            updates_pb2.SubmitUpdateRequest(
                caller=self._caller,
                header=seal.header,
                payload=self._payload,
                crc32c=google_crc32c.extend(google_crc32c.value(seal.header), self._payload),
            ).SerializeToString()
            for seal in seals
        ]

    async def play(self) -> list[float]:
        """Does all that is prepared; returns the seconds of each submit."""
        submits = []
        while self._requests:
            request = self._requests.pop(0)
            began = time.perf_counter()
            while (answer := (await self._submit(request)).verdict).answer == common_pb2.ANSWER_BUSY:
                self.busy += 1
                await asyncio.sleep(_BUSY_SECONDS)
            if answer.answer != common_pb2.ANSWER_ACCEPTED:
                raise RuntimeError(f"not accepted: {answer}")
            submits.append(time.perf_counter() - began)
            self._next_round += 1
            while self._newest < self._next_round:
                message = await self._news.read()
                if message.WhichOneof("event") == "published":
                    self._newest = message.published.version
        return submits


class Watcher:
    """Somebody who takes no part and watches, on a connection of its own."""

    def __init__(self, address: str, name: str, digest: bytes) -> None:
        self._channel = grpc.aio.insecure_channel(address, options=worker.OPTIONS)
        watch = self._channel.unary_stream(
            "/hushgrad.v1.ModelService/WatchModels",
            request_serializer=models_pb2.WatchModelsRequest.SerializeToString,
            response_deserializer=models_pb2.WatchModelsResponse.FromString,
        )
        caller = common_pb2.Caller(terms_digest=digest, participant=name)
        self._news = watch(models_pb2.WatchModelsRequest(caller=caller))
        self._arrived = asyncio.Condition()
        self._at: dict[int, float] = {}
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        while message := await self._news.read():
            if message.WhichOneof("event") == "published":
                async with self._arrived:
                    self._at[message.published.version] = time.monotonic()
                    self._arrived.notify_all()

    async def arrived_at(self, version: int) -> float:
        """Returns when a version arrived, in whole, on the machine's clock; waits for it."""
        async with self._arrived:
            await self._arrived.wait_for(lambda: version in self._at or self._reading.done())
        return self._at[version]


async def _watchers(address: str, place: int, count: int) -> list[Watcher]:
    async with grpc.aio.insecure_channel(address) as channel:
        terms = await terms_pb2_grpc.TermsServiceStub(channel).GetTerms(terms_pb2.GetTermsRequest())
    found: list[Watcher] = []
    for start in range(0, count, 50):
        numbers = range(start, min(count, start + 50))
        found += [Watcher(address, f"watcher-{place}-{at}", terms.terms_digest) for at in numbers]
        await asyncio.gather(*(watcher.arrived_at(0) for watcher in found[start:]))
    return found


async def main() -> None:
    """Obeys."""
    place = int(sys.argv[1])
    crowd: list[Small] = []
    watchers: list[Watcher] = []
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        command = json.loads(line)
        answer: dict[str, Any] = {}
        began, cpu = time.monotonic(), time.process_time()
        match command["do"]:
            case "enter":
                count = command["each"]
                crowd = [Small(command["address"], place * count + at) for at in range(count)]
                for start in range(0, count, 20):
                    await asyncio.gather(*(small.enter() for small in crowd[start : start + 20]))
            case "watch":
                watchers = await _watchers(command["address"], place, command["each"])
            case "arrived":
                times = await asyncio.gather(*(one.arrived_at(command["version"]) for one in watchers))
                answer = {"arrived": times}
            case "prepare":
                for small in crowd:
                    small.prepare(command["count"])
            case "play":
                found = await asyncio.gather(*(small.play() for small in crowd))
                answer = {"submits": [seconds for one in found for seconds in one]}
            case "leave":
                answer = {"busy": sum(small.busy for small in crowd)}
            case unknown:
                raise ValueError(f"no command {unknown!r}")
        answer |= {"began": began, "ended": time.monotonic(), "cpu": time.process_time() - cpu}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    uvloop.run(main())
