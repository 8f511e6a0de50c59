"""Writes the seeds of a target into its corpus folder, by a process of its own: the fuzzer must import first."""

import hashlib
import subprocess
import sys
from pathlib import Path

TARGETS = ("decoder", "admission", "service")


def write(folder: Path, name: str) -> None:
    """Writes the seeds of a target; what lies in the folder stays."""
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run([sys.executable, "-m", "tests.fuzz.seeding", str(folder), name], check=True)


def main() -> None:
    """Usage: python -m tests.fuzz.seeding FOLDER TARGET."""
    from tests.fuzz import targets

    folder, name = Path(sys.argv[1]), sys.argv[2]
    for data in targets.seeds(name):
        (folder / hashlib.sha256(data).hexdigest()[:16]).write_bytes(data)


if __name__ == "__main__":
    main()
