"""What accounting costs beside others that do the same work: dp-accounting in this process, Opacus in another."""

import itertools
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import dp_accounting
from dp_accounting.pld import pld_privacy_accountant
from dp_accounting.rdp import rdp_privacy_accountant
from hushgrad import accountant
from hushgrad.accountant import RoundGroup, rdp

from benchmarks import harness
from benchmarks.harness import Row, Unmeasured

PEER_PYTHON = Path(".bench-env/bin/python")

PROBABILITY = 0.01
"""q of the rounds whose divergences are computed; every repeat takes a noise multiplier that is new."""

STREAM_KINDS, STREAM_REPEATS = 12, 100

BAR_DIVERGENCES = 0.2
"""113 integer orders at once in numpy, beside 150 or so orders one after the other in Python."""

BAR_STREAM = 0.2
"""Twelve kinds of rounds: ours charges 1,200 rounds one by one and asks before each; theirs is told twelve times."""

BAR_DISTRIBUTION = 2.5
"""The same library on the same grid. Ours computes a second, coarser grid as well and chooses both."""

ROUNDS, STEP_PROBABILITY, STEP_NOISE, DELTA = 36_000, 10 / 60_000, 12.10881, 1 / 60_000


def figures() -> Iterator[Row | Unmeasured]:
    """Divergences of a new kind of round, a stream of rounds under a budget, and one large composition."""
    fresh = itertools.count()

    def divergences() -> None:
        rdp.divergences("add-remove", PROBABILITY, 1.0 + next(fresh) / 1000)

    def library_divergences() -> None:
        event = dp_accounting.GaussianDpEvent(1.0 + next(fresh) / 1000)
        rdp_privacy_accountant.RdpAccountant().compose(dp_accounting.PoissonSampledDpEvent(PROBABILITY, event))

    measured = harness.side_by_side(divergences, library_divergences, ours_times=20, yardstick_times=1, repeats=11)
    yield measured.row(
        name="Renyi divergences of a new kind of round",
        value=measured.seconds * 1e6,
        unit="us",
        against="dp-accounting's RdpAccountant, default orders",
        bar=BAR_DIVERGENCES,
    )
    yield _stream(fresh)
    yield _composition()
    yield from harness.measure("Renyi divergences, against Opacus", lambda: _against_opacus(divergences, fresh))


def _stream(fresh: Iterator[int]) -> Row:
    def ours() -> None:
        sigmas = [2.0 + next(fresh) / 1000 for _ in range(STREAM_KINDS)]
        events = [RoundGroup(PROBABILITY, sigma, 1) for sigma in sigmas]
        meter = accountant.Meter(epsilon=10.0, delta=1e-5, sampling="poisson", adjacency="add-remove")
        for event in events * STREAM_REPEATS:
            if not meter.would_exceed(event):
                meter.charge(event)

    def library() -> None:
        total = rdp_privacy_accountant.RdpAccountant()
        for _ in range(STREAM_KINDS):
            event = dp_accounting.GaussianDpEvent(2.0 + next(fresh) / 1000)
            total.compose(dp_accounting.PoissonSampledDpEvent(PROBABILITY, event), STREAM_REPEATS)
            total.get_epsilon(1e-5)

    measured = harness.side_by_side(ours, library, ours_times=1, yardstick_times=1, repeats=5)
    return measured.row(
        name=f"{STREAM_KINDS * STREAM_REPEATS} rounds of {STREAM_KINDS} new kinds under a budget",
        value=measured.seconds * 1e6 / (STREAM_KINDS * STREAM_REPEATS),
        unit="us/round",
        against="dp-accounting's RdpAccountant, kind by kind",
        bar=BAR_STREAM,
    )


def _composition() -> Row:
    group = RoundGroup(STEP_PROBABILITY, STEP_NOISE, ROUNDS)
    interval = STEP_PROBABILITY / STEP_NOISE / 30  # what ours comes to
    event = dp_accounting.SelfComposedDpEvent(
        dp_accounting.PoissonSampledDpEvent(STEP_PROBABILITY, dp_accounting.GaussianDpEvent(STEP_NOISE)), ROUNDS
    )

    def ours() -> None:
        accountant.from_schedule([group], sampling="poisson", adjacency="add-remove", delta=DELTA)

    def library() -> None:
        total = pld_privacy_accountant.PLDAccountant(value_discretization_interval=interval)
        total.compose(event)
        total.get_epsilon(DELTA)

    measured = harness.side_by_side(ours, library, ours_times=2, yardstick_times=2, repeats=7)
    return measured.row(
        name=f"claim for {ROUNDS} rounds of one size",
        value=measured.seconds * 1e3,
        unit="ms",
        against="dp-accounting's PLDAccountant on our finer grid",
        bar=BAR_DISTRIBUTION,
    )


def _against_opacus(divergences: harness.Action, fresh: Iterator[int]) -> Iterator[Row]:
    if not PEER_PYTHON.exists():
        raise FileNotFoundError("there is no .bench-env; run `make bench-env` once")
    command = [str(PEER_PYTHON), str(Path(__file__).with_name("peer_opacus.py")), str(PROBABILITY)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as peer:
        assert peer.stdin is not None
        assert peer.stdout is not None
        requests, answers = peer.stdin, peer.stdout

        def ask() -> float:
            print(1.0 + next(fresh) / 1000, file=requests, flush=True)
            return float(json.loads(answers.readline())["seconds"])

        measured = harness.pairs(lambda: harness.timed(divergences, 20), ask, repeats=11)
        requests.close()
    yield measured.row(
        name="Renyi divergences of a new kind of round, again",
        value=measured.seconds * 1e6,
        unit="us",
        against="Opacus' analysis, default orders",
        bar=BAR_DIVERGENCES,
    )
