"""Experiment files: what is refused, how sweeps multiply out, and what a client's records are."""

from importlib import resources
from pathlib import Path

import numpy as np
import pytest
from hushgrad.experiments.errors import InputError
from hushgrad.experiments.study import file, resolve, sources, store, sweep

from tests.support import studies


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"colour": "red"}, "colour"),
        ({"privacy__clip": 0.1}, "clip"),
        ({"privacy__epsilon": 1.0}, "exactly one of noise_multiplier and epsilon"),
        ({"privacy__clipping": False}, "protects nobody"),
        ({"privacy__noise": "none"}, "must not be given"),
        ({"training__grad_computations": 100}, "exactly one of rounds and grad_computations"),
        ({"partition__alpha": 0.3}, "dirichlet"),
        ({"seeds": []}, "seeds"),
        ({"clients__slowdown": [1.0]}, "slowdown"),
        ({"faults": {"pauses": [{"client": 9, "at_seconds": 0, "seconds": 1}]}}, "1 to 3"),
    ],
)
def test_what_cannot_be_is_refused_by_name(changes, words):
    with pytest.raises(Exception, match=words):
        studies.small(**changes)


@pytest.mark.parametrize("key", ["noise", "clipping", "clip_norm", "sampler", "delta"])
def test_nothing_that_changes_privacy_has_a_default(key):
    raw = studies.raw()
    del raw["privacy"][key]
    with pytest.raises(Exception, match=key):
        file.convert(raw)


def test_a_sweep_multiplies_its_axes_and_seeds_and_keeps_their_order():
    experiment = studies.small(
        seeds=[1, 2],
        sweep=[
            {"keys": ["privacy.noise_multiplier"], "values": [[2.0], [4.0]]},
            {"keys": ["training.sample_size.size", "labels.printed"], "values": [[10, 0.1], [20, 0.2], [30, 0.3]]},
        ],
    )
    runs = sweep.runs(experiment)
    assert len(runs) == 2 * 3 * 2
    assert [run.seed for run in runs[:4]] == [1, 2, 1, 2]
    assert runs[2].axes == {"privacy.noise_multiplier": 2.0, "training.sample_size.size": 20, "labels.printed": 0.2}
    assert len({run.key for run in runs}) == len(runs)
    assert sweep.runs(experiment) == runs


def test_shards_are_disjoint_and_together_everything():
    runs = sweep.runs(studies.small(seeds=list(range(1, 12))))
    shards = [sweep.shard(runs, f"{i}/3") for i in (1, 2, 3)]
    assert sorted(run.number for part in shards for run in part) == list(range(11))
    assert [run.number for run in shards[1]] == [1, 4, 7, 10]


@pytest.mark.parametrize("text", ["0/3", "4/3", "1", "a/b", "1/0"])
def test_a_shard_that_is_none_is_refused(text):
    with pytest.raises(InputError, match="I/N"):
        sweep.shard([], text)


def test_an_axis_that_names_nothing_is_refused():
    with pytest.raises(InputError, match="noise_multiplyer"):
        sweep.runs(studies.small(sweep=[{"keys": ["privacy.noise_multiplyer"], "values": [[1.0]]}]))


def test_the_resolved_file_reads_back_as_the_same_experiment():
    experiment = studies.small(sweep=[{"keys": ["privacy.clip_norm"], "values": [[0.1], [0.2]]}])
    again = file.parse(store.resolved_toml(experiment).encode(), where="it", folder=Path())
    assert again == experiment


@pytest.mark.parametrize(
    "name", [entry.name for entry in resources.files("hushgrad.experiments.study").joinpath("files").iterdir()]
)
def test_every_packaged_experiment_can_be_read_and_multiplied_out(name):
    content = resources.files("hushgrad.experiments.study").joinpath(f"files/{name}").read_bytes()
    assert sweep.runs(file.parse(content, where=name, folder=Path()))


def parts(kind: str, records: int, clients: int = 4) -> list[np.ndarray]:
    experiment = studies.small(partition={"kind": kind, "records": records}, clients__number=clients)
    return list(sources.load(experiment, 1).parts)


def test_clients_hold_the_same_records_iid_draws_or_disjoint_parts_as_the_file_says():
    same, iid, disjoint = parts("same", 900), parts("iid", 900), parts("disjoint", 900)
    assert all(np.array_equal(part, same[0]) for part in same)
    assert not np.array_equal(iid[0], iid[1])
    assert all(len(np.unique(part)) == 900 for part in iid)
    assert len(np.unique(np.concatenate(disjoint))) == 4 * 900


def test_too_few_records_are_refused():
    with pytest.raises(InputError, match="needs 12000 records"):
        parts("disjoint", 3000)


def test_the_seed_fixes_the_test_set_and_another_seed_draws_another():
    one, again, other = (sources.load(studies.small(), seed).test for seed in (1, 1, 2))
    assert np.array_equal(one.features, again.features)
    assert not np.array_equal(one.features, other.features)


def test_as_many_rounds_are_made_as_reach_the_gradient_computations():
    experiment = studies.small(
        training={
            **studies.SMALL["training"],
            "rounds": None,
            "grad_computations": 100,
            "sample_size": {"kind": "polynomial", "q": 10.0, "p": 1.0},
        }
    )
    assert resolve.sample_sizes(experiment) == (10, 20, 30, 40)


def test_mean_over_the_batch_and_over_clients_divide_the_steps_by_nominal_numbers():
    experiment = studies.small(training__sum_over_batch="mean", training__sum_over_clients="mean")
    assert resolve.step_sizes(experiment, (50, 100)) == [0.01 / (3 * 50), 0.01 / (3 * 100)]
