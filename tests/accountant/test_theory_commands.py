"""The theory verbs of `hushgrad-accountant`: their keys, verdicts, exit codes, and one line for every mistake."""

import json
import sys
from pathlib import Path

import pytest
from hushgrad.accountant import __main__ as entry

_CLAIM = {"epsilon", "delta", "adjacency", "sampling", "unit", "method", "method_version"}
_THEOREM2_KEYS = [
    "gamma",
    "alpha_bar",
    "theta",
    "mean_sample_size",
    "paper_epsilon",
    "noise_multiplier",
    "conditions",
    "claim",
    "claimable",
    "why_not",
]
_SETTING = "theorem2 --records 10000 --grad-computations 50000 --sample-size 26 --delta 1e-4"


@pytest.fixture
def run(capsys, monkeypatch):
    def answer(arguments):
        monkeypatch.setattr(sys, "argv", ["hushgrad-accountant", *arguments.split()])
        with pytest.raises(SystemExit) as ended:
            entry.main()
        output = capsys.readouterr()
        return ended.value.code or 0, output.out, output.err

    return answer


def _answer(run, arguments):
    code, out, _ = run(f"{arguments} --json")
    assert code == 0
    return json.loads(out)


def _no_bare_epsilon(value, inside_claim=False):
    if isinstance(value, dict):
        assert inside_claim or "epsilon" not in value
        for key, inner in value.items():
            _no_bare_epsilon(inner, key.startswith("claim"))
    elif isinstance(value, list):
        for inner in value:
            _no_bare_epsilon(inner)


def test_theorem2_has_exactly_the_agreed_keys(run):
    """Numbers: the smallest epsilon of Theorem 2 at table 4's first sample size, (12) with equality."""
    answer = _answer(run, _SETTING)

    assert list(answer) == _THEOREM2_KEYS
    assert list(answer["conditions"]) == ["9", "10", "11", "12"]
    assert all({"lhs", "rhs", "holds"} <= set(condition) for condition in answer["conditions"].values())
    assert set(answer["claim"]) == _CLAIM
    assert answer["paper_epsilon"] == pytest.approx(0.03924575278092563, rel=1e-9)
    assert answer["noise_multiplier"] == pytest.approx(21.71099944334641, rel=1e-9)
    assert answer["gamma"] == pytest.approx(3.0189040600712027, rel=1e-9)
    assert (answer["claimable"], answer["why_not"]) == (True, None)


def test_the_counter_example_is_not_claimable(run):
    """N = 10,000, s = 10, 200 epochs, delta = 1e-7: every condition holds and the epsilon is not true."""
    setting = "theorem2 --records 10000 --grad-computations 2000000 --sample-size 10 --delta 1e-7"

    fixed = _answer(run, f"{setting} --sampling fixed")
    poisson = _answer(run, f"{setting} --sampling poisson")

    assert all(condition["holds"] for condition in fixed["conditions"].values())
    assert fixed["paper_epsilon"] == pytest.approx(0.4323744738671615, rel=1e-9)
    assert fixed["claimable"] is False
    assert fixed["claim"]["epsilon"] == pytest.approx(0.4646, rel=5e-3)
    assert "does not hold for this sampler: the tight epsilon is 0.46" in fixed["why_not"]
    assert fixed["why_not"].endswith(".")
    assert "\n" not in fixed["why_not"]
    assert poisson["claimable"] is True
    assert poisson["claim"]["epsilon"] == pytest.approx(0.2211, rel=5e-3)


def test_replace_one_is_judged_by_its_own_tight_number(run):
    setting = "theorem2 --records 10000 --grad-computations 2000000 --sample-size 10 --delta 1e-7"

    answer = _answer(run, f"{setting} --adjacency replace-one")

    assert answer["claim"]["adjacency"] == "replace-one"
    assert answer["claim"]["epsilon"] == pytest.approx(0.4577, rel=5e-3)
    assert answer["claimable"] is False


