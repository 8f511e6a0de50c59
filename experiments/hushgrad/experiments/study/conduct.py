"""Makes all runs of an experiment that are not done yet, on several processors, and says how long it will take."""

import hashlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Protocol

from hushgrad.experiments.errors import ExperimentError
from hushgrad.experiments.study import members, resolve, simulate, sources, store, sweep
from hushgrad.experiments.study.file import Experiment
from hushgrad.experiments.study.resolve import Setup
from hushgrad.experiments.study.scores import Point
from hushgrad.experiments.study.store import SIMULATE, Rows, Store
from hushgrad.experiments.study.sweep import Run

THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")

BYTES_PER_ELEMENT = 4


@dataclass(frozen=True, slots=True)
class Made:
    """A run that is done: what its files will say.

    Attributes:
        result: the deterministic part.
        points: scored versions.
        measured: times.
    """

    result: dict[str, Any]
    points: tuple[Point, ...]
    measured: dict[str, Any]


class Backend(Protocol):
    """Makes runs with real members.

    Attributes:
        name: in the results.
    """

    @property
    def name(self) -> str: ...

    def check(self, runs: list[Run]) -> None:
        """Refuses runs that it cannot make, before the first is begun."""

    def make(self, run: Run) -> Made:
        """Makes a run."""


Progress = Callable[[int, int, float | None], None]
"""Called with the number of runs done, the number of all, and the seconds that are left, where that can be told."""


def conduct(
    experiment: Experiment,
    folder: Path,
    *,
    backend: Backend | None = None,
    jobs: int = 1,
    shard: str | None = None,
    rows: Rows = "csv",
    progress: Progress | None = None,
) -> int:
    """Makes the runs that the folder lacks; returns how many those were.

    Args:
        experiment: what to do.
        folder: of the results; see `store.Store`.
        backend: makes one run at a time; None: simulated, in `jobs` processes.
        jobs: simulated runs at the same time.
        shard: "I/N": every N-th run only.
        rows: format of the scored versions of the runs made now.
        progress: told before the first run and after each.

    Raises:
        InputError: if the experiment, the folder or the shard cannot be used.
        BudgetRefusedError: if no noise reaches an epsilon that a run asks for.
        ExperimentError: if a run fails; the runs before it are kept.
    """
    runs = sweep.runs(experiment)
    if shard is not None:
        runs = sweep.shard(runs, shard)
    if backend is not None:
        members.check(runs)
    place, name = Store(folder, experiment, rows), SIMULATE if backend is None else backend.name
    todo = place.missing(runs, name)
    clock = _Clock(len(runs), len(todo), progress)
    clock.tell()
    if backend is not None and todo:
        backend.check(todo)
    made = _simulated(todo, jobs) if backend is None else ((run, backend.make(run)) for run in todo)
    for run, one in made:
        place.save(run, name, one.result, one.points, one.measured)
        clock.done()
    return len(todo)


def simulated(run: Run) -> Made:
    """Makes one simulated run."""
    began, cpu = time.monotonic(), time.process_time()
    experiment = run.experiment
    records = sources.load(experiment, run.seed)
    setup = resolve.resolve(
        experiment, features=records.table.features.shape[1], classes=len(records.table.class_names)
    )
    outcome = simulate.run(setup, records)
    last = outcome.points[-1]
    result = {
        **store.run_facts(run),
        **facts(setup),
        "noise": {"none": "none", "local": "seeded", "central": "seeded"}[experiment.privacy.noise],
        "claim": None,
        "would_claim": None if setup.claim is None else setup.claim.to_dict(),
        "would_claim_for_shared_record": None if setup.record_claim is None else setup.record_claim.to_dict(),
        "accuracy": last.accuracy,
        "accuracy_averaged": last.accuracy_averaged,
        "log_loss": last.log_loss,
        "seconds": outcome.seconds,
        "updates": outcome.updates,
        "suspensions": outcome.suspensions,
        "crashes": [{"client": client, "round": round_} for client, round_ in outcome.crashes],
        "bytes_up": BYTES_PER_ELEMENT * setup.parameters * outcome.updates,
        "model_sha256": hashlib.sha256(outcome.final.tobytes()).hexdigest(),
    }
    measured = {
        "wall_seconds": time.monotonic() - began,
        "cpu_seconds": time.process_time() - cpu,
        "simulation_cpu_seconds": outcome.cpu_seconds,
    }
    return Made(result, outcome.points, measured)


def facts(setup: Setup) -> dict[str, Any]:
    """Returns the numbers of a run that follow from its settings."""
    sizes = setup.sample_sizes
    trust = {
        "local": "nobody: every client adds its own noise",
        "central": "the server: it would see the clients' clean sums and add the noise",
        "none": "everybody: no noise",
    }
    return {
        "rounds": setup.rounds,
        "sample_size": sizes[0] if len(set(sizes)) == 1 else [sizes[0], sizes[-1]],
        "gradients_per_client": sum(sizes),
        "noise_multiplier": setup.noise_multiplier,
        "parameters": setup.parameters,
        "grid_exponent": setup.terms_file.grid_exponent,
        "trusted": trust[setup.experiment.privacy.noise],
    }


class _Clock:
    """Tells how far a sweep is."""

    def __init__(self, total: int, todo: int, progress: Progress | None) -> None:
        self._total, self._todo, self._progress = total, todo, progress
        self._made = 0
        self._began = time.monotonic()

    def done(self) -> None:
        self._made += 1
        self.tell()

    def tell(self) -> None:
        if self._progress is None:
            return
        left = self._todo - self._made
        seconds = (time.monotonic() - self._began) / self._made * left if self._made else None
        self._progress(self._total - left, self._total, seconds)


def _simulated(todo: list[Run], jobs: int) -> Iterator[tuple[Run, Made]]:
    if jobs <= 1 or len(todo) <= 1:
        yield from ((run, simulated(run)) for run in todo)
        return
    before = {name: os.environ.get(name) for name in THREAD_VARIABLES}
    os.environ.update(dict.fromkeys(THREAD_VARIABLES, "1"))  # one processor for each run
    try:
        # Not forked: a process that has spoken gRPC must not fork.
        with ProcessPoolExecutor(
            min(jobs, len(todo)), mp_context=get_context("spawn"), initializer=_follow, initargs=(os.getpid(),)
        ) as pool:
            yield from _in_pool(pool, todo, 2 * jobs)
    except BrokenProcessPool:
        raise ExperimentError("a process of the sweep was killed; start it again: what is done is kept") from None
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _follow(parent: int) -> None:
    """Lets a worker end with its parent, however that ends, and leaves Ctrl-C to the parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _in_pool(pool: ProcessPoolExecutor, todo: list[Run], ahead: int) -> Iterator[tuple[Run, Made]]:
    """Yields runs as they end; never more than `ahead` are handed out, so that an error stops the sweep at once."""
    waiting = iter(todo)
    under_way: dict[Future[Made], Run] = {}
    try:
        while True:
            while len(under_way) < ahead and (run := next(waiting, None)) is not None:
                under_way[pool.submit(simulated, run)] = run
            if not under_way:
                return
            ended, _ = wait(under_way, return_when=FIRST_COMPLETED)
            for future in ended:
                run = under_way.pop(future)
                try:
                    made = future.result()
                except ExperimentError as error:
                    raise type(error)(f"run {run.number} ({run.axes or 'no sweep'}): {error}") from None
                yield run, made
    finally:
        for future in under_way:
            future.cancel()
