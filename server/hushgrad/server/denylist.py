"""The deny list: certificates that hold no longer though they have not expired.

A text file, one certificate a line: its serial number in hexadecimal, then whatever people want to read, after a `#`.
It is read again whenever it changes. A file that cannot be read changes nothing: what was denied stays denied.
"""

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from hushgrad.server import folder
from hushgrad.server.errors import InputError

_HEAD = "# Certificates that are good for nothing any more: serial numbers. Written by `hushgrad certs revoke`.\n"


class DenyList:
    """A deny list that is read again when its file changes.

    Args:
        path: the file.
        on_trouble: told in one line why a changed file was not taken; the last good content stays in force.

    Raises:
        InputError: if the file cannot be read at the start.
    """

    def __init__(self, path: Path, on_trouble: Callable[[str], None]) -> None:
        self._path = path
        self._on_trouble = on_trouble
        self._stamp = _stamp(path)
        self._denied: Mapping[int, str] = read(path)

    def holds(self, serial: int) -> bool:
        """Says whether a certificate is denied, by the file as it is now."""
        stamp = _stamp(self._path)
        if stamp != self._stamp:
            self._stamp = stamp
            try:
                self._denied = read(self._path)
            except InputError as error:
                self._on_trouble(str(error))
        return serial in self._denied


def read(path: Path) -> dict[int, str]:
    """Returns serial numbers and what was written beside them.

    Raises:
        InputError: if the file cannot be read, or a line is none.
    """
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"deny list {path} cannot be read: {error}; make it with `hushgrad certs init`") from None
    if not text.endswith("\n"):
        # Half a copy must not let anybody back in.
        raise InputError(
            f"deny list {path} is not whole: its last line, a comment at least, must end with a line break"
        )
    denied = {}
    for number, line in enumerate(text.splitlines(), start=1):
        serial, _, note = line.partition("#")
        if not serial.strip():
            continue
        try:
            denied[int(serial.strip(), 16)] = note.strip()
        except ValueError:
            raise InputError(
                f"deny list {path}, line {number}: a serial number in hexadecimal was expected, found "
                f"{serial.strip()!r}"
            ) from None
    return denied


def write(path: Path, denied: Mapping[int, str]) -> None:
    """Writes a deny list in one step, durably."""
    lines = [f"{serial:x}  # {note}\n" for serial, note in denied.items()]
    folder.write_durably(path, "".join([_HEAD, *lines]).encode())


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino, found.st_size
