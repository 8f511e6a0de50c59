"""Runs somebody's command: starts it, kills it, also when this process is killed, and keeps what it printed."""

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from hushgrad.conformance.supervisor import Supervisor

_supervisor = Supervisor()


class Process:
    """One command that may be started several times, one process at a time.

    Args:
        command: the command and its arguments.
        environment: variables that it gets beside those of this process.
        log: file that its output is added to.
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        self._command = list(command)
        self.environment = dict(environment)
        self._log = log
        self._running: subprocess.Popen[bytes] | None = None
        self.lives = 0

    def start(self) -> None:
        """Starts the command in a process group of its own.

        Raises:
            OSError: if it cannot be started.
        """
        if self._running is not None:
            _supervisor.forget(self._running.pid)
        with self._log.open("ab") as log:
            self._running = _supervisor.start(
                self._command, env={**os.environ, **self.environment}, stdout=log, stderr=subprocess.STDOUT
            )
        self.lives += 1

    @property
    def exit_code(self) -> int | None:
        """The exit code; None while it runs. Minus the number of the signal that ended it."""
        return self._running.poll() if self._running is not None else None

    def kill(self) -> None:
        """Ends the process and its children with SIGKILL, at once."""
        if self._running is None:
            return
        with suppress(ProcessLookupError):
            os.killpg(self._running.pid, signal.SIGKILL)
        self._running.wait()
        _supervisor.forget(self._running.pid)

    def last_words(self, lines: int = 2) -> str:
        """Returns the last lines that it printed, on one line."""
        try:
            text = self._log.read_text(errors="replace")
        except OSError:
            return ""
        return " | ".join(line.strip() for line in text.splitlines()[-lines:])[-300:]
