"""Runs in .bench-env: Opacus' Renyi divergences of one sampled Gaussian when asked, and the seconds that they took.

Its analysis file needs numpy and scipy alone and is loaded by itself, so that nobody waits for PyTorch. Each line of
input is a noise multiplier; each line of output is JSON.
"""

import importlib.util
import json
import sys
import time
from pathlib import Path
from typing import Any

DEFAULT_ALPHAS = [1 + x / 10.0 for x in range(1, 100)] + list(range(12, 64))
"""Opacus 1.6.0, RDPAccountant.DEFAULT_ALPHAS."""


def load_analysis() -> Any:
    package = importlib.util.find_spec("opacus")
    if package is None or not package.submodule_search_locations:
        raise ModuleNotFoundError("opacus is not installed here; run `make bench-env`")
    path = Path(package.submodule_search_locations[0]) / "accountants" / "analysis" / "rdp.py"
    spec = importlib.util.spec_from_file_location("opacus_rdp", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main() -> None:
    analysis, q = load_analysis(), float(sys.argv[1])
    for line in sys.stdin:
        sigma = float(line)
        start = time.perf_counter()
        analysis.compute_rdp(q=q, noise_multiplier=sigma, steps=1, orders=DEFAULT_ALPHAS)
        print(json.dumps({"seconds": time.perf_counter() - start}), flush=True)


if __name__ == "__main__":
    main()
