"""Changes single keys of a configuration file and leaves its comments as they are."""

import re
import tomllib
from collections.abc import Mapping

from hushgrad.client.errors import InputError

_HEADER = re.compile(r"\s*\[")


def with_keys(text: str, table: str, keys: Mapping[str, str], *, without: tuple[str, ...] = ()) -> str:
    """Returns a TOML text in which some keys of one table have new values.

    Lines that gave them before, also those that are commented out, are taken away; a table that is missing is appended.

    Args:
        text: of the file.
        table: name of the table; empty: the keys before the first one.
        keys: text values.
        without: keys that must not be there.

    Raises:
        InputError: if that makes no TOML with these values, because a value runs over several lines for example.

    >>> with_keys('# a = "x"\\nb = 1\\n[t]\\n', "", {"a": "y"})
    'a = "y"\\nb = 1\\n[t]\\n'
    """
    lines = text.splitlines()
    start, end = _section(lines, table)
    if start is None:
        lines += ["", f"[{table}]"]
        start = end = len(lines)
    gone = re.compile(rf"\s*#?\s*(?:{'|'.join(map(re.escape, (*keys, *without)))})\s*=")
    kept = [line for line in lines[start:end] if not gone.match(line)]
    new = [f"{key} = {_quoted(value)}" for key, value in keys.items()]
    result = "\n".join([*lines[:start], *new, *kept, *lines[end:]]) + "\n"
    try:
        found = tomllib.loads(result)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"the configuration's keys {', '.join(keys)} cannot be set: {error}") from None
    section = found.get(table, {}) if table else found
    if any(section.get(key) != value for key, value in keys.items()) or any(key in section for key in without):
        raise InputError(f"the configuration's keys {', '.join(keys)} cannot be set; write each on a line of its own")
    return result


def _section(lines: list[str], table: str) -> tuple[int | None, int]:
    headers = [number for number, line in enumerate(lines) if _HEADER.match(line)]
    if not table:
        return 0, headers[0] if headers else len(lines)
    for place, number in enumerate(headers):
        if lines[number].strip().startswith(f"[{table}]"):
            return number + 1, headers[place + 1] if place + 1 < len(headers) else len(lines)
    return None, len(lines)


def _quoted(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    if any(ord(character) < 32 or ord(character) == 127 for character in escaped):
        raise InputError(f"a value in a configuration file must not hold control characters, found {value!r}")
    return f'"{escaped}"'
