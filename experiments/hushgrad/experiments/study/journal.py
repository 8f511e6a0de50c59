"""What is known of a run with real members while it is not done: a small file, so that it can be taken up again.

A federation that is taken up again costs nobody a second budget: its server and ledgers are where they were.
"""

import fcntl
import json
import os
import secrets
from pathlib import Path
from typing import Any

import msgspec
from hushgrad.experiments.errors import InputError
from hushgrad.experiments.study.sweep import Run

NAME = "run.json"


class State(msgspec.Struct):
    """What the file says.

    Attributes:
        number, key, name: of the run.
        token: names the run at other machines.
        server_is_made: its state exists.
        members: who has a configuration, and, as a client, a ledger.
        started: when the evaluator was started, each time, seconds since 1970.
        starts: how often everybody was started.
        claims: by client, as it committed them before its first round.
        suspensions: so far.
        lost: who was lost on the way; see the results.
        crashes: which planned crashes have happened, [client's number, round].
        hosts: by member, where it is.
    """

    number: int
    key: str
    name: str
    token: str
    server_is_made: bool = False
    members: list[str] = []
    started: list[float] = []
    starts: int = 0
    claims: dict[str, dict[str, Any]] = {}
    suspensions: int = 0
    lost: list[dict[str, Any]] = []
    crashes: list[tuple[int, int]] = []
    hosts: dict[str, str] = {}


class Journal:
    """The file of one run, locked for as long as this process makes the run.

    Args:
        folder: of the run; made if it is not there.
        run: which.

    Raises:
        InputError: if another process has it, or it is of another run.
    """

    def __init__(self, folder: Path, run: Run) -> None:
        self.folder = folder
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        (folder / "logs").mkdir(exist_ok=True)
        self._lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._lock)
            raise InputError(f"run {run.number} is being made by another process, in {folder}") from None
        path = folder / NAME
        if path.exists():
            self.state = read(path)
            if self.state.key != run.key:
                os.close(self._lock)
                raise InputError(f"{path} is of another run, {self.state.key}")
        else:
            self.state = State(run.number, run.key, run.experiment.name, f"{run.key}-{secrets.token_hex(4)}")
            self.save()

    def save(self) -> None:
        """Writes the file, whole or not at all."""
        temporary = self.folder / f".{NAME}.tmp"
        temporary.write_text(json.dumps(msgspec.to_builtins(self.state), indent=1) + "\n")
        temporary.rename(self.folder / NAME)

    def close(self) -> None:
        """Gives the run to whoever wants it next."""
        os.close(self._lock)


def read(path: Path) -> State:
    """Returns what a journal says.

    Raises:
        InputError: if it is none.
    """
    try:
        return msgspec.json.decode(path.read_bytes(), type=State)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
    except msgspec.DecodeError as error:
        raise InputError(f"{path} is no journal of a run: {error}") from None
