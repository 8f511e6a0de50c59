"""The paper's slips, each shown with numbers. None of them may reach a claim."""

import json
import math
from pathlib import Path

import pytest
from hushgrad.accountant import (
    RoundGroup,
    as_published,
    claims,
    moments,
    paper_tables,
    procedure,
    sizes,
    theorem2,
    theorem2_inverse,
    theorem3,
    verdict,
)
from hushgrad.accountant.procedure import Phase

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "accountant" / "theory.json").read_text())
_SHORT = {"add-remove": "ar", "replace-one": "ro"}
# Everything depends on N only through s/N and K/N: the row at 10^7 records repeats the first.
_SOUNDNESS = [row for row in GOLDEN["soundness"] if row["N"] < 10**7]


def _printed_r(sigma, alpha):
    """(36), as it is printed."""
    root = math.sqrt(alpha)
    second = math.exp(3) / sigma / (sigma * (1 - alpha) - 2 * math.e * root)
    return 8 * (sigma / (1 - root) ** 2 + second) * math.exp(3 / sigma**2) * (1 - alpha) * alpha


@pytest.mark.parametrize("adjacency", ["add-remove", "replace-one"])
@pytest.mark.parametrize("sampling", ["poisson", "fixed"])
@pytest.mark.parametrize("row", _SOUNDNESS, ids=lambda row: f"N-{row['N']}-s-{row['s']}-{row['delta']:.2g}")
def test_theorem2_is_claimable_exactly_where_the_tight_number_is_not_above_it(row, sampling, adjacency):
    """Slip 1: with a fixed sample size another record leaves when one comes, so a record moves the sum by up to 2 C."""
    found = sizes.constant(row["s"], row["K"])
    epsilon, sigma = theorem2_inverse.at_equality(found, records=row["N"], delta=row["delta"])
    report = theorem2.evaluate(found, records=row["N"], epsilon=epsilon, delta=row["delta"], noise_multiplier=sigma)
    assert (epsilon, sigma) == pytest.approx((row["theorem2"]["eps"], row["theorem2"]["sigma"]), rel=1e-9)
    assert report.holds

    judged = verdict.judge(
        epsilon,
        source="Theorem 2",
        failed=report.failed,
        groups=[RoundGroup(row["s"] / row["N"], sigma, row["T"])],
        sampling=sampling,
        adjacency=adjacency,
        delta=row["delta"],
    )

    mode = f"{sampling}_{_SHORT[adjacency]}"
    assert judged.claim.epsilon == pytest.approx(row[f"eps_{mode}"], rel=5e-3)
    assert judged.claimable == row[f"{mode}_holds"]
    assert (judged.why_not is None) == judged.claimable
    if not judged.claimable:
        assert "does not hold for this sampler: the tight epsilon is" in judged.why_not
        assert judged.why_not.count(". ") == 0


def test_theorem2_was_true_for_poisson_sampling_wherever_it_was_tried():
    """A grid, not a proof: with its conditions as equalities the paper's epsilon is 1.8 times the tight one or more."""
    tried = 0
    for epochs in (2, 20, 100):
        for share in (1e-3, 3e-3, 1e-2):
            records = 10_000
            found = sizes.constant(round(share * records), epochs * records)
            for delta in (1e-4, 1e-8):
                epsilon, sigma = theorem2_inverse.at_equality(found, records=records, delta=delta)
                report = theorem2.evaluate(found, records=records, epsilon=epsilon, delta=delta, noise_multiplier=sigma)
                group = RoundGroup(share, sigma, math.ceil(found.rounds))
                if report.holds:
                    tried += 1
                    tight = claims.from_schedule([group], sampling="poisson", adjacency="add-remove", delta=delta)
                    assert epsilon >= 1.8 * tight.epsilon
    assert tried >= 10


