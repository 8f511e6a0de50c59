"""Starts and stops server processes on this machine, waits until they serve, and reads what they used."""

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import grpc
import psutil
from grpc_health.v1 import health_pb2, health_pb2_grpc

PYTHON = Path(sys.executable)
SCRIPTS = PYTHON.parent
START_SECONDS = 30.0


def tidy_when_told_to_stop() -> None:
    """Lets SIGTERM end this process as Ctrl-C does: what it started ends with it, and its folders go."""

    def stop(number: int, _frame: object) -> None:
        sys.exit(128 + number)

    signal.signal(signal.SIGTERM, stop)


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
    wait_until_listening(address, process, log)
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        with grpc.insecure_channel(address) as channel:
            check = health_pb2_grpc.HealthStub(channel).Check
            try:
                answer = check(health_pb2.HealthCheckRequest(), timeout=1, wait_for_ready=True)
            except grpc.RpcError:
                continue
            if answer.status == health_pb2.HealthCheckResponse.SERVING:
                return
    raise _does_not("serve", address, log)


def wait_until_listening(address: str, process: subprocess.Popen[bytes], log: Path) -> None:
    """Returns as soon as somebody takes connections there.

    Raises:
        RuntimeError: as `wait_until_serving`.
    """
    deadline = time.monotonic() + START_SECONDS
    host, _, port = address.rpartition(":")
    while time.monotonic() < deadline and process.poll() is None:
        try:
            socket.create_connection((host, int(port)), timeout=1).close()
        except OSError:
            time.sleep(0.003)
            continue
        return
    raise _does_not("listen", address, log)


def _does_not(what: str, address: str, log: Path) -> RuntimeError:
    return RuntimeError(f"the server at {address} does not {what}: {log.read_text(errors='replace')[-500:]}")


def cpu_seconds(pid: int) -> float:
    """Returns the CPU time of a process so far, by the scheduler's clock where the kernel tells it.

    Threads that have ended are missing in the finer clock; the coarser one, in ticks of 10 ms, knows them.
    """
    process = psutil.Process(pid)
    coarse = sum(process.cpu_times()[:2])
    try:
        fine = sum(int(path.read_text().split()[0]) for path in Path(f"/proc/{pid}/task").glob("*/schedstat")) * 1e-9
    except (OSError, ValueError, IndexError):
        return coarse
    return fine if abs(fine - coarse) < 0.02 + 0.05 * coarse else coarse


def resident_bytes(pid: int) -> int:
    """Returns what a process holds in memory now."""
    return int(psutil.Process(pid).memory_info().rss)


def peak_bytes(pid: int) -> int:
    """Returns the most that a process has held in memory; where the kernel does not tell, what it holds now."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return resident_bytes(pid)
    for line in status.splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return resident_bytes(pid)
