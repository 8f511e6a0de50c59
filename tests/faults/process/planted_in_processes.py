"""Bugs planted in the parts that only real processes run: the store thread, the databases, the host.

Each is a replacement in a copy of the tree, and the test of processes or disks that must fail there. `make faults` does
that; python -m tests.faults.process.planted_in_processes --output FILE also writes down who caught what.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import click

ROOT = Path(__file__).resolve().parents[3]
PARTS = ("protos", "accountant", "client", "server", "experiments", "tests", "pyproject.toml")
MOUNTS, SYSCALLS = "tests/faults/disk/test_mounts.py", "tests/faults/disk/test_syscalls.py"
ROT = "tests/faults/disk/test_rot.py"
LEDGER, STREAM = "tests/client/test_ledger.py", "tests/client/test_stream.py"


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
        "        await asyncio.shield(committed)\n        return outcome\n",
        "        return outcome\n",
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
    Bug(
        "rows of the server are not verified",
        "server/hushgrad/server/layout.py",
        "    if checksum(table, *fields) != row[-1]:\n",
        "    if False:\n",
        (ROT, "servers_database_is_refused"),
    ),
    Bug(
        "rows of an outbox are not verified",
        "client/hushgrad/client/store.py",
        "    if checksum(*fields) != sum_:\n",
        "    if False:\n",
        (LEDGER, "changed_outbox_entry"),
    ),
    Bug(
        "a missing row is not missed",
        "server/hushgrad/server/layout.py",
        "        if total != sums.get(table):\n",
        "        if False:\n",
        (ROT, "gone_or_back_from_the_past"),
    ),
    Bug(
        "a damaged log is taken for a torn one",
        "server/hushgrad/server/wal.py",
        "    if len(log) <= _HEADER_BYTES + _FRAME_BYTES or not any(header):\n",
        "    if True:\n",
        (ROT, "servers_log_is_refused"),
    ),
    Bug(
        "key reused after a fork",
        "client/hushgrad/client/stream.py",
        "    _forks += 1\n",
        "    _forks += 0\n",
        (STREAM, "forked"),
    ),
)


def run_planted(bug: Bug, folder: Path) -> subprocess.CompletedProcess[str]:
    """Plants a bug in a copy of the tree and runs the test there that must fail.

    Raises:
        ValueError: if the text to replace is not there exactly once: the bug has to be planted anew.
    """
    tree = folder / "tree"
    tree.mkdir()
    for part in PARTS:
        if (ROOT / part).is_dir():
            shutil.copytree(ROOT / part, tree / part, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copyfile(ROOT / part, tree / part)
    path = tree / bug.path
    text = path.read_text()
    if text.count(bug.old) != 1:
        raise ValueError(f"{bug.name}: expected its text once in {bug.path}, found it {text.count(bug.old)} times")
    path.write_text(text.replace(bug.old, bug.new))
    file, names = bug.caught_by
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-m", "", file, "-k", names]
    # The folder of the copy comes first, here and in every process that the tests start.
    return subprocess.run(
        [*command, f"--basetemp={folder / 'base'}"],
        cwd=tree,
        env={key: value for key, value in os.environ.items() if key != "PYTHONPATH"},
        capture_output=True,
        text=True,
        timeout=380,
    )


def is_caught(done: subprocess.CompletedProcess[str]) -> bool:
    """Whether a test failed, and not something else."""
    failed = "AssertionError" in done.stdout or "assert " in done.stdout or "DID NOT RAISE" in done.stdout
    return done.returncode == 1 and failed


@click.command()
@click.option("--output", type=click.Path(path_type=Path), required=True, help="Write who caught what here, as JSON.")
def main(output: Path) -> None:
    """Plants every bug; needs root."""
    found = []
    for bug in BUGS:
        with tempfile.TemporaryDirectory() as name:
            caught = is_caught(run_planted(bug, Path(name)))
        test = f"{Path(bug.caught_by[0]).stem}: {bug.caught_by[1].replace('_', ' ')}"
        found.append({"bug": bug.name, "harness": "processes and disks", "by": test if caught else None})
        print(f"{bug.name}: {'caught' if caught else 'MISSED'}")
    output.write_text(json.dumps(found, indent=1) + "\n")
    sys.exit(int(any(one["by"] is None for one in found)))


if __name__ == "__main__":
    main()
