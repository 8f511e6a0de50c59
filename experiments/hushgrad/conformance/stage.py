"""What every scenario stands on: a scripted server, somebody's client, and waiting for what they do."""

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
from hushgrad.conformance import world
from hushgrad.conformance.process import Process
from hushgrad.conformance.report import Check, Judgement
from hushgrad.conformance.scripted import Server
from hushgrad.conformance.world import Federation

START_SECONDS: Final = 60.0
"""How long a process may take from its start to its first call; patience begins with that call."""

QUIET_SECONDS: Final = 1.5
"""How long the kit listens before it says that nothing came."""

ModelOf = Callable[[int], npt.NDArray[np.float32]]


class StuckError(Exception):
    """A scenario cannot go on; the text says what the client did or did not do."""


@dataclass(frozen=True, slots=True)
class Kit:
    """How the kit was called.

    Attributes:
        command: starts the client under test.
        folder: for state, data and logs; one sub-folder per stage.
        patience_seconds: how long to wait for something that the client must do, once it has made its first call.
        rounds: rounds of the statistics.
    """

    command: Sequence[str]
    folder: Path
    patience_seconds: float = 20.0
    rounds: int = 2400


@dataclass(frozen=True, slots=True)
class Scenario:
    """A play and the checks that it decides.

    Attributes:
        checks: what it judges.
        play: judges all of them.
    """

    checks: tuple[Check, ...]
    play: Callable[[Kit, Judgement], None]


class Stage:
    """One federation with one client.

    Attributes:
        server: the scripted server.
        process: the client; not started yet.
        state: the client's state folder.
    """

    def __init__(self, kit: Kit, server: Server, process: Process, state: Path) -> None:
        self.kit = kit
        self.server = server
        self.process = process
        self.state = state

    def start(self) -> None:
        """Starts the client; after it ended or was killed, a new life of it."""
        self.process.start()
        self.server.life = self.process.lives

    def kill(self) -> None:
        """Ends the client with kill -9."""
        self.process.kill()

    def until(self, condition: Callable[[], bool], what: str, *, exit_allowed: bool = False) -> None:
        """Waits for something that the client must do.

        Raises:
            StuckError: if it does not come, or the client ends before.
        """
        deadline = time.monotonic() + START_SECONDS
        speaks = False
        while not self.server.wait_for(condition, 0.1):
            if self.process.exit_code is not None and not self.server.wait_for(condition, 1.0):
                if exit_allowed:
                    return
                raise StuckError(f"{what}: the client ended before, {self.ending()}")
            if not speaks and self.server.speaks():
                speaks, deadline = True, time.monotonic() + self.kit.patience_seconds
            if time.monotonic() > deadline:
                raise StuckError(f"{what}: it did not happen within {self.kit.patience_seconds:g} seconds")

    def until_round(self, round_: int, times: int = 1) -> None:
        """Waits until an update of a round has come so many times."""
        again = "" if times == 1 else " again"
        self.until(lambda: len(self.server.of_round(round_)) >= times, f"round {round_} must be sent{again}")

    def finish(self, codes: Sequence[int], unless: Callable[[], bool] = lambda: False) -> str | None:
        """Waits for the client's end; returns what is wrong with it, or None.

        Args:
            codes: the exit codes that are right.
            unless: what makes it pointless to wait on.
        """
        began = time.monotonic()
        while self.process.exit_code is None and not unless():
            patience = self.kit.patience_seconds if self.server.speaks() else START_SECONDS
            if time.monotonic() > began + patience:
                break
            time.sleep(0.02)
        found = self.process.exit_code
        if found is None:
            return (
                f"the client still runs after {self.kit.patience_seconds:g} seconds; exit code {_listed(codes)} was due"
            )
        if found in codes:
            return None
        return f"exit code {_listed(codes)} was due, {self.ending()}"

    def ending(self) -> str:
        """Returns how the client ended, with its last words."""
        said = self.process.last_words()
        return f"found exit code {self.process.exit_code}" + (f" after it said: {said}" if said else "")

    def listen(self, seconds: float = QUIET_SECONDS) -> None:
        """Lets time pass, so that what must not come may come."""
        time.sleep(seconds)


_numbers = itertools.count(1)


@contextmanager
def stage(
    kit: Kit,
    federation: Federation,
    model_of: ModelOf = world.beacon_model,
    *,
    state: Path | None = None,
    address: Callable[[str], str] = lambda address: address,
) -> Iterator[Stage]:
    """Sets a stage: serves the federation and prepares its client; ends both.

    Args:
        kit: how the kit was called.
        federation: what is played.
        model_of: the model of each version.
        state: a state folder that exists; a new one otherwise.
        address: what the client is told in place of the server's address.
    """
    folder = kit.folder / f"{next(_numbers):03d}"
    folder.mkdir(parents=True)
    if state is None:
        state = folder / "state"
        state.mkdir()
    data = federation.write_data(folder)
    server = Server(federation, model_of)
    with server.serving() as own:
        process = Process(kit.command, federation.environment(address(own), state, data), folder / "client.log")
        try:
            yield Stage(kit, server, process, state)
        finally:
            process.kill()


def _listed(codes: Sequence[int]) -> str:
    return " or ".join(str(code) for code in codes)