def test_a_loose_number_confirms_but_never_disproves():
    """At delta = 1e-18 only Renyi accounting answers, which is an upper bound and not the truth."""
    groups = [RoundGroup(1e-3, 9.0, 100_000)]
    setting = {"source": "Theorem 2", "failed": (), "groups": groups, "sampling": "poisson", "adjacency": "add-remove"}

    high = verdict.judge(50.0, delta=1e-18, **setting)
    low = verdict.judge(1e-6, delta=1e-18, **setting)

    assert high.claim.method == "rdp"
    assert high.claimable
    assert not low.claimable
    assert "cannot be confirmed" in low.why_not


def test_slip_1_fixed_sampling_costs_what_poisson_sampling_costs_with_half_the_noise():
    fixed = claims.from_schedule([RoundGroup(0.01, 4.0, 500)], sampling="fixed", adjacency="add-remove", delta=1e-5)
    halved = claims.from_schedule([RoundGroup(0.01, 2.0, 500)], sampling="poisson", adjacency="add-remove", delta=1e-5)

    assert fixed.epsilon == halved.epsilon


def _growth(order, q, sigma):
    """The left side of the step to U0 in Lemma 1's proof, over its right side: sqrt(lambda q e^(lambda / sigma^2))."""
    return math.sqrt(order * q * math.exp(order / sigma**2))


def test_slip_2_the_step_to_u0_is_false_where_every_premise_holds():
    """The proof needs lambda q e^(lambda / sigma^2) <= 1. Theorem 3 uses lambda up to sigma^2."""
    worst = 0.0
    for sigma in (3.0, 10.0, 30.0, 100.0):
        for r0 in (0.01, 0.1, 1 / math.e):
            q = r0 / sigma
            order = math.floor(sigma**2 * (1 - 1e-9))
            records = 10**7
            premises = moments.lemma1_premises(
                order, sample_size=round(q * records), records=records, noise_multiplier=sigma
            )
            if all(premise.holds for premise in premises):
                worst = max(worst, _growth(order, q, sigma))
    # At lambda = sigma^2 and q = 1 / (e sigma) the factor is sqrt(sigma).
    assert worst > 9.9
    # For lambda <= sigma the premise gives it: lambda q <= r0 and e^(lambda / sigma^2) <= e^(1 / sigma).
    assert _growth(10, 0.1 / 10.0, 10.0) < 1


def test_slip_3_the_last_terms_exceed_the_geometric_series():
    """The series needs t + 2 <= lambda, the sum goes to t = lambda + 1; the excess is at most e^1.5."""
    sigma, q = 10.0, 1e-3
    order = 100  # sigma^2

    def log_term(t):
        return t * (math.log(2 * order * q / ((1 - q) * sigma)) + (t - 1) / (2 * sigma**2))

    log_ratio = math.log(2 * order * q / ((1 - q) * sigma)) + order / (2 * sigma**2)
    excess = [log_term(t) - log_term(3) - (t - 3) * log_ratio for t in range(4, order + 2)]

    assert [t for t, value in enumerate(excess, start=4) if value > 1e-12] == [order - 1, order, order + 1]
    assert 1.4 < max(excess) <= 1.5


def test_slip_4_the_simplified_r_is_smaller_than_the_r_of_theorem_3():
    """1/(1-u0) is (1-a)/(1 - a - 2 sqrt a); (36) has (1 - sqrt a)^2, which is larger by 2 a."""
    sigma = 12.0
    for alpha in (0.001, 0.01, 0.1):
        *_, exact = theorem3.constants(sigma, alpha * sigma)
        assert _printed_r(sigma, alpha) < exact
    # And a bound is missing from (34): at a = 3 - 2 sqrt 2 = 0.1716 u0 reaches 1, where (36) is still finite.
    edge = 3 - 2 * math.sqrt(2)
    assert theorem3.constants(sigma, edge * 1.001 * sigma)[0] > 1
    assert math.isfinite(_printed_r(sigma, edge * 1.001))


