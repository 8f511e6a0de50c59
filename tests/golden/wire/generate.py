"""Writes the golden wire files: every message of hushgrad.v1 as JSON and as bytes, and worked headers with their chain.

Usage: python tests/golden/wire/generate.py. Run once for every new message; files that exist are never written again,
because what other languages' tests read must not move. Values are made from field numbers, so that any two fields of a
message differ: numbers are beyond 2^32 where the type allows it, and every enum is its first value that is not zero.
"""

import hashlib
import json
import struct
from pathlib import Path

import google_crc32c
from google.protobuf import json_format
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
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

HERE = Path(__file__).resolve().parent
MODULES = (common_pb2, terms_pb2, membership_pb2, updates_pb2, models_pb2, status_pb2, enrollment_pb2, admin_pb2)


def descriptors() -> list[Descriptor]:
    """Returns every message of the contract, nested ones included."""
    found: list[Descriptor] = []
    waiting = [message for module in MODULES for message in module.DESCRIPTOR.message_types_by_name.values()]
    while waiting:
        message = waiting.pop(0)
        found.append(message)
        waiting += message.nested_types
    return found


def samples(descriptor: Descriptor) -> dict[str, Message]:
    """Returns the messages to write by file name: one, or one for each choice of a oneof."""
    name = descriptor.full_name.removeprefix("hushgrad.v1.")
    choices = [oneof for oneof in descriptor.oneofs if not _is_optional(oneof.fields[0])]
    if not choices:
        return {name: filled(descriptor)}
    return {f"{name}.{choice.name}": filled(descriptor, choice.name) for choice in choices[0].fields}


def filled(descriptor: Descriptor, chosen: str = "") -> Message:
    """Returns a message with every field set; of a oneof only the chosen field, or the first."""
    message = GetMessageClass(descriptor)()
    for field in descriptor.fields:
        oneof = field.containing_oneof
        if oneof is not None and not _is_optional(field) and field.name != (chosen or oneof.fields[0].name):
            continue
        if field.is_repeated:
            getattr(message, field.name).extend([_value(field, 0), _value(field, 1)])
        elif field.type == FieldDescriptor.TYPE_MESSAGE:
            getattr(message, field.name).CopyFrom(_value(field, 0))
        else:
            setattr(message, field.name, _value(field, 0))
    return message


def _is_optional(field: FieldDescriptor) -> bool:
    return field.containing_oneof is not None and field.containing_oneof.name == f"_{field.name}"


def _value(field: FieldDescriptor, index: int) -> object:
    number = field.number + 100 * index
    match field.type:
        case FieldDescriptor.TYPE_MESSAGE:
            return filled(field.message_type)
        case FieldDescriptor.TYPE_ENUM:
            return field.enum_type.values[1 + index].number
        case FieldDescriptor.TYPE_STRING:
            return f"text-{number}"
        case FieldDescriptor.TYPE_BYTES:
            return bytes((number + place) % 256 for place in range(32))
        case FieldDescriptor.TYPE_DOUBLE:
            return number + 0.5
        case FieldDescriptor.TYPE_BOOL:
            return True
        case FieldDescriptor.TYPE_SINT32:
            return -number
        case FieldDescriptor.TYPE_UINT32 | FieldDescriptor.TYPE_FIXED32:
            return 2**31 + number
        case FieldDescriptor.TYPE_UINT64:
            return 2**40 + number
    raise AssertionError(f"no sample for {field.full_name}; say here what it is")


def worked_header() -> dict[str, object]:
    """Returns two sealed rows of one ledger, computed with struct and hashlib alone."""
    ledger_id, terms_digest = bytes(range(16)), bytes(range(32))
    head = hashlib.sha256(b"hushgrad ledger" + ledger_id).digest()
    found: dict[str, object] = {"ledger_id": ledger_id.hex(), "terms_digest": terms_digest.hex(), "head_0": head.hex()}
    rows = []
    for sequence, round_, elements in ((1, 0, (1, -2, 2**31 - 1)), (2, 1, (-(2**31) + 1, 0, 65536))):
        payload = struct.pack("<3i", *elements)
        header = struct.pack(
            "<8sI32s64sQIIddQ32sIQ",
            *(b"HGUPDATE", 1, terms_digest, b"client-1", round_, 1, 1, 2.125, 0.5, sequence, head, 0, len(payload)),
        )
        digest = hashlib.sha256(header + payload).digest()
        head = hashlib.sha256(head + digest).digest()
        rows.append(
            {
                "ledger_sequence": sequence,
                "round": round_,
                "elements": list(elements),
                "header": header.hex(),
                "payload": payload.hex(),
                "crc32c": google_crc32c.value(header + payload),
                "digest": digest.hex(),
                "head": head.hex(),
            }
        )
    return {**found, "participant": "client-1", "noise_multiplier": 2.125, "clip_norm": 0.5, "rows": rows}


def main() -> None:
    """Writes what is not there yet."""
    for descriptor in descriptors():
        for name, message in samples(descriptor).items():
            _write(
                f"{name}.json", json_format.MessageToJson(message, preserving_proto_field_name=True).encode() + b"\n"
            )
            _write(f"{name}.bin", message.SerializeToString(deterministic=True))
    _write("header.json", json.dumps(worked_header(), indent=2).encode() + b"\n")


def _write(name: str, data: bytes) -> None:
    path = HERE / name
    if not path.exists():
        path.write_bytes(data)
        print(f"wrote {path.name}")


if __name__ == "__main__":
    main()