def test_a_failed_condition_is_named_with_both_sides(run):
    answer = _answer(run, f"{_SETTING} --noise-multiplier 19.29962 --epsilon 0.04945")

    assert answer["claimable"] is False
    assert answer["conditions"]["12"]["holds"] is False
    assert answer["why_not"] == ("Theorem 2 does not apply: condition (12) fails, 19.2996 is not >= 19.3523.")


def test_as_published_gives_the_table_and_is_never_claimable(run):
    """Table 4, row 0.25: sigma 8.59143 printed, 8.5914307 before it was cut."""
    answer = _answer(
        run, "theorem2 --records 10000 --grad-computations 50000 --sample-size 103 --delta 1e-4 --as-published"
    )

    assert list(answer) == _THEOREM2_KEYS
    assert answer["noise_multiplier"] == pytest.approx(8.59143, abs=2e-5)
    assert answer["paper_epsilon"] == pytest.approx(0.24955983741154217, rel=1e-9)
    assert answer["claimable"] is False
    assert "no claim" in answer["why_not"]
    assert answer["claim"]["epsilon"] < answer["paper_epsilon"]


def test_as_published_takes_the_printed_digits_of_delta_as_one_over_n(run):
    answer = _answer(
        run, "theorem2 --records 60000 --grad-computations 360000 --sample-size 370 --delta 1.667e-5 --as-published"
    )

    assert answer["noise_multiplier"] == pytest.approx(12.10881, abs=2e-5)
    assert answer["claim"]["delta"] == 1 / 60_000


def test_sizes_and_polynomial_describe_a_sequence(run):
    listed = _answer(run, "theorem2 --records 60000 --sizes 50x100,150x100 --delta 1e-6")
    linear = _answer(run, "theorem2 --records 60000 --polynomial 3,1,60 --delta 1e-6")

    assert (listed["theta"], listed["mean_sample_size"]) == (1.5, 100.0)
    assert linear["theta"] == pytest.approx(2.0, rel=0.02)


def test_without_a_sample_size_the_largest_one_is_found(run):
    """Golden: s = 31 at epsilon 0.05."""
    answer = _answer(run, "theorem2 --records 10000 --grad-computations 50000 --epsilon 0.05 --delta 1e-4")

    assert answer["mean_sample_size"] == 31
    assert all(condition["holds"] for condition in answer["conditions"].values())


def test_no_epsilon_at_all_is_null_and_says_why(run):
    answer = _answer(run, f"{_SETTING} --noise-multiplier 1.4")

    assert (answer["paper_epsilon"], answer["gamma"], answer["claimable"]) == (None, None, False)
    assert "condition (12)" in answer["why_not"]
    assert set(answer["claim"]) == _CLAIM


@pytest.mark.parametrize(
    ("arguments", "keys"),
    [
        (
            "theorem1 --records 10000 --sample-size 26 --rounds 500 --noise-multiplier 19 --delta 1e-5",
            {"statement", "z", "implied_c1", "implied_c2", "moments_epsilon", "order"},
        ),
        (
            "theorem3 --records 10000 --sizes 10x100,20x100 --noise-multiplier 12 --delta 1e-5",
            {"moments", "rho", "rho_hat", "r0", "r", "u0", "u1", "c0", "c1", "branch", "conditions", "paper_epsilon"},
        ),
        (
            "moments --records 10000 --schedule 10:200:10,20:100:8 --delta 1e-5",
            {"moments_epsilon", "moments_order", "paper_epsilon", "paper_order", "conditions"},
        ),
        (
            "procedure --records 10000 --grad-computations 20000 --epsilon-allowed 0.1 --delta 1e-5",
            {"phases", "schedule", "assumes", "conditions", "paper_epsilon", "noise_multiplier"},
        ),
    ],
)
def test_every_verb_ends_with_a_claim_and_a_verdict(run, arguments, keys):
    answer = _answer(run, arguments)

    assert keys <= set(answer)
    assert list(answer)[-3:] == ["claim", "claimable", "why_not"]
    assert set(answer["claim"]) == _CLAIM
    _no_bare_epsilon(answer)

    code, out, _ = run(arguments)
    assert code == 0
    assert "differential privacy of every single record" in out


