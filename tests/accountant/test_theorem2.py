"""Theorem 2 against golden numbers, against its own definition, and with input that makes no sense."""

import json
import math
import random
from pathlib import Path

import pytest
from hushgrad.accountant import AccountantError, sizes, theorem2, theorem2_answer, theorem2_inverse
from hushgrad.accountant.sizes import SampleSizes

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "accountant" / "theory.json").read_text())
NINE_DIGITS = 1e-9


def sequence(mean: float, theta: float, total: float) -> SampleSizes:
    """Returns a sequence with that mean, quotient and sum: two sizes, the smaller one 1."""
    if theta == 1:
        return sizes.constant(int(mean), total)
    largest, rounds = round(mean * theta), total / mean
    large = (total - rounds) / (largest - 1)
    return SampleSizes(((largest, large), (1, rounds - large)))


def _printed_formula(sigma, alpha):
    """The right-hand side of (52) as it is written, without any care for where it makes sense."""
    root = math.sqrt(alpha)
    inner = sigma / (1 - root) ** 2 + math.exp(3) / sigma / (sigma * (1 - alpha) - 2 * math.e * root)
    return 2 / (1 - alpha) + 16 * alpha / (1 - alpha) * inner * math.exp(3 / sigma**2)


@pytest.mark.parametrize("row", GOLDEN["h_g"], ids=lambda row: f"x-{row['x']}")
def test_h_and_g_are_the_golden_numbers(row):
    assert theorem2.h(row["x"]) == pytest.approx(row["h"], rel=1e-13)
    assert theorem2.g(row["x"]) == pytest.approx(row["g"], rel=1e-13)


@pytest.mark.parametrize("row", GOLDEN["gamma"], ids=lambda row: f"sigma-{row['sigma']}-x-{row['epsN_over_K']}")
def test_gamma_is_the_golden_number_for_either_proof(row):
    sigma, x = row["sigma"], row["epsN_over_K"]

    assert theorem2.gamma(sigma, x) == pytest.approx(row["gamma"], rel=1e-10)
    assert x / theorem2.gamma(sigma, x) == pytest.approx(row["abar"], rel=1e-10)
    assert theorem2.gamma(sigma, x, "repaired") == pytest.approx(row["gamma_corrected"], rel=1e-10)
    assert theorem2.gamma_bound(sigma, x / 2) == pytest.approx(float(row["rhs_at_gamma2"]), rel=1e-10)


@pytest.mark.parametrize("row", GOLDEN["theorem2"], ids=lambda row: f"N-{row['N']}-s-{row['sbar']}-eps-{row['eps']}")
def test_conditions_have_the_golden_sides(row):
    report = theorem2.evaluate(
        sequence(row["sbar"], row["theta"], row["K"]),
        records=row["N"],
        epsilon=row["eps"],
        delta=row["delta"],
        noise_multiplier=row["sigma"],
    )

    assert [condition.name for condition in report.conditions] == ["9", "10", "11", "12"]
    for condition in report.conditions:
        expected = row["conditions"][condition.name]
        assert condition.lhs == pytest.approx(expected["lhs"], rel=NINE_DIGITS)
        assert condition.rhs == pytest.approx(expected["rhs"], rel=NINE_DIGITS)
        assert condition.holds == expected["ok"]
    assert report.holds == row["ok"]
    assert (report.gamma, report.alpha_bar) == pytest.approx((row["gamma"], row["abar"]), rel=NINE_DIGITS)


@pytest.mark.parametrize("row", GOLDEN["smallest_epsilon"], ids=lambda row: f"N-{row['N']}-s-{row['s']}")
def test_smallest_epsilon_on_equality_of_12_is_the_golden_number(row):
    found = sequence(row["s"], row["theta"], row["K"])
    for proof, expected in (("printed", row), ("repaired", row["corrected"])):
        epsilon, sigma = theorem2_inverse.at_equality(found, records=row["N"], delta=row["delta"], proof=proof)
        report = theorem2.evaluate(
            found, records=row["N"], epsilon=epsilon, delta=row["delta"], noise_multiplier=sigma, proof=proof
        )

        assert (epsilon, sigma) == pytest.approx((expected["eps"], expected["sigma"]), rel=NINE_DIGITS)
        assert report.gamma == pytest.approx(expected["gamma"], rel=NINE_DIGITS)
        assert report.holds


