"""Every input that makes no sense has the answer that docs/accountant.md gives it: the page's own table is run."""

import json
import math
import re
import sys
from pathlib import Path

import pytest
from hushgrad import accountant
from hushgrad.accountant import AccountantError, Budget, BudgetError, Claim
from hushgrad.accountant import __main__ as entry

_PAGE = (Path(__file__).parents[2] / "docs" / "accountant.md").read_text()
_BASE = re.search(r"^`(epsilon --sampling .*)`\.$", _PAGE, re.MULTILINE).group(1).split()
_TABLE = re.findall(r"^\| `(--[^`]*)` \| (.*) \|$", _PAGE, re.MULTILINE)


def _run(arguments, capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["hushgrad-accountant", *arguments])
    with pytest.raises(SystemExit) as ended:
        entry.main()
    output = capsys.readouterr()
    return ended.value.code or 0, output.out, output.err


def test_the_table_was_found():
    assert len(_TABLE) > 25


@pytest.mark.parametrize(("options", "answer"), _TABLE, ids=[options for options, _ in _TABLE])
def test_the_documented_answer_is_given(options, answer, capsys, monkeypatch):
    code, out, err = _run([*_BASE, *options.split(), "--json"], capsys, monkeypatch)

    if answer.startswith("refused"):
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert re.search("`(.*?)`", answer).group(1) in err
        return
    assert code == 0
    claim = json.loads(out)
    assert 0 <= claim["epsilon"] < math.inf
    assert claim["method"] == ("rdp" if "rdp" in answer else "pld")
    assert ("warning" in err) == ("warning" in answer)


@pytest.mark.parametrize("cap", ["0", "-1", "nan", "inf"])
def test_a_target_that_is_no_cap_is_refused(cap, capsys, monkeypatch):
    base = [*_BASE[1 : _BASE.index("--noise-multiplier")], "--delta", "1e-5"]

    code, out, err = _run(["calibrate", *base, "--epsilon", cap], capsys, monkeypatch)

    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "epsilon" in err


def test_a_lifetime_of_zero_allows_nothing_and_none_is_no_lifetime():
    claim = Claim(1e-9, 1e-9, "add-remove", "poisson", method_version="1")
    with pytest.raises(BudgetError):
        Budget(lifetime_epsilon=0, lifetime_delta=1e-5).charge("run", claim)
    for cap in (None, math.inf, math.nan, -1, True):
        with pytest.raises(AccountantError):
            Budget(lifetime_epsilon=cap, lifetime_delta=1e-5)


@pytest.mark.parametrize("value", [True, False, None, "0.1", math.nan, math.inf, -1, 0])
@pytest.mark.parametrize("what", ["sampling_probability", "noise_multiplier", "rounds"])
def test_in_python_too(what, value):
    arguments = {"sampling_probability": 0.1, "noise_multiplier": 2.0, "rounds": 5, what: value}

    with pytest.raises(AccountantError, match=what):
        accountant.RoundGroup(**arguments)
