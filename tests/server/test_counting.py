"""Numbers that only grow: durations fall into the right bucket, and refusals are named by a fixed set of words."""

from hushgrad.server import counting
from hushgrad.server.counting import Counters, Histogram
from hushgrad.server.records import Answer


def test_a_duration_at_a_bound_counts_as_below_it() -> None:
    histogram = Histogram((0.1, 1.0))
    for seconds in (0.0, 0.1, 0.100001, 1.0, 7.0):
        histogram.observe(seconds)
    assert histogram.counts == [2, 2, 1]
    assert (histogram.count, round(histogram.total, 6)) == (5, 8.200001)


def test_a_refusal_is_counted_under_its_reason_whatever_was_called() -> None:
    counters = Counters()
    counters.updates[Answer.INVALID] += 2
    counters.answers[Answer.INVALID] += 1
    counters.updates[Answer.ACCEPTED] += 5
    counters.updates[Answer.DUPLICATE] += 1
    counters.refused[counting.TOO_FAST] += 3
    refusals = counters.refusals()
    assert tuple(refusals) == counting.REASONS
    assert {reason: count for reason, count in refusals.items() if count} == {"invalid": 3, "too_fast": 3}


def test_only_an_accepted_update_is_remembered_as_its_senders_last() -> None:
    counters = Counters()
    counters.updated("client-1", Answer.ACCEPTED, 0.01, 100.0)
    counters.updated("client-1", Answer.DUPLICATE, 0.01, 200.0)
    counters.updated("anybody's name", Answer.UNKNOWN_PARTICIPANT, 0.01, 300.0)
    assert counters.last_update_at == {"client-1": 100.0}
    assert counters.update_seconds.count == 3
