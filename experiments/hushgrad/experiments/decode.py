"""Reads one stored or captured message of the contract, and says by its path which field is damaged.

Reads headers, sealed updates (.update files), and every message of hushgrad.v1; raw, framed by gRPC, in hexadecimal or
in base64. Walks the wire format itself, because protobuf's own parsers only say that something is wrong.
"""

import base64
import binascii
import dataclasses
import hashlib
import re
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from google.protobuf import json_format
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message_factory import GetMessageClass
from hushgrad.experiments.errors import InputError
from hushgrad.v1 import (
    admin_pb2,
    common_pb2,
    enrollment_pb2,
    membership_pb2,
    models_pb2,
    status_pb2,
    terms_pb2,
    updates_pb2,
)
from hushgrad.wire import header as wire_header
from hushgrad.wire.errors import ContractError

_MODULES: Final = (
    common_pb2,
    terms_pb2,
    membership_pb2,
    updates_pb2,
    models_pb2,
    status_pb2,
    enrollment_pb2,
    admin_pb2,
)
_SHOWN_ELEMENTS: Final = 8
_SHOWN_BYTES: Final = 32
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_WIRE_NAMES: Final = {_VARINT: "a varint", _FIXED64: "8 bytes", _BYTES: "a length and bytes", _FIXED32: "4 bytes"}


class DecodeError(InputError):
    """Bytes that are no such message; the text begins with the path of the field where it shows."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """What was found.

    Attributes:
        kind: full name of the message, "header" or "sealed update".
        rows: (path of the field, value as people read it), in the order of the bytes.
        plain: the same as JSON values.
        sha256: of the message's bytes, in hexadecimal; of Terms it is the digest that ledgers pin.
        also: other messages that the bytes could be, when the kind was guessed.
    """

    kind: str
    rows: tuple[tuple[str, str], ...]
    plain: dict[str, Any]
    sha256: str
    also: tuple[str, ...] = ()


def types() -> dict[str, Descriptor]:
    """Returns every message of the contract by its name without the package.

    >>> "SubmitUpdateRequest" in types()
    True
    """
    found: dict[str, Descriptor] = {}
    waiting = [message for module in _MODULES for message in module.DESCRIPTOR.message_types_by_name.values()]
    while waiting:
        message = waiting.pop(0)
        found[message.full_name.removeprefix("hushgrad.v1.")] = message
        waiting += message.nested_types
    return found


def decode(data: bytes, kind: str | None = None) -> Decoded:
    """Reads a message.

    Args:
        data: as it was stored or captured.
        kind: name of the message, with or without "hushgrad.v1."; None: guessed.

    Raises:
        DecodeError: if the bytes are no message, or not of that kind.
        InputError: if there is no such kind.
    """
    data = _unframed(_plain_bytes(data))
    known = types()
    if kind is not None:
        name = kind.removeprefix("hushgrad.v1.")
        if name not in known:
            raise InputError(f"--type must be a message of hushgrad.v1, found {kind!r}; they are {', '.join(known)}")
        return _message(known[name], data)
    if data.startswith(b"HGUPDATE"):
        return _sealed(data)
    if not data:
        raise DecodeError("the file is empty; many messages are empty: say which with --type")
    ranked = sorted(
        (score, name) for name, descriptor in known.items() if (score := _likeness(descriptor, data)) is not None
    )
    if not ranked:
        raise DecodeError(
            f"{len(data)} bytes that begin with {data[:8].hex()} are neither an update nor a message of hushgrad.v1; "
            "name the message with --type to see where they break"
        )
    found = _message(known[ranked[0][1]], data)
    return dataclasses.replace(found, also=tuple(name for _, name in ranked[1:]))


def _plain_bytes(data: bytes) -> bytes:
    """Undoes hexadecimal or base64; a message in raw bytes is hardly ever printable text."""
    text = b"".join(data.split())
    if re.fullmatch(rb"(?:[0-9a-fA-F]{2})+", text):
        return bytes.fromhex(text.decode("ascii"))
    if re.fullmatch(rb"[A-Za-z0-9+/_-]+={0,2}", text) and len(text) % 4 == 0:
        try:
            return base64.b64decode(text.replace(b"-", b"+").replace(b"_", b"/"), validate=True)
        except binascii.Error:
            return data
    return data


def _unframed(data: bytes) -> bytes:
    """Takes off gRPC's five bytes before a message: not compressed, and its length."""
    if len(data) > 5 and data[0] == 0 and int.from_bytes(data[1:5]) == len(data) - 5:
        return data[5:]
    return data


