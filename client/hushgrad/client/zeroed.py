"""How many records counted as zero, for the owner of the data: a note beside the ledger that never leaves the machine.

A record whose gradient is not finite adds nothing to a sum. That costs no privacy, but it is most often a mistake in
the data, and only their owner may be told: the count depends on the records. It is written in every round, whether it
has changed or not, and a disk that refuses is left alone: nothing that is promised rests on it.
"""

import contextlib
import os
import re
from pathlib import Path
from typing import BinaryIO

NOTE_NAME = "zeroed.txt"

_LINE = re.compile(r"([0-9a-f]{64}) ([0-9]{1,18})")


def read(folder: Path) -> dict[str, int]:
    """Returns the count of each federation by its terms digest, hex; empty if there is no note."""
    try:
        text = (folder / NOTE_NAME).read_text("ascii", "replace")
    except OSError:
        return {}
    return {found[1]: int(found[2]) for found in map(_LINE.fullmatch, text.splitlines()) if found}


class Count:
    """The count of one run, going on where an earlier process stopped.

    Args:
        folder: the state folder.
        terms_digest: of the federation, hex.
    """

    def __init__(self, folder: Path, terms_digest: str) -> None:
        self._folder = folder
        self._digest = terms_digest
        self._others = read(folder)
        self._before = self._others.pop(terms_digest, 0)
        self._file: BinaryIO | None = None

    def write(self, zeroed: int) -> None:
        """Writes down how many there are, where this process has seen `zeroed`."""
        with contextlib.suppress(OSError):
            if self._file is None:
                self._file = self._begun()
            # The first line, which always has the same length: written in place, in a few microseconds.
            self._file.seek(0)
            self._file.write(_line(self._digest, self._before + zeroed))

    def _begun(self) -> BinaryIO:
        temporary = self._folder / f"{NOTE_NAME}.new"
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        file = open(descriptor, "wb", buffering=0)  # noqa: SIM115  # open as long as the run
        file.write(b"".join(_line(digest, count) for digest, count in [(self._digest, 0), *self._others.items()]))
        temporary.rename(self._folder / NOTE_NAME)
        return file


def _line(digest: str, count: int) -> bytes:
    return f"{digest} {count:018d}\n".encode()
