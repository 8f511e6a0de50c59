"""A fault proxy as a process of its own, for tests."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path


class Proxy:
    """`python -m hushgrad.experiments.chaos_proxy` in front of an address.

    Attributes:
        address: where it listens.
        counts: what happened, once it was stopped.
    """

    def __init__(self, root: Path, upstream: str, *arguments: str, prefix: tuple[str, ...] = ()) -> None:
        self._log = root / f"proxy-{time.monotonic_ns()}.log"
        with open(self._log, "wb") as log:
            self.process = subprocess.Popen(
                [*prefix, sys.executable, "-m", "hushgrad.experiments.chaos_proxy", "--upstream", upstream, *arguments],
                stderr=log,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
            )
        self.counts: dict[str, int] = {}
        deadline = time.monotonic() + 20
        while not (events := self._events("listening")):
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.process.kill()
                raise AssertionError(f"the proxy did not start: {self._log.read_text()}")
            time.sleep(0.01)
        self.address = events[0]["address"]

    def _events(self, name: str) -> list[dict]:
        lines = [line for line in self._log.read_text().splitlines() if line.startswith("{") and line.endswith("}")]
        return [event for event in map(json.loads, lines) if event["event"] == name]

    def stop(self) -> dict[str, int]:
        """Ends it and returns what happened."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        found = self._events("counts")
        self.counts = found[0] if found else {}
        return self.counts

    def __enter__(self) -> "Proxy":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