def test_moments_of_fixed_sampling_are_those_of_half_the_noise(run):
    setting = "moments --records 10000 --sample-size 50 --rounds 100 --delta 1e-5"

    fixed = _answer(run, f"{setting} --noise-multiplier 8 --sampling fixed")
    poisson = _answer(run, f"{setting} --noise-multiplier 4")

    assert fixed["moments_epsilon"] == poisson["moments_epsilon"]
    assert _answer(run, f"{setting} --noise-multiplier 4 --adjacency replace-one")["moments_epsilon"] is None


def test_procedure_plans_a_ladder_whose_schedule_epsilon_accepts(run):
    ladder = _answer(
        run,
        "procedure --records 10000 --grad-computations 20000 --epsilon-allowed 0.05 --further 20000:8:0.5 --delta 1e-5",
    )
    claim = _answer(
        run,
        "epsilon --sampling poisson --adjacency add-remove --records 10000 --delta 1e-5 --schedule "
        + ladder["schedule"],
    )

    assert len(ladder["phases"]) == 2
    assert ladder["assumes"]
    assert claim.get("claim", claim)["epsilon"] == ladder["claim"]["epsilon"]


def test_procedure_as_published_gives_up_where_the_repaired_one_plans(run):
    setting = (
        "procedure --records 10000 --grad-computations 25000 --epsilon-allowed 0.5 --noise-multiplier 8 "
        "--earlier 50:500:18.05 --delta 1e-4"
    )

    published = _answer(run, f"{setting} --as-published")
    repaired = _answer(run, setting)

    assert (published["sample_size"], published["claim"], published["claimable"]) == (None, None, False)
    assert repaired["phases"][0]["valid_sample_sizes"] == [8, 112]


def test_a_budget_that_no_sample_size_meets_is_refused(run):
    code, out, err = run("procedure --records 100 --grad-computations 200 --epsilon-allowed 0.01 --delta 1e-5")

    assert (code, out) == (3, "")
    assert err.startswith("error: no sample size keeps Theorem 2 within epsilon 0.01")
    assert err.count("\n") == 1


def test_tables_show_printed_digits_beside_tight_claims(run):
    answer = _answer(run, "tables --table 4")
    code, out, _ = run("tables --table 4")

    assert [row["published_sigma"] == row["printed_sigma"] for row in answer["rows"]] == [False, *[True] * 5]
    assert set(answer["rows"][0]["claim_poisson"]) == _CLAIM
    _no_bare_epsilon(answer)
    assert code == 0
    assert "no guarantee" in out


