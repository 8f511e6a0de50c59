"""Starts and stops server processes on this machine and waits until they serve."""

import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

SCRIPTS = Path(sys.executable).parent
START_SECONDS = 30.0


def free_address() -> str:
    """Returns host:port of a port that nobody uses now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


@contextmanager
def running(command: Sequence[str | Path], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Runs a process, its output in a file, and ends it with SIGTERM."""
    with log.open("wb") as output:
        process = subprocess.Popen([str(word) for word in command], stdout=output, stderr=output)
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def wait_until_serving(address: str, process: subprocess.Popen[bytes], log: Path) -> None:
    """Returns as soon as the health service says SERVING.

    Raises:
        RuntimeError: if the process ends or takes too long; the text holds the end of its log.
    """
    deadline = time.monotonic() + START_SECONDS
    host, _, port = address.rpartition(":")
    while time.monotonic() < deadline and process.poll() is None:
        try:
            socket.create_connection((host, int(port)), timeout=1).close()
        except OSError:
            time.sleep(0.003)
            continue
        with grpc.insecure_channel(address) as channel:
            check = health_pb2_grpc.HealthStub(channel).Check
            try:
                answer = check(health_pb2.HealthCheckRequest(), timeout=1, wait_for_ready=True)
            except grpc.RpcError:
                continue
            if answer.status == health_pb2.HealthCheckResponse.SERVING:
                return
    raise RuntimeError(f"the server at {address} does not serve: {log.read_text(errors='replace')[-500:]}")
