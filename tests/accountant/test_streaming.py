"""Totals while a run goes on: what meters and filters keep, how fast, and the mistake that a filter avoids."""

import math
import time

import numpy as np
import pytest
from hushgrad import accountant
from hushgrad.accountant import AccountantError, BudgetError, Filter, Meter, RefusedError, RoundGroup, rdp, streaming

_EVENT = RoundGroup(0.01, 2.0, 1)


def _meter(**changes):
    return Meter(**{"epsilon": 1.0, "delta": 1e-5, "sampling": "poisson", "adjacency": "add-remove", **changes})


def _filter(**changes):
    arguments = {"epsilon": 1.0, "delta": 1e-5, "order": 17, "sampling": "poisson", "adjacency": "add-remove"}
    return Filter(**{**arguments, **changes})


# Meters.


@pytest.mark.parametrize("sampling", ["poisson", "fixed"])
@pytest.mark.parametrize("adjacency", ["add-remove", "replace-one"])
def test_a_meter_stops_at_the_last_round_that_fits_and_is_above_the_distribution(sampling, adjacency):
    meter = _meter(sampling=sampling, adjacency=adjacency)
    while not meter.would_exceed(_EVENT):
        meter.charge(_EVENT)

    with pytest.raises(BudgetError, match="the cap is 1"):
        meter.charge(_EVENT)
    groups = [RoundGroup(0.01, 2.0, meter.rounds)]
    tight = accountant.from_schedule(groups, sampling=sampling, adjacency=adjacency, delta=1e-5)
    assert meter.claim().method == "rdp"
    assert tight.epsilon <= meter.claim().epsilon <= 1.0
    assert meter.claim().epsilon > 0.97


def test_rounds_charged_together_are_rounds_charged_one_by_one():
    together, single = _meter(), _meter()
    together.charge(RoundGroup(0.01, 2.0, 500))
    for _ in range(500):
        single.charge(_EVENT)

    assert together.claim().epsilon == pytest.approx(single.claim().epsilon, rel=1e-9)
    assert together.rounds == single.rounds == 500


def test_a_refused_charge_changes_nothing_and_says_what_is_left():
    meter = _meter()
    meter.charge(RoundGroup(0.01, 2.0, 1000))
    before = meter.claim()

    with pytest.raises(BudgetError) as refused:
        meter.charge(RoundGroup(0.01, 2.0, 10_000))

    assert meter.claim() == before
    assert refused.value.left[0] == pytest.approx(1 - before.epsilon, abs=1e-3)
    assert refused.value.requested[0] > 1


@pytest.mark.parametrize("make", [_meter, _filter])
def test_a_cap_of_zero_allows_nothing(make):
    """NVIDIA-NeMo/Safe-Synthesizer#367: there a cap of zero became no cap."""
    capped = make(epsilon=0, delta=0.5)

    assert capped.would_exceed(RoundGroup(1e-9, 1e3, 1))
    with pytest.raises(BudgetError):
        capped.charge(RoundGroup(1e-9, 1e3, 1))


@pytest.mark.parametrize("make", [_meter, _filter])
@pytest.mark.parametrize(
    "change",
    [{"epsilon": value} for value in (None, math.inf, math.nan, -1, True, "1")]
    + [{"delta": value} for value in (0, 1, None, math.nan)]
    + [{"sampling": "shuffle"}, {"adjacency": "zero-out"}],
)
def test_what_is_no_cap_is_refused(make, change):
    with pytest.raises(AccountantError):
        make(**change)


def test_fixed_sampling_of_everything_is_refused_on_the_way_too():
    with pytest.raises(AccountantError, match="smaller than the data set"):
        _meter(sampling="fixed").charge(RoundGroup(1.0, 4.0, 1))


def test_thirty_six_thousand_rounds_of_a_thousand_kinds_take_less_than_three_seconds():
    events = [RoundGroup((1 + i) / 1e6, 4.0 + i / 1000, 1) for i in range(1000)]
    meter = _meter(epsilon=10.0)
    start = time.perf_counter()
    for event in events:  # warm-up: every kind once
        meter.charge(event)
    warm = time.perf_counter()
    for _ in range(35):
        for event in events:
            if not meter.would_exceed(event):
                meter.charge(event)
    end = time.perf_counter()

    assert meter.rounds == 36_000
    assert end - start < 3.0
    assert (end - warm) / 35_000 < 50e-6


# Filters.


@pytest.mark.parametrize("order", [1, 2049, 65, 2.0, True, None])
def test_a_filters_order_is_one_of_the_list(order):
    with pytest.raises(AccountantError, match="order"):
        _filter(order=order)


def test_an_order_that_allows_nothing_is_refused_at_once():
    with pytest.raises(RefusedError, match="larger order"):
        _filter(order=2)


