"""The permissible delay against values worked out by hand."""

import math

import pytest
from hushgrad.client.delay import PermissibleDelay


@pytest.mark.parametrize(
    ("max_delay", "version", "round_", "permitted"),
    [(0, 4, 4, True), (0, 4, 5, False), (1, 4, 5, True), (1, 4, 6, False), (3, 4, 7, True), (3, 4, 8, False)],
)
def test_max_delay_permits_at_most_that_many_rounds_ahead(
    max_delay: int, version: int, round_: int, permitted: bool
) -> None:
    assert PermissibleDelay("max-delay", max_delay, (10,)).permits(version, round_) is permitted


@pytest.mark.parametrize("kind", ["max-delay", "sqrt", "unbounded"])
def test_a_model_that_is_not_behind_always_permits(kind: str) -> None:
    delay = PermissibleDelay(kind, 0, (1, 5, 2))  # type: ignore[arg-type]
    assert all(delay.permits(version, round_) for round_ in range(9) for version in range(round_, 12))


def test_unbounded_permits_any_distance() -> None:
    assert PermissibleDelay("unbounded", 0, (10,)).permits(version=0, round_=10**6)


@pytest.mark.parametrize(
    ("version", "round_", "permitted"),
    [
        # s = 1, i = 100: t = 100, sqrt(100 / ln 100) = sqrt(21.715) = 4.66: four steps, so k >= 96.
        (96, 100, True),
        (95, 100, False),
        # i = 3: t = 3, sqrt(3 / 1.0986) = 1.652: one step.
        (2, 3, True),
        (1, 3, False),
        # i = 2: t = 2 < 3: only the newest model.
        (1, 2, False),
        (2, 2, True),
    ],
)
def test_sqrt_delay_equals_worked_values(version: int, round_: int, permitted: bool) -> None:
    assert PermissibleDelay("sqrt", 0, (1,)).permits(version, round_) is permitted


def test_sqrt_delay_counts_gradients_and_not_rounds() -> None:
    # s = 50 for all: t = 5000 at i = 100, sqrt(5000 / ln 5000) = 24.2 < 50: not even one round.
    assert not PermissibleDelay("sqrt", 0, (50,)).permits(99, 100)
    # The same t made of one large and many small rounds: sqrt(5000 / ln 5000) = 24.2 small steps.
    many = PermissibleDelay("sqrt", 0, (4900, 1))
    assert many.steps_before(101) == 5000
    assert math.isclose(math.sqrt(5000 / math.log(5000)), 24.23, abs_tol=0.01)
    assert many.permits(101 - 24, 101)
    assert not many.permits(101 - 25, 101)


def test_steps_before_repeats_the_last_sample_size() -> None:
    delay = PermissibleDelay("sqrt", 0, (3, 4, 5))
    assert [delay.steps_before(i) for i in range(6)] == [0, 3, 7, 12, 17, 22]


@pytest.mark.parametrize("sizes", [(), (0,), (3, -1)])
def test_sample_sizes_that_are_none_are_refused(sizes: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="sample_sizes must be"):
        PermissibleDelay("sqrt", 0, sizes)
