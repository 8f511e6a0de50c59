"""Copies a server's state while it runs, and puts such a copy back.

A backup is a folder like a state folder, of one moment: every digest in it was verified after it was written. It
replaces the one before in a single rename, and then a note beside the state says which version it holds; with
`backups = true` that version is the retention watermark. Restoring raises server_epoch, opens every session anew, and
moves what it replaces aside.
"""

import dataclasses
import hashlib
import json
import os
import shutil
import sqlite3
import time
from pathlib import Path
from typing import Final

from hushgrad.server import database as database_module
from hushgrad.server import folder as folder_module
from hushgrad.server.database import Database
from hushgrad.server.errors import InputError, ServerError, StoreError
from hushgrad.server.folder import StateFolder

NOTE_NAME: Final = "backup.json"
EPOCH_NAME: Final = "restored.json"
SESSION_BITS: Final = 32
"""A session given in epoch e is at least e << 32, so that none of an epoch that is gone is ever taken for it."""
_TRIES: Final = 10


@dataclasses.dataclass(frozen=True, slots=True)
class Backup:
    """What a backup holds."""

    version: int
    updates: int
    server_epoch: int
    terms_digest: str


@dataclasses.dataclass(frozen=True, slots=True)
class Restored:
    """What `restore` did.

    Attributes:
        backup: what was put back.
        server_epoch: of the restored state.
        replaced: where the state before lies now; None when there was none.
        versions_lost: how many published versions the state before had beyond the backup; 0 when it could not be read.
    """

    backup: Backup
    server_epoch: int
    replaced: Path | None
    versions_lost: int


def noted_version(folder: StateFolder) -> int:
    """Returns the version that the last verified backup of a state holds; 0 when there is none."""
    try:
        return int(json.loads((folder.root / NOTE_NAME).read_text())["version"])
    except FileNotFoundError:
        return 0
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StoreError(f"{folder.root / NOTE_NAME} cannot be read: {error}; make a new backup") from error


