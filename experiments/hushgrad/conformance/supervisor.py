"""Ends what the kit has started when the kit itself is killed: a process that waits for the end of a pipe.

`python -m hushgrad.conformance.supervisor` reads "+PID" and "-PID", one a line, until the kit's end of the pipe closes,
as after kill -9, and then kills the process groups that are left.
"""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any


class Supervisor:
    """The kit's side of the pipe; the process is started with the first command that is watched."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, command: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
        """Starts a command in a process group of its own that does not outlive the kit.

        Args:
            options: as of subprocess.Popen; stdin is empty.

        Raises:
            OSError: if nothing can be started.
        """
        # It names itself before it becomes the command, so there is no moment at which nobody knows of it. What it
        # names itself through is its stdin, which the command does not get.
        return subprocess.Popen(
            ["sh", "-c", 'echo "+$$" >&0; exec "$@" </dev/null', "sh", *command],
            stdin=self._pipe(),
            start_new_session=True,
            **options,
        )

    def forget(self, group: int) -> None:
        """This process group has ended; its number may be somebody else's soon."""
        os.write(self._pipe(), f"-{group}\n".encode())

    def _pipe(self) -> int:
        with self._guard:
            if self._process is None:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "hushgrad.conformance.supervisor"],
                    stdin=subprocess.PIPE,
                    start_new_session=True,
                )
            if self._process.stdin is None:
                raise OSError("the supervisor has no pipe")
            return self._process.stdin.fileno()


def left(lines: Iterable[str]) -> set[int]:
    """Returns the groups that were watched and not forgotten when the lines ended.

    >>> left(["+7", "+8", "-7"])
    {8}
    """
    groups: set[int] = set()
    for line in lines:
        group = int(line[1:])
        if line[0] == "+":
            groups.add(group)
        else:
            groups.discard(group)
    return groups


def main() -> None:
    """Waits for the end of the kit."""
    for signal_ in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(signal_, signal.SIG_IGN)
    for group in left(sys.stdin):
        with suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)


if __name__ == "__main__":
    main()
