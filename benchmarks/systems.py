"""Starts other systems as their documentation does, follows their rounds, and ends every process of theirs.

Each system lives in an environment of its own below .peers-env. Its server writes a line of JSON after each round.
"""

import itertools
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from benchmarks import processes

CLIENTS = 5
ENVIRONMENTS = Path(".peers-env")
MARKER = "HUSHGRAD_BENCH"
_SEARCH_SECONDS = 2.0
_LOOK_SECONDS = 0.25
HERE = Path(__file__).parent


SERVER_WORDS = {
    "flower-1.17": ("peer_flower_legacy.py server",),
    "flower": ("flower-superlink", "serverapp", "server-app", "superexec"),
    "flare": ("fed.app.server",),
}
NAMES = {"flower-1.17": "Flower 1.17 (gRPC-bidi)", "flower": "Flower (SuperLink)", "flare": "NVIDIA FLARE (POC)"}
PACKAGES = {"flower-1.17": "flwr", "flower": "flwr", "flare": "nvflare"}
FOLDERS = {"flower-1.17": "flower-legacy", "flower": "flower", "flare": "flare"}


@dataclass(slots=True)
class Run:
    """What one run of one system gave."""

    round_seconds: list[float] = field(default_factory=list)
    cpu_seconds: float = float("nan")
    peak_bytes: int = 0
    first_round_seconds: float = float("nan")
    reason: str = ""


class _Tree:
    """All processes of one run, found by a mark in their environment, because services detach themselves."""

    def __init__(self, mark: str, server_words: tuple[str, ...]) -> None:
        self._mark = mark
        self._server_words = server_words
        self._servers: list[psutil.Process] = []
        self._search_at = 0.0
        self._cpu: dict[int, float] = {}
        self.peak_bytes = 0

    def processes(self) -> Iterator[tuple[psutil.Process, str]]:
        """Yields each with its command line."""
        for process in psutil.process_iter():
            try:
                if process.environ().get(MARKER) == self._mark:
                    yield process, " ".join(process.cmdline())
            except psutil.Error:
                continue

    def look(self) -> float:
        """Notes memory; returns the CPU seconds that the server's processes have used so far.

        New ones are looked for every few seconds only: reading every process's environment is work, and what is
        measured here needs the cores.
        """
        if time.monotonic() >= self._search_at:
            self._servers = [
                one for one, words in self.processes() if any(word in words for word in self._server_words)
            ]
            self._search_at = time.monotonic() + _SEARCH_SECONDS
        resident = 0
        for process in self._servers:
            try:
                self._cpu[process.pid] = sum(process.cpu_times()[:2])
                resident += process.memory_info().rss
            except psutil.Error:
                continue
        self.peak_bytes = max(self.peak_bytes, resident)
        return sum(self._cpu.values())

    def end(self) -> None:
        """Ends all of them, and those that others start again meanwhile."""
        for number in (signal.SIGTERM, *[signal.SIGKILL] * 9):
            found = [process for process, _ in self.processes()]
            if not found:
                return
            for process in found:
                try:
                    process.send_signal(number)
                except psutil.Error:
                    continue
            psutil.wait_procs(found, timeout=3)
            time.sleep(0.2)


def _python(system: str) -> Path:
    # Not resolved: the path is what makes it that environment's.
    return (ENVIRONMENTS / FOLDERS[system] / "bin" / "python").absolute()


def version(system: str) -> str:
    """Returns the version of a system's package; empty when its environment lacks it."""
    code = f"import importlib.metadata as m; print(m.version({PACKAGES[system]!r}))"
    try:
        done = subprocess.run([_python(system), "-c", code], capture_output=True, text=True, timeout=60)
    except OSError:
        return ""
    return done.stdout.strip()


