"""Exported ledgers, made by the client itself: sound ones agree, and every kind of tampering is named."""

import copy
import hashlib
import json
import sys
from pathlib import Path

import pytest
from hushgrad.accountant import AccountantError, check, exported
from hushgrad.accountant import __main__ as entry
from hushgrad.client import ledger, report
from hushgrad.client.rows import Committed, Group

from tests.support import client_world

_CLAIM = {
    "epsilon": 0.25,  # 4 rounds of q = .08 and one of q = .16 at sigma 3.99 cost 0.2302
    "delta": 1e-5,
    "adjacency": "add-remove",
    "sampling": "poisson",
    "unit": "record",
    "method": "pld",
    "method_version": "1 (dp-accounting 0.6.0)",
}


def _committed(digest=client_world.DIGEST, epsilon=_CLAIM["epsilon"]):
    return Committed(
        terms_digest=digest,
        federation="test",
        sampler="poisson",
        adjacency="add-remove",
        records=100,
        parameters=4,
        flags=0,
        timing="covered",
        schedule=(Group(8, 0.08, 4.0, 3.99, 0.5, 4), Group(16, 0.16, 4.0, 3.99, 0.5, 1)),
        claim={**_CLAIM, "epsilon": epsilon},
        delta=1e-5,
    )


def _export(folder, *, epsilon=_CLAIM["epsilon"], lifetime=2.0, runs=1):
    ledger.create(
        folder,
        participant=client_world.PARTICIPANT,
        fingerprint=client_world.FINGERPRINT,
        lifetime_epsilon=lifetime,
        lifetime_delta=1e-4,
        accepted_new_budget=False,
    )
    with ledger.Ledger(folder) as book:
        for run in range(runs):
            digest = hashlib.sha256(bytes([run])).digest()
            book.commit(_committed(digest, epsilon))
            book.seal(digest, 0, client_world.payload())
            book.skip(digest, 1)
            book.seal(digest, 4, client_world.payload())
        return report.export(ledger.read(folder))


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    return json.loads(json.dumps(_export(tmp_path_factory.mktemp("sound") / "state", runs=2)))


def test_a_sound_ledger_agrees_and_shows_both_recomputations(sound):
    found = check.check(sound)

    assert found.agrees, found
    assert found.head == sound["head"]
    assert found.rows == 9
    for run in found.runs:
        assert run.from_commit.epsilon <= run.claim.epsilon
        assert run.from_updates.rounds == 2
        assert 0 < run.from_updates.epsilon_so_far < run.from_commit.epsilon


def test_the_outcome_is_plain_json(sound):
    written = json.loads(json.dumps(check.check(sound).to_dict()))

    assert set(written) == {"agrees", "head", "rows", "runs", "faults", "not_checked"}
    assert set(written["runs"][0]) == {
        "federation", "agrees", "claim", "recomputed_from_commit", "recomputed_from_updates", "clipping", "faults",
    }  # fmt: skip


def test_a_claim_below_its_schedule_is_found_though_the_chain_is_whole(tmp_path):
    found = check.check(_export(tmp_path / "state", epsilon=0.2))

    assert not found.agrees
    assert found.faults == ()
    assert "its schedule costs 0.23" in found.runs[0].faults[0]


def test_claims_above_the_lifetime_are_found(tmp_path):
    found = check.check(_export(tmp_path / "state", lifetime=0.4, runs=2))

    assert "lifetime" in found.faults[0]


def _set(*path_and_value):
    *path, last, value = path_and_value

    def change(document):
        part = document
        for step in path:
            part = part[step]
        part[last] = value

    return change


def _drop_row(number):
    def change(document):
        del document["rows"][number]

    return change


def _swap_rows(document):
    document["rows"][2], document["rows"][4] = document["rows"][4], document["rows"][2]


def _rehash(document):
    """What a forger does who knows the chain: every digest of a text and every head made anew."""
    head = hashlib.sha256(b"hushgrad ledger" + bytes.fromhex(document["ledger_id"])).digest()
    for row in document["rows"]:
        if row["kind"] != "update":
            row["digest"] = hashlib.sha256(row["text"].encode()).hexdigest()
        head = hashlib.sha256(head + bytes.fromhex(row["digest"])).digest()
        row["head"] = head.hex()
    document["head"] = head.hex()


