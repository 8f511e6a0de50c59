"""The tests of chance, on made-up updates: how often they accuse the honest, and whom else they accuse."""

import numpy as np
import pytest
from hushgrad.conformance import client_statistics, statistics, world
from hushgrad.conformance.report import Judgement
from scipy import stats

ROUNDS = 600
SCENARIO = client_statistics.SCENARIOS[0]
CHANCE = [check.name for check in SCENARIO.checks if check.name not in ("noise-fresh", "sum-not-mean")]


def updates(
    generator,
    *,
    rounds=ROUNDS,
    noise=lambda generator, shape: generator.normal(size=shape),
    rate=1.0,
    batch=None,
    contribution=1.0,
    divide=False,
    clip_batch=False,
):
    """Makes updates of an honest participant of `world.marks`, or of one that differs as the arguments say."""
    federation = world.marks(rounds=rounds)
    rows, q = world.MARKED + world.ORDINARY, federation.probability * rate
    if batch is None:
        took_part = generator.random((rounds, rows)) < q
    else:
        took_part = np.argsort(generator.random((rounds, rows)), axis=1) < batch
    sums = np.zeros((rounds, federation.terms.parameters))
    signs = np.where(federation.labels[: world.MARKED] == 1, -1.0, 1.0)
    sums[:, world.QUIET : world.QUIET + world.MARKED] = took_part[:, : world.MARKED] * signs * contribution
    sums[:, -2] = took_part[:, world.MARKED :].sum(axis=1)
    if divide:
        sums /= np.maximum(1, took_part.sum(axis=1))[:, None]
    if clip_batch:
        sums /= np.maximum(1, np.linalg.norm(sums, axis=1))[:, None]
    scale = federation.noise_multiplier / federation.grid
    return np.rint(sums / federation.grid + scale * noise(generator, sums.shape)).astype(np.int64), federation


def judged(found_updates, federation):
    found = Judgement(SCENARIO.checks)
    client_statistics.judge_noise(found_updates[:, : world.QUIET], federation, found)
    client_statistics.freshness(found_updates[:, : world.QUIET], np.repeat([1, 2], len(found_updates) // 2), found)
    client_statistics.judge_sampling(client_statistics.sampled(found_updates, federation), federation, found)
    return {result.name: result for result in found.results()}


def test_the_honest_are_accused_as_rarely_as_stated(monkeypatch):
    # With the rate raised to 2 % a test may accuse at most so many of 250: the quantile at 1 - 1e-6 of Binomial(250,
    # 0.02), so that this test raises a false alarm once in 1e5 runs. `sampling-rate` makes two tests.
    alarm, runs = 0.02, 250
    monkeypatch.setattr(statistics, "ALARM", alarm)
    generator = np.random.default_rng(1)
    accused = dict.fromkeys(CHANCE, 0)
    for _ in range(runs):
        results = judged(*updates(generator, rounds=300))
        for name in CHANCE:
            accused[name] += results[name].outcome == "fail"
    for name, times in accused.items():
        rate = 2 * alarm if name == "sampling-rate" else alarm
        assert times <= stats.binom.ppf(1 - 1e-6, runs, rate), (name, times)
    # The exact ones are not idle: fewer than 1 would happen once in 150 runs.
    assert accused["noise-size"] + accused["noise-coordinates"] >= 1


def test_the_honest_pass_at_the_stated_rate():
    results = judged(*updates(np.random.default_rng(2)))
    assert {result.outcome for result in results.values()} == {"pass"}, results


def autoregressive(generator, shape):
    fresh = generator.normal(size=shape)
    for t in range(1, shape[0]):
        fresh[t] = 0.5 * fresh[t - 1] + np.sqrt(0.75) * fresh[t]
    return fresh


def repeated(generator, shape):
    half = generator.normal(size=(shape[0] // 2, shape[1]))
    return np.concatenate([half, half])


@pytest.mark.parametrize(
    ("difference", "check", "sentence"),
    [
        ({"noise": lambda g, shape: 0.5 * g.normal(size=shape)}, "noise-size", "times the declared deviation"),
        ({"noise": lambda g, shape: 1.1 * g.normal(size=shape)}, "noise-size", "times the declared deviation"),
        ({"noise": lambda g, shape: np.zeros(shape)}, "noise-size", "there is no noise"),
        ({"noise": lambda g, shape: g.uniform(-(3**0.5), 3**0.5, shape)}, "noise-shape", "not normal"),
        ({"noise": lambda g, shape: g.laplace(scale=0.5**0.5, size=shape)}, "noise-shape", "not normal"),
        (
            {"noise": lambda g, shape: np.tile(g.normal(size=(shape[0], 1)), shape[1])},
            "noise-coordinates",
            "correlated",
        ),
        ({"noise": autoregressive}, "noise-updates", "correlated, by"),
        ({"noise": repeated}, "noise-fresh", "after a restart the noise of earlier updates comes again"),
        (
            {"noise": lambda g, shape: np.rint(g.normal(size=shape) * 2**10) / 2**10},
            "noise-bits",
            "on a coarser grid",
        ),
        ({"batch": 20}, "sampling-poisson", "batches of fixed size are declared as Poisson"),
        ({"rate": 400 / 360}, "sampling-rate", "takes part with probability 0.05"),
        ({"contribution": 20.0}, "clip-per-record", "one outlier moved the sum by"),
        ({"clip_batch": True, "contribution": 1e5}, "clip-per-record", "the sum of a batch was clipped"),
        ({"divide": True}, "sum-not-mean", "divided by the realised batch size"),
    ],
)
def test_others_are_accused_with_the_right_sentence(difference, check, sentence):
    result = judged(*updates(np.random.default_rng(3), **difference))[check]
    assert result.outcome == "fail"
    assert pytest.approx(1e-7) == result.false_alarm or result.false_alarm < 1e-6
    assert sentence in result.why, result.why
