"""The inventory of `--backend hosts`: which machines there are, how to reach them, and who runs where."""

import shlex
from pathlib import Path, PurePosixPath

import msgspec
from hushgrad.experiments.errors import InputError


class _Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A table of the file; unknown keys are errors."""


class Host(_Section, frozen=True):
    """One machine.

    Attributes:
        name: for this file and the report.
        ssh: name or address for ssh.
        folder: absolute working folder; each run gets a folder of its own in it.
        user: to log in as; empty: as ssh decides.
        port: of its sshd.
        identity: file of the private key; empty: as ssh decides. Passwords are never asked for.
        known_hosts: file with the host's key; empty: as ssh decides. A host that is not known is refused.
        environment: folder of a virtual environment with hushgrad.
        container: in its place, a command that runs Python in a container and passes its input on, such as
            `docker run --rm -i --network host -v /srv/hushgrad:/srv/hushgrad --entrypoint python hushgrad-tools:0.1.0`.
            The working folder must have the same path in it.
        clients: numbers of the clients that run here. Without any in the whole file they are dealt out in turn, to the
            hosts other than the server's if there are any.
    """

    name: str
    ssh: str
    folder: str
    user: str = ""
    port: int = 22
    identity: str = ""
    known_hosts: str = ""
    environment: str = ""
    container: str = ""
    clients: list[int] = []

    def python(self) -> list[str]:
        """Returns the words that run Python there."""
        if self.container:
            return shlex.split(self.container)
        return [str(PurePosixPath(self.environment) / "bin" / "python")]


class Server(_Section, frozen=True):
    """Where the server runs.

    Attributes:
        host: name of one of the hosts.
        address: name or IP address under which clients reach it; empty: the host's `ssh`.
        port: on which it listens.
    """

    host: str
    address: str = ""
    port: int = 7443


class Evaluator(_Section, frozen=True):
    """Where the evaluator runs: the host's name."""

    host: str


class Inventory(_Section, frozen=True):
    """The whole file. evaluator: without it, it runs beside the server."""

    server: Server
    hosts: list[Host]
    evaluator: Evaluator | None = None

    def host(self, name: str) -> Host:
        """Returns the host of a name."""
        return next(host for host in self.hosts if host.name == name)

    @property
    def address(self) -> str:
        """Name or IP address of the server, as clients reach it."""
        return self.server.address or self.host(self.server.host).ssh

    @property
    def evaluator_host(self) -> str:
        """The name of the evaluator's host."""
        return self.evaluator.host if self.evaluator else self.server.host

    def places(self, clients: int) -> list[str]:
        """Returns the host of each client, client-1 first.

        Raises:
            InputError: if the file gives places, but not exactly one to each.
        """
        given = {number: host.name for host in self.hosts for number in host.clients}
        if not given:
            free = [host.name for host in self.hosts if host.name != self.server.host] or [self.server.host]
            return [free[number % len(free)] for number in range(clients)]
        listed = sorted(number for host in self.hosts for number in host.clients)
        if listed != list(range(1, clients + 1)):
            raise InputError(
                f"the hosts' clients must name each of 1 to {clients} once, found {listed}; or leave them all out"
            )
        return [given[number] for number in range(1, clients + 1)]


def load(path: Path) -> Inventory:
    """Reads an inventory; paths of this machine in it become absolute.

    Raises:
        InputError: if it cannot be read, has unknown, missing or ill-typed keys, or says what cannot be.
    """
    try:
        found = msgspec.toml.decode(path.read_bytes(), type=Inventory)
    except OSError as error:
        raise InputError(f"the inventory {path} cannot be read: {error.strerror}") from None
    except (msgspec.ValidationError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: {error}") from None
    _check(found, path)
    hosts = [
        msgspec.structs.replace(host, **{
            key: str((path.parent / Path(value).expanduser()).absolute()) if (value := getattr(host, key)) else ""
            for key in ("identity", "known_hosts")
        })
        for host in found.hosts
    ]  # fmt: skip
    return msgspec.structs.replace(found, hosts=hosts)


def _check(found: Inventory, path: Path) -> None:
    names = [host.name for host in found.hosts]
    if not names or len(set(names)) != len(names):
        raise InputError(f"{path}: there must be hosts, each with a name of its own, found {names}")
    for key, name in (("server", found.server.host), ("evaluator", found.evaluator_host)):
        if name not in names:
            raise InputError(f"{path}: {key}.host must be one of {', '.join(names)}, found {name!r}")
    if not 0 < found.server.port < 65536:
        raise InputError(f"{path}: server.port must be 1 to 65535, found {found.server.port}")
    for host in found.hosts:
        if not host.name or not host.ssh or host.ssh.startswith("-") or host.user.startswith("-"):
            raise InputError(f"{path}: host {host.name!r} must have a name, and an ssh that begins with no dash")
        if not PurePosixPath(host.folder).is_absolute():
            raise InputError(f"{path}: the folder of host {host.name} must be an absolute path, found {host.folder!r}")
        if bool(host.environment) == bool(host.container):
            raise InputError(f"{path}: host {host.name} must have exactly one of environment and container")
        if host.container:
            try:
                words = shlex.split(host.container)
            except ValueError as error:
                raise InputError(f"{path}: container of host {host.name}: {error}") from None
            if not words:
                raise InputError(f"{path}: container of host {host.name} is empty")
        if not 0 < host.port < 65536:
            raise InputError(f"{path}: port of host {host.name} must be 1 to 65535, found {host.port}")
