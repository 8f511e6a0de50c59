"""A federation of real processes: a server, clients with real ledgers, and the oracle that judges them afterwards.

The oracle shares no code with what it judges: it reads the ledgers with SQL, the server by its export, and has
tests/e2e/recompute.py compute every published version from the sealed bytes.
"""

import contextlib
import dataclasses
import functools
import hashlib
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from hushgrad.experiments import data, demo_settings, files, new, plan
from hushgrad.experiments.files import DataSource
from hushgrad.experiments.plan import Plan

RECOMPUTE = Path(__file__).parents[1] / "e2e" / "recompute.py"
_RECORDS = 400
_ENDED = (0, -signal.SIGKILL)


def environment(root: Path) -> dict[str, str]:
    """Returns the environment of a child: one thread for numpy, ledgers registered below `root`."""
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    path = os.pathsep.join(each for each in sys.path if each)
    return {**os.environ, **threads, "HUSHGRAD_HOME": str(root / "home"), "PYTHONPATH": path}


@functools.cache
def _plan(clients: int, rounds: int) -> Plan:
    """Calibrates once for all tests that ask for the same: it takes seconds."""
    features = data.phishing().features.shape[1]
    request = demo_settings.request(name="faults", features=features, records=_RECORDS, rounds=rounds)
    return plan.make(dataclasses.replace(request, clients=clients, sample_size=50, epsilon=3.0))


def prepare(
    root: Path,
    *,
    clients: int,
    rounds: int,
    straggler_timeout_seconds: float = 60.0,
    round_seconds: float = 0.0,
    **server: object,
) -> None:
    """Writes everybody's files into a new folder and makes the server's state and the ledgers.

    Args:
        server: more keys of server.toml.
    """
    root.mkdir(exist_ok=True)
    table = data.phishing()
    made = _plan(clients, rounds)
    initial = made.model.initial(1)
    (root / "terms.toml").write_text(
        new.checked_terms(made, initial, straggler_timeout_seconds=straggler_timeout_seconds)
    )
    new.save_initial(root / "initial.safetensors", made, initial)
    settings = {
        "listen": "127.0.0.1:0",
        "state": "server",
        "keep_sealed": True,
        "keep_last": 0,
        "heartbeat_seconds": 1.0,
        "linger_seconds": 20.0,
        # Tests on hosts of their own name an address that is not loopback.
        "insecure_plaintext_to_anyone": True,
        **server,
    }
    (root / "server.toml").write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in settings.items()))
    order = np.random.default_rng(5).permutation(table.features.shape[0])
    for number, name in enumerate(made.participants):
        table.take(order[number * _RECORDS : (number + 1) * _RECORDS]).save(root / f"{name}.npz")
        text = files.client(
            made,
            participant=name,
            server="127.0.0.1:7443",
            state=name,
            data=DataSource(f"{name}.npz"),
            release_interval_seconds=0.0,
            round_seconds=round_seconds,
        )
        (root / f"{name}.toml").write_text(f"insecure_plaintext_to_anyone = true\n{text}")
    command(root, "server", "init", "--terms", "terms.toml", "--initial", "initial.safetensors")
    making = [
        subprocess.Popen(
            [sys.executable, "-m", "hushgrad.client", "ledger", "init", "--config", f"{name}.toml"],
            cwd=root,
            env=environment(root),
            stdout=subprocess.DEVNULL,
        )
        for name in made.participants
    ]
    assert [each.wait(timeout=60) for each in making] == [0] * clients