@pytest.mark.parametrize("row", GOLDEN["largest_sample_size"], ids=lambda row: f"N-{row['N']}-{row.get('eps')}")
def test_largest_sample_size_is_the_golden_number(row):
    epsilon = float(row["eps"])
    if row["s"] is None:  # sigma <= sqrt 2
        assert math.isinf(epsilon)
        assert math.isinf(theorem2_inverse.epsilon_of_noise(row["sigma"], row["delta"]))
        return
    by_noise = "T" not in row
    if by_noise:
        assert theorem2_inverse.epsilon_of_noise(row["sigma"], row["delta"]) == pytest.approx(epsilon, rel=NINE_DIGITS)

    found = theorem2_inverse.largest_sample_size(
        records=row["N"],
        grad_computations=row["K"],
        epsilon=epsilon,
        delta=row["delta"],
        noise_multiplier=row["sigma"] if by_noise else None,
    )

    assert found is not None
    assert found[0] == row["s"]
    assert found[1] == row.get("T", math.ceil(row["K"] / row["s"]))


def _random_settings(count):
    generator = random.Random(20210217)
    for _ in range(count):
        records = round(10 ** generator.uniform(2.5, 6))
        size = max(1, round(records * 10 ** generator.uniform(-5, -1.3)))
        yield (
            records,
            sizes.constant(size, max(size, round(records * 10 ** generator.uniform(0, 2.5)))),
            10 ** generator.uniform(-9, -3),
            generator.uniform(1.5, 60),
        )


def test_gamma_solves_its_equation_and_stays_on_the_branch():
    for records, found, delta, sigma in _random_settings(300):
        epsilon = theorem2_inverse.epsilon_of_noise(sigma, delta)
        x = epsilon * records / found.grad_computations
        gamma = theorem2.gamma(sigma, x)

        assert gamma == pytest.approx(theorem2.gamma_bound(sigma, x / gamma), rel=1e-9)
        assert x / gamma < theorem2.h(sigma)
        # Smallest: a little less gamma, and the inequality is violated.
        assert gamma * (1 - 1e-6) < theorem2.gamma_bound(sigma, x / (gamma * (1 - 1e-6)))


def test_a_smaller_gamma_off_the_branch_is_spurious():
    """The inequality as printed is met by gammas whose denominators are negative; they are no solutions."""
    sigma, x = 2.0, 1.6
    spurious = x / (1.3 * theorem2.h(sigma))

    assert _printed_formula(sigma, x / spurious) < 0 < spurious < theorem2.gamma(sigma, x)
    assert theorem2.gamma_bound(sigma, x / spurious) == math.inf


def test_formula_is_the_printed_one_on_the_branch():
    for sigma in (1.5, 3.0, 10.0, 35.0):
        for share in (1e-6, 0.01, 0.5, 0.9):
            alpha = share * theorem2.h(sigma)
            assert theorem2.gamma_bound(sigma, alpha) == pytest.approx(_printed_formula(sigma, alpha), rel=1e-12)


def test_every_answer_meets_the_conditions_and_nothing_smaller_does():
    for records, found, delta, sigma in _random_settings(150):
        for answer in (
            theorem2_inverse.at_equality(found, records=records, delta=delta),
            (
                theorem2_inverse.smallest_epsilon(found, records=records, delta=delta, noise_multiplier=sigma),
                sigma,
            ),
        ):
            if answer is None or math.isinf(answer[0]):
                continue
            epsilon, noise = answer
            here = theorem2.evaluate(found, records=records, epsilon=epsilon, delta=delta, noise_multiplier=noise)
            below = theorem2.evaluate(
                found, records=records, epsilon=epsilon * (1 - 1e-6), delta=delta, noise_multiplier=noise
            )
            assert {condition.name for condition in here.failed} <= {"9"}
            assert not below.holds


