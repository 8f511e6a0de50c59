"""The MNIST command: numbers, claims, refusals; and, where the digits are, one short federation over gRPC."""

import json
import os
from pathlib import Path

import pytest
from hushgrad.cli import entry
from hushgrad.experiments import mnist
from hushgrad.experiments.errors import InputError

NEEDED = "HUSHGRAD_DATA must name the folder of the MNIST files (train-images-idx3-ubyte.gz and three more)"

needs_digits = pytest.mark.skipif(not os.environ.get("HUSHGRAD_DATA"), reason=NEEDED)


@pytest.mark.parametrize(("kind", "parameters"), [("features", 3_930), ("lenet", 44_426)])
def test_each_client_spends_what_was_asked_for_and_a_digit_at_all_of_them_more(kind, parameters):
    made = mnist.made_plan(kind)
    record = mnist.record_claim(made)
    assert made.parameters == parameters
    assert made.claim.epsilon <= 0.15
    assert made.claim.delta == record.claim.delta == 1e-5
    assert made.claim.sampling == "poisson"
    assert len(record.per_client) == 5
    # more than one client's, and less than the sum of five
    assert 2 * made.claim.epsilon < record.claim.epsilon < 5 * made.claim.epsilon


def test_without_a_folder_of_digits_the_command_says_what_is_missing(monkeypatch, tmp_path, capsys):
    monkeypatch.delenv("HUSHGRAD_DATA", raising=False)
    with pytest.raises(InputError, match="HUSHGRAD_DATA must name the folder"):
        mnist.find_digits()
    monkeypatch.setenv("HUSHGRAD_DATA", str(tmp_path))
    with pytest.raises(InputError, match="lacks train-images"):
        mnist.find_digits()
    out = tmp_path / "out"
    assert entry.run(["mnist", "features", "--out", str(out)]) == 2
    assert "lacks train-images" in capsys.readouterr().err
    assert not out.exists()


@pytest.mark.parametrize("seeds", ["", "1,1", "1,x", "-1"])
def test_seeds_that_cannot_be_are_refused(seeds, tmp_path, capsys):
    assert entry.run(["mnist", "lenet", "--seeds", seeds, "--out", str(tmp_path / "out")]) == 2
    assert "--seeds" in capsys.readouterr().err


@needs_digits
@pytest.mark.e2e
def test_features_learn_digits_over_grpc(monkeypatch, tmp_path: Path, capsys):
    """Forty rounds of the real thing, at noise that is made for forty: 0.90 is far below what they reach."""
    settings = {name: getattr(mnist.SETTINGS["features"], name) for name in mnist.Setting.__slots__}
    short = mnist.Setting(**{**settings, "rounds": 40})
    monkeypatch.setitem(mnist.SETTINGS, "features", short)
    assert entry.run(["mnist", "features", "--seeds", "4", "--out", str(tmp_path / "out"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["test_accuracy"] > 0.9
    assert found["claim_per_client"]["epsilon"] <= 0.15
    assert found["claim_of_a_record_at_all_clients"]["epsilon"] > 0.3
    assert [one["updates_accepted"] for one in found["seeds"]] == [200]
    assert (tmp_path / "out" / "accuracy.png").stat().st_size > 10_000
