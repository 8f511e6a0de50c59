"""Payload files: durable before they are named, and gone when nobody names them."""

from pathlib import Path

import pytest
from hushgrad.client import outbox


def test_a_payload_file_is_named_by_its_digest(tmp_path: Path) -> None:
    digest = bytes(range(32))
    path = outbox.write_payload(tmp_path / "payloads", digest, b"abc")
    assert path == outbox.payload_path(tmp_path / "payloads", digest)
    assert path.read_bytes() == b"abc"
    assert list(path.parent.iterdir()) == [path]


def test_the_file_and_both_folders_are_synced_before_the_name_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    real = outbox.os.fsync

    def fsync(descriptor: int) -> None:
        synced.append(Path(f"/proc/self/fd/{descriptor}").readlink().name)
        real(descriptor)

    monkeypatch.setattr(outbox.os, "fsync", fsync)
    outbox.write_payload(tmp_path / "payloads", bytes(32), b"abc")
    assert synced == ["00" * 32 + ".tmp", "payloads", tmp_path.name]


def test_files_that_no_row_names_are_removed(tmp_path: Path) -> None:
    kept = outbox.write_payload(tmp_path, bytes(32), b"kept")
    outbox.write_payload(tmp_path, bytes([1]) * 32, b"orphan")
    (tmp_path / "half.tmp").write_bytes(b"half")
    (tmp_path / "note.txt").write_bytes(b"not ours")
    outbox.remove_orphans(tmp_path, [bytes(32)])
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([kept.name, "note.txt"])


def test_a_folder_that_is_not_there_has_no_orphans(tmp_path: Path) -> None:
    outbox.remove_orphans(tmp_path / "none", [])
    assert not (tmp_path / "none").exists()