def test_the_smallest_epsilon_over_all_noise_is_never_above_any_other():
    for records, found, delta, sigma in _random_settings(100):
        best = theorem2_inverse.smallest(found, records=records, delta=delta)
        assert best is not None
        equal = theorem2_inverse.at_equality(found, records=records, delta=delta)
        given = theorem2_inverse.smallest_epsilon(found, records=records, delta=delta, noise_multiplier=sigma)
        assert best[0] <= given * (1 + 1e-9)
        assert equal is None or best[0] <= equal[0] * (1 + 1e-9)


def test_more_noise_than_equality_asks_for_can_allow_a_smaller_epsilon():
    """The sixth golden row: 48.36 with (12) as an equality, 5.56 with nearly three times its noise."""
    found = sequence(20, 3, 100_000)

    epsilon, sigma = theorem2_inverse.smallest(found, records=5000, delta=1e-4)
    report = theorem2.evaluate(found, records=5000, epsilon=epsilon, delta=1e-4, noise_multiplier=sigma)

    assert report.holds
    assert epsilon == pytest.approx(5.564, rel=1e-3)
    assert epsilon < theorem2_inverse.at_equality(found, records=5000, delta=1e-4)[0] / 8


def test_the_smallest_epsilon_is_that_of_a_search_over_all_noise():
    """Table 4's last row: the paper's way gives 1.774, more noise 1.711."""
    found = sizes.constant(400, 50_000)

    def epsilon_at(sigma):
        return theorem2_inverse.smallest_epsilon(found, records=10_000, delta=1e-4, noise_multiplier=sigma)

    searched = min(epsilon_at(1.5 + 0.001 * step) for step in range(10_000))
    assert theorem2_inverse.smallest(found, records=10_000, delta=1e-4)[0] == pytest.approx(searched, rel=1e-6)
    assert theorem2_inverse.at_equality(found, records=10_000, delta=1e-4)[0] > 1.03 * searched


def test_condition_9_holds_exactly_inside_its_range():
    """Both limits bind: raising epsilon can break (9)."""
    found = sizes.constant(1000, 100_000)
    low, high = theorem2_inverse.epsilon_range(found, records=10_000, delta=1e-4)
    assert 0 < low < high < math.inf

    def ninth(epsilon):
        return (
            theorem2.evaluate(found, records=10_000, epsilon=epsilon, delta=1e-4, noise_multiplier=5.0)
            .conditions[0]
            .holds
        )

    assert [ninth(epsilon) for epsilon in (low * 0.999, low * 1.001, high * 0.999, high * 1.001)] == [
        False,
        True,
        True,
        False,
    ]


def test_no_epsilon_meets_9_for_very_large_samples():
    low, high = theorem2_inverse.epsilon_range(sizes.constant(400, 1000), records=1000, delta=1e-4)

    assert low > high


def test_more_records_or_fewer_rounds_never_raise_epsilon():
    for records, found, delta, sigma in _random_settings(100):
        here = theorem2_inverse.smallest_epsilon(found, records=records, delta=delta, noise_multiplier=sigma)
        easier = theorem2_inverse.smallest_epsilon(found, records=2 * records, delta=delta, noise_multiplier=sigma)
        longer = sizes.constant(found.largest, 2 * found.grad_computations)
        harder = theorem2_inverse.smallest_epsilon(longer, records=records, delta=delta, noise_multiplier=sigma)
        assert easier <= here <= harder


def test_a_polynomial_sequence_has_theta_near_p_plus_one():
    """(56): s_i = q i^p has theta -> p + 1."""
    for power in (1.0, 2.0, 0.5):
        assert sizes.polynomial(3.0, power, 20_000).theta == pytest.approx(power + 1, rel=1e-2)


def test_whole_rounds_add_up_and_move_theta_a_little():
    found = sizes.whole_rounds(26, 50_000)

    assert found.grad_computations == 50_000
    assert found.rounds == 1924
    assert 1 < found.theta < 1.001


