"""Three machines on one: network namespaces with an sshd each, keys for them, and the inventory that names them."""

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import tomli_w

from tests.faults.network.switch import Switch

DRIVER = "a"
NAMES = ("a", "b", "c")
PORT = 7443
PLACE = "hosts' folders"
"""A name that a shell would take apart."""


@dataclass(frozen=True)
class Hosts:
    """What was set up.

    Attributes:
        switch: the network between them.
        inventory: the file; the server is on host a, clients on b and c.
        folder: the hosts' working folders lie in it, by name.
    """

    switch: Switch
    inventory: Path
    folder: Path

    def on_driver(self, *command: str) -> list[str]:
        """Returns a command that runs on the machine from which the hosts are driven."""
        return [*self.switch.on(DRIVER), *command]

    def processes(self, host: str) -> list[str]:
        """Returns the command lines of all processes of a host but its sshd's."""
        listed = subprocess.run(
            ["ip", "netns", "pids", self.switch.namespace(host)], check=True, capture_output=True, text=True
        ).stdout.split()
        found = []
        for pid in listed:
            with contextlib.suppress(OSError):
                words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                if "hushgrad" in words:
                    found.append(words)
        return found


@contextlib.contextmanager
def three(folder: Path, seed: int = 1) -> Iterator[Hosts]:
    """Yields three hosts; all their processes end with the block. Needs root, iproute2, openssh and /dev/net/tun."""
    os.makedirs("/run/sshd", exist_ok=True)
    keys = folder / "keys"
    keys.mkdir(parents=True)
    for name in ("driver", *NAMES):
        command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", str(keys / name)]
        subprocess.run(command, check=True)
    with Switch(NAMES, seed) as switch, contextlib.ExitStack() as stack:
        known = [f"{switch.address(name)} {(keys / f'{name}.pub').read_text()}" for name in NAMES]
        (keys / "known_hosts").write_text("".join(known))
        for name in NAMES:
            stack.enter_context(_sshd(switch, name, keys))
        inventory = folder / "hosts.toml"
        inventory.write_text(tomli_w.dumps(_inventory(switch, folder, keys)))
        hosts = Hosts(switch, inventory, folder / PLACE)
        try:
            yield hosts
        finally:
            for name in NAMES:
                pids = subprocess.run(
                    ["ip", "netns", "pids", switch.namespace(name)], capture_output=True, text=True
                ).stdout.split()
                for pid in pids:
                    with contextlib.suppress(OSError):
                        os.kill(int(pid), 9)


@contextlib.contextmanager
def _sshd(switch: Switch, name: str, keys: Path) -> Iterator[None]:
    settings = {
        "Port": "22",
        "ListenAddress": switch.address(name),
        "HostKey": keys / name,
        "AuthorizedKeysFile": keys / "driver.pub",
        "PasswordAuthentication": "no",
        "KbdInteractiveAuthentication": "no",
        "UsePAM": "no",
        "StrictModes": "no",
        "PermitRootLogin": "prohibit-password",
        "PidFile": "none",
        "MaxStartups": "100",
        "SetEnv": f"PYTHONPATH={os.pathsep.join(path for path in sys.path if path)}",
    }
    path = keys / f"{name}.conf"
    path.write_text("".join(f"{key} {value}\n" for key, value in settings.items()))
    with (keys / f"{name}.log").open("wb") as log:
        process = subprocess.Popen([*switch.on(name), "/usr/sbin/sshd", "-D", "-e", "-f", str(path)], stderr=log)
    try:
        time.sleep(0.3)
        if process.poll() is not None:
            raise AssertionError(f"sshd did not start: {(keys / f'{name}.log').read_text()}")
        yield
    finally:
        process.kill()
        process.wait()


def _inventory(switch: Switch, folder: Path, keys: Path) -> dict[str, object]:
    return {
        "server": {"host": "a", "port": PORT},
        "hosts": [
            {
                "name": name,
                "ssh": switch.address(name),
                "user": "root",
                "identity": str(keys / "driver"),
                "known_hosts": str(keys / "known_hosts"),
                "folder": str(folder / PLACE / name),
                # Host c has its Python behind a command, as in a container.
                **({"container": f"env {sys.executable} -u"} if name == "c" else {"environment": sys.prefix}),
            }
            for name in NAMES
        ],
    }
