"""The least that a gRPC server can do: health, and bytes in and out. The yardstick of our server.

Usage: python -m benchmarks.bare_server HOST:PORT
"""

import sys
from collections.abc import AsyncIterator

import grpc
import uvloop
from grpc_health.v1 import health, health_pb2_grpc

ECHO = "/benchmarks.Bare/Echo"
ECHO_STREAM = "/benchmarks.Bare/EchoStream"
SINK = "/benchmarks.Bare/Sink"
CHUNK_BYTES = 2**20
OPTIONS = (("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1))


async def echo(request: bytes, _context: grpc.aio.ServicerContext) -> bytes:
    return request


async def echo_stream(messages: AsyncIterator[bytes], _context: grpc.aio.ServicerContext) -> AsyncIterator[bytes]:
    """Sends back what came, when all of it is there, as a server of models must."""
    for message in [message async for message in messages]:
        yield message


async def sink(messages: AsyncIterator[bytes], _context: grpc.aio.ServicerContext) -> bytes:
    async for _ in messages:
        pass
    return b""


async def serve(address: str) -> None:
    server = grpc.aio.server(options=[("grpc.so_reuseport", 0), *OPTIONS])
    handlers = {
        "Echo": grpc.unary_unary_rpc_method_handler(echo),
        "EchoStream": grpc.stream_stream_rpc_method_handler(echo_stream),
        "Sink": grpc.stream_unary_rpc_method_handler(sink),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("benchmarks.Bare", handlers),))
    health_pb2_grpc.add_HealthServicer_to_server(health.aio.HealthServicer(), server)
    server.add_insecure_port(address)
    await server.start()
    await server.wait_for_termination()


if __name__ == "__main__":
    uvloop.run(serve(sys.argv[1]))
