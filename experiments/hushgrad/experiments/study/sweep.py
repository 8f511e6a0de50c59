"""From an experiment to its runs: axes multiplied out, one run for each seed, the same order and names every time."""

import copy
import hashlib
import itertools
import json
from dataclasses import dataclass
from typing import Any

import msgspec
from hushgrad.experiments.errors import InputError
from hushgrad.experiments.study import file
from hushgrad.experiments.study.file import Experiment

MOST_RUNS = 100_000


@dataclass(frozen=True, slots=True)
class Run:
    """One run.

    Attributes:
        number: its place in the whole sweep, from 0.
        experiment: without a sweep and with one seed: everything about the run is in it.
        axes: by dotted key, the values that the sweep gave it.
        key: names the run by its content: the same settings and seed have the same key, whatever the rest of the file.
    """

    number: int
    experiment: Experiment
    axes: dict[str, Any]
    key: str

    @property
    def seed(self) -> int:
        """Its seed."""
        return self.experiment.seeds[0]


def runs(experiment: Experiment) -> list[Run]:
    """Returns all runs: the first axis varies slowest, seeds fastest.

    Raises:
        InputError: if an axis names what is not there, values do not fit their keys, or a combination cannot be.
    """
    base = msgspec.to_builtins(experiment)
    axes = base.pop("sweep")
    seeds = base.pop("seeds")
    for axis in axes:
        for values in axis["values"]:
            if len(values) != len(axis["keys"]):
                raise InputError(
                    f"[[sweep]] {', '.join(axis['keys'])}: each of values must have {len(axis['keys'])} entries, one "
                    f"for each key, found {values}"
                )
        if not axis["keys"] or not axis["values"]:
            raise InputError("[[sweep]] must have at least one key and one line of values")
    total = len(seeds)
    for axis in axes:
        total *= len(axis["values"])
    if total > MOST_RUNS:
        raise InputError(f"the sweep has {total} runs, more than {MOST_RUNS}; cut it into several files")
    found: list[Run] = []
    for combination in itertools.product(*(axis["values"] for axis in axes)):
        raw, chosen = copy.deepcopy(base), {}
        for axis, values in zip(axes, combination, strict=True):
            for key, value in zip(axis["keys"], values, strict=True):
                _put(raw, key, value)
                chosen[key] = value
        for seed in seeds:
            one = _convert({**raw, "seeds": [seed], "sweep": []}, chosen)
            found.append(Run(len(found), one, chosen, content_key(one)))
    return found


def shard(found: list[Run], text: str) -> list[Run]:
    """Returns the runs of shard I of N: every N-th, from the I-th on, 1 <= I <= N.

    Raises:
        InputError: unless text is I/N.
    """
    try:
        place, of = (int(part) for part in text.split("/"))
    except ValueError:
        place, of = 0, 0
    if not 1 <= place <= of:
        raise InputError(f"--shard must be I/N with 1 <= I <= N, found {text!r}")
    return found[place - 1 :: of]


def content_key(experiment: Experiment) -> str:
    """Returns 16 hexadecimal digits that name everything which decides a run's result.

    Name, description and labels decide nothing.
    """
    raw = msgspec.to_builtins(experiment)
    for name in ("name", "description", "labels", "sweep"):
        raw.pop(name)
    return hashlib.sha256(json.dumps(raw, sort_keys=True).encode()).hexdigest()[:16]


def _convert(raw: dict[str, Any], chosen: dict[str, Any]) -> Experiment:
    try:
        return file.convert(raw)
    except (InputError, msgspec.ValidationError) as error:
        where = ", ".join(f"{key} = {value}" for key, value in chosen.items())
        raise InputError(f"with {where}: {error}" if where else str(error)) from None


def _put(raw: dict[str, Any], dotted: str, value: Any) -> None:
    """Sets a key of nested tables; the word "unset" takes it away."""
    *tables, last = dotted.split(".")
    place = raw
    for name in tables:
        place = place.get(name)  # type: ignore[assignment]
        if not isinstance(place, dict):
            raise InputError(f"[[sweep]] key {dotted!r}: there is no table {name!r}")
    if tables != ["labels"] and last not in place:
        raise InputError(f"[[sweep]] key {dotted!r}: expected one of {', '.join(sorted(place))}")
    if value == "unset":
        place[last] = None
    else:
        place[last] = value