def test_the_claim_of_a_filter_is_its_cap_from_the_first_round_to_the_last():
    capped = _filter()
    first = capped.claim
    while not capped.would_exceed(_EVENT):
        capped.charge(_EVENT)

    assert capped.claim == first
    assert (first.epsilon, first.method, "order 17" in first.method_version) == (1.0, "rdp", True)
    assert 0.99 < capped.reading().epsilon_so_far <= 1.0
    assert "not a guarantee" in capped.reading().label


def test_a_filter_at_the_best_order_allows_nearly_what_a_meter_allows():
    expected = [RoundGroup(0.01, 2.0, 2000)]
    mode = {"epsilon": 1.0, "delta": 1e-5, "sampling": "poisson", "adjacency": "add-remove"}
    meter, capped = Meter(**mode), Filter(**mode, order=streaming.best_order(expected, **mode))
    for total in (meter, capped):
        while not total.would_exceed(_EVENT):
            total.charge(_EVENT)

    assert 0.98 * meter.rounds <= capped.rounds <= meter.rounds


# The planted mistake: going on while any of several orders still allows it.


class _FreeOrders:
    """What a filter must not be: several orders at the same delta, and which one counts is decided by the outputs."""

    def __init__(self, epsilon, delta, orders):
        self._limits = {a: epsilon - rdp.conversions(delta)[rdp.ORDERS.index(a)] for a in orders}
        self._spent = dict.fromkeys(orders, 0.0)

    def charge(self, divergence):
        total = {a: self._spent[a] + divergence(a) for a in self._spent}
        if not any(total[a] <= self._limits[a] for a in total):
            raise BudgetError("", requested=(0, 0), left=(0, 0))
        self._spent = total


class _OneOrder:
    """A real `Filter`, asked in the same way."""

    def __init__(self, epsilon, delta, order):
        self._filter = _filter(epsilon=epsilon, delta=delta, order=order)

    def charge(self, divergence):
        self._filter.charge_divergence(divergence(self._filter.order))


def _two_outcomes(p, loss):
    """The pair whose loss is `loss` with probability p under the first and p e^-loss under the second distribution.

    Returns the loss of the other outcome and the Renyi divergence, the larger of both directions, as a function of the
    order.
    """
    other = math.log1p(-p) - math.log1p(-p * math.exp(-loss))

    def divergence(a):
        forward = np.logaddexp(math.log(p) + (a - 1) * loss, math.log1p(-p) + (a - 1) * other)
        backward = np.logaddexp(math.log(p) - a * loss, math.log1p(-p) - a * other)
        return max(float(forward), float(backward)) / (a - 1)

    return other, divergence


def _delta_reached(make, epsilon, delta, orders, runs, seed):
    """Plays an adversary many times: after a first round it spends all that is left on one improbable large loss,
    shaped for the order that the first outcome favours.

    At order a the first outcomes weigh P e^((a-1) loss): the large order sees one of them, the small order the other,
    and each lets the adversary have nearly all of delta there.

    Returns:
        The mean of (1 - e^(epsilon - loss))+, which is the delta reached, and its standard error.
    """
    low, high = orders
    generator = np.random.default_rng(seed)
    first_p, first_loss = 0.1, 0.5
    other_loss, first_divergence = _two_outcomes(first_p, first_loss)
    gain = {}
    for outcome, (loss, favoured) in {True: (first_loss, high), False: (other_loss, low)}.items():
        target = epsilon + math.log(favoured / (favoured - 1))
        accepted = 0.0
        for p in np.geomspace(delta * 1e-6, 0.5, 1500):  # the largest probability that the filter lets through
            checked = make()
            checked.charge(first_divergence)
            try:
                checked.charge(_two_outcomes(p, target - loss)[1])
            except BudgetError:
                break
            accepted = p
        gain[outcome] = (accepted, loss, target)
    hits = generator.random(runs) < first_p
    draws = generator.random(runs)
    values = np.zeros(runs)
    for outcome, (p, _, target) in gain.items():
        chosen = (hits == outcome) & (draws < p)
        values[chosen] = -math.expm1(epsilon - target)
    return values.mean(), values.std() / math.sqrt(runs)


@pytest.mark.parametrize("order", [2, 20])
def test_a_filter_at_one_order_keeps_delta_against_an_adversary(order):
    """A false alarm needs five standard errors: 3e-7."""
    epsilon, delta = 8.0, 0.002
    mean, error = _delta_reached(lambda: _OneOrder(epsilon, delta, order), epsilon, delta, (2, 20), 400_000, seed=1)

    assert mean <= delta + 5 * error


def test_free_orders_at_the_same_delta_are_caught_by_the_same_adversary():
    """The twin: nearly 2 delta, as two orders need; caught at five standard errors."""
    epsilon, delta = 8.0, 0.002
    mean, error = _delta_reached(lambda: _FreeOrders(epsilon, delta, (2, 20)), epsilon, delta, (2, 20), 400_000, seed=1)

    assert mean > delta + 5 * error
    assert mean > 1.7 * delta
