"""Shows how far a sweep is: one line that changes in a terminal, a line now and then elsewhere."""

import contextlib
import sys
import time
from collections.abc import Iterator
from typing import TextIO

_SECONDS_BETWEEN_LINES = 10.0


class Shown:
    """What `conduct` tells its progress to.

    Args:
        stream: where the line goes.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream, self._in_terminal = stream, stream.isatty()
        self._sweep, self._within = "", ""
        self._told_at = float("-inf")

    def __call__(self, done: int, total: int, seconds_left: float | None) -> None:
        """Takes the number of runs done, of all, and the seconds that are left."""
        self._sweep, self._within = words(done, total, seconds_left), ""
        self._tell(done == total)

    def within(self, text: str) -> None:
        """Takes where the run stands that is being made."""
        self._within = text
        self._tell(False)

    def close(self) -> None:
        """Ends the line."""
        if self._in_terminal:
            self._stream.write("\n")

    def _tell(self, at_once: bool) -> None:
        line = "; ".join(filter(None, (self._sweep, self._within)))
        if self._in_terminal:
            self._stream.write(f"\r\x1b[K{line}")
        elif at_once or time.monotonic() - self._told_at >= _SECONDS_BETWEEN_LINES:
            self._told_at = time.monotonic()
            self._stream.write(line + "\n")
        self._stream.flush()


@contextlib.contextmanager
def shown(*, quiet: bool) -> Iterator[Shown | None]:
    """Yields what is told how far it is; None when nothing is to be shown."""
    if quiet:
        yield None
        return
    found = Shown(sys.stderr)
    try:
        yield found
    finally:
        found.close()


def words(done: int, total: int, seconds_left: float | None) -> str:
    """Returns one line.

    >>> words(120, 200, 95.0)
    '120 of 200 runs (60 %), about 2 min left'
    """
    line = f"{done} of {total} runs ({100 * done // max(1, total)} %)"
    if seconds_left is None or done == total:
        return line
    if seconds_left < 60:
        return f"{line}, about {max(1, round(seconds_left))} s left"
    if seconds_left < 3600:
        return f"{line}, about {round(seconds_left / 60)} min left"
    return f"{line}, about {seconds_left / 3600:.1f} h left"
