"""Which ledgers exist on this machine for which data, so that a second one for the same data does not go unnoticed.

A budget belongs to data. Whoever makes a second ledger for the same data gives it a second budget; that must be said.
The register holds plain fingerprints of private data: it stays on this machine and is readable by its owner alone.
"""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hushgrad.client import outbox
from hushgrad.client.errors import InputError


def home() -> Path:
    """Returns the folder of what belongs to the user: $HUSHGRAD_HOME, or ~/.local/state/hushgrad."""
    given = os.environ.get("HUSHGRAD_HOME")
    return Path(given) if given else Path.home() / ".local" / "state" / "hushgrad"


@contextmanager
def registered(folder: Path, *, fingerprint: str, ledger: Path, accept_new_budget: bool) -> Iterator[bool]:
    """Registers a ledger that the block makes; registers nothing when the block raises.

    Yields:
        True if this data had another ledger before, whose existence was accepted.

    Raises:
        InputError: if this data has another ledger and that was not accepted.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "ledgers.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        path = folder / "ledgers.json"
        known = _read(path)
        earlier = known.get(fingerprint, [])
        if earlier and not accept_new_budget:
            raise InputError(
                f"this data has had a ledger already, at {earlier[-1]}; a second one gives the same records a second "
                "budget. Use the first, or say --accept-new-budget: it is recorded in the ledger and shown by status"
            )
        yield bool(earlier)
        if str(ledger) not in known.setdefault(fingerprint, []):
            known[fingerprint].append(str(ledger))
        temporary = path.with_suffix(".new")
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            json.dump({"format": 1, "ledgers": known}, file, indent=1, sort_keys=True)
            file.flush()
            os.fsync(file.fileno())
        temporary.rename(path)
        outbox.sync_folder(folder)


def _read(path: Path) -> dict[str, list[str]]:
    try:
        document = json.loads(path.read_text())
        return {str(key): [str(entry) for entry in value] for key, value in document["ledgers"].items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(
            f"the register of ledgers {path} cannot be read ({error}); repair it or move it away"
        ) from None