def run(system: str, parameters: int, count: int, limit_seconds: float) -> Run:
    """Starts a system, lets it play its rounds, and ends it."""
    mark = uuid.uuid4().hex
    tree = _Tree(mark, SERVER_WORDS[system])
    with tempfile.TemporaryDirectory(prefix="bench-peers-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        marks = folder / "marks"
        began = time.monotonic()
        environment = os.environ | {
            MARKER: mark,
            "PATH": f"{_python(system).parent}:{os.environ['PATH']}",
            "HOME": name,
            "FLWR_HOME": str(folder / "flower"),
            "FLWR_TELEMETRY_ENABLED": "0",
            "NVFLARE_POC_WORKSPACE": str(folder / "poc"),
        }
        try:
            starting = STARTERS[system](folder, parameters, count, marks, environment)
            return _follow(system, tree, marks, count, began, limit_seconds, starting, folder)
        except Exception as error:
            return Run(reason=f"{type(error).__name__}: {error}")
        finally:
            tree.end()


def _follow(
    system: str,
    tree: _Tree,
    marks: Path,
    count: int,
    began: float,
    limit_seconds: float,
    starting: list[subprocess.Popen[bytes]],
    folder: Path,
) -> Run:
    cpu: dict[int, float] = {}
    while True:
        found = _read(marks)
        used = tree.look()
        cpu.setdefault(len(found), used)
        if len(found) >= count:
            break
        if time.monotonic() - began > limit_seconds:
            done = f"{len(found)} of {count} rounds were done" if found else "no round was done"
            return Run(reason=f"{done} in {limit_seconds:.0f} s; {_tail(folder)}", round_seconds=_differences(found))
        if any(process.poll() not in (None, 0) for process in starting):
            return Run(reason=f"a process ended after {time.monotonic() - began:.0f} s; {_tail(folder)}")
        time.sleep(_LOOK_SECONDS)
    played = Run(_differences(found), first_round_seconds=found[0]["at"] - began, peak_bytes=tree.peak_bytes)
    if all("cpu" in one for one in found) and system == "flower-1.17":
        played.cpu_seconds = (found[-1]["cpu"] - found[0]["cpu"]) / (count - 1)
    else:
        first = min(number for number in cpu if number >= 1)
        if first < count:
            played.cpu_seconds = (cpu[count] - cpu[first]) / (count - first)
    return played


def _differences(found: list[dict[str, Any]]) -> list[float]:
    times = [one["at"] for one in found]
    return [later - earlier for earlier, later in itertools.pairwise(times)]


def _read(marks: Path) -> list[dict[str, Any]]:
    if not marks.exists():
        return []
    return [json.loads(line) for line in marks.read_text().splitlines() if line.endswith("}") and line.startswith("{")]


def _tail(folder: Path) -> str:
    """Returns the last error that its logs tell, in one line."""
    lines = [
        line.strip()
        for log in sorted(folder.glob("*.log"))
        for line in log.read_text(errors="replace").splitlines()
        if "rror" in line
    ]
    return f"its log says: {lines[-1][-300:]}" if lines else "its log shows no error"


def _spawn(command: list[str | Path], log: Path, environment: dict[str, str], **more: Any) -> subprocess.Popen[bytes]:
    with log.open("ab") as output:
        return subprocess.Popen([str(word) for word in command], stdout=output, stderr=output, env=environment, **more)


def _start_flower_legacy(
    folder: Path, parameters: int, count: int, marks: Path, environment: dict[str, str]
) -> list[subprocess.Popen[bytes]]:
    script, address = HERE / "peer_flower_legacy.py", processes.free_address()
    python = _python("flower-1.17")
    command: list[str | Path] = [python, script, "server", address, str(parameters), str(count)]
    with marks.open("wb") as output, (folder / "server.log").open("wb") as errors:
        server = subprocess.Popen([str(word) for word in command], stdout=output, stderr=errors, env=environment)
    processes.wait_until_listening(address, server, folder / "server.log")
    clients = [
        _spawn([python, script, "client", address, str(parameters)], folder / f"client-{at}.log", environment)
        for at in range(CLIENTS)
    ]
    return [server, *clients]


def _start_flower(
    folder: Path, parameters: int, count: int, marks: Path, environment: dict[str, str]
) -> list[subprocess.Popen[bytes]]:
    programs = _python("flower").parent
    host, port = processes.free_address().split(":")
    (folder / "flower").mkdir()
    (folder / "flower" / "config.toml").write_text(
        f'[superlink]\ndefault = "bench"\n[superlink.bench]\naddress = "{host}:{port}"\ninsecure = true\n'
    )
    command: list[str | Path] = [programs / "flower-superlink", "--insecure", "--host", host, "--port", port]
    # What the app needs is in this environment.
    command.append("--disable-runtime-dependency-installation")
    link = _spawn(command, folder / "superlink.log", environment)
    processes.wait_until_listening(f"{host}:{port}", link, folder / "superlink.log")
    nodes = []
    for at in range(CLIENTS):
        own = processes.free_address().split(":")[1]
        command = [programs / "flower-supernode", "--insecure", "--superlink", f"{host}:{port}", "--port", own]
        nodes.append(_spawn(command, folder / f"supernode-{at}.log", environment))
    time.sleep(5)  # The nodes register; a run that begins before waits for them anyway.
    application = folder / "application"
    shutil.copytree(HERE / "peer_flower_app", application)
    command = [programs / "flwr", "run", application, "bench", "--run-config"]
    command.append(f"parameters={parameters} rounds={count} marks='{marks}'")
    return [link, *nodes, _spawn(command, folder / "run.log", environment, cwd=folder)]


def _start_flare(
    folder: Path, parameters: int, count: int, marks: Path, environment: dict[str, str]
) -> list[subprocess.Popen[bytes]]:
    command: list[str | Path] = [_python("flare"), HERE / "peer_flare.py", str(parameters), str(count), marks, folder]
    return [_spawn(command, folder / "run.log", environment, cwd=folder)]


STARTERS = {"flower-1.17": _start_flower_legacy, "flower": _start_flower, "flare": _start_flare}
