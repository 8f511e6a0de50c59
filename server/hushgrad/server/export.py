"""Writes a server's state as plain files, so that anybody can recompute every published version without this program.

Reads only; works while the server runs.
"""

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

from hushgrad.server.database import Database
from hushgrad.server.errors import InputError
from hushgrad.server.folder import StateFolder
from hushgrad.server.past import StoredVersion
from hushgrad.server.records import Receipt
from hushgrad.wire import terms as wire_terms


def export(folder: StateFolder, target: Path) -> dict[str, int]:
    """Writes terms, models, manifests, receipts and, where they were kept, sealed updates; returns what was counted.

    Raises:
        InputError: if there is no state, or the target cannot be written.
        StoreError: if something in the state is damaged.
    """
    database = Database.open(folder, read_only=True)
    try:
        # One transaction: a server that publishes meanwhile changes nothing of what is read.
        database.begin_reading()
        database.check()
        return _export(database, folder, target)
    except OSError as error:
        raise InputError(f"{error.filename or target} cannot be written: {error.strerror}") from error
    finally:
        database.close()


def _export(database: Database, folder: StateFolder, target: Path) -> dict[str, int]:
    (target / "versions").mkdir(parents=True, exist_ok=True)
    terms_bytes = database.terms_bytes()
    terms = wire_terms.from_bytes(terms_bytes)
    _write_json(
        target / "terms.json",
        {**_plain(dataclasses.asdict(terms)), "terms_digest": wire_terms.digest(terms_bytes).hex()},
    )
    versions = database.versions()
    for version in versions:
        found = database.model(version.version)
        if found is not None:
            (target / "versions" / f"{version.version}.f32").write_bytes(found[0])
            if version.version == 0:
                (target / "initial.f32").write_bytes(found[0])
    receipts = list(database.receipts())
    _write_json(target / "manifest.json", {"versions": _manifest(versions, receipts)})
    _write_json(target / "receipts.json", [_receipt(receipt) for receipt in receipts])
    sealed = _copy_sealed(folder, target, receipts)
    return {"versions": len(versions), "receipts": len(receipts), "sealed": sealed}


def _manifest(versions: list[StoredVersion], receipts: list[Receipt]) -> list[dict[str, Any]]:
    added: dict[int, list[dict[str, Any]]] = {version.version: [] for version in versions}
    for receipt in receipts:
        if receipt.included_in is not None:
            added[receipt.included_in].append(
                {
                    "participant": receipt.participant,
                    "round": receipt.round,
                    "digest": _hex(receipt.digest),
                    "ledger_sequence": receipt.sequence,
                    "ledger_head": _hex(receipt.head),
                }
            )
    return [
        {"version": version.version, "sha256": version.sha256.hex(), "updates": added[version.version]}
        for version in versions
    ]


def _receipt(receipt: Receipt) -> dict[str, Any]:
    return {
        "participant": receipt.participant,
        "round": receipt.round,
        "digest": _hex(receipt.digest),
        "ledger_sequence": receipt.sequence,
        "ledger_previous_head": _hex(receipt.previous_head),
        "ledger_head": _hex(receipt.head),
        "disposition": None if receipt.disposition is None else receipt.disposition.value,
        "reason": receipt.reason,
        "included_in": receipt.included_in,
    }


def _copy_sealed(folder: StateFolder, target: Path, receipts: list[Receipt]) -> int:
    copied = 0
    for receipt in receipts:
        path = folder.sealed / receipt.participant / f"{receipt.round}.update"
        if receipt.included_in is not None and path.exists():
            destination = target / "sealed" / receipt.participant / path.name
            destination.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, destination)
            copied += 1
    return copied


def _hex(data: bytes | None) -> str | None:
    return data.hex() if data else None


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return value


def _write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")
