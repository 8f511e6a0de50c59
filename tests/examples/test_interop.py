"""`make interop` where it cannot run: one line, and not a success."""

import subprocess
import sys
from pathlib import Path

INTEROP = Path(__file__).resolve().parents[2] / "examples" / "interop.py"


def test_without_node_it_fails_with_one_line_that_says_so(tmp_path):
    done = subprocess.run(
        [sys.executable, str(INTEROP)], env={"PATH": str(tmp_path)}, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert "needs node" in line
    assert done.stdout == ""
