"""Five client processes, told what to do all at once."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

ANSWER_SECONDS = 300.0


class Crew:
    """Client processes under one command; see `worker` for what they can do."""

    def __init__(self, processes: list[subprocess.Popen[str]], log: Path) -> None:
        self._processes = processes
        self._log = log

    def __len__(self) -> int:
        return len(self._processes)

    def all(self, do: str, **values: object) -> list[dict[str, Any]]:
        """Gives every process one command and returns all answers."""
        for process in self._processes:
            self._tell(process, do, values)
        return [self._answer(process) for process in self._processes]

    def one(self, place: int, do: str, **values: object) -> dict[str, Any]:
        """Gives one process a command and returns its answer."""
        self._tell(self._processes[place], do, values)
        return self._answer(self._processes[place])

    def begin(self, place: int, do: str, **values: object) -> None:
        """Gives one process a command; `finish` waits for its answer."""
        self._tell(self._processes[place], do, values)

    def finish(self, place: int) -> dict[str, Any]:
        """Returns the answer to what was begun."""
        return self._answer(self._processes[place])

    def seconds(self, do: str, **values: object) -> float:
        """Gives every process one command; returns the seconds from the first beginning to the last end."""
        answers = self.all(do, **values)
        return max(one["ended"] for one in answers) - min(one["began"] for one in answers)

    def _tell(self, process: subprocess.Popen[str], do: str, values: dict[str, object]) -> None:
        cast(IO[str], process.stdin).write(json.dumps({"do": do, **values}) + "\n")
        cast(IO[str], process.stdin).flush()

    def _answer(self, process: subprocess.Popen[str]) -> dict[str, Any]:
        line = cast(IO[str], process.stdout).readline()
        if not line:
            raise RuntimeError(f"a client process ended: {self._log.read_text(errors='replace')[-800:]}")
        return cast(dict[str, Any], json.loads(line))


@contextmanager
def hired(count: int, log: Path, *, module: str = "benchmarks.worker") -> Iterator[Crew]:
    """Starts so many client processes, their errors in a file, and ends them."""
    with log.open("wb") as errors:
        processes = [
            subprocess.Popen(
                [sys.executable, "-m", module, str(place)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
            for place in range(count)
        ]
        try:
            yield Crew(processes, log)
        finally:
            for process in processes:
                process.kill()
            for process in processes:
                process.communicate()