@pytest.mark.parametrize(
    "arguments",
    [
        f"{_SETTING} --noise-multiplier 0",
        f"{_SETTING} --noise-multiplier -3",
        f"{_SETTING} --noise-multiplier nan",
        f"{_SETTING} --noise-multiplier inf",
        f"{_SETTING} --noise-multiplier true",
        f"{_SETTING} --noise-multiplier 1e-300",
        f"{_SETTING} --noise-multiplier 1e200",
        f"{_SETTING} --epsilon 1e300",
        f"theorem2 --records {10**400} --grad-computations 100 --sample-size 10 --delta 1e-5",
        f"theorem2 --records 100 --grad-computations {10**400} --sample-size 10 --delta 1e-5",
        f"{_SETTING} --epsilon 0",
        f"{_SETTING} --sizes 10x10",
        f"{_SETTING} --as-published --epsilon 1",
        f"{_SETTING} --sampling shuffle",
        "theorem2 --records 10000 --grad-computations 50000 --sample-size 26 --delta 1e-5 --as-published",
        "theorem2 --records 10000 --grad-computations 50000 --sample-size 26 --delta 0",
        "theorem2 --records 10000 --grad-computations 50000 --sample-size 26 --delta 1",
        "theorem2 --records 10000 --grad-computations 50000 --sample-size 26 --delta nan",
        "theorem2 --records 10000 --grad-computations 50000 --sample-size 26 --delta 1e-3",
        "theorem2 --records 10000 --grad-computations 50000 --sample-size 0 --delta 1e-5",
        "theorem2 --records 10000 --grad-computations 50000 --sample-size -1 --delta 1e-5",
        "theorem2 --records 10000 --grad-computations 50000 --sample-size 10001 --delta 1e-5",
        "theorem2 --records 10000 --grad-computations 0 --sample-size 10 --delta 1e-5",
        "theorem2 --records 0 --grad-computations 100 --sample-size 10 --delta 1e-5",
        "theorem2 --records 100 --grad-computations 500 --sample-size 100 --delta 1e-5 --sampling fixed",
        "theorem2 --records 100 --sample-size 10 --delta 1e-5",
        "theorem2 --records 100 --grad-computations 500 --delta 1e-5",
        "theorem2 --records 100 --grad-computations 500 --epsilon 1e-9 --delta 1e-5",
        "theorem2 --records 100 --sizes 10 --delta 1e-5",
        "theorem2 --records 100 --sizes 10x0 --delta 1e-5",
        "theorem2 --records 100 --sizes 10xten --delta 1e-5",
        "theorem2 --records 100 --sizes 10x5 --grad-computations 51 --delta 1e-5",
        "theorem2 --records 100 --polynomial 1,1 --delta 1e-5",
        "theorem2 --records 100 --polynomial 1,1,0 --delta 1e-5",
        "theorem2 --records 100 --polynomial nan,1,5 --delta 1e-5",
        "theorem1 --records 100 --sample-size 10 --rounds 0 --noise-multiplier 1 --delta 1e-5",
        "theorem1 --records 100 --sample-size 10 --noise-multiplier 1 --delta 1e-5",
        "theorem3 --records 100 --sizes 100x5 --noise-multiplier 3 --delta 1e-5",
        "theorem3 --records 100 --sizes 10x5 --delta 1e-5",
        "moments --records 100 --schedule 10:5 --delta 1e-5",
        "moments --records 100 --schedule 10:5:1 --rounds 3 --delta 1e-5",
        "moments --records 100 --schedule 101:5:1 --delta 1e-5",
        "moments --records 100 --schedule 100:5:1 --delta 1e-5 --sampling fixed",
        "procedure --records 100 --grad-computations 200 --epsilon-allowed 0 --delta 1e-5",
        "procedure --records 100 --grad-computations 200 --epsilon-allowed inf --delta 1e-5",
        "procedure --records 100 --grad-computations 200 --epsilon-allowed 9 --earlier 5:5 --delta 1e-5",
        "procedure --records 100 --grad-computations 200 --epsilon-allowed 9 --earlier 5:5:4 --delta 1e-5",
        "procedure --records 100 --grad-computations 200 --epsilon-allowed 9 --delta 1e-5 --as-published",
        "tables --table 1",
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(run, arguments):
    code, out, err = run(arguments)

    lines = [line for line in err.splitlines() if not line.startswith("warning: ")]
    assert (code, out) == (2, "")
    assert len(lines) == 1
    assert lines[0].startswith("error: ")


def test_every_command_on_the_page_about_the_paper_runs(run):
    page = (Path(__file__).parents[2] / "docs" / "paper.md").read_text()
    commands = [line.partition(" ")[2] for line in page.splitlines() if line.startswith("hushgrad-accountant ")]
    assert len(commands) > 10

    # The tables and the two long settings have tests of their own.
    for arguments in commands:
        if "tables" not in arguments and "2000000" not in arguments:
            assert run(arguments)[0] == 0, arguments
