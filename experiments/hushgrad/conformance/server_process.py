"""Runs somebody's server command for the kit, on one port over several lives."""

import socket
from collections.abc import Sequence
from pathlib import Path

from hushgrad.conformance import server_files
from hushgrad.conformance.process import Process


class ServerProcess:
    """A server under test. Its command gets HUSHGRAD_LISTEN, HUSHGRAD_FEDERATION (the folder of terms.toml, server.toml
    and initial.safetensors) and HUSHGRAD_STATE_DIR (a folder for what must survive; empty at the first start).

    Args:
        command: the command and its arguments.
        folder: a new folder for its files.
    """

    def __init__(self, command: Sequence[str], folder: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{free.getsockname()[1]}"
        files = folder / "federation"
        server_files.write(files, self.address)
        state = folder / "state"
        state.mkdir(parents=True)
        environment = {
            "HUSHGRAD_LISTEN": self.address,
            "HUSHGRAD_FEDERATION": str(files),
            "HUSHGRAD_STATE_DIR": str(state),
        }
        self._process = Process(command, environment, folder / "server.log")

    def start(self) -> None:
        """Starts the server, or starts it again on the same state."""
        self._process.start()

    def kill(self) -> None:
        """Ends it with kill -9."""
        self._process.kill()