def _sealed(data: bytes) -> Decoded:
    try:
        declared = wire_header.unpack(data[: wire_header.HEADER_BYTES])
    except ContractError as error:
        raise DecodeError(f"header: {error}") from None
    plain: dict[str, Any] = {"header": _header_values(declared)}
    payload = data[wire_header.HEADER_BYTES :]
    if not payload and declared.payload_bytes:
        rows = [(f"header.{name}", str(value)) for name, value in plain["header"].items()]
        return Decoded("header", tuple(rows), plain, hashlib.sha256(data).hexdigest())
    if len(payload) != declared.payload_bytes:
        raise DecodeError(f"payload: the header says {declared.payload_bytes} bytes, found {len(payload)}")
    digest = wire_header.digest(data[: wire_header.HEADER_BYTES], payload)
    plain["payload"] = _payload_values(declared, payload)
    plain["digest"] = digest.hex()
    plain["ledger_head"] = wire_header.next_head(declared.ledger_previous_head, digest).hex()
    rows = [(f"header.{name}", str(value)) for name, value in plain["header"].items()]
    rows += [(f"payload.{name}", str(value)) for name, value in plain["payload"].items()]
    rows += [("digest", plain["digest"]), ("ledger_head", plain["ledger_head"])]
    return Decoded("sealed update", tuple(rows), plain, digest.hex())


def _header_values(declared: wire_header.UpdateHeader) -> dict[str, Any]:
    values = {}
    for name in declared.__dataclass_fields__:
        value = getattr(declared, name)
        values[name] = value.hex() if isinstance(value, bytes) else value
    return values


def _payload_values(declared: wire_header.UpdateHeader, payload: bytes) -> dict[str, Any]:
    kind = "<i4" if declared.element_type == terms_pb2.ELEMENT_TYPE_INT32 else "<i8"
    if len(payload) % np.dtype(kind).itemsize:
        raise DecodeError(f"payload: {len(payload)} bytes are no whole number of {kind[1:]} elements")
    elements = np.frombuffer(payload, kind)
    if not len(elements):
        return {"elements": 0}
    return {
        "elements": len(elements),
        "first": elements[:_SHOWN_ELEMENTS].tolist(),
        "smallest": int(elements.min()),
        "largest": int(elements.max()),
        "root_mean_square": float(np.sqrt(np.mean(elements.astype(np.float64) ** 2))),
    }


def _message(descriptor: Descriptor, data: bytes) -> Decoded:
    rows = list(_walk(descriptor, data, ""))
    message = GetMessageClass(descriptor).FromString(data)
    plain = json_format.MessageToDict(message, preserving_proto_field_name=True)
    return Decoded(descriptor.full_name, tuple(rows), plain, hashlib.sha256(data).hexdigest())


def _likeness(descriptor: Descriptor, data: bytes) -> tuple[int, int] | None:
    """Returns how well bytes fit a message, smallest best; None when they do not."""
    try:
        rows = list(_walk(descriptor, data, ""))
    except DecodeError:
        return None
    if any("unknown" in value for _, value in rows):
        return None
    # The message that explains the bytes by the most fields, and has the fewest fields that are not set.
    return -len(rows), len(descriptor.fields)


