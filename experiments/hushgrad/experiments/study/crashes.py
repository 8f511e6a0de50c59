"""Which rounds of a client end in a crash: from the file and the seed alone, the same for every backend."""

import functools

import numpy as np
from hushgrad.experiments.study.file import Experiment
from hushgrad.wire.terms import MAX_FINAL_VERSION


def of(experiment: Experiment, client: int) -> dict[int, float]:
    """Returns, by round, how many seconds a client is away after it crashed in that round.

    Args:
        experiment: of one run; its seed draws the rounds that `crash_rate` asks for.
        client: its number, from 1.
    """
    faults = experiment.faults
    if not faults.crashes and not faults.crash_rate:
        return {}
    return dict(_of(experiment.seeds[0], client, faults.crash_rate, faults.restart_seconds,
                    tuple((one.round, one.seconds) for one in faults.crashes if one.client == client)))  # fmt: skip


@functools.lru_cache(maxsize=1024)
def _of(
    seed: int, client: int, rate: float, restart_seconds: float, listed: tuple[tuple[int, float], ...]
) -> dict[int, float]:
    drawn = np.flatnonzero(np.random.default_rng([seed, 5, client]).random(MAX_FINAL_VERSION) < rate) if rate else ()
    return {**{int(round_): restart_seconds for round_ in drawn}, **dict(listed)}
