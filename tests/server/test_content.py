"""Updates that no honest mechanism can have produced are found, and honest ones never, whatever their data.

Noise here is the client's own, from the operating system: no seed. Each test that looks at honest updates fails by
chance with probability below FALSE_ALARM = 1e-9 for each of its federations, by the bounds in `content`.
"""

import functools
import math

import numpy as np
import numpy.typing as npt
import pytest
from hushgrad.client import noise, stream
from hushgrad.server import content
from hushgrad.server.content import ContentCheck
from hushgrad.server.records import Answer, Disposition
from hushgrad.wire import header
from hushgrad.wire.terms import Terms
from scipy import stats

from tests.support.federations import Owner, Sender, make_terms, senders_of

SIGMA, CLIP_NORM, MOST_EXAMPLES = 2.5, 0.5, 100  # make_terms: clip norm 0.5, sigma 2 to 3, at most 100 examples
DIMENSIONS = (1, 5, 69, 1000, 7850, 61_706)
Integers = npt.NDArray[np.int64]


def terms_of(parameters: int) -> Terms:
    return make_terms(parameters=parameters, participants=5, final_version=1000)


def scale_of(terms: Terms, sigma: float = SIGMA) -> float:
    return math.ldexp(sigma * CLIP_NORM, -terms.grid_exponent)


tables = functools.cache(noise.GaussianTables)


def drawn(terms: Terms, sigma: float = SIGMA) -> Integers:
    return tables(scale_of(terms, sigma)).draw(stream.RandomStream(), terms.parameters)


