"""What our noise costs per draw, against a generator that is not secure and against another library's secure one."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from hushgrad.client import noise, stream

from benchmarks import harness
from benchmarks.harness import Row, Unmeasured

PARAMETERS = 785
SCALE = 2.1 * 2.0**15
"""Standard deviation in grid steps: the demo's noise multiplier 2.1 and clip norm 0.5 on a grid of 2**-16."""

PEER_PYTHON = Path(".bench-env/bin/python")

BAR_NUMPY = 5.0
"""Two table draws of 64 secure bits each beside one draw of a fast, predictable generator in compiled code."""

BAR_OPENDP = 0.02
"""At least fifty times as fast as rejection sampling with exact fractions."""


def figures() -> Iterator[Row | Unmeasured]:
    """Draws the noise of one round of 785 parameters, a new key each time."""
    tables = noise.GaussianTables(SCALE)
    generator = np.random.default_rng(1)

    def draw() -> None:
        tables.draw(stream.RandomStream(None), PARAMETERS)

    measured = harness.side_by_side(
        draw, lambda: generator.normal(size=PARAMETERS), ours_times=50, yardstick_times=200, repeats=31
    )
    yield measured.row(
        name="draw noise for 785 parameters",
        value=PARAMETERS / measured.seconds / 1e6,
        unit="million draws/s",
        against="numpy's PCG64 normal (not secure)",
        bar=BAR_NUMPY,
    )
    yield from harness.measure("draw noise, against OpenDP", lambda: _against_opendp(draw))


def _against_opendp(draw: harness.Action) -> Iterator[Row]:
    if not PEER_PYTHON.exists():
        raise FileNotFoundError("there is no .bench-env; run `make bench-env` once")
    command = [str(PEER_PYTHON), str(Path(__file__).with_name("peer_opendp.py")), str(PARAMETERS), str(SCALE)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as peer:
        assert peer.stdin is not None
        assert peer.stdout is not None
        requests, answers = peer.stdin, peer.stdout

        def ask() -> float:
            print(1, file=requests, flush=True)
            return float(json.loads(answers.readline())["seconds"])

        measured = harness.pairs(lambda: harness.timed(draw, 50), ask, repeats=11)
        requests.close()
    yield measured.row(
        name="time to draw noise for 785 parameters",
        value=measured.seconds * 1e6,
        unit="us",
        against="OpenDP's discrete Gaussian",
        bar=BAR_OPENDP,
    )