def noted_seconds(folder: StateFolder) -> float:
    """Returns when the last verified backup was made, seconds since 1970; 0 when nothing readable says so."""
    try:
        return float(json.loads((folder.root / NOTE_NAME).read_text())["unix_seconds"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0.0


def backup(folder: StateFolder, target: Path) -> Backup:
    """Copies a state, whether or not its server runs, verifies the copy, and notes it beside the state.

    Args:
        target: a folder that is new, empty, or holds an earlier backup of the same federation, which it replaces.

    Raises:
        InputError: if there is no state, or the target cannot be used; the backup before it stays.
        StoreError: if something in the state or in the copy is damaged.
    """
    copy = StateFolder(target)
    source = Database.open(folder, read_only=True)
    try:
        _check_target(copy, database_module.terms_digest_of(source))
        for path in (copy.root, copy.arrays, copy.sealed):
            path.mkdir(parents=True, exist_ok=True)
        fresh = copy.database.with_name(copy.database.name + ".new")
        for _ in range(_TRIES):
            fresh.unlink(missing_ok=True)
            source.copy_into(fresh)
            missing = _copy_files(folder, copy, fresh)
            if not missing:
                break
        else:
            raise ServerError(f"{missing[0]} was replaced while it was copied, {_TRIES} times; try again")
        found = _verified(copy, fresh)
        folder_module.sync_file(fresh)
        fresh.rename(copy.database)
        folder_module.sync_directory(copy.root)
        _remove_unnamed(copy)
        note = {"version": found.version, "folder": str(target.absolute()), "unix_seconds": round(time.time())}
        folder_module.write_durably(folder.root / NOTE_NAME, json.dumps(note).encode())
        return found
    except OSError as error:
        raise InputError(f"the backup in {target} cannot be written: {error.strerror or error}") from error
    except (sqlite3.Error, UnicodeError) as error:
        raise StoreError(f"the state in {folder.root} cannot be copied: {error}") from error
    finally:
        source.close()


def restore(folder: StateFolder, source: Path, *, force: bool) -> Restored:
    """Puts a backup in the place of a state, under a new server_epoch.

    Args:
        force: also over a state that is newer than the backup or cannot be read.

    Raises:
        InputError: if the backup cannot be used, a server runs on the state, or `force` is needed; nothing was changed.
        StoreError: if the backup is damaged.
    """
    copy = StateFolder(source)
    if source.absolute() == folder.root.absolute():
        raise InputError(f"{source} is the state itself; name the folder of a backup")
    Database.open(copy, read_only=True).close()
    found = _verified(copy, copy.database)
    folder.make()
    folder.lock()
    try:
        present = _present(folder)
        versions_lost = _check_replaceable(folder, present, found, force=force)
        epoch = 1 + max(found.server_epoch, present.server_epoch if present else 0, _noted_epoch(copy))
        # Before anything else: a second restore of the same backup must never give the same epoch.
        folder_module.write_durably(copy.root / EPOCH_NAME, json.dumps({"server_epoch": epoch}).encode())
        replaced = _move_aside(folder, epoch)
        _put_back(folder, copy, epoch)
        note = {"version": found.version, "folder": str(source.absolute()), "unix_seconds": round(time.time())}
        folder_module.write_durably(folder.root / NOTE_NAME, json.dumps(note).encode())
        return Restored(found, epoch, replaced, versions_lost)
    except OSError as error:
        raise InputError(
            f"the backup cannot be put back: {error.filename or folder.root}: {error.strerror or error}; both "
            "backup and state must be writable"
        ) from error
    finally:
        folder.unlock()


def _check_target(copy: StateFolder, terms_digest: bytes) -> None:
    if copy.root.exists() and not copy.root.is_dir():
        raise InputError(f"{copy.root} must be a folder")
    if copy.database.exists():
        before = Database.open(copy, read_only=True)
        try:
            if database_module.terms_digest_of(before) != terms_digest:
                raise InputError(f"{copy.root} holds a backup of another federation; give a folder of its own")
        finally:
            before.close()
    elif copy.root.exists() and any(
        path.name not in ("arrays", "sealed", f"{copy.database.name}.new") for path in copy.root.iterdir()
    ):
        raise InputError(f"{copy.root} holds other things; give a new or empty folder")
    if (copy.root / "lock").exists():
        raise InputError(f"{copy.root} is the state of a server; give another folder")


def _copy_files(folder: StateFolder, copy: StateFolder, database_path: Path) -> list[str]:
    """Copies the files that a copied database names; returns those that were gone. Names never get other content."""
    database = Database.at(copy, database_path)
    try:
        arrays = database.array_files()
        receipts = database.receipts() if _holds_any(folder.sealed) else ()
        sealed = [f"{one.participant}/{one.round}.update" for one in receipts if one.included_in is not None]
    finally:
        database.close()
    missing = [name for name in arrays if not _copied(folder.arrays / name, copy.arrays / name)]
    for name in sealed:
        # Kept only where the server keeps sealed bytes.
        _copied(folder.sealed / name, copy.sealed / name)
    for path in (copy.arrays, copy.sealed, *copy.sealed.iterdir()):
        folder_module.sync_directory(path)
    return missing


def _holds_any(sealed: Path) -> bool:
    """Says whether a server has kept sealed bytes; most do not, and then nobody has to go through all receipts."""
    return sealed.is_dir() and any(sealed.iterdir())


def _copied(path: Path, target: Path) -> bool:
    if target.exists():
        return True
    temporary = target.with_name(target.name + ".new")
    target.parent.mkdir(exist_ok=True)
    try:
        shutil.copyfile(path, temporary)
    except FileNotFoundError:
        temporary.unlink(missing_ok=True)
        return False
    folder_module.sync_file(temporary)
    temporary.rename(target)
    return True


def _remove_unnamed(copy: StateFolder) -> None:
    database = Database.at(copy, copy.database)
    try:
        named = database.array_files()
    finally:
        database.close()
    for path in copy.arrays.iterdir():
        if path.name not in named:
            path.unlink()


def _verified(copy: StateFolder, path: Path) -> Backup:
    """Reads everything in a backup and compares every digest."""
    database = Database.at(copy, path, read_only=True)
    try:
        database.check(whole=True)
        terms = database_module.stored_terms(database)
        snapshot = database.snapshot(terms)
        for version in database.versions():
            if version.is_kept:
                database.model(version.version)
        for receipt in database.receipts() if _holds_any(copy.sealed) else ():
            if receipt.included_in is None:
                continue
            sealed = copy.sealed / receipt.participant / f"{receipt.round}.update"
            if sealed.exists() and hashlib.sha256(sealed.read_bytes()).digest() != receipt.digest:
                raise StoreError(f"{sealed} does not have the digest of its receipt; make the backup anew")
        digest = database_module.terms_digest_of(database).hex()
        return Backup(snapshot.version, database.updates_included(), database.server_epoch(), digest)
    except (sqlite3.Error, UnicodeError) as error:
        raise StoreError(f"{path} is damaged: {error}; use another backup") from error
    finally:
        database.close()


def _present(folder: StateFolder) -> Backup | None:
    """Says what a state holds; None when it cannot be read, or there is none."""
    if not folder.database.exists():
        return None
    try:
        database = Database.open(folder, read_only=True)
        try:
            newest = max(version.version for version in database.versions())
            updates = sum(receipt.digest is not None for receipt in database.receipts())
            digest = database_module.terms_digest_of(database).hex()
            return Backup(newest, updates, database.server_epoch(), digest)
        finally:
            database.close()
    except (ServerError, sqlite3.Error, ValueError):
        return None


def _check_replaceable(folder: StateFolder, present: Backup | None, found: Backup, *, force: bool) -> int:
    if not folder.database.exists():
        return 0
    if present is None:
        if force:
            return 0
        raise InputError(
            f"the state in {folder.root} cannot be read, so nobody can say what of it the backup lacks; move it away, "
            "or repeat with --force to put it aside"
        )
    if present.terms_digest != found.terms_digest:
        raise InputError(
            f"the state in {folder.root} is of another federation (terms {present.terms_digest}, the backup has "
            f"{found.terms_digest}); name another state folder"
        )
    is_newer = (present.version, present.updates) > (found.version, found.updates)
    if is_newer and not force:
        raise InputError(
            f"the state in {folder.root} is newer: version {present.version} with {present.updates} updates, the "
            f"backup has version {found.version} with {found.updates}; with --force the versions in between are made "
            "anew from what the participants still hold, and rounds that nobody holds are lost"
        )
    return max(0, present.version - found.version)


def _noted_epoch(copy: StateFolder) -> int:
    try:
        return int(json.loads((copy.root / EPOCH_NAME).read_text())["server_epoch"])
    except FileNotFoundError:
        return 0
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{copy.root / EPOCH_NAME} cannot be read: {error}; write into it the epoch of the last restore"
        ) from error


def _move_aside(folder: StateFolder, epoch: int) -> Path | None:
    replaced = folder.root / f"replaced-by-epoch-{epoch}"
    # The main file first: without it there is no state, and a crash here is repaired by restoring again.
    names = [folder.database.name, *(f"{folder.database.name}-{end}" for end in ("wal", "shm")), "arrays", "sealed"]
    moved = False
    for name in names:
        path = folder.root / name
        if path.is_file() or (path.is_dir() and any(path.iterdir())):
            replaced.mkdir(exist_ok=True)
            path.rename(replaced / name)
            moved = True
    folder.make()
    folder_module.sync_directory(folder.root)
    return replaced if moved else None


def _put_back(folder: StateFolder, copy: StateFolder, epoch: int) -> None:
    for path in (*copy.arrays.iterdir(), *copy.sealed.glob("*/*.update")):
        if not path.name.endswith(".new"):
            _copied(path, folder.root / path.relative_to(copy.root))
    for path in (folder.arrays, folder.sealed, *folder.sealed.iterdir()):
        folder_module.sync_directory(path)
    fresh = folder.database.with_name(folder.database.name + ".new")
    fresh.unlink(missing_ok=True)
    shutil.copyfile(copy.database, fresh)
    database = Database.at(folder, fresh)
    try:
        database.begin()
        database.raise_epoch(epoch, first_session=epoch << SESSION_BITS)
        database.commit()
        database.use_write_ahead_log()
    finally:
        database.close()
    folder_module.sync_file(fresh)
    os.rename(fresh, folder.database)
    folder_module.sync_directory(folder.root)