def test_slip_5_equation_35_has_a_stray_epsilon():
    """Its second expression is h at (12)'s right-hand side only without the "/ epsilon" under its second root."""

    def printed(epsilon, L):
        first = math.sqrt(1 + math.e**2 * epsilon / (2 * (epsilon + L)))
        return (first - math.e * math.sqrt(epsilon) / math.sqrt(2 * (epsilon + L) / epsilon)) ** 2

    L = -math.log(1e-5)
    at = {epsilon: theorem2.h(theorem2.noise_at_equality(epsilon, 1e-5)) for epsilon in (0.1, 1.0, 4.0)}
    assert printed(1.0, L) == pytest.approx(at[1.0])
    assert printed(0.1, L) > 1.05 * at[0.1]
    assert printed(4.0, L) > 1.7 * at[4.0]


def test_slip_6_the_stop_test_is_signed_so_gamma_is_updated_once_and_too_large():
    for row in paper_tables.ROWS:
        constant = sizes.constant(row.sample_size, row.grad_computations)
        setting = {"records": row.records, "delta": 1 / row.records}
        signed = as_published.iterate(constant, stop="signed", **setting)
        converged = as_published.iterate(constant, stop="absolute", **setting)

        assert len(signed.trace) == 3
        assert len(converged.trace) > 4
        assert 1.05 < signed.gamma / converged.gamma < 1.28


def test_slip_7_scanning_up_from_1_gives_up_although_there_are_many_valid_sizes():
    """N = 10,000, 500 rounds of 50, then K = 25,000 at sigma = 8 within epsilon 0.5: s = 1 is the worst size."""
    setting = {"records": 10_000, "grad_computations": 25_000, "epsilon_allowed": 0.5, "noise_multiplier": 8.0}

    literal = as_published.scan([(50, 500)], stop="signed", **setting)
    whole = as_published.scan([(50, 500)], stop="signed", whole_range=True, **setting)
    plan = procedure.plan([Phase(((50, 500),), 18.05)], delta=1e-4, **setting)

    assert literal is None
    assert [found.sizes.runs[-1][0] for found in whole] == [13, 87]
    assert plan.valid == (8, 112)


def test_slip_8_noise_is_independent_of_the_number_of_rounds_only_at_fixed_k():
    def tight(size, rounds):
        group = RoundGroup(size / 60_000, 12.10881, rounds)
        return claims.from_schedule([group], sampling="poisson", adjacency="add-remove", delta=1 / 60_000).epsilon

    # At fixed s, epsilon grows like the root of T ...
    assert tight(100, 14_400) == pytest.approx(2 * tight(100, 3600), rel=0.1)
    # ... and at fixed K it falls with more rounds, because batches get smaller; Theorem 2 sees no difference.
    assert tight(370, 973) > 2 * tight(100, 3600) > 2 * tight(10, 36_000)
    by_theorem2 = {
        theorem2_inverse.smallest_epsilon(
            sizes.constant(size, 360_000), records=60_000, delta=1 / 60_000, noise_multiplier=12.10881
        )
        for size in (10, 100, 370)
    }
    assert len(by_theorem2) == 1


def test_lemma1_holds_on_a_grid_although_its_proof_does_not():
    """No counter-example to the statement itself is known: exact over bound stays below 0.86."""
    worst = 0.0
    for sigma in (1.1, 2.0, 5.0, 20.0):
        for r0 in (1e-3, 0.03, 0.3):
            size = max(1, round(r0 / sigma * 10**6))
            for order in {1, 2, math.ceil(sigma), math.floor(sigma**2)}:
                bound = moments.lemma1_bound(order, sample_size=size, records=10**6, noise_multiplier=sigma)
                if bound is not None:
                    exact = moments.log_moment(order, sampling_probability=size / 10**6, noise_multiplier=sigma)
                    worst = max(worst, exact / bound)
    assert 0.5 < worst < 0.86
