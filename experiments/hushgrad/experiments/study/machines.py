"""Machines that members of a federation run on: this one, or one that ssh reaches. Files go in, answers come out.

A machine has no idea of what runs on it. Whatever runs is attended to (`attend`), so that it ends with whoever started
it.
"""

import io
import json
import shlex
import subprocess
import sys
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, Protocol

from hushgrad.experiments.errors import ExperimentError, InputError
from hushgrad.experiments.study.inventory import Host

ATTEND = "hushgrad.experiments.study.attend"
ONHOST = "hushgrad.experiments.study.onhost"
LOST = 255
"""The exit code of ssh when there is no connection (any more)."""

_ASK_SECONDS = 600.0
_SSH = ("-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=3")


class LostError(ExperimentError):
    """A machine could not be reached."""


class Machine(Protocol):
    """Where members run.

    Attributes:
        name: for people.
        root: its working folder.
    """

    @property
    def name(self) -> str: ...

    @property
    def root(self) -> str: ...

    def command(self, folder: str, module: str, arguments: Sequence[str], *, once: bool = False) -> list[str]:
        """Returns the words that run `python -m MODULE ARGUMENTS` in a folder below the root, attended to."""

    def put(self, folder: str, files: Mapping[str, bytes]) -> None:
        """Writes files into a folder below the root that only its owner can read.

        Raises:
            ExperimentError: if that is not possible; LostError, if the machine is out of reach.
        """


class Here:
    """This machine. root: absolute."""

    name = "this machine"

    def __init__(self, root: Path) -> None:
        self.root = str(root.absolute())

    def command(self, folder: str, module: str, arguments: Sequence[str], *, once: bool = False) -> list[str]:
        """See Machine."""
        return _attended([sys.executable], self.root, folder, module, arguments, once=once)

    def put(self, folder: str, files: Mapping[str, bytes]) -> None:
        """See Machine."""
        place = Path(self.root) / folder
        try:
            place.mkdir(mode=0o700, parents=True, exist_ok=True)
            for name, content in files.items():
                (place / name).write_bytes(content)
                (place / name).chmod(0o600)
        except OSError as error:
            raise ExperimentError(f"{error.filename or place} cannot be written: {error.strerror}") from None


class There:
    """A machine that ssh reaches."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self.name = host.name
        self.root = host.folder

    def command(self, folder: str, module: str, arguments: Sequence[str], *, once: bool = False) -> list[str]:
        """See Machine."""
        words = _attended(self._host.python(), self.root, folder, module, arguments, once=once)
        return [*self._ssh(), shlex.join(words)]

    def put(self, folder: str, files: Mapping[str, bytes]) -> None:
        """See Machine."""
        place = shlex.quote(str(PurePosixPath(self.root) / folder))
        done = subprocess.run(
            [*self._ssh(), f"umask 077 && mkdir -p {place} && tar -x -f - -C {place}"],
            input=_tar(files), capture_output=True, timeout=_ASK_SECONDS,
        )  # fmt: skip
        _check(done, self.name, "taking files")

    def _ssh(self) -> list[str]:
        host = self._host
        words = ["ssh", *_SSH, "-p", str(host.port)]
        if host.identity:
            words += ["-i", host.identity, "-o", "IdentitiesOnly=yes"]
        if host.known_hosts:
            words += ["-o", f"UserKnownHostsFile={host.known_hosts}", "-o", "StrictHostKeyChecking=yes"]
        return [*words, "--", f"{host.user}@{host.ssh}" if host.user else host.ssh]


def ask(machine: Machine, folder: str, module: str, arguments: Sequence[str], *, seconds: float = _ASK_SECONDS) -> str:
    """Runs a module to its end and returns what it printed.

    Raises:
        ExperimentError: if it failed; LostError, if the machine is out of reach.
    """
    command = machine.command(folder, module, arguments, once=True)
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        raise LostError(f"{machine.name}: no answer from {module.rpartition('.')[2]} within {seconds:g} s") from None
    _check(done, machine.name, " ".join([module, *arguments[:1]]))
    return done.stdout.decode(errors="replace")


def told(machine: Machine, folder: str, *arguments: str, seconds: float = _ASK_SECONDS) -> dict[str, Any]:
    """Runs a verb of `onhost` and returns its answer.

    Raises:
        ExperimentError: as `ask`.
    """
    return dict(json.loads(ask(machine, folder, ONHOST, arguments, seconds=seconds)))


def check(machine: Machine, version: str) -> None:
    """Refuses a machine that cannot be used, before anything is begun.

    Raises:
        InputError: if it cannot be reached, or has no hushgrad of this version.
    """
    try:
        found = ask(machine, "", "hushgrad.cli", ["--version"], seconds=60).split()[-1]
    except ExperimentError as error:
        raise InputError(f"host {machine.name} cannot be used: {error}") from None
    if found != version:
        raise InputError(f"host {machine.name} has hushgrad {found}, here it is {version}; install the same everywhere")


def _attended(
    python: Sequence[str], root: str, folder: str, module: str, arguments: Sequence[str], *, once: bool
) -> list[str]:
    base = PurePosixPath(root)
    words = [*python, "-m", ATTEND, *(["--once"] if once else [])]
    return [*words, str(base / "home"), str(base / folder), module, *arguments]


def _check(done: "subprocess.CompletedProcess[bytes]", name: str, what: str) -> None:
    if done.returncode == 0:
        return
    lines = [line for line in done.stderr.decode(errors="replace").splitlines() if line.strip()]
    last = lines[-1] if lines else "(nothing was said)"
    if done.returncode == LOST:
        raise LostError(f"{name} is out of reach: {last}")
    raise ExperimentError(f"{name}: {what} ended with exit code {done.returncode}: {last}")


def _tar(files: Mapping[str, bytes]) -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(data), 0o600
            archive.addfile(entry, io.BytesIO(data))
    return content.getvalue()