def test_an_answer_says_which_condition_leaves_no_epsilon():
    found = sizes.constant(26, 50_000)
    little_noise = theorem2_answer.answer(found, records=10_000, delta=1e-4, noise_multiplier=1.4)
    large_samples = theorem2_answer.answer(
        sizes.constant(4000, 50_000), records=10_000, delta=1e-4, noise_multiplier=3.0
    )

    assert (little_noise.epsilon, little_noise.gamma) == (None, None)
    assert little_noise.failed[-1].name == "12"
    assert large_samples.epsilon is None
    assert "11" in {condition.name for condition in large_samples.failed}


def test_far_out_numbers_are_answered_or_refused_and_nothing_else():
    generator = random.Random(7)
    refused = 0
    for _ in range(300):
        records = int(10 ** generator.choice([0.0, 1.0, 6.0, 15.0, 300.0, generator.uniform(0, 12)]))
        size = generator.choice([1, records, max(1, records // 2), int(10 ** generator.uniform(0, 6))])
        setting = {"records": records, "delta": generator.choice([5e-324, 1e-300, 1e-9, 0.5, 1 - 1e-16])}
        noise_multiplier = generator.choice([None, 10 ** generator.uniform(-320, 308), 10 ** generator.uniform(-3, 3)])
        epsilon = generator.choice([None, 10 ** generator.uniform(-320, 308), 10 ** generator.uniform(-3, 3)])
        try:
            found = sizes.constant(size, size * int(10 ** generator.choice([0.0, 3.0, 200.0])))
            theorem2_answer.answer(found, epsilon=epsilon, noise_multiplier=noise_multiplier, **setting)
            theorem2_inverse.smallest(found, **setting)
        except AccountantError:
            refused += 1
    assert 50 < refused < 290  # both happen


_GOOD = {"records": 1000, "epsilon": 0.5, "delta": 1e-5, "noise_multiplier": 8.0}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("noise_multiplier", 0.0),
        ("noise_multiplier", -1.0),
        ("noise_multiplier", math.nan),
        ("noise_multiplier", math.inf),
        ("noise_multiplier", True),
        ("noise_multiplier", None),
        ("epsilon", 0.0),
        ("epsilon", -0.5),
        ("epsilon", math.nan),
        ("epsilon", math.inf),
        ("epsilon", True),
        ("delta", 0.0),
        ("delta", 1.0),
        ("delta", math.nan),
        ("delta", -1e-5),
        ("records", 0),
        ("records", -5),
        ("records", 9),
        ("records", 1000.0),
        ("records", True),
    ],
)
def test_bad_numbers_are_refused_by_name(name, value):
    with pytest.raises(AccountantError, match=name if value != 9 else "sample size"):
        theorem2.evaluate(sizes.constant(10, 2000), **{**_GOOD, name: value})


@pytest.mark.parametrize(
    "make",
    [
        lambda: sizes.constant(0, 10),
        lambda: sizes.constant(-1, 10),
        lambda: sizes.constant(True, 10),
        lambda: sizes.constant(11, 10),
        lambda: sizes.constant(5, math.nan),
        lambda: sizes.constant(5, 10**400),
        lambda: SampleSizes(()),
        lambda: SampleSizes(((5, 0),)),
        lambda: SampleSizes(((5, -1),)),
        lambda: SampleSizes(((5.0, 1),)),
        lambda: sizes.listed([]),
        lambda: sizes.polynomial(0.0, 1.0, 10),
        lambda: sizes.polynomial(1.0, -1.0, 10),
        lambda: sizes.polynomial(1.0, 1.0, 0),
        lambda: sizes.polynomial(1.0, 400.0, 1000),
        lambda: sizes.polynomial(1.0, 1.0, 10**9),
        lambda: sizes.whole_rounds(5, 0),
    ],
)
def test_sequences_that_make_no_sense_are_refused(make):
    with pytest.raises(AccountantError):
        make()
