"""Backups while the server runs, and what comes of restoring one: an old one, a damaged one, one over a newer state."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hushgrad.server import backup
from hushgrad.server.database import Database
from hushgrad.server.errors import InputError, StoreError
from hushgrad.server.folder import StateFolder
from hushgrad.v1 import common_pb2, membership_pb2

from tests.support.federations import Sender, make_terms, senders_of
from tests.support.servers import Client, ServerProcess, configure, make_state

TERMS = make_terms(participants=2, final_version=30, window=6, max_delay=2)
ACCEPTED = common_pb2.ANSWER_ACCEPTED


def run(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "hushgrad.server", *arguments], cwd=root, capture_output=True, text=True, timeout=30
    )


def connected(server: ServerProcess, senders: list[Sender]) -> list[Client]:
    clients = [Client(server.address, sender) for sender in senders]
    for client in clients:
        assert client.join().verdict.answer == ACCEPTED
    return clients


def play(clients: list[Client], rounds: range) -> None:
    """Seals and sends rounds; each makes a version."""
    for round_ in rounds:
        for client in clients:
            assert client.submit(client.sender.seal(round_)).verdict.answer == ACCEPTED
        clients[0].wait_for_version(round_ + 1)


def tell(client: Client, held: list[int], below: int) -> list[int]:
    """Reports what is held as after a restore; returns what is wanted."""
    reports = [
        membership_pb2.RoundReport(
            round=round_, fate=membership_pb2.RoundReport.FATE_HELD, digest=client.sender.sealed[round_].digest
        )
        for round_ in held
    ]
    request = membership_pb2.ReportRoundsRequest(caller=client.caller, reports=reports, held_below=below)
    answer = client.membership.ReportRounds(request, timeout=10)
    assert answer.verdict.answer == ACCEPTED, answer.verdict
    return list(answer.participation.wanted_rounds)


def test_a_restored_server_makes_anew_what_is_held_loses_the_rest_and_goes_on(tmp_path: Path) -> None:
    make_state(tmp_path, TERMS)
    configure(tmp_path, backups=True, keep_sealed=True)
    one, _ = senders = senders_of(TERMS)
    with ServerProcess(tmp_path) as server:
        clients = connected(server, senders)
        for client in clients:
            client.start()
        play(clients, range(3))
        assert clients[0].status().server.retention_watermark == 0
        done = run(tmp_path, "backup", "copy", "--json")
        assert done.returncode == 0, done.stderr
        assert (json.loads(done.stdout)["version"], json.loads(done.stdout)["updates"]) == (3, 6)
        play(clients, range(3, 12))
        deadline = time.monotonic() + 5
        while clients[0].status().server.retention_watermark == 0 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert clients[0].status().server.retention_watermark == 3  # of the backup, not of the checkpoint
        refused = run(tmp_path, "restore", "copy")
        assert refused.returncode == 2
        assert "in use by another server" in refused.stderr
        old_session = one.session
        for client in clients:
            client.close()
    refused = run(tmp_path, "restore", "copy")
    assert refused.returncode == 2
    assert "version 12" in refused.stderr
    assert "rounds that nobody holds are lost" in refused.stderr
    assert refused.stderr.count("\n") == 1
    done = run(tmp_path, "restore", "copy", "--force", "--json")
    assert done.returncode == 0, done.stderr
    restored = json.loads(done.stdout)
    assert (restored["version"], restored["server_epoch"], restored["versions_lost"]) == (3, 2, 9)
    assert Database.at(StateFolder(Path(restored["replaced"])), Path(restored["replaced"]) / "server.sqlite").versions()
    with ServerProcess(tmp_path) as server:
        stale = Client(server.address, one)
        assert stale.start().verdict.answer == common_pb2.ANSWER_STALE_SESSION
        clients = connected(server, senders)
        assert one.session > old_session
        # The first holds everything since the backup, the second only round 5 and 9: 9 is beyond the window and wanted
        # all the same.
        assert tell(clients[0], list(range(3, 12)), 12) == list(range(3, 12))
        assert tell(clients[1], [5, 9], 12) == [5, 9]
        for round_ in range(3, 12):
            for client in clients:
                if client is clients[0] or round_ in (5, 9):
                    assert client.submit(client.sender.sealed[round_]).verdict.answer == ACCEPTED
            clients[0].wait_for_version(round_ + 1)
        play(clients, range(12, 14))
        status = clients[0].status()
        assert [one.rounds_lost for one in status.participants] == [0, 7]
        assert "(7 lost)" in run(tmp_path, "status", server.address).stdout
        assert run(tmp_path, "export", "out").returncode == 0
        for client in (*clients, stale):
            client.close()
    script = Path(__file__).parents[1] / "e2e" / "recompute.py"
    checked = subprocess.run([sys.executable, str(script), str(tmp_path / "out")], capture_output=True, text=True)
    assert checked.stdout.strip() == "15 versions recomputed, 0 differ", checked.stderr
    lost = [one for one in json.loads((tmp_path / "out" / "receipts.json").read_text()) if one["disposition"] == "LOST"]
    assert [(one["participant"], one["round"]) for one in lost] == [
        ("client-2", round_) for round_ in (3, 4, 6, 7, 8, 10, 11)
    ]


def test_restoring_one_backup_twice_never_gives_one_epoch_twice(tmp_path: Path) -> None:
    make_state(tmp_path, TERMS)
    folder = StateFolder(tmp_path / "server")
    backup.backup(folder, tmp_path / "copy")
    assert backup.restore(folder, tmp_path / "copy", force=False).server_epoch == 2
    other = StateFolder(tmp_path / "other")
    assert backup.restore(other, tmp_path / "copy", force=False).server_epoch == 3
    assert backup.restore(folder, tmp_path / "copy", force=False).server_epoch == 4


def test_large_arrays_are_copied_and_a_flipped_bit_in_any_file_is_refused(tmp_path: Path) -> None:
    terms = make_terms(parameters=40_000)
    make_state(tmp_path, terms)
    folder, copy = StateFolder(tmp_path / "server"), tmp_path / "copy"
    backup.backup(folder, copy)
    (array,) = (copy / "arrays").iterdir()
    original = array.read_bytes()
    array.write_bytes(original[:-1] + bytes([original[-1] ^ 1]))
    with pytest.raises(StoreError, match="damaged"):
        backup.restore(StateFolder(tmp_path / "new"), copy, force=True)
    array.write_bytes(original)
    backup.restore(StateFolder(tmp_path / "new"), copy, force=True)
    with ServerProcess(tmp_path, "--state", str(tmp_path / "new")) as server:
        (sender, *_) = senders_of(terms)
        client = Client(server.address, sender)
        assert client.join().verdict.server.server_epoch == 2
        client.close()


def test_a_backup_replaces_the_one_before_and_nothing_else(tmp_path: Path) -> None:
    make_state(tmp_path, TERMS)
    folder, copy = StateFolder(tmp_path / "server"), tmp_path / "copy"
    assert backup.noted_version(folder) == 0
    backup.backup(folder, copy)
    backup.backup(folder, copy)
    other = tmp_path / "other"
    other.mkdir()
    make_state(other, make_terms(participants=3))
    for target, word in ((other / "server", "another federation"), (tmp_path, "other things")):
        with pytest.raises(InputError, match=word):
            backup.backup(folder, target)
    with pytest.raises(InputError, match="of another federation"):
        backup.restore(StateFolder(other / "server"), copy, force=True)
    with pytest.raises(InputError, match="the state itself"):
        backup.restore(folder, folder.root, force=True)


def test_a_state_that_cannot_be_read_is_put_aside_only_when_asked(tmp_path: Path) -> None:
    make_state(tmp_path, TERMS)
    folder, copy = StateFolder(tmp_path / "server"), tmp_path / "copy"
    backup.backup(folder, copy)
    folder.database.write_bytes(b"")
    with pytest.raises(InputError, match="--force"):
        backup.restore(folder, copy, force=False)
    done = backup.restore(folder, copy, force=True)
    assert done.replaced is not None
    assert (done.replaced / "server.sqlite").read_bytes() == b""
