"""Private rounds of all models beside PyTorch without privacy and beside Opacus, on one core.

A round of ours is everything but the commit: choose the records, take them, clip, sum, round to the grid, add noise.
What it is measured against takes the same number of records and makes their gradient; see `peer_torch`. Both sides are
measured in CPU seconds of one thread, so that neighbours on a busy machine disturb neither much.
"""

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import threadpoolctl
from hushgrad.client import data, dpsgd, models, noise, stream

from benchmarks import harness
from benchmarks.harness import Row, Unmeasured

PEER_PYTHON = Path(".bench-env/bin/python")

RECORDS = 20_000
CLIP_NORM, NOISE_MULTIPLIER, GRID_EXPONENT = 0.5, 2.1, -16

MALLOC = {"MALLOC_MMAP_THRESHOLD_": "4294967296", "MALLOC_TRIM_THRESHOLD_": "8589934592"}
"""Keeps freed memory in the process: what helps a program that makes large temporaries."""

MEBIBYTE = 2**20

SMALL_MICROSECONDS = 80.0
"""A logistic round at 26 records: forty calls of numpy; carrying it to the server costs ten times as much."""

EXTRA_MEBIBYTES = 32.0
"""What a LeNet round may need beside records and parameters: chunks of 16 records go through memory used again."""

LENET = {"activation": "tanh", "padding": 2}
MLP = {"activation": "tanh", "hidden": [128]}

Seconds = Callable[[], float]


def figures() -> Iterator[Row | Unmeasured]:
    """All rows of the group."""
    with threadpoolctl.threadpool_limits(1):
        yield from harness.measure("logistic rounds", _logistic)
        yield from harness.measure("dense networks", _dense)
        yield from harness.measure("LeNet-5", _lenet)
        yield from harness.measure("LeNet-5 in PyTorch, private by our adapter", _adapter)
        yield from harness.measure("share of noise", _noise_share)
        yield from harness.measure("memory of a LeNet-5 round", _memory)


def _logistic() -> Iterator[Row | Unmeasured]:
    ours = _round("logistic", features=68, classes=2, records=26, times=50)
    limit = SMALL_MICROSECONDS * 1e-6
    measured = harness.pairs(ours, lambda: limit, repeats=15)
    yield measured.row(
        name="a private logistic round: 69 parameters, 26 records",
        value=measured.seconds * 1e6, unit="us", against="80 us", bar=1.0,
    )  # fmt: skip
    with _peer({}) as peer:
        measured = harness.pairs(ours, peer("logistic", "hooks", 26, 10), repeats=9)
        yield measured.row(
            name="the same", value=measured.seconds * 1e6, unit="us", against="Opacus, hooks", bar=1 / 4
        )  # fmt: skip
        os.environ["HUSHGRAD_FAST"] = "1"  # compiled from here on, as a client of many rounds has it
        compiled = _round("logistic", features=68, classes=2, records=26, times=200)
        measured = harness.pairs(compiled, peer("logistic", "hooks", 26, 10), repeats=9)
    yield measured.row(
        name="the same, compiled", value=measured.seconds * 1e6, unit="us", against="Opacus, hooks", bar=1 / 15
    )  # fmt: skip


def _dense() -> Iterator[Row | Unmeasured]:
    with _peer({}) as peer:
        for name, kind, options, bar in (
            ("softmax 784-10", "softmax", {"precision": "float32"}, 1.2),
            ("MLP 784-128-10", "mlp", MLP, 1.4),
        ):
            ours = _round(kind, features=784, classes=10, records=370, times=5, **options)
            measured = harness.pairs(ours, peer(kind, "plain", 370, 5), repeats=15)
            yield measured.row(
                name=f"a private round: {name}, 370 records",
                value=measured.seconds * 1e3, unit="ms", against="PyTorch without privacy", bar=bar,
            )  # fmt: skip


def _lenet() -> Iterator[Row | Unmeasured]:
    ours = _round("lenet", features=784, classes=10, records=370, times=1, **LENET)
    for tuned, environment in (("", {}), (", malloc tuned", MALLOC)):
        with _peer(environment) as peer:
            for against, way, bar in (
                ("PyTorch without privacy", "plain", 1.9),
                ("Opacus, ghost clipping", "ghost", 1 / 1.2),
                ("Opacus, hooks", "hooks", 1 / 2),
            ):
                measured = harness.pairs(ours, peer("lenet", way, 370, 1), repeats=7)
                yield measured.row(
                    name="a private round: LeNet-5 (61,706), 370 records",
                    value=measured.seconds * 1e3, unit="ms", against=against + tuned, bar=bar,
                )  # fmt: skip


