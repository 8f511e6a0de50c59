"""Claims as objects: what they carry, how they are rounded and written, and what they refuse to say."""

import json
import math
from dataclasses import FrozenInstanceError

import numpy as np
import pytest
from hushgrad import accountant
from hushgrad.accountant import AccountantError, Claim, RefusedError, RoundGroup

_CLAIM = Claim(0.4998, 1e-5, "add-remove", "poisson", method_version="1 (dp-accounting 0.6.0)")


_GROUP = RoundGroup(0.1, 4.0, 10)


def _schedule(groups=(_GROUP,), **changes):
    arguments = {"sampling": "poisson", "adjacency": "add-remove", "delta": 1e-5, **changes}
    return accountant.from_schedule(groups, **arguments)


@pytest.mark.parametrize(
    ("epsilon", "shown"),
    [
        (0.0, 0.0),
        (0.1234, 0.1234),
        (0.12340000001, 0.1235),
        (0.1 + 0.2, 0.3001),
        (1.00001, 1.001),
        (99.991, 100.0),
        (1234.1, 1235.0),
        (1e-7 / 3, 3.334e-8),
    ],
)
def test_epsilon_is_rounded_up_to_four_digits(epsilon, shown):
    assert Claim(epsilon, 1e-5, "add-remove", "poisson", method_version="1").epsilon == shown


def test_rounding_never_goes_down_and_is_done_once():
    generator = np.random.default_rng(7)
    for epsilon in np.exp(generator.uniform(-12, 5, 2000)):
        shown = accountant.rounded_up(epsilon)
        assert epsilon <= shown <= epsilon * 1.0011
        assert accountant.rounded_up(shown) == shown


def test_a_claim_is_written_under_its_seven_names_and_read_back():
    written = _CLAIM.to_dict()

    assert list(written) == ["epsilon", "delta", "adjacency", "sampling", "unit", "method", "method_version"]
    assert Claim.from_dict(json.loads(json.dumps(written))) == _CLAIM


@pytest.mark.parametrize("change", [{"epsilon": None}, {"unit": "user"}, {"more": 1}, {"delta": 0}, {"method": "gdp"}])
def test_reading_refuses_what_no_claim_says(change):
    with pytest.raises(AccountantError):
        Claim.from_dict({**_CLAIM.to_dict(), **change})


def test_reading_refuses_a_missing_name():
    written = _CLAIM.to_dict()
    del written["sampling"]

    with pytest.raises(AccountantError, match="sampling"):
        Claim.from_dict(written)


def test_a_claim_cannot_be_changed():
    with pytest.raises(FrozenInstanceError):
        _CLAIM.epsilon = 0.1


def test_the_sentence_names_everything_the_pair_depends_on():
    sentence = _CLAIM.describe(timing_covered=False)

    for part in ("0.4998", "1e-05", "record", "added or removed", "Poisson", "PLD", "0.6.0", "timing not covered"):
        assert part in sentence
    assert "timing" not in _CLAIM.describe()


@pytest.mark.parametrize("value", [0, -1.0, math.nan, math.inf, None, "2", True])
def test_a_noise_multiplier_must_be_a_finite_number_above_zero(value):
    with pytest.raises(AccountantError, match="noise_multiplier"):
        RoundGroup(0.1, value, 1)


@pytest.mark.parametrize("value", [0, -0.1, 1.0000001, math.nan, None, True])
def test_a_sampling_probability_must_be_above_zero_and_at_most_one(value):
    with pytest.raises(AccountantError, match="sampling_probability"):
        RoundGroup(value, 1.0, 1)


@pytest.mark.parametrize("value", [0, -1, 1.0, True, None, "3"])
def test_a_number_of_rounds_must_be_a_count(value):
    with pytest.raises(AccountantError, match="rounds"):
        RoundGroup(0.1, 1.0, value)


@pytest.mark.parametrize("value", [0, 1, -1e-5, math.nan, math.inf, None, False])
def test_delta_must_be_strictly_between_zero_and_one(value):
    with pytest.raises(AccountantError, match="delta"):
        _schedule(delta=value)


@pytest.mark.parametrize("change", [{"sampling": "shuffle"}, {"adjacency": "replace-some"}, {"adjacency": None}])
def test_what_is_not_supported_is_refused_and_not_approximated(change):
    with pytest.raises(AccountantError, match="must be one of"):
        _schedule(**change)


def test_fixed_sampling_of_everything_is_refused():
    with pytest.raises(AccountantError, match="smaller than the data set"):
        _schedule([RoundGroup(1.0, 4.0, 1)], sampling="fixed")


def test_a_charge_on_delta_is_paid_by_epsilon():
    assert _schedule(delta_charged=1e-7).epsilon > _schedule().epsilon
    assert _schedule(delta_charged=1e-7).delta == 1e-5


def test_a_charge_above_one_percent_of_delta_is_refused():
    with pytest.raises(RefusedError, match="1%"):
        _schedule(delta_charged=1.01e-7)


@pytest.mark.parametrize("sigma", [1e-200, 9e-4])
def test_noise_that_protects_nobody_is_refused(sigma):
    with pytest.raises(RefusedError, match="noise multiplier"):
        _schedule([RoundGroup(0.5, sigma, 1)])


@pytest.mark.parametrize("group", [RoundGroup(1e-300, 1.0, 10**6), RoundGroup(1e-9, 1e200, 1), RoundGroup(1, 1e300, 9)])
def test_extreme_rounds_are_accounted_without_overflow(group):
    assert 0 <= _schedule([group], delta=1e-8).epsilon < 1e-5


def test_delta_above_one_in_n_needs_a_persons_word():
    assert accountant.check_delta(1e-5, 1768) is None
    assert "published" in str(accountant.check_delta(1 / 1768, 1768))
    with pytest.raises(AccountantError, match="1/1768"):
        accountant.check_delta(1e-3, 1768)
    assert "published" in str(accountant.check_delta(1e-3, 1768, accept_large=True))


@pytest.mark.parametrize(("records", "delta"), [(1, 1e-5), (10_000, 1e-5), (60_000, 1e-6), (1_000_000, 1e-7)])
def test_the_suggested_delta_is_at_most_a_tenth_of_one_in_n(records, delta):
    assert accountant.suggest_delta(records) == delta
    assert accountant.suggest_delta(records) <= 1 / (10 * records)


@pytest.mark.parametrize(("rounds", "method"), [(10**6, "pld"), (10**11, "rdp")])
def test_an_absurd_number_of_rounds_is_answered_in_seconds(rounds, method):
    claim = _schedule([RoundGroup(0.5, 1.0, rounds)], adjacency="replace-one", delta=1e-3)

    assert claim.method == method
    assert claim.epsilon > rounds / 10
