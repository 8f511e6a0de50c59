"""Scenarios about chance: noise and sampling over thousands of updates whose clipped sums are known."""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
from hushgrad.conformance import judge, statistics, world
from hushgrad.conformance.report import Check, Judgement
from hushgrad.conformance.scripted import Server, Submission
from hushgrad.conformance.stage import Kit, Scenario, Stage, stage
from hushgrad.conformance.statistics import ALARM, Bounds
from hushgrad.conformance.world import CLIP_NORM, ORDINARY, QUIET, Federation

LOW_BITS: Final = 2
FINE_ROUNDS: Final = 300


def noise_and_sampling(kit: Kit, found: Judgement) -> None:
    """Thousands of updates in three lives of one client."""
    federation = world.marks(rounds=kit.rounds)
    with stage(kit, federation, lambda version: np.zeros(federation.terms.parameters, np.float32)) as on:
        on.start()
        for share in (3, 2):  # killed after a third and after a half
            _until_many(on, kit.rounds // share)
            on.kill()
            on.start()
        _until_many(on, kit.rounds)
        on.server.end()
        wrong = on.finish([0])
        sent, updates = collected(on.server, federation)
    complaint = judge.first(judge.payload(one, federation) for one in on.server.submissions)
    complaint = complaint or judge.same_bytes(on.server.submissions, "before and after kill -9")
    if complaint or wrong or len(updates) < kit.rounds:
        found.fail_rest(complaint or wrong or f"{kit.rounds} rounds were due, {len(updates)} came")
        return
    judge_noise(updates[:, :QUIET], federation, found)
    lives = np.array(sent)
    freshness(updates[:, :QUIET], lives, found)
    judge_sampling(sampled(updates, federation), federation, found)


def _until_many(on: Stage, rounds: int) -> None:
    """Waits for so many rounds; patience counts anew with each one that comes."""
    while (count := len(on.server.first)) < rounds:
        on.until(lambda: len(on.server.first) > count, f"round {count} must be sent")


def collected(server: Server, federation: Federation) -> tuple[list[int], npt.NDArray[np.int64]]:
    """Returns each round's first life and update, shape (rounds, d), in the order of rounds."""
    first: dict[int, Submission] = {}
    for one in server.submissions:
        first.setdefault(one.round, one)
    d = federation.terms.parameters
    rows = [(one.life, one.update(d)) for _, one in sorted(first.items())]
    kept = [(life, update) for life, update in rows if update is not None]
    stacked = np.array([update for _, update in kept], np.int64).reshape(len(kept), d)
    return [life for life, _ in kept], stacked


def judge_noise(noise: npt.NDArray[np.int64], federation: Federation, found: Judgement) -> None:
    """Judges coordinates of updates whose clipped sum is zero; shape (rounds, coordinates), in grid steps."""
    declared = federation.noise_multiplier * CLIP_NORM / federation.grid
    values = noise.astype(np.float64)
    size = statistics.deviation(values, declared)
    if size.value == 0:
        found.fail("noise-size", "there is no noise: coordinates without gradient are exactly zero in every update")
        for name in ("noise-shape", "noise-coordinates", "noise-updates", "noise-bits", "noise-fresh"):
            found.skip(name, "there is no noise")
    found.require(
        "noise-size",
        size.inside,
        f"the noise has {size.value:.3f} times the declared deviation; chance allows {size.low:.3f} to {size.high:.3f}",
    )
    shape = statistics.shape(values, max(size.value, 1e-9) * declared if not size.inside else declared)
    found.require(
        "noise-shape",
        shape.inside,
        f"the noise is not normal: its law is {shape.value:.3f} away from it; chance allows {shape.high:.3f}",
    )
    across = statistics.between_coordinates(values)
    found.require("noise-coordinates", across.inside, _correlated("two coordinates of one update", across))
    along = statistics.between_updates(values)
    found.require("noise-updates", along.inside, _correlated("updates that follow each other", along))
    bits = statistics.low_bits(noise, LOW_BITS)
    found.require("noise-bits", bits.inside, _empty_bits(noise, bits))


def _correlated(what: str, bounds: Bounds) -> str:
    return f"noise of {what} is correlated, by {bounds.value:.3f}; chance allows {bounds.high:.3f}"


def _empty_bits(noise: npt.NDArray[np.int64], bounds: Bounds) -> str:
    odd = float(np.mean(noise & 1))
    return (
        f"the lowest bits of the updates are not uniform ({odd:.0%} of them are odd; chi-square {bounds.value:.0f}, "
        f"chance allows {bounds.high:.0f}): they were rounded in too few digits or on a coarser grid"
    )


def freshness(noise: npt.NDArray[np.int64], lives: npt.NDArray[np.int64], found: Judgement) -> None:
    """Judges that no round and no life repeats the noise of another one."""
    if statistics.repeats(noise):
        again = [
            life
            for life in np.unique(lives)[1:]
            if statistics.repeats(np.r_[noise[lives < life], noise[lives == life]])
        ]
        where = (
            "after a restart the noise of earlier updates comes again" if again else "two updates carry the same noise"
        )
        found.fail("noise-fresh", f"{where} ({statistics.repeats(noise)} of {len(noise)} vectors are repeats)")


@dataclass(frozen=True, slots=True)
class Sampled:
    """What the sums tell about who took part, in units of C.

    Attributes:
        marks: shape (rounds, MARKED): each marked record's clipped gradient if it took part, plus noise; its expected
            direction is counted as positive.
        ordinary: shape (rounds,): the number of other records that took part, plus noise.
    """

    marks: npt.NDArray[np.float64]
    ordinary: npt.NDArray[np.float64]


def sampled(updates: npt.NDArray[np.int64], federation: Federation) -> Sampled:
    """Reads updates of shape (rounds, d)."""
    scaled = updates.astype(np.float64) * (federation.grid / CLIP_NORM)
    signs = np.where(federation.labels[: world.MARKED] == 1, -1.0, 1.0)
    return Sampled(scaled[:, QUIET : QUIET + world.MARKED] * signs, scaled[:, QUIET + world.MARKED])


def judge_sampling(seen: Sampled, federation: Federation, found: Judgement) -> None:
    """Judges clipping and sampling; q and sigma are known, so are means and variances."""
    q, noise = federation.probability, federation.noise_multiplier
    one = q * (1 - q)
    expected = q * ORDINARY
    batch_variance = ORDINARY * one + noise**2
    total = statistics.mean(seen.ordinary, batch_variance, expected)
    peak = statistics.largest(seen.marks, 1.0, noise)
    found.require(
        "clip-per-record",
        peak.inside,
        f"one outlier moved the sum by {peak.value:.3g} C; it may move it by C, and noise by {peak.high - 1:.2f} C",
    )
    if not total.inside:
        _explain_total(total, seen, expected, found)
    if found.failed("clip-per-record") or found.failed("sum-not-mean"):
        why = "sums are not those of clipped gradients, so nothing can be read from them"
        for name in ("sampling-rate", "sampling-poisson", "sampling-anew"):
            found.skip(name, why)
        return
    rate = statistics.mean(seen.marks, one + noise**2, q)
    found.require("sampling-rate", rate.inside, _wrong_rate(rate, q))
    found.require("sampling-rate", total.inside, _wrong_rate(_divided(total, ORDINARY), q))
    excess = ORDINARY * one * (1 - 6 * one) / batch_variance**2
    spread = statistics.variance(seen.ordinary, batch_variance, excess)
    batch = math.sqrt(max(0.0, spread.value - noise**2))
    found.require(
        "sampling-poisson",
        spread.inside,
        f"batch sizes have deviation {batch:.2f}, Poisson sampling gives {math.sqrt(ORDINARY * one):.2f}: "
        + ("batches of fixed size are declared as Poisson" if spread.value < spread.low else "records move together"),
    )
    if found.failed("noise-updates") or found.failed("noise-coordinates"):
        found.skip("sampling-anew", "the noise hides it: it is not independent itself")
    centred = np.column_stack([seen.marks - q, (seen.ordinary - expected) / math.sqrt(batch_variance)])
    anew = statistics.between_updates(centred)
    found.require(
        "sampling-anew", anew.inside, f"who takes part depends on earlier rounds: correlation {anew.value:.3f}"
    )


def _explain_total(total: Bounds, seen: Sampled, expected: float, found: Judgement) -> None:
    if total.value > 2.0:
        return  # a wrong rate, which is judged later
    outlier = seen.marks.max(axis=1) > 3.0  # rounds in which an outlier surely took part, or none when all are clipped
    calm = float(seen.ordinary[~outlier].mean()) if (~outlier).any() else 0.0
    if calm < 0.75:
        found.fail(
            "clip-per-record",
            f"about {expected:.0f} records with gradients of length C moved the sum by {total.value:.2f} C: the sum of "
            "a batch was clipped, not each record's gradient",
        )
    else:
        found.fail(
            "sum-not-mean",
            f"about {expected:.0f} records with gradients of length C moved the sum by {total.value:.2f} C: the sum "
            "was divided by the realised batch size",
        )


def _divided(bounds: Bounds, by: float) -> Bounds:
    return Bounds(bounds.value / by, bounds.low / by, bounds.high / by)


def _wrong_rate(bounds: Bounds, q: float) -> str:
    return (
        f"a record takes part with probability {bounds.value:.4f}; q = s / records = {q:.4f}, chance allows "
        f"{bounds.low:.4f} to {bounds.high:.4f}"
    )


def fine_grid(kit: Kit, found: Judgement) -> None:
    """Noise that is 2^22 grid steps wide, from a second ledger: its low bits, and no repeat of another run's noise."""
    rounds = min(FINE_ROUNDS, kit.rounds)
    federation = world.marks(rounds=rounds, fine_grid=True)
    runs = []
    for length in (rounds, 5):
        with stage(kit, federation, lambda version: np.zeros(federation.terms.parameters, np.float32)) as on:
            on.start()
            _until_many(on, length)
            on.kill()
            runs.append(collected(on.server, federation)[1])
    for updates in (runs[0][:, :QUIET], runs[0][:, -2]):  # noise alone; noise on a sum of a dozen C
        bits = statistics.low_bits(updates, LOW_BITS)
        found.require("fine-grid", bits.inside, _empty_bits(updates, bits))
    quiet = np.concatenate(runs)[:, :QUIET]
    if not quiet.any():
        found.skip("noise-unseeded", "there is no noise")
    elif statistics.repeats(quiet):
        found.fail("noise-unseeded", "a second client with an empty state folder draws the same noise as the first")


SCENARIOS = (
    Scenario(
        (
            Check("noise-size", "Noise has the declared standard deviation.", ALARM),
            Check("noise-shape", "Noise is normal.", ALARM),
            Check("noise-coordinates", "Noise is independent across coordinates.", ALARM),
            Check("noise-updates", "Noise is independent from update to update.", ALARM),
            Check("noise-bits", "Noise fills the grid: its lowest bits are uniform.", ALARM),
            Check("noise-fresh", "No noise is used twice, not after kill -9 either.", 1e-30),
            Check("clip-per-record", "One outlier moves the sum by at most C, and others are not moved by it.", ALARM),
            Check("sum-not-mean", "The sum is not divided by the number of records that took part.", ALARM),
            Check("sampling-rate", "Every record takes part with probability s / records.", 2 * ALARM),
            Check("sampling-poisson", "Batch sizes vary as independent choices make them.", ALARM),
            Check("sampling-anew", "Who takes part does not depend on earlier rounds.", ALARM),
        ),
        noise_and_sampling,
    ),
    Scenario(
        (
            Check("fine-grid", "Sums fill a grid of 2^-22 C, which 32-bit floating point cannot.", 2 * ALARM),
            Check("noise-unseeded", "Two clients with empty state draw different noise.", 1e-30),
        ),
        fine_grid,
    ),
)
