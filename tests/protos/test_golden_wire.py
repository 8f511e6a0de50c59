"""Every message of the contract as other languages read it: the golden files, and that they are complete."""

import json
import runpy
from pathlib import Path

import google_crc32c
import pytest
from google.protobuf import descriptor_pool, json_format
from google.protobuf.message_factory import GetMessageClass
from hushgrad.wire import header

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "wire"
GENERATOR = runpy.run_path(str(GOLDEN / "generate.py"))
NAMES = sorted(path.stem for path in GOLDEN.glob("*.bin"))
WORKED = json.loads((GOLDEN / "header.json").read_text())


def message_class(name: str):
    """Finds the class by a file's name; `WatchModelsResponse.published` is one choice of that message's oneof."""
    known = {descriptor.full_name for descriptor in GENERATOR["descriptors"]()}
    full = f"hushgrad.v1.{name}"
    full = full if full in known else full.rpartition(".")[0]
    return GetMessageClass(descriptor_pool.Default().FindMessageTypeByName(full))


def test_every_message_of_the_contract_has_golden_files():
    wanted = {name for descriptor in GENERATOR["descriptors"]() for name in GENERATOR["samples"](descriptor)}
    assert sorted(wanted - set(NAMES)) == [], "run tests/golden/wire/generate.py"
    assert sorted(set(NAMES) - wanted) == [], "a message that people may have stored is gone"


@pytest.mark.parametrize("name", NAMES)
def test_bytes_and_json_are_the_same_message(name):
    kind, stored = message_class(name), (GOLDEN / f"{name}.bin").read_bytes()
    from_json = json_format.Parse((GOLDEN / f"{name}.json").read_text(), kind())
    assert from_json == kind.FromString(stored)
    assert from_json.SerializeToString(deterministic=True) == stored


@pytest.mark.parametrize("name", NAMES)
def test_golden_bytes_hold_nothing_that_the_contract_does_not_know(name):
    message = message_class(name).FromString((GOLDEN / f"{name}.bin").read_bytes())
    before = message.ByteSize()
    message.DiscardUnknownFields()
    assert message.ByteSize() == before


def test_worked_rows_are_what_the_codec_makes():
    head = header.first_head(bytes.fromhex(WORKED["ledger_id"]))
    assert head.hex() == WORKED["head_0"]
    for row in WORKED["rows"]:
        packed, payload = bytes.fromhex(row["header"]), bytes.fromhex(row["payload"])
        declared = header.unpack(packed)
        assert declared.pack() == packed
        assert (declared.ledger_sequence, declared.round) == (row["ledger_sequence"], row["round"])
        assert (declared.noise_multiplier, declared.clip_norm) == (WORKED["noise_multiplier"], WORKED["clip_norm"])
        assert declared.ledger_previous_head == head
        digest = header.digest(packed, payload)
        head = header.next_head(head, digest)
        assert (digest.hex(), head.hex()) == (row["digest"], row["head"])
        assert google_crc32c.value(packed + payload) == row["crc32c"]


def test_the_generator_makes_the_worked_rows_again():
    assert GENERATOR["worked_header"]() == WORKED
