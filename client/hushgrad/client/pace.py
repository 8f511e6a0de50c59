"""When updates were sealed: a note beside the ledger, from which people are told how fast a budget is being used.

No promise rests on it. A line that is missing, torn or wrong costs an estimate and nothing else, so nothing here is
synced, chained or checked, and an error of the disk is ignored. The note stays on this machine: no message and no
export holds any of it.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

NOTE_NAME = "sealed-at.txt"
LOOKED_AT = 101
"""How many seals a pace is made of: a hundred steps from one to the next."""

_TAIL_BYTES = 64 * LOOKED_AT


@dataclass(frozen=True, slots=True)
class Seal:
    """One line of the note: which row was written when.

    Attributes:
        sequence: number of the ledger row.
        unix_seconds: by the clock of this machine.
    """

    sequence: int
    unix_seconds: float


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast the last updates were sealed.

    Attributes:
        steps: from one update to the next, >= 1; at most a hundred.
        seconds: what these took together, > 0.
        last_unix_seconds: when the newest of them was sealed.
    """

    steps: int
    seconds: float
    last_unix_seconds: float

    def seconds_for(self, updates: int) -> float:
        """Returns how long so many more updates take if nothing changes."""
        return self.seconds / self.steps * updates


def note(folder: Path, seal: Seal) -> None:
    """Adds one line; a disk that refuses is left alone."""
    line = f"{seal.sequence} {seal.unix_seconds:.3f}\n".encode()
    try:
        descriptor = os.open(folder / NOTE_NAME, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.write(descriptor, line)
        finally:
            os.close(descriptor)
    except OSError:
        return


def read(folder: Path, newest: int) -> tuple[Seal, ...]:
    """Returns the last seals that the note knows, oldest first, none behind row `newest`; empty if there is no note."""
    try:
        with (folder / NOTE_NAME).open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL_BYTES))
            lines = file.read().split(b"\n")
    except OSError:
        return ()
    found: list[Seal] = []
    below = newest + 1
    for line in reversed(lines):
        seal = _parsed(line)
        # Backwards, each row once: after an old ledger was put back, its numbers were written again.
        if seal is not None and seal.sequence < below and len(found) < LOOKED_AT:
            found.append(seal)
            below = seal.sequence
    return tuple(reversed(found))


def of(seals: Sequence[Seal]) -> Pace | None:
    """Returns the pace of seals, oldest first; None where there are not two, or the clock was set back since.

    >>> of([Seal(3, 100.0), Seal(4, 104.0), Seal(6, 106.0)])
    Pace(steps=2, seconds=6.0, last_unix_seconds=106.0)
    >>> of([Seal(3, 100.0), Seal(4, 50.0)]) is None
    True
    """
    first = 0
    for at in range(1, len(seals)):
        if seals[at].unix_seconds < seals[at - 1].unix_seconds:
            first = at
    steps = len(seals) - 1 - first
    if steps < 1 or seals[-1].unix_seconds <= seals[first].unix_seconds:
        return None
    return Pace(steps, seals[-1].unix_seconds - seals[first].unix_seconds, seals[-1].unix_seconds)


def _parsed(line: bytes) -> Seal | None:
    parts = line.split()
    if len(parts) != 2:
        return None
    try:
        seal = Seal(int(parts[0]), float(parts[1]))
    except ValueError:
        return None
    return seal if seal.sequence > 0 and 0 < seal.unix_seconds < 1e11 else None  # NaN fails as well
