"""Builds the images and runs docker-compose.yml, both without a container engine: python -m tests.deploy.containers.

Prints what each image answers to --help, how large it is as a compressed OCI archive, what its health check says, and
how the federation of docker-compose.yml went, each container in a network namespace with an address of its own. Needs
root, buildah, debootstrap (unless --base names an image that buildah can fetch), and some minutes. The images stay in
build/containers, so that the next call is quick.
"""

import argparse
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.deploy.images import Builder, Image
from tests.faults.network.switch import Switch

ROOT = Path(__file__).resolve().parents[2]
LARGEST_CLIENT_BYTES = 250_000_000
BASE = "localhost/hushgrad-base"
PROGRAMS = {"buildah": "buildah", "debootstrap": "debootstrap", "ip": "iproute2", "unshare": "util-linux"}
UID = 10001
LONGEST_RUN_SECONDS = 300


def main() -> int:
    """Runs everything; returns 0 if all of it held."""
    parser = argparse.ArgumentParser(prog="containers", description=__doc__.partition("\n")[0])
    parser.add_argument("--base", help="base image that buildah can fetch, in place of one made with debootstrap")
    parser.add_argument("--source", type=Path, default=ROOT, help="what is built, in place of this working tree")
    parser.add_argument("--rebuild", action="store_true", help="build also images that are there")
    parser.add_argument(
        "--chaos", action="store_true", help="with the profile chaos: a network that breaks connections"
    )
    options = parser.parse_args()
    missing = sorted({package for program, package in PROGRAMS.items() if shutil.which(program) is None})
    if os.geteuid() != 0 or missing:
        need = f"install what is missing: apt-get install {' '.join(missing)}" if missing else "run it as root"
        print(f"make containers: needs root, buildah and debootstrap; {need}", file=sys.stderr)
        return 1
    services = _services(options.source, chaos=options.chaos)
    folder = ROOT / "build" / "containers"
    folder.mkdir(parents=True, exist_ok=True)
    with Builder(folder) as builder:
        mounted = _images(builder, services, options.source, options.base, rebuild=options.rebuild)
        for name, image in mounted.items():
            _check_image(name, image)
            size = builder.archive(f"localhost/{name}", folder / f"{name.partition(':')[0]}.tar")
            _say(f"{name}: {size / 1e6:.0f} MB as a compressed OCI archive")
            if name.startswith("hushgrad-client") and size > LARGEST_CLIENT_BYTES:
                print(f"the client's archive must stay under {LARGEST_CLIENT_BYTES / 1e6:.0f} MB", file=sys.stderr)
                return 1
        with tempfile.TemporaryDirectory(prefix="hushgrad-containers-") as work:
            _run(services, mounted, Path(work))
    _say("all images build, answer, are healthy and learn together")
    return 0


def _services(source: Path, *, chaos: bool) -> dict[str, Any]:
    """Returns the services of docker-compose.yml, as compose reads them."""
    compose = [str(Path(sys.executable).with_name("docker-compose")), "--file", str(source / "docker-compose.yml")]
    profiles = ["--profile", "chaos"] if chaos else []
    environment = {**os.environ, **({"HUSHGRAD_SERVER": "chaos:7443"} if chaos else {})}
    done = subprocess.run(
        [*compose, *profiles, "config", "--format", "json"], env=environment, check=True, capture_output=True, text=True
    )
    # What is printed could be read again, so a dollar sign is written twice.
    services: dict[str, Any] = json.loads(done.stdout.replace("$$", "$"))["services"]
    return services


def _images(
    builder: Builder, services: dict[str, Any], source: Path, base: str | None, *, rebuild: bool
) -> dict[str, Image]:
    """Builds what is missing and mounts all; returns the images by the names that compose gives them."""
    if base is None:
        if not builder.has(BASE):
            _say("making a base image with debootstrap")
            builder.base(BASE)
        base = BASE
    mounted = {}
    for service in services.values():
        name, build = service["image"], service.get("build")
        if build is None or name in mounted:
            continue
        if rebuild or not builder.has(f"localhost/{name}"):
            _say(f"building {name} from {build['dockerfile']}")
            arguments = {"PYTHON_IMAGE": base, **build.get("args", {})}
            builder.build(source / build["dockerfile"], f"localhost/{name}", source=source, arguments=arguments)
        mounted[name] = builder.image(f"localhost/{name}")
    return mounted


def _check_image(name: str, image: Image) -> None:
    done = subprocess.run(image.run([*image.entry_point, "--help"]), capture_output=True, text=True, timeout=60)
    if done.returncode != 0 or not done.stdout.startswith("Usage:"):
        raise SystemExit(f"{name}: --help ended with {done.returncode}: {done.stdout}{done.stderr}")
    _say(f"{name}: --help answers as uid {image.user}: {done.stdout.splitlines()[0]}")
    # A compiler would be a tool for whoever gets in, and a file outside the volumes a place to hide.
    tools = "! command -v cc gcc g++ make pip"
    writes = "! touch /opt/hushgrad/planted 2>/dev/null"
    subprocess.run(image.run(["sh", "-c", f"{tools} && {writes}"]), check=True, timeout=60)