def sums(terms: Terms) -> list[Integers]:
    """Returns legal sums of clipped gradients, as extreme as there are: 100 examples with one gradient of norm C."""
    d = terms.parameters
    longest = math.ldexp(MOST_EXAMPLES * CLIP_NORM, -terms.grid_exponent)
    one, spread = np.zeros(d), np.full(d, 1 / math.sqrt(d))
    one[d // 2] = 1.0
    signs = np.where(np.arange(d) % 2, 1.0, -1.0) / math.sqrt(d)
    few = np.zeros(d)
    few[: max(1, d // 100)] = 1 / math.sqrt(max(1, d // 100))
    return [np.rint(longest * direction).astype(np.int64) for direction in (0 * one, one, -one, spread, signs, few)]


def found(terms: Terms, update: Integers, sigma: float = SIGMA, **changes: object) -> str | None:
    clipped = np.clip(update, -(2**31) + 1, 2**31 - 1).astype("<i4")
    return found_in(terms, clipped.tobytes(), sigma, **changes)


def found_in(terms: Terms, payload: bytes, sigma: float = SIGMA, **changes: object) -> str | None:
    sealed = Sender("client-1", terms).seal(0, payload, noise_multiplier=sigma, **changes)
    finding = ContentCheck(terms, "refuse").finding(sealed.header, content.measure(payload))
    return None if finding is None else finding.statistic


@pytest.mark.parametrize("parameters", DIMENSIONS)
@pytest.mark.parametrize("sigma", [2.0, 3.0])
def test_an_honest_mechanism_passes_at_every_extreme_of_legal_data(parameters: int, sigma: float) -> None:
    terms = terms_of(parameters)
    for total in sums(terms):
        for _ in range(3):
            assert found(terms, total + drawn(terms, sigma), sigma) is None


def test_batches_that_poisson_sampling_makes_larger_than_the_terms_say_pass_too() -> None:
    # max_examples_per_round is 100 and the nominal size 10, so nothing is added: P(X > 100) < 1e-60. With a nominal
    # size close to the limit, batches above it do occur, and the bound makes room for them.
    assert content.batch_bound(10, math.log(1e-14)) < MOST_EXAMPLES
    largest = content.batch_bound(100, math.log(1e-14))
    assert stats.binom.sf(largest - 1, 10_000, 0.01) < 1e-14 < stats.binom.sf(largest - 30, 10_000, 0.01)
    assert largest > 170


@pytest.mark.parametrize("parameters", [1000, 7850, 61_706])
def test_half_the_noise_and_twice_the_noise_are_found(parameters: int) -> None:
    terms = terms_of(parameters)
    assert found(terms, drawn(terms, SIGMA / 2)) == "norm-too-small"
    assert found(terms, drawn(terms, 2 * SIGMA)) == "norm-too-large"


@pytest.mark.parametrize("parameters", [7850, 61_706])
def test_half_the_noise_and_twice_the_noise_are_found_behind_whatever_data(parameters: int) -> None:
    terms = terms_of(parameters)
    for total in sums(terms):
        assert found(terms, total + drawn(terms, SIGMA / 2)) == "norm-too-small"
        assert found(terms, total + drawn(terms, 2 * SIGMA)) == "norm-too-large"


def test_half_the_noise_hides_in_a_small_model() -> None:
    # Sums as long as 100 / 2.5 = 40 standard deviations are legal here: 69 elements of half the noise are nothing
    # beside them. Stated in docs/limits.md; this test keeps the page honest.
    terms = terms_of(69)
    assert found(terms, sums(terms)[3] + drawn(terms, SIGMA / 2)) is None


def test_what_is_no_noise_is_found_in_small_models_too() -> None:
    terms = terms_of(69)
    honest = drawn(terms)
    assert found(terms, 0 * honest) == "norm-too-small"
    assert found(terms, 2 * (honest // 2)) == "low-bytes-not-noise"  # noise on a coarser grid
    assert found(terms, np.where(np.arange(69) < 30, 0, honest)) == "low-bytes-not-noise"  # a layer left out
    assert found(terms, honest + sums(terms)[1] * 2) in ("norm-too-large", "element-too-large")  # not clipped
    assert found(terms, honest // 200) == "norm-too-small"  # per-batch scaling before the noise is declared away


@pytest.mark.parametrize("parameters", [69, 7850])
def test_other_element_types_are_found(parameters: int) -> None:
    terms = terms_of(parameters)
    honest = drawn(terms)
    assert found_in(terms, honest.astype(">i4").tobytes()) is not None
    floats = (honest * 2.0**terms.grid_exponent).astype("<f4")
    assert found_in(terms, floats.tobytes()) is not None
    assert found_in(terms, honest.astype("<i8").tobytes()[: 4 * parameters]) is not None
    assert found_in(terms, np.full(parameters, 2**31 - 1, "<i4").tobytes()) == "norm-too-large"


def test_one_element_that_no_batch_can_reach_is_found() -> None:
    terms = terms_of(61_706)
    update = drawn(terms)
    update[5] += round((MOST_EXAMPLES / SIGMA + 20) * scale_of(terms))
    assert found(terms, update) == "element-too-large"


def test_updates_marked_as_insecure_noise_declare_nothing_to_be_held_to() -> None:
    terms = terms_of(69)
    assert found(terms, np.zeros(69, np.int64), flags=header.FLAG_INSECURE_NOISE) is None


@pytest.mark.parametrize("changes", [{"noise_multiplier": 1e300}, {"noise_multiplier": 5e-324}, {"clip_norm": 1e308}])
def test_absurd_declarations_are_left_to_the_check_of_the_header(changes: dict) -> None:
    # Found by fuzzing: the arithmetic of the check overflowed, and the call ended as if the server were broken.
    owner, (one, _) = Owner(TERMS, policy="refuse"), senders_of(TERMS)
    owner.begin([one])
    outcome = owner.submit(one, one.seal(0, **changes))
    assert (outcome.answer, outcome.finding) == (Answer.INVALID, None)
    assert next(iter(changes)) in outcome.detail


@pytest.mark.parametrize("d", [1, 5, 69, 1000, 61_706])
def test_the_bounds_are_bounds_and_not_far_off(d: int) -> None:
    # Oracle: scipy 1.17's chi-square, noncentral chi-square and binomial distributions, written by others.
    for ratio in (0.05, 0.3, 0.7, 0.95):
        exact, bound = stats.chi2.logcdf(ratio * d, d), content.log_chance_below(ratio * d, d)
        assert bound >= exact or exact == -math.inf
        assert bound < exact + 3 + 0.5 * math.log(d) or exact == -math.inf
    for noncentrality in (0.5, 40.0, 1600.0):
        for sd in (3, 8):
            t = d + noncentrality + sd * math.sqrt(2 * (d + 2 * noncentrality))
            exact, bound = math.log(stats.ncx2.sf(t, d, noncentrality)), content.log_chance_above(t, d, noncentrality)
            assert exact <= bound < exact + 5
    for p in (1 / 256, 1 / 2):
        for sd in (3, 6):
            count = math.ceil(d * p + sd * math.sqrt(d * p * (1 - p)))
            if count <= d:
                assert content._log_chance_count(count, d, p) >= stats.binom.logsf(count - 1, d, p)


def test_the_shares_of_the_false_alarm_stay_below_it() -> None:
    assert content._TESTS_SHARE + content._BAD_SHARE + content._BATCH_SHARE < content.FALSE_ALARM == 1e-9


def test_room_is_made_for_an_imperfect_sampler_where_there_are_many_draws() -> None:
    # 2e-19 for each coordinate: 5000 updates of 61,706 coordinates have 6e-11 of them expected, of 10^7 1e-8.
    assert content._allowed_bad(61_706, 5000) == 0
    assert content._allowed_bad(10**7, 5000) == 1
    assert content._allowed_bad(10**9, 10**12) == 2
    # With one such coordinate allowed for, half the noise is still found at 10^7: 27 of 3162 standard deviations.
    limit = math.log(content._TESTS_SHARE / (5000 * 4))
    norm = 0.5 * math.sqrt(10**7)
    assert content.log_chance_below((norm + 27) ** 2, 10**7) < limit


def test_noise_of_the_terms_is_uniform_modulo_256() -> None:
    # The narrowest noise that terms allow is 2^16 grid steps wide; a chi-square test of 2 million draws' low bytes.
    # Chance of a false alarm: 1e-9. The twin: noise of standard deviation 64 fails it.
    wide = tables(2.0**16).draw(stream.RandomStream(), 2_000_000)
    limit = stats.chi2.isf(1e-9, 255)
    assert _chi_square_of_low_bytes(wide) < limit
    narrow = np.rint(np.random.default_rng(1).normal(0, 64, 2_000_000)).astype(np.int64)
    assert _chi_square_of_low_bytes(narrow) > limit


def _chi_square_of_low_bytes(values: Integers) -> float:
    counts = np.bincount(values & 255, minlength=256)
    expected = len(values) / 256
    return float(((counts - expected) ** 2 / expected).sum())


# What becomes of what is found.

TERMS = make_terms(parameters=1000, participants=2, final_version=6)


def honest(sender: Sender, round_: int) -> bytes:
    del round_
    return drawn(sender.terms).astype("<i4").tobytes()


def test_a_refused_update_is_answered_for_ever_and_holds_nobody_up() -> None:
    owner, (one, two) = Owner(TERMS, policy="refuse"), senders_of(TERMS)
    owner.begin([one, two])
    bad = one.seal(0, drawn(TERMS, SIGMA / 2).astype("<i4").tobytes())
    outcome = owner.submit(one, bad)
    assert (outcome.answer, outcome.finding.statistic) == (Answer.INVALID, "norm-too-small")
    assert "root mean square is 0." in outcome.detail
    again = owner.submit(one, bad)
    assert (again.answer, again.first_answer, again.finding) == (Answer.DUPLICATE, Answer.INVALID, None)
    # The round is settled and stays spent: other bytes for it are a conflict, and the other's round makes version 1.
    forged = one.seal(0, honest(one, 0))
    assert owner.submit(one, forged).answer is Answer.CONFLICT
    assert owner.submit(two, two.seal(0, honest(two, 0))).answer is Answer.ACCEPTED
    assert owner.federation.newest_version == 1
    receipt = owner.restart().store.find(one.name, 0)
    assert (receipt.disposition, receipt.included_in) == (Disposition.INVALID, None)
    assert receipt.reason == outcome.detail


def test_a_flagged_update_counts_and_its_receipt_says_why() -> None:
    owner, (one, two) = Owner(TERMS, policy="accept-and-flag"), senders_of(TERMS)
    owner.begin([one, two])
    bad = one.seal(0, drawn(TERMS, SIGMA / 2).astype("<i4").tobytes())
    outcome = owner.submit(one, bad)
    assert (outcome.answer, outcome.finding.statistic) == (Answer.ACCEPTED, "norm-too-small")
    owner.submit(two, two.seal(0, honest(two, 0)))
    assert owner.federation.newest_version == 1
    assert [participant.flagged for participant in owner.federation.participants] == [1, 0]
    receipt = owner.store.find(one.name, 0)
    assert (receipt.disposition, receipt.included_in, receipt.reason) == (
        Disposition.INCLUDED,
        1,
        outcome.finding.detail,
    )
    assert [participant.flagged for participant in owner.restart().federation.participants] == [1, 0]


def test_what_was_accepted_before_a_crash_stays_accepted_when_the_policy_changes() -> None:
    owner, (one, two) = Owner(TERMS, policy="accept-and-flag"), senders_of(TERMS)
    owner.begin([one, two])
    bad = one.seal(0, drawn(TERMS, SIGMA / 2).astype("<i4").tobytes())
    assert owner.submit(one, bad).answer is Answer.ACCEPTED
    owner = owner.restart("refuse")
    assert [participant.flagged for participant in owner.federation.participants] == [1, 0]
    assert owner.submit(one, bad).answer is Answer.ACCEPTED
    assert [participant.flagged for participant in owner.federation.participants] == [1, 0]
    # What is new is refused.
    assert owner.submit(one, one.seal(1, bad.payload)).answer is Answer.INVALID


def test_content_is_judged_last() -> None:
    owner, (one, _) = Owner(TERMS, policy="refuse"), senders_of(TERMS)
    owner.begin([one])
    zeros = bytes(4 * TERMS.parameters)
    outcome = owner.submit(one, one.seal(TERMS.window, zeros))
    assert (outcome.answer, outcome.finding) == (Answer.TOO_FAR_AHEAD, None)
    wrong = one.seal(0, zeros, clip_norm=0.25)
    assert "clip_norm must be 0.5" in owner.submit(one, wrong).detail
