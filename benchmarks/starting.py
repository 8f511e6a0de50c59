"""How long programs take to start, against the least that any program with the same libraries takes."""

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks import federation, harness, processes
from benchmarks.federation import Plan
from benchmarks.harness import Row, Unmeasured

BAR_SERVER = 5.0
"""Beside Python, gRPC and an event loop: numpy, protobuf, SQLite with its lock and recovery, and our own modules."""

BAR_CLIENT = 2.0
"""Our own modules beside the libraries that a client cannot do without. The accountant's own libraries are not among
them: they load when a schedule is priced."""

CLIENT = "import hushgrad.client.__main__, hushgrad.client.commands, hushgrad.client.runner"
LIBRARIES = (
    "import click, cryptography.hazmat.primitives.ciphers, google.protobuf.message, google_crc32c, grpc, msgspec, "
    "numpy, sqlite3, structlog"
)


def figures() -> Iterator[Row | Unmeasured]:
    """Starts a server and the client's modules."""
    yield from harness.measure("server start", _server)
    yield from harness.measure("client start", _client)


def _server() -> Iterator[Row]:
    with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".bench-") as name:
        folder = Path(name)
        config = federation.prepare(folder, Plan())
        script: list[str | Path] = [processes.SCRIPTS / "hushgrad-server", "run", "--config", config, "--listen"]
        bare: list[str | Path] = [processes.SCRIPTS / "python", "-m", "benchmarks.bare_server"]
        log = folder / "log"
        measured = harness.pairs(lambda: _start(script, log), lambda: _start(bare, log), repeats=5)
    yield measured.row(
        name="server: from command to SERVING",
        value=measured.seconds,
        unit="s",
        against="a bare grpc.aio server",
        bar=BAR_SERVER,
    )


def _start(command: Sequence[str | Path], log: Path) -> float:
    address = processes.free_address()
    before = time.perf_counter()
    with processes.running([*command, address], log) as process:
        processes.wait_until_serving(address, process, log)
        return time.perf_counter() - before


def _client() -> Iterator[Row]:
    def python(code: str) -> None:
        subprocess.run([sys.executable, "-c", code], check=True)

    measured = harness.side_by_side(
        lambda: python(CLIENT), lambda: python(LIBRARIES), ours_times=1, yardstick_times=1, repeats=7
    )
    yield measured.row(
        name="client: import of everything that a run needs",
        value=measured.seconds,
        unit="s",
        against="importing its libraries alone",
        bar=BAR_CLIENT,
    )