def _forge_noise(document):
    row = document["rows"][1]
    row["text"] = row["text"].replace('"noise_multiplier":4.0', '"noise_multiplier":8.0').replace("3.99", "7.98")
    for run in document["runs"][:1]:
        for group in run["schedule"]:
            group["noise_multiplier"], group["charged_noise_multiplier"] = 8.0, 7.98
    for row in document["rows"]:
        if row["kind"] == "update" and row["terms_digest"] == document["runs"][0]["terms_digest"]:
            row["noise_multiplier"], row["charged_noise_multiplier"] = 8.0, 7.98
    _rehash(document)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (_set("head", "00" * 32), "head is not that of the last row"),
        (_set("rows", 2, "digest", "00" * 32), "row 3: head is not SHA-256"),
        (_set("rows", 1, "text", "{}"), "row 2: digest is not the SHA-256 of text"),
        (_set("rows", 3, "sequence", 9), "row 4 has sequence number 9"),
        (_set("rows", 2, "round", 3), "the header's round must be 3, found 0"),
        (_set("rows", 2, "round", 99), "round 99 is not in the committed schedule"),
        (_set("rows", 2, "charged_noise_multiplier", 3.9), "charged_noise_multiplier is 3.9, committed was 3.99"),
        (_set("rows", 2, "sampling", "fixed"), "row's sampling"),
        (_set("rows", 2, "header", "00" * 192), "magic and layout"),
        (_set("rows", 2, "header", "00"), "row 3 cannot be read"),
        (_set("rows", 2, "kind", "init"), "cannot be read"),
        (_set("rows", 0, "text", "[]"), "row 1"),
        (_drop_row(2), "row 3"),
        (_drop_row(0), "the first row"),
        (_swap_rows, "row 3"),
        (_set("participant", "client-9"), "participant is"),
        (_set("lifetime", "epsilon", 100.0), "lifetime_epsilon is 100.0 at the top, 2.0 in the chain"),
        (_set("runs", 0, "claim", "epsilon", 0.1), "claim is"),
        (_set("runs", 0, "sampling", "fixed"), "sampling differs"),
        (_set("runs", []), "runs does not list"),
        (lambda document: document["runs"].append(document["runs"][1]), "runs does not list"),
        (_set("rows", 2, "digest", "00"), "digest must be 32 bytes"),
        (_forge_noise, "the header's noise multiplier must be 8.0, found 4.0"),
    ],
)
def test_tampering_is_named(sound, change, named):
    document = copy.deepcopy(sound)
    change(document)

    faults = exported.read(document).faults

    assert any(named in fault for fault in faults), faults


def test_a_round_spent_twice_is_found(sound):
    document = copy.deepcopy(sound)
    document["rows"].insert(3, copy.deepcopy(document["rows"][2]))

    assert any("was spent in row 3 already" in fault for fault in exported.read(document).faults)


def test_a_skipped_round_that_is_spent_later_is_found(sound):
    document = copy.deepcopy(sound)
    row = document["rows"][4]  # the update of round 4
    row["round"] = 1

    assert any("round 1 was skipped in row 4 already" in fault for fault in exported.read(document).faults)


@pytest.mark.parametrize(
    ("kind", "round_", "named"), [("void", 2, "never sealed"), ("skipped", 9, "not in a schedule")]
)
def test_notes_about_rounds_that_were_not_are_found(sound, kind, round_, named):
    document = copy.deepcopy(sound)
    row = document["rows"][3]
    row["kind"], row["round"] = kind, round_
    row["text"] = row["text"].replace('"skipped"', f'"{kind}"').replace('"round":1', f'"round":{round_}')
    _rehash(document)

    assert any(named in fault for fault in exported.read(document).faults)


def test_insecure_noise_claims_nothing(sound):
    document = copy.deepcopy(sound)
    document["rows"][1]["text"] = document["rows"][1]["text"].replace('"flags":0', '"flags":1')
    _rehash(document)

    assert any("noise is insecure" in fault for fault in exported.read(document).faults)


@pytest.mark.parametrize(
    "document",
    [
        None,
        [],
        {},
        {"rows": []},
        {"rows": [], "format": 2},
        {"rows": [], "format": 1, "ledger_id": "xy"},
        {"rows": [], "format": 1, "ledger_id": "00"},
        1.5,
        "text",
    ],
)
def test_what_is_no_exported_ledger_is_bad_input(document):
    with pytest.raises(AccountantError):
        check.check(document)


@pytest.mark.parametrize("row", [None, 1, [], {}, {"digest": "zz"}, {"digest": ""}, {"kind": "update"}])
def test_rows_of_any_shape_are_faults_and_never_tracebacks(sound, row):
    document = copy.deepcopy(sound)
    document["rows"][2] = row

    assert exported.read(document).faults


def test_a_ledger_without_rows_does_not_agree():
    found = check.check({"format": 1, "ledger_id": "00" * 16, "rows": []})

    assert "there is no row" in found.faults[0]


def test_the_reader_follows_the_documented_bytes(sound):
    assert exported.read(sound).rows == len(sound["rows"])


def test_the_example_in_the_documentation_agrees_and_costs_what_the_text_says():
    page = (Path(__file__).parents[2] / "docs" / "ledger.md").read_text()
    example = page.split("```json\n")[1].split("```")[0]

    found = check.check(json.loads(example))

    assert found.agrees
    assert found.head in page
    assert (found.runs[0].claim.epsilon, found.runs[0].from_updates.epsilon_so_far) == (0.2302, 0.08707)


def _run(capsys, monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["hushgrad-accountant", *arguments])
    with pytest.raises(SystemExit) as ended:
        entry.main()
    output = capsys.readouterr()
    return ended.value.code or 0, output.out, output.err


def test_the_command_ends_with_0_1_or_2(sound, capsys, monkeypatch, tmp_path):
    good, bad, none = tmp_path / "good.json", tmp_path / "bad.json", tmp_path / "none.json"
    good.write_text(json.dumps(sound))
    bad.write_text(json.dumps({**sound, "head": "00"}))
    none.write_text("not JSON")

    code, out, _ = _run(capsys, monkeypatch, "check", str(good))
    assert (code, "everything agrees" in out, "not checked" in out) == (0, True, True)
    code, out, _ = _run(capsys, monkeypatch, "check", str(bad), "--json")
    assert (code, json.loads(out)["agrees"]) == (1, False)
    for arguments in (["check", str(none)], ["check", str(tmp_path / "missing.json")], ["check"]):
        code, out, err = _run(capsys, monkeypatch, *arguments)
        assert (code, out, err.count("\n")) == (2, "", 1)