def command(root: Path, role: str, *arguments: str, code: int = 0) -> str:
    """Runs `hushgrad-ROLE ARGUMENTS` in the folder and returns its stdout."""
    done = subprocess.run(
        [sys.executable, "-m", f"hushgrad.{role}", *arguments],
        cwd=root,
        env=environment(root),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
    return done.stdout


class Crowd:
    """The processes of one prepared folder. Leaving the context ends them all, each by its own process id.

    Attributes:
        address: of the server, once it has started; the same after every restart.
        ready_seconds: of every start of the server, from the process to the line that says it listens.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.names = sorted(path.stem for path in root.glob("client-*.toml"))
        self.address = ""
        self.ready_seconds: list[float] = []
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self._starts = 0

    def __enter__(self) -> "Crowd":
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes.values():
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
                process.wait()
            # Each has a process group of its own: a strace that is killed would let its child go on.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)

    def start_server(self, *prefix: str, listen: str = "") -> None:
        """Starts the server and waits until it serves. `prefix`: a command that runs it."""
        listen = listen or self.address
        before = len(self.events("server", "listening"))
        began = time.monotonic()
        arguments = ["--config", "server.toml", *(["--listen", listen] if listen else [])]
        self._start("server", [*prefix, sys.executable, "-m", "hushgrad.server", "run", *arguments])
        while len(found := self.events("server", "listening")) == before:
            if self.processes["server"].poll() is not None or time.monotonic() - began > 30:
                raise AssertionError(f"the server did not start:\n{self.log('server')[-2000:]}")
            time.sleep(0.005)
        self.ready_seconds.append(time.monotonic() - began)
        self.address = found[-1]["address"]

    def start_client(self, name: str, *prefix: str, address: str = "") -> None:
        """Starts a client. `prefix`: a command that runs it."""
        arguments = ["--config", f"{name}.toml", "--server", address or self.address]
        self._start(name, [*prefix, sys.executable, "-m", "hushgrad.client", "run", *arguments])

    def start_clients(self, address: str = "") -> None:
        """Starts all clients."""
        for name in self.names:
            self.start_client(name, address=address)

    def _start(self, name: str, argv: Sequence[str]) -> None:
        self._starts += 1
        with open(self.root / f"{name}.log", "ab") as log:
            self.processes[name] = subprocess.Popen(
                [*argv, "--log-format", "json"],
                cwd=self.root,
                env=environment(self.root),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
                start_new_session=True,
            )

    def kill(self, name: str, how: signal.Signals = signal.SIGKILL) -> int:
        """Sends a signal to a process and waits for its end; returns the exit code."""
        process = self.processes[name]
        if process.poll() is None:
            process.send_signal(how)
        return process.wait(timeout=30)

    def is_running(self, name: str) -> bool:
        """Whether a process runs."""
        return name in self.processes and self.processes[name].poll() is None

    def log(self, name: str) -> str:
        """Returns everything that a process has logged."""
        path = self.root / f"{name}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def events(self, name: str, kind: str) -> list[dict]:
        """Returns the logged events of one kind. A line that a kill tore is left out."""
        found = []
        for line in self.log(name).splitlines():
            if kind in line:
                with contextlib.suppress(json.JSONDecodeError):
                    event = json.loads(line)
                    if event.get("event") == kind:
                        found.append(event)
        return found

    @property
    def version(self) -> int:
        """The newest version published, as the server logged it."""
        return max((event["version"] for event in self.events("server", "published")), default=0)

    def wait(self, condition, seconds: float, what: str) -> None:
        """Waits until something holds."""
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                raise AssertionError(f"{what} did not happen within {seconds} s\n{self.tails()}")
            time.sleep(0.02)

    def wait_for_end(self, seconds: float) -> None:
        """Waits until all clients and the server have ended well."""
        self.wait(lambda: not any(map(self.is_running, self.names)), seconds, "the end of all clients")
        assert [self.processes[name].returncode for name in self.names] == [0] * len(self.names), self.tails()
        assert self.processes["server"].wait(timeout=30) == 0, self.tails()

    def tails(self) -> str:
        """Returns the last lines of every log."""
        return "\n".join(
            f"--- {name}: {self.processes[name].poll()}\n" + "\n".join(self.log(name).splitlines()[-6:])
            for name in self.processes
        )


@dataclasses.dataclass(frozen=True)
class Verdict:
    """What the oracle found, all exact.

    Attributes:
        sealed: digest by (participant, round), from the ledgers.
        versions: how many published versions the independent script recomputed, without a difference.
    """

    sealed: dict[tuple[str, int], str]
    versions: int


def sealed_in_ledgers(root: Path, names: Sequence[str]) -> dict[tuple[str, int], str]:
    """Reads what every ledger says was sealed."""
    sealed: dict[tuple[str, int], str] = {}
    for name in names:
        with sqlite3.connect(root / name / "ledger.sqlite") as connection:
            rows = connection.execute("SELECT round, digest FROM ledger WHERE kind = 'update'").fetchall()
        connection.close()
        for round_, digest in rows:
            assert (name, round_) not in sealed, f"{name} sealed round {round_} twice"
            sealed[name, round_] = digest.hex()
    return sealed


def judge(root: Path, names: Sequence[str], *, lost: Sequence[tuple[str, int]] = ()) -> Verdict:
    """Checks that every sealed update is in exactly one version, once, and that every version is what it must be.

    Args:
        lost: what may be missing, and must.
    """
    sealed = sealed_in_ledgers(root, names)
    for name in names:
        command(root, "client", "ledger", "verify", "--config", f"{name}.toml")
    out = root / "exported"
    shutil.rmtree(out, ignore_errors=True)
    command(root, "server", "export", "exported")
    done = subprocess.run([sys.executable, str(RECOMPUTE), str(out)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    versions = json.loads((out / "manifest.json").read_text())["versions"]
    included: dict[tuple[str, int], str] = {}
    for version in versions:
        for update in version["updates"]:
            key = (update["participant"], update["round"])
            assert key not in included, f"{key} is in two versions"
            included[key] = update["digest"]
    expected = {key: digest for key, digest in sealed.items() if key not in set(lost)}
    assert included == expected, {
        "missing": sorted(set(expected) - set(included)),
        "too many": sorted(set(included) - set(expected)),
        "other bytes": sorted(key for key in included if expected.get(key, included[key]) != included[key]),
    }
    return Verdict(sealed, len(versions))


@contextlib.contextmanager
def crowd(root: Path, **arguments: object) -> Iterator[Crowd]:
    """Prepares a folder and gives its processes."""
    prepare(root, **arguments)  # type: ignore[arg-type]
    with Crowd(root) as made:
        yield made


def model_digests(root: Path) -> dict[int, str]:
    """Returns the SHA-256 of every published model that the server's state holds."""
    with sqlite3.connect(f"file:{root / 'server' / 'server.sqlite'}?mode=ro", uri=True) as connection:
        rows = connection.execute("SELECT version, sha256 FROM versions").fetchall()
    connection.close()
    return {version: digest.hex() for version, digest in rows}


def file_digest(path: Path) -> str:
    """Returns the SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()
