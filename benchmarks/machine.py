"""On what machine, and which version of ours, something was measured."""

import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path

import psutil


def describe() -> dict[str, str | int | float]:
    """Returns what a reader needs to compare figures."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count() or 0,
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "grpcio": metadata.version("grpcio"),
        "numpy": metadata.version("numpy"),
        "load_before": round(os.getloadavg()[2], 2),
    }


def commit() -> str:
    """Returns the commit that was measured, with a plus where files differ from it; empty outside a checkout."""
    try:
        done = subprocess.run(
            ["git", "describe", "--always", "--dirty=+"], capture_output=True, text=True, cwd=Path(__file__).parent
        )
    except OSError:
        return ""
    return done.stdout.strip()


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")
