"""Child processes of a run: started together, watched, and ended together whatever happens.

Each child's stderr goes into a log file, line by line; lines that are JSON objects are also handed to the parent as
events. Children have a session of their own, so that Ctrl-C reaches the parent alone, which then ends them in order.
"""

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from hushgrad.experiments.errors import ExperimentError

STOP_SECONDS = 8.0
"""How long a child may take to end after SIGTERM before it is killed."""

Event = tuple[str, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Child:
    """One process."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path
    reader: threading.Thread


class Group:
    """Processes that live and end together.

    Args:
        logs: folder of the log files, NAME.log for the process NAME.
        environment: of every process.
    """

    def __init__(self, logs: Path, environment: Mapping[str, str]) -> None:
        self._logs = logs
        self._environment = dict(environment)
        self._children: list[Child] = []
        self._events: queue.Queue[Event] = queue.Queue()

    def start(self, name: str, module: str, arguments: Sequence[str]) -> Child:
        """Starts `python -m MODULE ARGUMENTS` with this Python."""
        log = self._logs / f"{name}.log"
        with log.with_suffix(".out").open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", module, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.PIPE,
                env=self._environment,
                start_new_session=True,
            )
        return self._follow(name, process, log)

    def launch(self, name: str, command: Sequence[str]) -> Child:
        """Starts a command that listens to us: `say` reaches its standard input, whose end tells it to end.

        The same name may be started again; its log goes on.
        """
        log = self._logs / f"{name}.log"
        with log.with_suffix(".out").open("ab") as output:
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.PIPE,
                env=self._environment,
                start_new_session=True,
            )
        return self._follow(name, process, log)

    def say(self, child: Child, word: bytes) -> None:
        """Sends a line to a launched child; one that has ended hears nothing."""
        if child.process.stdin is not None:
            with contextlib.suppress(OSError, ValueError):
                child.process.stdin.write(word + b"\n")
                child.process.stdin.flush()

    def forget(self, child: Child) -> str:
        """Takes an ended child out of the group and returns the last line of its log."""
        child.reader.join(timeout=2)
        self._children.remove(child)
        return _last_line(child.log)

    def _follow(self, name: str, process: subprocess.Popen[bytes], log: Path) -> Child:
        reader = threading.Thread(target=self._read, args=(name, process, log), name=f"log of {name}", daemon=True)
        child = Child(name, process, log, reader)
        self._children.append(child)
        reader.start()
        return child

    def _read(self, name: str, process: subprocess.Popen[bytes], log: Path) -> None:
        assert process.stderr is not None
        with log.open("ab", buffering=0) as file:
            for line in process.stderr:
                file.write(line)
                with contextlib.suppress(ValueError):
                    event = json.loads(line)
                    if isinstance(event, dict):
                        self._events.put((name, event))

    def events(self, seconds: float) -> list[Event]:
        """Returns what was logged since the last call; waits at most so long for the first."""
        found: list[Event] = []
        with contextlib.suppress(queue.Empty):
            found.append(self._events.get(timeout=seconds))
            while True:
                found.append(self._events.get_nowait())
        return found

    def check(self) -> None:
        """Looks whether a child has failed.

        Raises:
            ExperimentError: with its name, its exit code, where its log is, and the last line of it.
        """
        for child in self._children:
            code = child.process.poll()
            if code:
                child.reader.join(timeout=2)
                raise ExperimentError(
                    f"{child.name} ended with exit code {code}; its log is {child.log}\n  {_last_line(child.log)}"
                )

    def running(self) -> list[str]:
        """Returns the names of the children that have not ended."""
        return [child.name for child in self._children if child.process.poll() is None]

    def wait(self, names: Sequence[str], seconds: float) -> None:
        """Waits for children to end well.

        Raises:
            ExperimentError: if one fails, or some have not ended in time.
        """
        deadline = time.monotonic() + seconds
        while waiting := sorted(set(self.running()) & set(names)):
            self.check()
            if time.monotonic() > deadline:
                raise ExperimentError(f"{', '.join(waiting)} did not end within {seconds:g} s; see {self._logs}")
            time.sleep(0.02)
        self.check()

    def kill(self, name: str) -> None:
        """Ends the running child of this name with SIGKILL, on purpose: it is not taken for a failure."""
        for child in [child for child in self._children if child.name == name and child.process.poll() is None]:
            child.process.kill()
            child.process.wait()
            child.reader.join(timeout=2)
            self._children.remove(child)

    def finish(self) -> None:
        """Waits until every line that the ended children wrote is in their logs."""
        for child in self._children:
            if child.process.poll() is not None:
                child.reader.join(timeout=5)

    def stop(self) -> None:
        """Ends all children: SIGTERM, or the end of what they listen to; SIGKILL if they live on after STOP_SECONDS."""
        for child in self._children:
            if child.process.stdin is not None:
                with contextlib.suppress(OSError):
                    child.process.stdin.close()
            elif child.process.poll() is None:
                child.process.terminate()
        deadline = time.monotonic() + STOP_SECONDS
        for child in self._children:
            try:
                child.process.wait(timeout=max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                child.process.kill()
                child.process.wait()
            child.reader.join(timeout=2)
            output = child.log.with_suffix(".out")
            if output.exists() and output.stat().st_size == 0:
                output.unlink()


def environment(home: Path) -> dict[str, str]:
    """Returns the environment of a child: ours, with the register of ledgers in `home`, and one thread for numpy.

    What HUSHGRAD_* variables the parent has is left out: a child's configuration is in its file.
    """
    kept = {key: value for key, value in os.environ.items() if not key.startswith("HUSHGRAD_")}
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    return {**kept, **threads, "HUSHGRAD_HOME": str(home), "PYTHONUNBUFFERED": "1"}


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Makes SIGTERM and SIGHUP end the block as Ctrl-C does, so that children are ended then too."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _last_line(log: Path) -> str:
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1] if lines else "(the log is empty)"
