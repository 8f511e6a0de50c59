"""Says whether what the heavy tests are about is as it was when they passed last; CI runs them where it is not.

Usage: python tests/heavy/covered.py [--write]. `make test-heavy` writes after it has passed.
"""

import hashlib
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CLIENT = ROOT / "client" / "hushgrad" / "client"
RECORD = ROOT / "tests" / "heavy" / "covered.txt"


def digest() -> str:
    """Returns SHA-256 over names and contents of the examples, the heavy tests, and the files that they are about."""
    paths = {*(ROOT / "examples" / "loops").glob("*"), *(ROOT / "tests" / "heavy").glob("*")}
    paths |= {CLIENT / name for name in ("loop.py", "rounds.py", "clipping.py", "preparing.py")}
    paths |= set((CLIENT / "models").glob("torch_*.py"))
    found = hashlib.sha256()
    for path in sorted(paths - {RECORD}):
        if path.is_file():
            found.update(f"{path.relative_to(ROOT)} {hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return found.hexdigest()


if __name__ == "__main__":
    if "--write" in sys.argv:
        RECORD.write_text(digest() + "\n")
    elif not RECORD.is_file() or RECORD.read_text().strip() != digest():
        print("the loops or the PyTorch adapter have changed since the heavy tests passed", file=sys.stderr)
        sys.exit(1)
