"""Small experiments for tests: quick to run, and complete."""

import copy
from typing import Any

from hushgrad.experiments.study import file, resolve, simulate, sources
from hushgrad.experiments.study.file import Experiment
from hushgrad.experiments.study.resolve import Setup
from hushgrad.experiments.study.simulate import Outcome

SMALL: dict[str, Any] = {
    "name": "small",
    "seeds": [1],
    "data": {"set": "phishing", "test_records": 1055},
    "partition": {"kind": "disjoint", "records": 500},
    "model": {"kind": "logistic"},
    "clients": {"number": 3},
    "privacy": {
        "noise": "local",
        "clipping": True,
        "clip_norm": 0.5,
        "sampler": "poisson",
        "delta": 1e-4,
        "noise_multiplier": 4.0,
    },
    "training": {
        "rounds": 12,
        "sum_over_batch": "sum",
        "sum_over_clients": "sum",
        "sample_size": {"kind": "constant", "size": 50},
        "step_size": {"kind": "constant", "eta0": 0.01},
        "delay": {"kind": "max-delay", "max_delay": 1},
    },
    "evaluation": {"points": 4},
}


def raw(**changes: Any) -> dict[str, Any]:
    """Returns the small experiment as plain values; `training__rounds=5` changes a key of a table."""
    found = copy.deepcopy(SMALL)
    for key, value in changes.items():
        table, _, inner = key.partition("__")
        if inner:
            found.setdefault(table, {})[inner] = value
        else:
            found[table] = value
    return found


def small(**changes: Any) -> Experiment:
    """Returns the small experiment with changes."""
    return file.convert(raw(**changes))


def simulated(experiment: Experiment, *, measure: bool = False) -> tuple[Setup, Outcome]:
    """Simulates a run of one seed."""
    records = sources.load(experiment, experiment.seeds[0])
    setup = resolve.resolve(
        experiment, features=records.table.features.shape[1], classes=len(records.table.class_names)
    )
    return setup, simulate.run(setup, records, measure=measure)
