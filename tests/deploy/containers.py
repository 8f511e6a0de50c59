"""Builds the images and lets them work together, without a container engine: python -m tests.deploy.containers.

Prints what each image answers to --help, what its health check says, how a federation of two clients went between
network namespaces, and how large each image is as a compressed OCI archive. Needs root, buildah, debootstrap (unless
--base names an image that buildah can fetch), and some minutes. Images stay in build/containers: the next call is quick.
"""

import argparse
import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests.deploy.images import Builder, Image
from tests.faults.network.switch import Switch

ROOT = Path(__file__).resolve().parents[2]
ROLES = ("server", "client", "evaluator")
LARGEST_CLIENT_BYTES = 250_000_000
BASE = "localhost/hushgrad-base"
PROGRAMS = {"buildah": "buildah", "debootstrap": "debootstrap", "ip": "iproute2", "unshare": "util-linux"}
CLIENTS = ("client-1", "client-2")
ROUNDS = 20
UID = 10001


def main() -> int:
    """Runs everything; returns 0 if all of it held."""
    parser = argparse.ArgumentParser(prog="containers", description=__doc__.partition("\n")[0])
    parser.add_argument("--base", help="base image that buildah can fetch, in place of one made with debootstrap")
    parser.add_argument("--source", type=Path, default=ROOT, help="what is built, in place of this working tree")
    parser.add_argument("--rebuild", action="store_true", help="build also images that are there")
    options = parser.parse_args()
    missing = sorted({package for program, package in PROGRAMS.items() if shutil.which(program) is None})
    if os.geteuid() != 0 or missing:
        need = f"install what is missing: apt-get install {' '.join(missing)}" if missing else "run it as root"
        print(f"make containers: needs root, buildah and debootstrap; {need}", file=sys.stderr)
        return 1
    folder = ROOT / "build" / "containers"
    folder.mkdir(parents=True, exist_ok=True)
    builder = Builder(folder)
    base = options.base
    if base is None:
        if not builder.has(BASE):
            _say("making a base image with debootstrap")
            builder.base(BASE)
        base = BASE
    mounted = {}
    for role in ROLES:
        name = f"localhost/hushgrad-{role}"
        if options.rebuild or not builder.has(name):
            _say(f"building {name} from deploy/{role}.Dockerfile")
            builder.build(role, name, source=options.source, base=base)
        mounted[role] = builder.image(name)
        _check_help(role, mounted[role])
        size = builder.archive(name, folder / f"hushgrad-{role}.tar")
        _say(f"{name}: {size / 1e6:.0f} MB as a compressed OCI archive")
        if role == "client" and size > LARGEST_CLIENT_BYTES:
            print(f"the client's archive must stay under {LARGEST_CLIENT_BYTES / 1e6:.0f} MB", file=sys.stderr)
            return 1
    with tempfile.TemporaryDirectory(prefix="hushgrad-containers-") as work:
        _federation(mounted, Path(work))
    _say("all images build, answer, are healthy and learn together")
    return 0


def _check_help(role: str, image: Image) -> None:
    command = image.run([*image.entry_point, "--help"], binds={})
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    if done.returncode != 0 or not done.stdout.startswith("Usage:"):
        raise SystemExit(f"{role}: --help ended with {done.returncode}: {done.stdout}{done.stderr}")
    _say(f"{role}: --help answers as uid {image.user}: {done.stdout.splitlines()[0]}")
    # A compiler would be a tool for whoever gets in, and a file outside /state a place to hide.
    tools = "! command -v cc gcc g++ make pip"
    writes = "! touch /opt/hushgrad/planted 2>/dev/null"
    subprocess.run(image.run(["sh", "-c", f"{tools} && {writes}"], binds={}), check=True, timeout=60)


def _federation(mounted: dict[str, Image], work: Path) -> None:
    """Two clients and an evaluator learn through a server, each container on a network address of its own."""
    with Switch(["server", *CLIENTS, "evaluator"], seed=1) as network, contextlib.ExitStack() as running:
        _prepare(work, f"{network.address('server')}:7443")
        hosts = {
            name: _Host(mounted[name.partition("-")[0]], network.on(name), work / name)
            for name in ("server", *CLIENTS, "evaluator")
        }
        server = hosts["server"]
        server.call("init", "--config", "server.toml", "--state", "/state", "--terms", "terms.toml")
        running.enter_context(server.started())
        server.wait_until_healthy()
        clients = [hosts[name] for name in CLIENTS]
        for client in clients:
            client.call("ledger", "init")
        processes = [running.enter_context(host.started()) for host in (*clients, hosts["evaluator"])]
        for host in (*clients, hosts["evaluator"]):
            host.wait_until_healthy()
        for host, process in zip((*clients, hosts["evaluator"]), processes, strict=True):
            if process.wait(timeout=120) != 0:
                raise SystemExit(f"{host.name} ended with {process.returncode}: {host.log()}")
        for client in clients:
            _say(f"{client.name}: {client.call('ledger', 'verify').strip()}")
        last = (hosts["evaluator"].state / "curve.csv").read_text().splitlines()[-1].split(",")
        _say(f"evaluator: version {last[0]}, accuracy {float(last[1]):.3f} on the public test set")


