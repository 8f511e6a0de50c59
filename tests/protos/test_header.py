"""The 192 bytes of an update's header, its digest and the ledger's chain, against bytes laid out by hand."""

import dataclasses
import hashlib
import struct

import pytest
from hushgrad.wire import header
from hushgrad.wire.errors import ContractError

SEALED = header.UpdateHeader(
    terms_digest=bytes(range(32)),
    participant="client-1",
    round=7,
    element_type=1,
    sampler="poisson",
    noise_multiplier=2.125,
    clip_norm=0.5,
    ledger_sequence=9,
    ledger_previous_head=bytes(range(32, 64)),
    flags=header.FLAG_CLIPPING_DECLARED,
    payload_bytes=12,
)

# Written from the table in updates.proto, field by field; 2.125 = 0x4001... and 0.5 = 0x3fe0... in IEEE 754.
SEALED_BYTES = bytes.fromhex(
    "4847555044415445"  # HGUPDATE
    "01000000"  # layout version
    "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"  # terms digest
    f"636c69656e742d31{56 * '00'}"  # client-1
    "0700000000000000"  # round
    "01000000"  # int32
    "01000000"  # Poisson
    "0000000000000140"  # noise multiplier
    "000000000000e03f"  # clip norm
    "0900000000000000"  # ledger sequence
    "202122232425262728292a2b2c2d2e2f303132333435363738393a3b3c3d3e3f"  # previous head
    "02000000"  # flags
    "0c00000000000000"  # payload bytes
)
PAYLOAD = struct.pack("<iii", 1, -2, 2**31 - 1)


def test_packed_header_is_the_table_of_the_contract():
    assert SEALED.pack() == SEALED_BYTES
    assert len(SEALED_BYTES) == 192


def test_unpacking_gives_back_what_was_packed():
    assert header.unpack(SEALED_BYTES) == SEALED


def test_digest_and_chain_have_the_worked_values():
    # Computed once with sha256sum over the same bytes.
    digest = header.digest(SEALED_BYTES, PAYLOAD)
    head = header.first_head(bytes(range(16)))
    assert digest.hex() == "a1321e3719ec94e1d3e5740708eea1881c4360cef7c042920b737273bbabaaf4"
    assert head.hex() == "6189ec90f3b5bb3d2569b18c11461cc4553392a61cd3d74d097897b1b9ccf76a"
    assert header.next_head(head, digest).hex() == "8f71a2f1b4b6f451cbce5bee7c55ae35c81addc69ea8deb7d319580d63285b6a"


def test_digest_and_chain_are_plain_sha256_over_joined_bytes():
    assert header.digest(SEALED_BYTES, memoryview(PAYLOAD)) == hashlib.sha256(SEALED_BYTES + PAYLOAD).digest()
    assert header.first_head(bytes(16)) == hashlib.sha256(b"hushgrad ledger" + bytes(16)).digest()
    assert header.next_head(b"a" * 32, b"b" * 32) == hashlib.sha256(b"a" * 32 + b"b" * 32).digest()


@pytest.mark.parametrize("bit", range(0, 192 * 8, 7))
def test_every_bit_of_the_header_is_under_the_digest(bit):
    changed = bytearray(SEALED_BYTES)
    changed[bit // 8] ^= 1 << bit % 8
    assert header.digest(bytes(changed), PAYLOAD) != header.digest(SEALED_BYTES, PAYLOAD)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("terms_digest", bytes(31)),
        ("participant", ""),
        ("participant", "Client"),
        ("participant", "-client"),
        ("participant", "a" * 64),
        ("participant", "client 1"),
        ("round", -1),
        ("round", 2**64),
        ("element_type", 0),
        ("element_type", 3),
        ("sampler", "shuffle"),
        ("noise_multiplier", 0.0),
        ("noise_multiplier", -1.0),
        ("noise_multiplier", float("nan")),
        ("noise_multiplier", float("inf")),
        ("clip_norm", 0.0),
        ("clip_norm", float("nan")),
        ("clip_norm", float("inf")),
        ("ledger_sequence", 0),
        ("ledger_sequence", 2**64),
        ("ledger_previous_head", bytes(33)),
        ("flags", 4),
        ("flags", -1),
        ("payload_bytes", -1),
    ],
)
def test_header_refuses_a_value_that_the_contract_does_not_allow(field, value):
    with pytest.raises(ContractError, match=field):
        dataclasses.replace(SEALED, **{field: value})


@pytest.mark.parametrize(
    ("offset", "replacement"),
    [
        (0, b"HGUPDATF"),
        (8, struct.pack("<I", 2)),
        (44, b"\0" * 64),
        (44, b"client-1\0x"),
        (44, b"cl\xc3\xafent-"),
        (116, struct.pack("<I", 0)),
        (120, struct.pack("<I", 0)),
        (120, struct.pack("<I", 3)),
        (124, struct.pack("<d", float("nan"))),
        (132, struct.pack("<d", -0.5)),
        (140, bytes(8)),
        (180, struct.pack("<I", 8)),
    ],
)
def test_unpacking_refuses_bytes_that_are_no_header(offset, replacement):
    damaged = SEALED_BYTES[:offset] + replacement + SEALED_BYTES[offset + len(replacement) :]
    with pytest.raises(ContractError):
        header.unpack(damaged)


@pytest.mark.parametrize("size", [0, 191, 193])
def test_unpacking_refuses_another_length(size):
    with pytest.raises(ContractError, match="192"):
        header.unpack(SEALED_BYTES.ljust(193, b"\0")[:size])


def test_first_head_refuses_an_id_of_another_length():
    with pytest.raises(ContractError, match="16 bytes"):
        header.first_head(bytes(15))
