"""A gRPC proxy that loses, repeats and delays whole calls, from a seed. It passes bytes on and knows no message.

TCP hides what packets do, so faults of whole calls have to be made here: a request that never arrives, an answer that
gets lost after the work was done, a call that arrives twice, calls that overtake each other.
Run it as `python -m hushgrad.experiments.chaos_proxy --upstream HOST:PORT`; it logs one JSON line when it listens, and
one with its counts when SIGTERM ends it.
"""

import asyncio
import dataclasses
import json
import random
import signal
import sys
from collections.abc import AsyncIterator
from typing import Any

import click
import grpc

_CHANNEL = (
    ("grpc.enable_retries", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 500),
)
_SERVER = (("grpc.so_reuseport", 0), ("grpc.http2.min_ping_interval_without_data_ms", 10_000))


@dataclasses.dataclass(frozen=True, slots=True)
class Rates:
    """How often what happens, as shares of all calls.

    Attributes:
        drop_requests: the call fails and never arrives.
        drop_responses: the call arrives and is answered, and then fails. Of a stream, everything after the first answer
            is lost.
        repeats: a call with one request arrives twice, at about the same time.
        delay_seconds: every call waits for up to so long, so that calls overtake each other.
        only: part of the names of the methods that are meddled with; empty: all.
        limit: so many faults at most; 0: no limit.
    """

    drop_requests: float = 0.0
    drop_responses: float = 0.0
    repeats: float = 0.0
    delay_seconds: float = 0.0
    only: str = ""
    limit: int = 0


@dataclasses.dataclass(slots=True)
class Counts:
    """What happened so far. `overtaken`: calls that were passed on after one that had come later."""

    calls: int = 0
    dropped_requests: int = 0
    dropped_responses: int = 0
    repeated: int = 0
    overtaken: int = 0

    @property
    def faults(self) -> int:
        """Drops and repeats together."""
        return self.dropped_requests + self.dropped_responses + self.repeated


class Proxy(grpc.GenericRpcHandler):
    """Passes every call on to one upstream, as a stream of byte strings in both directions.

    Args:
        upstream: a channel.
        rates: of the faults.
        seed: of everything at random.
    """

    def __init__(self, upstream: grpc.aio.Channel, rates: Rates, seed: int) -> None:
        self._upstream = upstream
        self._rates = rates
        self._random = random.Random(seed)
        self._newest = 0
        self.counts = Counts()

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
        """Takes any method."""
        method = handler_call_details.method

        async def handle(requests: AsyncIterator[bytes], context: grpc.aio.ServicerContext) -> AsyncIterator[bytes]:
            async for response in self._call(method, requests, context):
                yield response

        return grpc.stream_stream_rpc_method_handler(handle)

    async def _call(
        self, method: str, requests: AsyncIterator[bytes], context: grpc.aio.ServicerContext
    ) -> AsyncIterator[bytes]:
        self.counts.calls += 1
        number = self.counts.calls
        lose_request, lose_response, repeat = (self._falls(method, share) for share in self._shares())
        if lose_request:
            self.counts.dropped_requests += 1
            await context.abort(grpc.StatusCode.UNAVAILABLE, "chaos: the request was lost")
        first = [request async for request in _at_most(requests, 2)]
        if self._rates.delay_seconds and self._rates.only in method:
            await asyncio.sleep(self._random.random() * self._rates.delay_seconds)
        self.counts.overtaken += number < self._newest
        self._newest = max(self._newest, number)
        copy = None
        if repeat and len(first) == 1:
            self.counts.repeated += 1
            copy = asyncio.create_task(self._repeat(method, first[0], context.time_remaining()))
        call = self._open(method, context.time_remaining())
        send = asyncio.create_task(_send(call, first, requests))
        try:
            async for response in call:
                if lose_response:
                    self.counts.dropped_responses += 1
                    await context.abort(grpc.StatusCode.UNAVAILABLE, "chaos: the answer was lost")
                yield response
        except grpc.aio.AioRpcError as error:
            await context.abort(error.code(), error.details() or "")
        finally:
            send.cancel()
            call.cancel()
            if copy is not None:
                await asyncio.wait((copy,), timeout=5)

    def _shares(self) -> tuple[float, float, float]:
        return self._rates.drop_requests, self._rates.drop_responses, self._rates.repeats

    def _falls(self, method: str, share: float) -> bool:
        chosen = self._random.random() < share
        is_over = 0 < self._rates.limit <= self.counts.faults
        return chosen and not is_over and self._rates.only in method

    def _open(self, method: str, timeout: float | None) -> Any:
        return self._upstream.stream_stream(method)(timeout=timeout)

    async def _repeat(self, method: str, request: bytes, timeout: float | None) -> None:
        """Makes the same call once more, and ends it with its first answer."""
        call = self._open(method, timeout)
        try:
            await call.write(request)
            await call.done_writing()
            await call.read()
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            pass
        finally:
            call.cancel()


async def _at_most(requests: AsyncIterator[bytes], count: int) -> AsyncIterator[bytes]:
    for _ in range(count):
        try:
            yield await anext(requests)
        except StopAsyncIteration:
            return


async def _send(call: Any, first: list[bytes], rest: AsyncIterator[bytes]) -> None:
    try:
        for request in first:
            await call.write(request)
        if len(first) > 1:
            async for request in rest:
                await call.write(request)
        await call.done_writing()
    except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
        pass  # the reading side tells how the call ended


async def serve(listen: str, upstream: str, rates: Rates, seed: int) -> Counts:
    """Serves until SIGTERM; returns what happened."""
    async with grpc.aio.insecure_channel(upstream, options=_CHANNEL) as channel:
        proxy = Proxy(channel, rates, seed)
        server = grpc.aio.server(options=_SERVER)
        server.add_generic_rpc_handlers((proxy,))
        host = listen.rpartition(":")[0]
        port = server.add_insecure_port(listen)
        await server.start()
        stop = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
        _tell(event="listening", address=f"{host}:{port}")
        await stop.wait()
        await server.stop(0.1)
        return proxy.counts


def _tell(**event: object) -> None:
    sys.stderr.write(json.dumps(event) + "\n")
    sys.stderr.flush()


@click.command()
@click.option("--listen", default="127.0.0.1:0", show_default=True)
@click.option("--upstream", required=True)
@click.option("--seed", type=int, default=1, show_default=True)
@click.option("--drop-requests", type=float, default=0.0)
@click.option("--drop-responses", type=float, default=0.0)
@click.option("--repeats", type=float, default=0.0)
@click.option("--delay-seconds", type=float, default=0.0)
@click.option("--only", default="")
@click.option("--limit", type=int, default=0)
def main(
    listen: str,
    upstream: str,
    seed: int,
    drop_requests: float,
    drop_responses: float,
    repeats: float,
    delay_seconds: float,
    only: str,
    limit: int,
) -> None:
    """Pass calls on, with faults."""
    rates = Rates(drop_requests, drop_responses, repeats, delay_seconds, only, limit)
    counts = asyncio.run(serve(listen, upstream, rates, seed))
    _tell(event="counts", **dataclasses.asdict(counts), faults=counts.faults)


if __name__ == "__main__":
    main()