def _prepare(work: Path, address: str) -> None:
    """Makes for each container the folder that it reads and the one that it writes."""
    parts, fed = work / "parts", work / "fed"
    hushgrad = [sys.executable, "-m", "hushgrad.cli"]
    data = ["breast_cancer", "--clients", str(len(CLIENTS)), "--test", "0.2", "--seed", "1"]
    subprocess.run([*hushgrad, "split", *data, "--out", parts], check=True, capture_output=True)
    made = ["--model", "logistic", "--data", "breast_cancer", "--clients", str(len(CLIENTS)), "--records", "228"]
    budget = ["--epsilon", "4", "--delta", "1e-4", "--clip-norm", "1", "--rounds", str(ROUNDS)]
    where = ["--bounds-from", parts / "test.npz", "--listen", "0.0.0.0:7443", "--server", address]
    subprocess.run([*hushgrad, "new", fed, *made, *budget, *where], check=True, capture_output=True)
    files = {
        "server": {"server.toml": fed / "server.toml", "terms.toml": fed / "terms.toml"},
        "evaluator": {"evaluator.toml": fed / "evaluator.toml", "test.npz": parts / "test.npz"},
        **{name: {"client.toml": fed / "client.toml", "records.npz": parts / f"{name}.npz"} for name in CLIENTS},
    }
    for name, wanted in files.items():
        (work / name / "federation").mkdir(parents=True)
        (work / name / "state").mkdir()
        os.chown(work / name / "state", UID, UID)
        for target, source in wanted.items():
            shutil.copy(source, work / name / "federation" / target)


class _Host:
    """One container's place: its image, its network address and its two folders."""

    def __init__(self, image: Image, on: tuple[str, ...], folder: Path) -> None:
        self.name = folder.name
        self.state = folder / "state"
        self._image, self._on, self._folder = image, on, folder
        self._environment = {}
        if self.name in CLIENTS:
            self._environment = {"HUSHGRAD_PARTICIPANT": self.name, "HUSHGRAD_DATA": "/federation/records.npz"}
        elif self.name == "evaluator":
            self._environment = {"HUSHGRAD_DATA": "/federation/test.npz"}

    def call(self, *arguments: str) -> str:
        """Runs a verb of the entry point to its end; returns what it printed."""
        done = subprocess.run(
            self._in_container((*self._image.entry_point, *arguments)), capture_output=True, text=True, timeout=120
        )
        if done.returncode != 0:
            raise SystemExit(f"{self.name}: {' '.join(arguments)} ended with {done.returncode}: {done.stderr}")
        return done.stdout

    @contextlib.contextmanager
    def started(self) -> Iterator[subprocess.Popen]:
        """Runs what the image declares, until the block ends."""
        with open(self._folder / "log", "w") as log:
            command = self._in_container((*self._image.entry_point, *self._image.command))
            process = subprocess.Popen(command, stdout=log, stderr=log)
            try:
                yield process
            finally:
                process.kill()
                process.wait()

    def wait_until_healthy(self) -> None:
        """Repeats the image's health check until it says yes."""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            command = self._in_container(self._image.health_check)
            done = subprocess.run(command, capture_output=True, text=True, timeout=60)
            if done.returncode == 0:
                _say(f"{self.name}: healthy, says {' '.join(self._image.health_check)}")
                return
            time.sleep(0.5)
        raise SystemExit(f"{self.name} was not healthy after a minute: {done.stdout}{done.stderr}\n{self.log()}")

    def log(self) -> str:
        """Returns the end of what the container printed."""
        return (self._folder / "log").read_text()[-3000:]

    def _in_container(self, command: tuple[str, ...]) -> list[str]:
        binds = {"/federation": self._folder / "federation", "/state": self.state}
        return self._image.run(command, binds=binds, on=self._on, environment=self._environment)


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
