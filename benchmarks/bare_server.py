"""The least that a gRPC server can do: health, and an echo of bytes. The yardstick of our server.

Usage: python -m benchmarks.bare_server HOST:PORT
"""

import sys

import grpc
import uvloop
from grpc_health.v1 import health, health_pb2_grpc

ECHO = "/benchmarks.Echo/Echo"


async def echo(request: bytes, _context: grpc.aio.ServicerContext) -> bytes:
    return request


async def serve(address: str) -> None:
    server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
    method = grpc.unary_unary_rpc_method_handler(echo)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("benchmarks.Echo", {"Echo": method}),))
    health_pb2_grpc.add_HealthServicer_to_server(health.aio.HealthServicer(), server)
    server.add_insecure_port(address)
    await server.start()
    await server.wait_for_termination()


if __name__ == "__main__":
    uvloop.run(serve(sys.argv[1]))
