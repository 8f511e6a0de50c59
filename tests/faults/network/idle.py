"""An idle client that pings every ten seconds: python -m tests.faults.network.idle --seconds 600.

It has one call open on which nothing is said, as a watch between two versions. A server with gRPC's own settings sends
it away after some pings; ours must not. The second is here to show that the first is seen.
"""

import itertools
import json
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent import futures
from pathlib import Path

import click
import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from tests.support.federations import make_terms
from tests.support.servers import ServerProcess, make_state

_OPTIONS = [
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.use_local_subchannel_pool", 1),
]
_READY = grpc.ChannelConnectivity.READY


def idle(root: Path, seconds: float) -> dict[str, float]:
    """Stays idle at our server, and at one with gRPC's own settings, for so long.

    Returns:
        How often each connection was lost.
    """
    make_state(root, make_terms())
    plain = grpc.server(futures.ThreadPoolExecutor(2))
    health_pb2_grpc.add_HealthServicer_to_server(health.HealthServicer(), plain)
    port = plain.add_insecure_port("127.0.0.1:0")
    plain.start()
    with ServerProcess(root) as server:
        seen: dict[str, list[grpc.ChannelConnectivity]] = {"ours": [], "plain": []}
        channels = [
            _watched(server.address, seen["ours"]),
            _watched(f"127.0.0.1:{port}", seen["plain"]),
        ]
        silent = [health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest()) for channel in channels]
        time.sleep(seconds)
        for call in silent:
            call.cancel()
        lost = {f"lost_{name}": _lost(states) for name, states in seen.items()}
        for channel in channels:
            channel.close()
        server.stop(signal.SIGTERM)
    plain.stop(0)
    return {"seconds": seconds, **lost}


def _watched(address: str, states: list[grpc.ChannelConnectivity]) -> grpc.Channel:
    channel = grpc.insecure_channel(address, options=_OPTIONS)
    channel.subscribe(states.append, try_to_connect=True)
    grpc.channel_ready_future(channel).result(timeout=10)
    return channel


def _lost(states: Sequence[grpc.ChannelConnectivity]) -> int:
    return sum(before is _READY and after is not _READY for before, after in itertools.pairwise(states))


@click.command()
@click.option("--seconds", default=600.0, show_default=True)
def main(seconds: float) -> None:
    """Measures, prints, and exits with 1 when our server sent the client away."""
    with tempfile.TemporaryDirectory() as name:
        found = idle(Path(name), seconds)
    print(json.dumps(found))
    sys.exit(int(found["lost_ours"] > 0))


if __name__ == "__main__":
    main()
