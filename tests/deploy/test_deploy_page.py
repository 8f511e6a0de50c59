"""What docs/deploy.md tells a person to type, typed: three machines with addresses of their own, word for word.

Each machine is a network namespace. The blocks of the page are run in their order, each on the machine in its title, in
that machine's own folder; only the installation is taken as done, and the bundles are carried by hand.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.network.switch import Switch

pytestmark = [
    pytest.mark.faults,
    pytest.mark.timeout(400),
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root, for network namespaces of its own"),
    pytest.mark.skipif(shutil.which("ip") is None, reason="ip is missing; install it with: apt-get install iproute2"),
]

PAGE = Path(__file__).resolve().parents[2] / "docs" / "deploy.md"
MACHINES = ("server", "client-1", "client-2")
ROUNDS = 40
NAME = "fed.example.org"


def blocks() -> list[tuple[str, str]]:
    """Returns (title, commands) of every block of the page, in order."""
    return re.findall(r'^```sh title="([^"]+)"\n(.*?)^```$', PAGE.read_text(), flags=re.MULTILINE | re.DOTALL)


class Machines:
    """Three machines that know the server by name."""

    def __init__(self, network: Switch, folder: Path) -> None:
        self.network, self.folder = network, folder
        for machine in MACHINES:
            (folder / machine).mkdir()
            # What `ip netns exec` puts in the place of /etc/hosts.
            self._etc(machine).mkdir(parents=True)
            names = f"127.0.0.1 localhost\n{network.address('server')} {NAME}\n"
            (self._etc(machine) / "hosts").write_text(names)

    def _etc(self, machine: str) -> Path:
        return Path("/etc/netns") / self.network.namespace(machine)

    def run(self, machine: str, commands: str) -> subprocess.CompletedProcess[str]:
        """Types commands at a machine; answers yes to what is asked. What they leave in the background goes on."""
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        environment = {**os.environ, "PATH": path, "HUSHGRAD_HOME": str(self.folder / machine / "home")}
        output = self.folder / machine / "output"
        with output.open("w") as file:
            done = subprocess.run(
                [*self.network.on(machine), "bash", "-ec", commands],
                cwd=self.folder / machine, env=environment, input="yes\n", text=True, timeout=120,
                stdout=file, stderr=subprocess.STDOUT,
            )  # fmt: skip
        return subprocess.CompletedProcess(done.args, done.returncode, output.read_text(), "")

    def processes(self, machine: str) -> list[int]:
        """Returns the processes that run on a machine."""
        listed = subprocess.run(
            ["ip", "netns", "pids", self.network.namespace(machine)], capture_output=True, text=True, check=True
        )
        return [int(line) for line in listed.stdout.split()]

    def wait_until_idle(self, machine: str, seconds: float) -> None:
        """Waits until nothing runs on a machine."""
        deadline = time.monotonic() + seconds
        while self.processes(machine):
            logs = [path.read_text()[-2000:] for path in (self.folder / machine).glob("*.log")]
            assert time.monotonic() < deadline, f"{machine} still works: {logs}"
            time.sleep(0.5)

    def close(self) -> None:
        """Ends what still runs, and forgets the names."""
        for machine in MACHINES:
            for process in self.processes(machine):
                os.kill(process, signal.SIGKILL)
            shutil.rmtree(self._etc(machine))


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    with Switch(MACHINES, seed=1) as network:
        found = Machines(network, tmp_path_factory.mktemp("machines"))
        try:
            yield found
        finally:
            found.close()


@pytest.fixture(scope="module")
def deployed(machines: Machines) -> Machines:
    """The machines after the page was followed from its first line to its last."""
    for title, commands in blocks():
        machine, _, later = title.partition(", ")
        if machine == "everywhere":
            continue
        if later:
            for one in ("client-1", "client-2", "server"):
                machines.wait_until_idle(one, 240)
        for bundle in (machines.folder / "server").glob("*.bundle"):
            shutil.copy(bundle, machines.folder / bundle.stem)
        done = machines.run(machine, commands)
        logs = {path.name: path.read_text()[-1000:] for path in (machines.folder / machine).glob("*.log")}
        assert done.returncode == 0, f"{machine}: {commands}\n{done.stdout}\n{logs}"
        if "--config client-1/client.toml > client.log" in commands or "init federation" in commands:
            time.sleep(2)  # as long as a person needs to walk to the next machine
        if "status 127.0.0.1:7444" in commands:
            _check_doors(machines)
    return machines


def _check_doors(machines: Machines) -> None:
    """While the federation runs: nobody without a certificate gets in, and the second address is not reached."""
    for machine, address in (("client-2", f"{NAME}:7443"), ("client-2", f"{NAME}:7444"), ("server", "127.0.0.1:7443")):
        done = machines.run(machine, f"hushgrad-server status {address}")
        assert done.returncode in (2, 4), f"{address} from {machine}: {done.returncode} {done.stdout}"


def test_both_participants_did_every_round_over_mutual_tls(deployed: Machines) -> None:
    receipts = json.loads((deployed.folder / "server" / "result" / "receipts.json").read_text())
    rounds = {name: [one["round"] for one in receipts if one["participant"] == name] for name in MACHINES[1:]}
    assert rounds == {name: list(range(ROUNDS)) for name in MACHINES[1:]}
    assert (deployed.folder / "server" / "result" / "versions" / f"{ROUNDS}.f32").exists()


def test_every_ledger_is_sound_and_its_key_never_left(deployed: Machines) -> None:
    for name in MACHINES[1:]:
        done = deployed.run(name, f"hushgrad-client ledger verify --config {name}/client.toml")
        assert done.returncode == 0, done.stdout
        assert "all sound" in done.stdout
        key = (deployed.folder / name / name / "client.key").read_bytes()
        others = [path for path in deployed.folder.rglob("*") if path.is_file() and path.name != "client.key"]
        assert not [path for path in others if key in path.read_bytes()]


def test_the_page_shows_no_command_that_was_not_typed() -> None:
    assert {title for title, _ in blocks()} == {"everywhere", "server", "client-1", "client-2", "server, at the end"}
    assert PAGE.read_text().count("```sh") == len(blocks())
