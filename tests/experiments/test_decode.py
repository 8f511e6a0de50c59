"""`hushgrad decode`: every golden message is read and guessed, and damage is blamed on the right field."""

import base64
import json
from pathlib import Path

import pytest
from hushgrad.cli import entry
from hushgrad.experiments import decode
from hushgrad.experiments.errors import InputError
from hushgrad.v1 import common_pb2, terms_pb2, updates_pb2

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "wire"
NAMES = sorted(path.stem for path in GOLDEN.glob("*.bin"))
WORKED = json.loads((GOLDEN / "header.json").read_text())
ROW = WORKED["rows"][0]
SEALED = bytes.fromhex(ROW["header"] + ROW["payload"])


def kind_of(name: str) -> str:
    return name if name in decode.types() else name.rpartition(".")[0]


@pytest.mark.parametrize("name", NAMES)
def test_every_message_is_read_without_an_unknown_field(name):
    found = decode.decode((GOLDEN / f"{name}.bin").read_bytes(), kind_of(name))
    assert not any("unknown" in value for _, value in found.rows)
    golden = json.loads((GOLDEN / f"{name}.json").read_text())
    assert found.plain == golden


@pytest.mark.parametrize("name", [name for name in NAMES if (GOLDEN / f"{name}.bin").stat().st_size])
def test_the_right_message_is_among_the_guesses(name):
    found = decode.decode((GOLDEN / f"{name}.bin").read_bytes())
    assert kind_of(name) in (found.kind.removeprefix("hushgrad.v1."), *found.also)


@pytest.mark.parametrize(
    "stored",
    [
        SEALED,
        SEALED.hex().encode(),
        SEALED.hex(" ", 16).encode() + b"\n",
        base64.b64encode(SEALED) + b"\n",
        base64.urlsafe_b64encode(SEALED),
        b"\0" + len(SEALED).to_bytes(4) + SEALED,
    ],
    ids=["raw", "hex", "spaced hex", "base64", "url-safe base64", "framed by gRPC"],
)
def test_a_sealed_update_is_read_in_every_dress(stored):
    found = decode.decode(stored)
    assert found.kind == "sealed update"
    assert found.plain["digest"] == ROW["digest"]
    assert found.plain["ledger_head"] == ROW["head"]
    assert found.plain["header"]["noise_multiplier"] == WORKED["noise_multiplier"]
    assert found.plain["payload"]["first"] == ROW["elements"]


def test_a_header_alone_is_read():
    assert decode.decode(bytes.fromhex(ROW["header"])).kind == "header"


def test_a_header_inside_a_message_is_read():
    request = updates_pb2.SubmitUpdateRequest(header=SEALED[:192], payload=SEALED[192:])
    rows = dict(decode.decode(request.SerializeToString(), "SubmitUpdateRequest").rows)
    assert rows["header.participant"] == "client-1"


def damaged_caller(inner: bytes) -> bytes:
    """Returns a SubmitUpdateRequest whose field 1, the caller, has these bytes."""
    return b"\x0a" + bytes([len(inner)]) + inner


@pytest.mark.parametrize(
    ("data", "path"),
    [
        (damaged_caller(b"\x0a\x20abc"), "caller.terms_digest: 32 bytes are announced, 3 are left"),
        (damaged_caller(b"\x12\x02\xff\xfe"), "caller.participant: expected text in UTF-8"),
        (damaged_caller(b"\x1a\x01x"), "caller.session: expected a varint, found a length and bytes"),
        (damaged_caller(b"\x18\xff"), "caller.session: the bytes end inside a number"),
        (damaged_caller(b"\x18" + b"\xff" * 10), "caller.session: a number has more than ten bytes"),
        (b"\x12\x08HGUPDATE", "header: an update header must be 192 bytes"),
        (b"\x0b", "caller: wire type 3"),
    ],
)
def test_damage_is_named_by_the_path_of_its_field(data, path):
    with pytest.raises(decode.DecodeError, match=path):
        decode.decode(data, "SubmitUpdateRequest")


def test_a_repeated_field_is_counted_in_the_path():
    good = terms_pb2.ArraySpec(name="w").SerializeToString()
    data = b"\x2a" + bytes([len(good)]) + good + b"\x2a\x02\x0a\x05"
    with pytest.raises(decode.DecodeError, match=r"^arrays\[1\]\.name: 5 bytes are announced, 0 are left"):
        decode.decode(data, "Terms")


def test_a_payload_of_another_length_is_named():
    with pytest.raises(decode.DecodeError, match="payload: the header says 12 bytes, found 11"):
        decode.decode(SEALED[:-1])


def test_unknown_fields_and_values_are_shown_as_such():
    verdict = common_pb2.Verdict()
    verdict.ParseFromString(b"\x08\x63\xba\x3e\x01x")  # answer 99, and field 999
    rows = dict(decode.decode(verdict.SerializeToString(), "Verdict").rows)
    assert rows["answer"] == "unknown value 99"
    assert rows["field 999"].startswith("unknown to this version")


@pytest.mark.parametrize("data", [b"", b"\xff" * 40, b"hello, this is no message"])
def test_bytes_that_are_nothing_are_refused(data):
    with pytest.raises(InputError):
        decode.decode(data)


def test_the_command_prints_a_table_and_json(tmp_path, capsys):
    path = tmp_path / "one.update"
    path.write_bytes(SEALED)
    assert entry.run(["decode", str(path)]) == 0
    assert "header.participant" in capsys.readouterr().out
    assert entry.run(["decode", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["message"]["digest"] == ROW["digest"]


@pytest.mark.parametrize("arguments", [["missing.bin"], ["--type", "Nothing", str(GOLDEN / "Caller.bin")]])
def test_bad_input_is_one_line_and_exit_code_2(arguments, capsys):
    assert entry.run(["decode", *arguments]) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1
