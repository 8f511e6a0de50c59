"""The kit against clients: ours and a faultless small one pass, and each planted fault fails with the right sentence.

`make conformance` tries everything; without it a part that takes half a minute.
"""

import importlib.util
import os
import sys
from pathlib import Path

import pytest
from hushgrad.conformance import client_kit

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

EVERYTHING = bool(os.environ.get("HUSHGRAD_WHOLE_CONFORMANCE"))
BREAKABLE = Path(__file__).with_name("breakable_client.py")
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
THEIRS = [sys.executable, str(BREAKABLE)]
OURS = [sys.executable, "-m", "hushgrad.conformance.ours"]

CAUGHT = {
    "fresh-noise-on-a-resend": ("lost-answer", "two different payloads after its answer was lost"),
    "no-noise": ("noise-size", "there is no noise"),
    "half-noise": ("noise-size", "times the declared deviation"),
    "seeded-noise": ("noise-unseeded", "a second client with an empty state folder draws the same noise"),
    "float-rounding": ("fine-grid", "rounded in too few digits or on a coarser grid"),
    "fixed-batches": ("sampling-poisson", "batches of fixed size are declared as Poisson"),
    "clip-per-batch": ("clip-per-record", "the sum of a batch was clipped, not each record's gradient"),
    "realised-divisor": ("sum-not-mean", "divided by the realised batch size"),
    "high-water-mark": ("set-of-rounds", "acceptance is a set of rounds, not a high-water mark"),
    "ignore-busy": ("busy", "s after BUSY with retry_after 1.2 s"),
    "send-before-seal": ("killed-at-first-byte", "was not durable before its first byte left"),
    "older-model": ("older-models", "a model is taken only if it is newer than any seen"),
    "ignore-budget": ("budget", "the run costs more than epsilon = 0.05, and round 0 was sent all the same"),
    "big-endian": ("payload", "is big-endian; every element is little-endian"),
    "no-clip": ("clip-per-record", "one outlier moved the sum by"),
    "uniform-noise": ("noise-shape", "the noise is not normal"),
    "shared-noise": ("noise-coordinates", "noise of two coordinates of one update is correlated"),
    "carried-noise": ("noise-updates", "noise of updates that follow each other is correlated"),
    "probability-from-rows": ("sampling-rate", "q = s / records = 0.0500"),
    "wrapping": ("saturation", "must saturate at 2147483647"),
    "ignore-delay": ("delay-0", "was begun with version 0; max_delay 0 permits rounds up to 0"),
    "resend-invalid": ("refused-rounds", "round 1 was answered INVALID and was sent"),
    "ignore-conflict": ("conflict", "was sent after CONFLICT; the client must stop at once"),
    "ignore-anchor": ("ledger-anchor", "the server has seen row 5 of another ledger, and round 0 was sent"),
    "beyond-the-end": ("final-version", "round 6 was begun, the final version is 6"),
    "broken-chain": ("chain", "the chain is broken"),
    "wrong-crc": ("checksum", "is not the CRC-32C (Castagnoli)"),
    "ignore-entry": ("entry-round", "the server gave entry round 4, the client began with round 0"),
    "ignore-suspension": ("suspended", "round 3 was begun while suspended"),
    "unpinned-terms": ("pinned-terms", "the terms are not those pinned in the ledger, and round"),
    "impatient": ("too-far-ahead", "times before a newer version had arrived"),
    "unchecked-model": ("model-checksum", "round 1 was trained from a model whose bytes do not have its SHA-256"),
    "hasty": ("going-away", "s after GoingAway with retry_after 1.5 s"),
    "deaf": ("heartbeats", "a watch without heartbeats must be opened again"),
    "ignore-epoch": ("raised-epoch", "when server_epoch rose the client must join again"),
    "silent-about-held": ("held-rounds", "round 1 is held and was not reported to the restored server"),
    "half-told": ("held-rounds", "held_below was not set"),
}
QUICK_FAULTS = ["fresh-noise-on-a-resend", "high-water-mark", "send-before-seal", "older-model", "big-endian"]
QUICK_CHECKS = {"header", "chain", "lost-answer", "killed-at-first-byte", "killed-before-answer", "wanted-rounds"}


def faults_of_the_client() -> dict[str, str]:
    spec = importlib.util.spec_from_file_location("breakable_client", BREAKABLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.FAULTS


def wrong(results) -> list:
    return [(result.name, result.why) for result in results if result.outcome == "fail"]


def test_every_fault_of_the_small_client_is_one_that_must_be_caught():
    assert set(faults_of_the_client()) == set(CAUGHT)
    assert {check for check, _ in CAUGHT.values()} <= {check.name for check in client_kit.checks()}


def test_a_faultless_client_of_another_making_passes():
    results = client_kit.run(THEIRS, quick=True, at_once=6)
    assert wrong(results) == []
    assert [result.name for result in results if result.outcome == "not tried"] == ["limits"]


def test_our_client_passes():
    results = client_kit.run(OURS, only=() if EVERYTHING else QUICK_CHECKS, at_once=4)
    assert wrong(results) == []
    assert [result.name for result in results if result.outcome == "not tried"] == []


@pytest.mark.skipif(not EVERYTHING, reason="make conformance tries the examples")
@pytest.mark.parametrize("kind", ["python-minimal", "node"])
def test_the_clients_of_the_examples_pass(kind):
    folder = EXAMPLES / kind
    if kind == "node" and not (folder / "node_modules").is_dir():
        pytest.skip("needs `npm install` in examples/node")
    command = ["node", str(folder / "client.js")] if kind == "node" else [sys.executable, str(folder / "client.py")]
    results = client_kit.run(command, quick=True)
    assert wrong(results) == []
    untried = {result.name for result in results if result.outcome == "not tried"}
    assert untried <= {"limits", "set-of-rounds"}


@pytest.mark.parametrize("fault", CAUGHT if EVERYTHING else QUICK_FAULTS)
def test_a_planted_fault_fails_with_the_right_sentence(fault, monkeypatch):
    check, sentence = CAUGHT[fault]
    monkeypatch.setenv("FAULT", fault)
    results = client_kit.run(THEIRS, only=[check], quick=True, patience_seconds=4.0)
    assert sentence in dict(wrong(results)).get(check, ""), wrong(results)