def _run(services: dict[str, Any], mounted: dict[str, Image], work: Path) -> None:
    """Runs the services in the order of their dependencies, until all clients have ended."""
    online = [name for name, service in services.items() if service.get("network_mode") != "none"]
    with Switch(online, seed=1) as network, contextlib.ExitStack() as running:
        hosts = work / "hosts"
        hosts.write_text("127.0.0.1 localhost\n" + "".join(f"{network.address(name)} {name}\n" for name in online))
        containers = {
            name: _Container(
                name, service, mounted[service["image"]], network.on(name) if name in online else (), hosts, work
            )
            for name, service in services.items()
        }
        for name in ("setup", "certificates"):
            containers[name].finish()
        running.enter_context(containers["server"].started())
        containers["server"].wait_until_healthy()
        if "chaos" in containers:
            running.enter_context(containers["chaos"].started())
        names = [name for name in online if name not in ("server", "chaos")]
        processes = {name: running.enter_context(containers[name].started()) for name in names}
        for name in names:
            containers[name].wait_until_healthy()
        deadline = time.monotonic() + LONGEST_RUN_SECONDS
        for name, process in processes.items():
            if process.wait(timeout=max(1.0, deadline - time.monotonic())) != 0:
                raise SystemExit(f"{name} ended with {process.returncode}: {containers[name].log()}")
        for name in names:
            if name.startswith("client"):
                command = ["hushgrad-client", "ledger", "verify", "--config", "/state/member/client.toml"]
                _say(f"{name}: {containers[name].call(command).strip()}")
        if "chaos" in containers:
            _say(f"chaos: {containers['chaos'].log().count('broken')} connections broken on the way")
        curve = work / "volumes" / "evaluator" / "curve.csv"
        last = curve.read_text().splitlines()[-1].split(",")
        _say(f"evaluator: version {last[0]}, accuracy {float(last[1]):.3f} on the public test set")


class _Container:
    """One service of the compose file."""

    def __init__(
        self, name: str, service: dict[str, Any], image: Image, on: tuple[str, ...], hosts: Path, work: Path
    ) -> None:
        self._name, self._service, self._image, self._on = name, service, image, on
        self._log = work / f"{name}.log"
        self._binds = [("/etc/hosts", hosts, True)]
        for volume in service.get("volumes", []):
            if volume["type"] == "volume":
                path = work / "volumes" / volume["source"]
                if not path.exists():
                    # An engine gives a new volume the owner of the image's folder.
                    path.mkdir(parents=True)
                    os.chown(path, UID, UID)
                path /= volume.get("volume", {}).get("subpath", "")
            else:
                path = Path(volume["source"])
            self._binds.append((volume["target"], path, volume.get("read_only", False)))

    def finish(self) -> None:
        """Runs the service to its end."""
        with self.started() as process:
            if process.wait(timeout=120) != 0:
                raise SystemExit(f"{self._name} ended with {process.returncode}: {self.log()}")
        _say(f"{self._name}: done")

    @contextlib.contextmanager
    def started(self) -> Iterator[subprocess.Popen]:
        """Runs the service until the block ends."""
        entry_point = self._service.get("entrypoint") or self._image.entry_point
        command = self._service.get("command") or (() if self._service.get("entrypoint") else self._image.command)
        with open(self._log, "w") as log:
            process = subprocess.Popen(self._in_container([*entry_point, *command]), stdout=log, stderr=log)
            try:
                yield process
            finally:
                process.kill()
                process.wait()

    def wait_until_healthy(self) -> None:
        """Repeats the image's health check until it says yes."""
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            command = self._in_container(self._image.health_check)
            done = subprocess.run(command, capture_output=True, text=True, timeout=60)
            if done.returncode == 0:
                _say(f"{self._name}: healthy, says {' '.join(self._image.health_check)}")
                return
            time.sleep(0.5)
        raise SystemExit(f"{self._name} was not healthy in time: {done.stdout}{done.stderr}\n{self.log()}")

    def call(self, command: list[str]) -> str:
        """Runs another command in the container; returns what it printed."""
        done = subprocess.run(self._in_container(command), capture_output=True, text=True, timeout=120)
        if done.returncode != 0:
            raise SystemExit(f"{self._name}: {' '.join(command)} ended with {done.returncode}: {done.stderr}")
        return done.stdout

    def log(self) -> str:
        """Returns what the container printed, or the end of it."""
        return self._log.read_text()[-20_000:]

    def _in_container(self, command: list[str] | tuple[str, ...]) -> list[str]:
        return self._image.run(
            command,
            binds=self._binds,
            on=self._on,
            environment=self._service.get("environment") or {},
            folder=self._service.get("working_dir", ""),
        )


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