def _adapter() -> Iterator[Row | Unmeasured]:
    with _peer({}) as peer:
        measured = harness.pairs(
            peer("lenet", "adapter", 370, 1), peer("lenet", "plain", 370, 1), repeats=7
        )  # fmt: skip
    yield measured.row(
        name="gradients by our adapter for PyTorch: LeNet-5, 370 records",
        value=measured.seconds * 1e3, unit="ms", against="PyTorch without privacy", bar=2.8,
    )  # fmt: skip


def _noise_share() -> Iterator[Row]:
    """Noise of 61,706 parameters beside the whole round that it is part of, at 100 records."""
    whole = _round("lenet", features=784, classes=10, records=100, times=1, **LENET)
    tables = noise.GaussianTables(NOISE_MULTIPLIER * CLIP_NORM * 2.0**-GRID_EXPONENT)
    part = _seconds(lambda: tables.draw(stream.RandomStream(None), 61_706), 5)
    measured = harness.pairs(part, whole, repeats=11)
    yield measured.row(
        name="noise of a LeNet-5 round at 100 records",
        value=measured.seconds * 1e3, unit="ms", against="the whole round", bar=0.25,
    )  # fmt: skip


def _memory() -> Iterator[Row]:
    """Peak memory of one round beyond what records, parameters and tables took before, in a fresh process."""
    command = [sys.executable, "-m", "benchmarks.networks"]
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "HUSHGRAD_FAST": "0"}
    extra = float(subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout)
    yield Row(
        "extra memory of a LeNet-5 round, 370 records",
        extra, "MiB", "32 MiB", extra / EXTRA_MEBIBYTES, 1.0, extra <= EXTRA_MEBIBYTES,
    )  # fmt: skip


def _round(kind: str, *, features: int, classes: int, records: int, times: int, **options: Any) -> Seconds:
    """Returns what measures a whole private round of about so many records."""
    trainer, recipe, parameters = _prepared(kind, features, classes, records, options)
    trainer.round(parameters, recipe, stream.RandomStream(None))  # what is compiled or checked once
    return _seconds(lambda: trainer.round(parameters, recipe, stream.RandomStream(None)), times)


def _prepared(
    kind: str, features: int, classes: int, records: int, options: dict[str, Any]
) -> tuple[dpsgd.Trainer, dpsgd.Recipe, np.ndarray]:
    generator = np.random.default_rng(1)
    dataset = data.dataset(
        generator.uniform(size=(RECORDS, features)).astype(np.float32),
        generator.integers(0, classes, RECORDS),
        class_names=[str(number) for number in range(classes)],
    )
    trainer = dpsgd.Trainer(models.make(kind, features=features, classes=classes, **options), dataset)
    recipe = dpsgd.Recipe(
        sampler="poisson",
        records=RECORDS,
        sample_size=records,
        clip_norm=CLIP_NORM,
        noise_multiplier=NOISE_MULTIPLIER,
        grid_exponent=GRID_EXPONENT,
    )
    trainer.prepare(recipe)
    return trainer, recipe, trainer.model.initial(1).astype(np.float64) + 0.01


def _seconds(action: harness.Action, times: int) -> Seconds:
    def measure() -> float:
        start = time.process_time()
        for _ in range(times):
            action()
        return (time.process_time() - start) / times

    return measure


Peer = Callable[[str, str, int, int], Seconds]


@contextlib.contextmanager
def _peer(environment: dict[str, str]) -> Iterator[Peer]:
    """Starts PyTorch and yields what makes it measure a step: of a network, in a way, of so many records."""
    if not PEER_PYTHON.exists():
        raise FileNotFoundError("there is no .bench-env; run `make bench-env` once")
    command = [str(PEER_PYTHON), str(Path(__file__).with_name("peer_torch.py"))]
    roots = os.pathsep.join(str(Path(root).resolve()) for root in ("protos", "accountant", "client"))
    threads = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": roots}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, **threads, **environment}
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        requests, answers = process.stdin, process.stdout

        def asks(model: str, way: str, records: int, times: int) -> Seconds:
            def ask() -> float:
                line = json.dumps({"model": model, "way": way, "records": records, "times": times})
                print(line, file=requests, flush=True)
                answer = answers.readline()
                if not answer:
                    raise RuntimeError(f"PyTorch's process ended while it measured {model}, {way}")
                return float(json.loads(answer)["seconds"])

            return ask

        try:
            yield asks
        finally:
            requests.close()


def main() -> None:
    """Prints the extra memory of one LeNet-5 round, in MiB; for `_memory`. Linux alone tells it."""
    trainer, recipe, parameters = _prepared("lenet", 784, 10, 370, LENET)
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before = _status("VmRSS")
    trainer.round(parameters, recipe, stream.RandomStream(None))
    print((_status("VmHWM") - before) / 1024)


def _status(key: str) -> int:
    """Returns a number of kibibytes from what Linux says about this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(key + ":"))


if __name__ == "__main__":
    main()