def _walk(descriptor: Descriptor, data: bytes, path: str) -> Iterator[tuple[str, str]]:
    """Yields path and value of every field; raises DecodeError at the first byte that fits no field."""
    position, seen = 0, dict[int, int]()
    while position < len(data):
        key, position = _varint(data, position, path or descriptor.name)
        number, wire = key >> 3, key & 7
        field = descriptor.fields_by_number.get(number)
        name = field.name if field is not None else f"field {number}"
        if field is not None and field.is_repeated and wire == _wire_of(field):
            name += f"[{seen.get(number, 0)}]"
            seen[number] = seen.get(number, 0) + 1
        where = f"{path}.{name}" if path else name
        raw, position = _raw(wire, data, position, where)
        if field is None:
            yield where, f"unknown to this version of the contract: {_shown(raw)}"
        elif wire == _BYTES and field.is_repeated and _wire_of(field) != _BYTES:
            yield where, _packed(field, raw, where)
        elif wire != _wire_of(field):
            raise DecodeError(f"{where}: expected {_WIRE_NAMES[_wire_of(field)]}, found {_WIRE_NAMES[wire]}")
        elif field.type == FieldDescriptor.TYPE_MESSAGE:
            assert field.message_type is not None
            inner = list(_walk(field.message_type, raw, where))
            yield from inner or [(where, "(empty)")]
        elif field.name == "header" and raw.startswith(b"HGUPDATE"):
            try:
                declared = wire_header.unpack(raw)
            except ContractError as error:
                raise DecodeError(f"{where}: {error}") from None
            yield from ((f"{where}.{key_}", str(value)) for key_, value in _header_values(declared).items())
        else:
            yield where, _scalar(field, raw, where)


def _varint(data: bytes, position: int, where: str) -> tuple[int, int]:
    value, shift = 0, 0
    while shift < 70:
        if position >= len(data):
            raise DecodeError(f"{where}: the bytes end inside a number")
        byte = data[position]
        value |= (byte & 127) << shift
        position, shift = position + 1, shift + 7
        if byte < 128:
            return value, position
    raise DecodeError(f"{where}: a number has more than ten bytes")


def _raw(wire: int, data: bytes, position: int, where: str) -> tuple[bytes, int]:
    """Returns the bytes of one value and where the next field begins; a varint comes as its eight bytes."""
    if wire == _VARINT:
        value, position = _varint(data, position, where)
        return (value & (2**64 - 1)).to_bytes(8, "little"), position
    if wire == _BYTES:
        length, position = _varint(data, position, where)
    elif wire in (_FIXED64, _FIXED32):
        length = 8 if wire == _FIXED64 else 4
    else:
        raise DecodeError(f"{where}: wire type {wire} does not occur in proto3")
    if position + length > len(data):
        raise DecodeError(f"{where}: {length} bytes are announced, {len(data) - position} are left")
    return data[position : position + length], position + length


def _wire_of(field: FieldDescriptor) -> int:
    if field.type == FieldDescriptor.TYPE_DOUBLE:
        return _FIXED64
    if field.type == FieldDescriptor.TYPE_FIXED32:
        return _FIXED32
    has_length = (FieldDescriptor.TYPE_MESSAGE, FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES)
    return _BYTES if field.type in has_length else _VARINT


def _packed(field: FieldDescriptor, raw: bytes, where: str) -> str:
    values, position = [], 0
    while position < len(raw):
        part, position = _raw(_wire_of(field), raw, position, where)
        values.append(_scalar(field, part, where))
    return _listed(values)


def _listed(values: Sequence[str]) -> str:
    shown = ", ".join(values[:_SHOWN_ELEMENTS])
    return shown if len(values) <= _SHOWN_ELEMENTS else f"{shown}, ... {len(values)} in all"


def _scalar(field: FieldDescriptor, raw: bytes, where: str) -> str:
    match field.type:
        case FieldDescriptor.TYPE_STRING:
            try:
                return raw.decode()
            except UnicodeDecodeError:
                raise DecodeError(f"{where}: expected text in UTF-8, found {_shown(raw)}") from None
        case FieldDescriptor.TYPE_BYTES:
            return _shown(raw)
        case FieldDescriptor.TYPE_DOUBLE:
            return repr(struct.unpack("<d", raw)[0])
    value = int.from_bytes(raw, "little")
    match field.type:
        case FieldDescriptor.TYPE_SINT32:
            return str((value >> 1) ^ -(value & 1))
        case FieldDescriptor.TYPE_BOOL:
            return str(bool(value)).lower()
        case FieldDescriptor.TYPE_ENUM:
            assert field.enum_type is not None
            known = field.enum_type.values_by_number.get(value)
            return f"{known.name} ({value})" if known is not None else f"unknown value {value}"
    return str(value)


def _shown(raw: bytes) -> str:
    if len(raw) <= _SHOWN_BYTES:
        return raw.hex() or "(empty)"
    return f"{len(raw)} bytes, {raw[:8].hex()}..., SHA-256 {hashlib.sha256(raw).hexdigest()}"
