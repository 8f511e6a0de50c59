"""Judges deploy/monitoring with Prometheus' own tools: python -m tests.deploy.monitoring.

Every rule is parsed and run through its tests, and every expression of the dashboard is parsed, as a rule would be.
"""

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.support.monitoring import FOLDER, dashboard_expressions


def lacks() -> str:
    """Returns what is missing on this machine, in one line; empty when nothing is."""
    missing = [program for program in ("prometheus", "promtool") if shutil.which(program) is None]
    if not missing:
        return ""
    return f"{' and '.join(missing)} not found; on Debian or Ubuntu: apt-get install prometheus"


def defects() -> list[str]:
    """Returns what promtool finds."""
    found = [
        _promtool("check", "config", "--syntax-only", str(FOLDER / "prometheus.yml")),
        _promtool("check", "rules", "--lint-fatal", str(FOLDER / "alerts.yml")),
        _promtool("test", "rules", str(FOLDER / "alerts_test.yml")),
    ]
    rules = [
        {"record": f"panel:{number}", "expr": expression}
        for number, (_, expression) in enumerate(dashboard_expressions())
    ]
    with tempfile.TemporaryDirectory() as folder:
        # JSON is YAML.
        path = Path(folder) / "dashboard.yml"
        path.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
        found.append(_promtool("check", "rules", "--lint=none", str(path)))
    return [defect for defect in found if defect]


def _promtool(*arguments: str) -> str:
    done = subprocess.run(["promtool", *arguments], capture_output=True, text=True, timeout=120)
    return "" if done.returncode == 0 else f"promtool {' '.join(arguments)}: {done.stdout}{done.stderr}".strip()


def main() -> int:
    """Prints what is wrong; returns 0 if nothing is."""
    missing = lacks()
    found = [missing] if missing else defects()
    print("\n".join(f"monitoring: {one}" for one in found), end="\n" if found else "", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
