"""Bugs planted in the parts that only real processes run: the store thread, the databases, the host.

Each is a replacement in a copy of the tree, and the test of processes or disks that must fail there.
"""

from dataclasses import dataclass

MOUNTS, SYSCALLS = "tests/faults/disk/test_mounts.py", "tests/faults/disk/test_syscalls.py"


@dataclass(frozen=True, slots=True)
class Bug:
    """One planted bug.

    Attributes:
        name: a phrase.
        path: the file, below the root.
        old, new: the replacement; `old` stands there exactly once.
        caught_by: the test file, and the part of the tests' names.
    """

    name: str
    path: str
    old: str
    new: str
    caught_by: tuple[str, str]


BUGS = (
    Bug(
        "no sync at the server",
        "server/hushgrad/server/layout.py",
        'connection.execute("PRAGMA synchronous = FULL")',
        'connection.execute("PRAGMA synchronous = OFF")',
        (MOUNTS, "power_cut_at_the_server"),
    ),
    Bug(
        "no sync at the client",
        "client/hushgrad/client/store.py",
        '            connection.execute("PRAGMA synchronous = FULL")',
        '            connection.execute("PRAGMA synchronous = OFF")',
        (MOUNTS, "power_cut_at_a_client"),
    ),
    Bug(
        "ACCEPTED before the receipt is durable",
        "server/hushgrad/server/host.py",
        "        await asyncio.shield(committed)\n",
        "",
        (SYSCALLS, "server_whose_disk_fails"),
    ),
    Bug(
        "a store that fails and goes on",
        "server/hushgrad/server/store.py",
        "        self._on_failure(error)\n",
        "",
        (SYSCALLS, "server_whose_disk_fails"),
    ),
    Bug(
        "array and set in two transactions",
        "server/hushgrad/server/database.py",
        '        model, file = self._place(f"model-{version}", published.model, published.sha256)\n',
        "        self.commit()\n        self.begin()\n"
        '        model, file = self._place(f"model-{version}", published.model, published.sha256)\n',
        (SYSCALLS, "killed_at_every_durability_call_loses"),
    ),
)
