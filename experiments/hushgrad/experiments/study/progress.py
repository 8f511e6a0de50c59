"""Shows how far a sweep is: one line that changes in a terminal, a line now and then elsewhere."""

import contextlib
import sys
import time
from collections.abc import Iterator

from hushgrad.experiments.study.conduct import Progress

_SECONDS_BETWEEN_LINES = 10.0


@contextlib.contextmanager
def shown(*, quiet: bool) -> Iterator[Progress | None]:
    """Yields what `conduct` tells its progress to; None when nothing is to be shown."""
    if quiet:
        yield None
        return
    stream, in_terminal = sys.stderr, sys.stderr.isatty()
    last = float("-inf")

    def tell(done: int, total: int, seconds_left: float | None) -> None:
        nonlocal last
        line = words(done, total, seconds_left)
        if in_terminal:
            stream.write(f"\r\x1b[K{line}")
            stream.flush()
        elif done == total or time.monotonic() - last >= _SECONDS_BETWEEN_LINES:
            last = time.monotonic()
            stream.write(line + "\n")
            stream.flush()

    try:
        yield tell
    finally:
        if in_terminal:
            stream.write("\n")


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
