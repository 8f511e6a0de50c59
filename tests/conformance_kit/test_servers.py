"""The kit against broken servers: each planted fault fails its check. `make conformance` tries every one."""

import os
import sys
from pathlib import Path

import pytest
from hushgrad.conformance import server_kit

pytestmark = pytest.mark.e2e

EVERYTHING = bool(os.environ.get("HUSHGRAD_WHOLE_CONFORMANCE"))
BROKEN = [sys.executable, str(Path(__file__).with_name("broken_server.py"))]

CAUGHT = {
    "one-step-size": ("models", "is not the initial model and its manifests' updates"),
    "small-arithmetic": ("models", "is not the initial model and its manifests' updates"),
    "smallest-element": ("invalid", "an update of -2^31 must be answered INVALID, found ACCEPTED"),
    "insecure-noise": ("invalid", "insecure noise must be answered INVALID, found ACCEPTED"),
    "no-window": ("window", "round 3 at version 0 with window 3 must be answered TOO_FAR_AHEAD, found ACCEPTED"),
    "forgetful": ("first-answer", "an accepted update sent again must be answered DUPLICATE, found ACCEPTED"),
    "no-conflict": ("conflict", "other bytes for round 0 must be answered CONFLICT, found DUPLICATE"),
    "no-chain": ("chain-conflict", "ledger row 1 with another head must be answered CONFLICT, found ACCEPTED"),
    "no-fence": ("stale-session", "an update of an older session must be answered STALE_SESSION, found ACCEPTED"),
    "no-checksum": ("checksum", "a message with a wrong checksum must be answered BUSY, found ACCEPTED"),
}
QUICK_FAULTS = ["one-step-size"]


@pytest.mark.parametrize("fault", CAUGHT if EVERYTHING else QUICK_FAULTS)
def test_a_planted_fault_fails_with_the_right_sentence(fault, monkeypatch, tmp_path):
    check, sentence = CAUGHT[fault]
    monkeypatch.setenv("FAULT", fault)
    monkeypatch.setattr(server_kit, "VERSION_SECONDS", 4.0)
    found = {result.name: result for result in server_kit.run(command=BROKEN, folder=tmp_path)}
    assert found[check].outcome == "fail", found
    assert sentence in found[check].why
