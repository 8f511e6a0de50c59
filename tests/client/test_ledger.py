"""The ledger: one commit per round, the same bytes for ever, and no way around it."""

import json
import os
import sqlite3
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from hushgrad.client import ledger, report, store
from hushgrad.client.errors import LedgerError, PayloadUnreadableError
from hushgrad.client.ledger import Ledger, LedgerWriteError
from hushgrad.client.outbox import Accepted, Forgotten, Refused, Reopened
from hushgrad.wire import header

from tests.support import client_world
from tests.support.client_world import DIGEST, FINGERPRINT, PARTICIPANT, payload

LARGE = 2**18 + 1  # elements; 4 bytes more than 1 MiB, so the payload is a file


def edit(folder: Path, statement: str, *arguments: object) -> None:
    """Changes the file behind the ledger's back."""
    connection = sqlite3.connect(folder / store.LEDGER_NAME)
    triggers = connection.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'").fetchall()
    for name, _ in triggers:
        connection.execute(f"DROP TRIGGER {name}")
    connection.execute("PRAGMA ignore_check_constraints = ON")
    assert connection.execute(statement, arguments).rowcount == 1
    for _, sql in triggers:
        connection.execute(sql)
    connection.commit()
    connection.close()


def test_seal_gives_a_header_that_says_where_the_row_stands(tmp_path: Path) -> None:
    with client_world.make_ledger(tmp_path) as book:
        sequence, previous = book.position
        book.seal(DIGEST, 0, payload())
        sealed = book.sendable(DIGEST, 0)
        found = header.unpack(sealed.header)
        assert (found.ledger_sequence, found.ledger_previous_head) == (sequence + 1, previous)
        assert (found.participant, found.round, found.sampler) == (PARTICIPANT, 0, "poisson")
        assert (found.noise_multiplier, found.clip_norm, found.payload_bytes) == (4.0, 0.5, 16)
        assert sealed.digest == header.digest(sealed.header, payload())
        assert book.position == (sequence + 1, header.next_head(previous, sealed.digest))


@pytest.mark.parametrize("parameters", [4, LARGE])
def test_resend_repeats_the_same_bytes_after_reopening(tmp_path: Path, parameters: int) -> None:
    with client_world.make_ledger(tmp_path, parameters=parameters) as book:
        book.seal(DIGEST, 0, payload(parameters))
        first = book.sendable(DIGEST, 0)
    with Ledger(tmp_path) as again:
        assert again.sendable(DIGEST, 0) == first
        assert again.sendable(DIGEST, 0) == first


CRASH = """
import os, signal, sys
from pathlib import Path
from hushgrad.client.ledger import Ledger
folder, step, digest, size = Path(sys.argv[1]), sys.argv[2], bytes.fromhex(sys.argv[3]), int(sys.argv[4])
def failpoint(name):
    if name == step:
        os.kill(os.getpid(), signal.SIGKILL)
Ledger(folder, failpoint=failpoint).seal(digest, 0, bytes(size))
"""


@pytest.mark.parametrize("parameters", [4, LARGE])
@pytest.mark.parametrize(
    ("step", "sealed"),
    [
        ("before payload", False),
        ("before row", False),
        ("between row and outbox", False),
        ("before commit", False),
        ("after commit", True),
    ],
)
def test_a_crash_during_the_seal_leaves_all_of_it_or_nothing(
    tmp_path: Path, step: str, sealed: bool, parameters: int
) -> None:
    client_world.make_ledger(tmp_path, parameters=parameters).close()

    command = [sys.executable, "-c", textwrap.dedent(CRASH), str(tmp_path), step, DIGEST.hex(), str(4 * parameters)]
    assert subprocess.run(command, timeout=30, env={**os.environ, "PYTHONPATH": ""}, check=False).returncode == -9

    with Ledger(tmp_path) as book:
        assert book.spent(DIGEST) == (frozenset({0}) if sealed else frozenset())
        assert len(book.entries(DIGEST)) == int(sealed)
        files = list((tmp_path / store.PAYLOAD_FOLDER).glob("*"))
        assert len(files) == int(sealed and parameters == LARGE)
        if sealed:
            assert book.sendable(DIGEST, 0).payload == bytes(4 * parameters)
        else:
            with pytest.raises(LedgerError, match="nothing was sealed for round 0"):
                book.sendable(DIGEST, 0)
            book.seal(DIGEST, 0, payload(parameters))
    ledger.verify(tmp_path)


@pytest.mark.parametrize(
    ("round_", "size", "complaint"),
    [(5, 16, "not in the committed schedule"), (-1, 16, "not in the committed schedule"), (1, 12, "must be 16 bytes")],
)
def test_a_seal_that_is_refused_changes_nothing(tmp_path: Path, round_: int, size: int, complaint: str) -> None:
    with client_world.make_ledger(tmp_path) as book:
        before = book.position
        with pytest.raises(LedgerError, match=complaint):
            book.seal(DIGEST, round_, bytes(size))
        assert book.position == before
        assert book.entries(DIGEST) == []
        assert book.spent(DIGEST) == frozenset()


def test_a_round_is_sealed_once(tmp_path: Path) -> None:
    with client_world.make_ledger(tmp_path) as book:
        book.seal(DIGEST, 0, payload())
        with pytest.raises(LedgerError, match="never spent twice"):
            book.seal(DIGEST, 0, payload(value=8))
        book.skip(DIGEST, 1)
        with pytest.raises(LedgerError, match="never spent twice"):
            book.seal(DIGEST, 1, payload())
        assert book.sendable(DIGEST, 0).payload == payload()


def test_nothing_is_sealed_before_a_schedule_is_committed(tmp_path: Path) -> None:
    with client_world.make_ledger(tmp_path) as book, pytest.raises(LedgerError, match="no schedule was committed"):
        book.seal(bytes(32), 0, payload())


def test_a_schedule_is_committed_once(tmp_path: Path) -> None:
    with client_world.make_ledger(tmp_path) as book, pytest.raises(LedgerError, match="committed already"):
        book.commit(client_world.make_committed())


def test_a_failed_write_stops_the_ledger_and_costs_nothing(tmp_path: Path) -> None:
    client_world.make_ledger(tmp_path).close()

    def full(step: str) -> None:
        if step == "before commit":
            raise sqlite3.OperationalError("database or disk is full")

    with Ledger(tmp_path, failpoint=full) as book:
        with pytest.raises(LedgerWriteError, match="disk is full"):
            book.seal(DIGEST, 0, payload())
        with pytest.raises(LedgerWriteError, match="cannot be used any more"):
            book.seal(DIGEST, 1, payload())
    with Ledger(tmp_path) as again:
        assert again.spent(DIGEST) == frozenset()


def test_bytes_are_kept_until_the_watermark_has_passed_them(tmp_path: Path) -> None:
    with client_world.make_ledger(tmp_path, parameters=LARGE) as book:
        book.seal(DIGEST, 0, payload(LARGE))
        book.record(DIGEST, [Forgotten(0)])  # not accepted: nothing may go
        assert book.sendable(DIGEST, 0).payload == payload(LARGE)
        book.record(DIGEST, [Accepted(0, included_in=2, server_epoch=1)])
        assert book.sendable(DIGEST, 0).payload == payload(LARGE)
        book.record(DIGEST, [Reopened(0)])
        assert book.entries(DIGEST)[0].state == "sealed"
        book.record(DIGEST, [Accepted(0, 3, 1), Forgotten(0)])
        (entry,) = book.entries(DIGEST)
        assert (entry.state, entry.included_in, entry.held) == ("accepted", 3, False)
        assert list((tmp_path / store.PAYLOAD_FOLDER).glob("*")) == []
    ledger.verify(tmp_path)


def test_a_refused_update_is_final_and_its_bytes_go(tmp_path: Path) -> None:
    with client_world.make_ledger(tmp_path) as book:
        book.seal(DIGEST, 0, payload())
        book.record(DIGEST, [Refused(0, "INVALID")])
        book.record(DIGEST, [Accepted(0, 1, 1)])  # final is final
        (entry,) = book.entries(DIGEST)
        assert (entry.state, entry.reason, entry.held) == ("final", "INVALID", False)
        with pytest.raises(LedgerError, match="never sent again"):
            book.sendable(DIGEST, 0)
        with pytest.raises(LedgerError, match="never spent twice"):
            book.seal(DIGEST, 0, payload())


def test_a_mark_for_a_round_never_sealed_changes_nothing(tmp_path: Path) -> None:
    with client_world.make_ledger(tmp_path) as book:
        book.seal(DIGEST, 0, payload())
        with pytest.raises(LedgerError, match="nothing was sealed for round 1"):
            book.record(DIGEST, [Refused(0, "INVALID"), Accepted(1, 1, 1)])
        assert book.entries(DIGEST)[0].state == "sealed"


def test_damaged_bytes_are_never_sent_and_become_void(tmp_path: Path) -> None:
    with client_world.make_ledger(tmp_path) as book:
        book.seal(DIGEST, 0, payload())
    edit(tmp_path, "UPDATE outbox SET payload = ?", payload(value=8))
    with Ledger(tmp_path) as book:
        with pytest.raises(PayloadUnreadableError) as caught:
            book.sendable(DIGEST, 0)
        assert caught.value.round == 0
        book.void(DIGEST, 0)
        book.void(DIGEST, 0)  # once is enough
        assert book.position[0] == 4
        assert book.spent(DIGEST) == frozenset({0})
        assert book.entries(DIGEST)[0].reason == "VOID"
        with pytest.raises(LedgerError, match="never spent twice"):
            book.seal(DIGEST, 0, payload())
    ledger.verify(tmp_path)


def test_only_a_sealed_round_can_be_void(tmp_path: Path) -> None:
    with client_world.make_ledger(tmp_path) as book, pytest.raises(LedgerError, match="nothing was sealed"):
        book.void(DIGEST, 0)


def test_a_second_process_is_refused_before_it_reads(tmp_path: Path) -> None:
    with client_world.make_ledger(tmp_path):
        code = (
            "import sys; from pathlib import Path; from hushgrad.client.ledger import Ledger\n"
            "try: Ledger(Path(sys.argv[1]))\n"
            "except Exception as error: print(error); sys.exit(error.exit_code)"
        )
        done = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, timeout=30, check=False
        )
        assert done.returncode == 2
        assert "in use by another process" in done.stdout
    Ledger(tmp_path).close()


def test_reading_works_while_the_owner_writes(tmp_path: Path) -> None:
    with client_world.make_ledger(tmp_path) as book:
        book.seal(DIGEST, 0, payload())
        assert len(ledger.read(tmp_path).rows) == 3
        book.seal(DIGEST, 1, payload())
        assert len(ledger.verify(tmp_path).rows) == 4
    assert len(ledger.read(tmp_path).rows) == 4


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (None, "there is no ledger at"),
        (b"", "is empty"),
        (b"hello " * 1000, "cannot be read as a ledger"),
        ("sqlite", "is not a hushgrad ledger"),
    ],
)
def test_what_is_no_ledger_is_refused_and_left_as_it_is(
    tmp_path: Path, content: bytes | str | None, complaint: str
) -> None:
    path = tmp_path / store.LEDGER_NAME
    if content == "sqlite":
        other = sqlite3.connect(path)
        other.execute("CREATE TABLE something (x)")
        other.close()
    elif isinstance(content, bytes):
        path.write_bytes(content)
    before = path.read_bytes() if path.exists() else None

    with pytest.raises(LedgerError, match=complaint) as caught:
        Ledger(tmp_path)
    assert caught.value.exit_code == 2
    with pytest.raises(LedgerError, match=complaint):
        ledger.read(tmp_path)
    assert (path.read_bytes() if path.exists() else None) == before


def test_a_ledger_is_never_overwritten(tmp_path: Path) -> None:
    client_world.make_ledger(tmp_path).close()
    before = (tmp_path / store.LEDGER_NAME).read_bytes()
    with pytest.raises(LedgerError, match="never overwritten"):
        client_world.make_ledger(tmp_path)
    assert (tmp_path / store.LEDGER_NAME).read_bytes() == before


def test_a_ledger_of_somebody_else_or_of_other_data_is_refused(tmp_path: Path) -> None:
    with client_world.make_ledger(tmp_path) as book:
        book.check_owner(participant=PARTICIPANT, fingerprint=FINGERPRINT)
        with pytest.raises(LedgerError, match="belongs to participant 'client-1'"):
            book.check_owner(participant="client-2")
        with pytest.raises(LedgerError, match="belongs to other data"):
            book.check_owner(participant=PARTICIPANT, fingerprint="cd" * 32)


def full_ledger(folder: Path) -> None:
    """init, commit, update 0, update 1, skipped 2, update 3, void 0."""
    with client_world.make_ledger(folder) as book:
        book.seal(DIGEST, 0, payload())
        book.seal(DIGEST, 1, payload())
        book.skip(DIGEST, 2)
        book.seal(DIGEST, 3, payload())
        book.void(DIGEST, 0)


@pytest.mark.parametrize("row", range(1, 8))
@pytest.mark.parametrize("column", ["kind", "terms_digest", "round", "body", "digest", "head", "sequence"])
def test_verify_names_the_row_with_a_flipped_byte(tmp_path: Path, row: int, column: str) -> None:
    full_ledger(tmp_path)
    ledger.verify(tmp_path)
    connection = sqlite3.connect(tmp_path / store.LEDGER_NAME)
    (value,) = connection.execute(f"SELECT {column} FROM ledger WHERE sequence = ?", (row,)).fetchone()
    connection.close()
    flipped: object
    if value is None:
        flipped = 0 if column == "round" else bytes(32)
    elif isinstance(value, bytes):
        flipped = value[:-1] + bytes([value[-1] ^ 1])
    elif isinstance(value, str):
        flipped = value[:-1] + chr(ord(value[-1]) ^ 1)
    else:
        flipped = value ^ 64
    edit(tmp_path, f"UPDATE ledger SET {column} = ? WHERE sequence = ?", flipped, row)

    with pytest.raises(LedgerError, match=f"row {row}"):
        ledger.verify(tmp_path)
    with pytest.raises(LedgerError, match="row"):
        Ledger(tmp_path)


@pytest.mark.parametrize("byte", range(0, header.HEADER_BYTES, 7))
def test_verify_catches_every_field_of_a_header_even_without_its_payload(tmp_path: Path, byte: int) -> None:
    with client_world.make_ledger(tmp_path) as book:
        book.seal(DIGEST, 0, payload())
        book.record(DIGEST, [Accepted(0, 1, 1), Forgotten(0)])
        (body,) = (row.body for row in ledger.read(tmp_path).rows if row.kind == "update")
    flipped = body[:byte] + bytes([body[byte] ^ 1]) + body[byte + 1 :]
    edit(tmp_path, "UPDATE ledger SET body = ? WHERE kind = 'update'", flipped)
    with pytest.raises(LedgerError, match="ledger row 3: the header"):
        ledger.verify(tmp_path)


@pytest.mark.parametrize("parameters", [4, LARGE])
def test_verify_catches_a_flipped_payload(tmp_path: Path, parameters: int) -> None:
    with client_world.make_ledger(tmp_path, parameters=parameters) as book:
        book.seal(DIGEST, 0, payload(parameters))
    if parameters == LARGE:
        (path,) = (tmp_path / store.PAYLOAD_FOLDER).glob("*")
        path.write_bytes(payload(parameters, value=6))
    else:
        edit(tmp_path, "UPDATE outbox SET payload = ?", payload(value=6))
    with pytest.raises(LedgerError, match="row 3: the held payload is not the one that was sealed"):
        ledger.verify(tmp_path)


def test_verify_catches_a_row_that_is_missing(tmp_path: Path) -> None:
    full_ledger(tmp_path)
    edit(tmp_path, "DELETE FROM ledger WHERE sequence = 5")
    with pytest.raises(LedgerError, match="row 5: expected sequence number 5, found 6"):
        ledger.verify(tmp_path)


def test_verify_catches_an_outbox_that_lost_an_entry(tmp_path: Path) -> None:
    full_ledger(tmp_path)
    edit(tmp_path, "DELETE FROM outbox WHERE round = 1")
    with pytest.raises(LedgerError, match="row 4: the outbox has lost the entry of round 1"):
        ledger.verify(tmp_path)


@pytest.mark.parametrize(
    "change",
    ["round = round + 16", "state = 'final'", "reason = 'x'", "included_in = included_in + 1", "server_epoch = 9"],
)
def test_a_changed_outbox_entry_is_refused_by_everything_that_reads_it(tmp_path: Path, change: str) -> None:
    full_ledger(tmp_path)
    edit(tmp_path, f"UPDATE outbox SET {change} WHERE sequence = 4")
    for read in (ledger.read, ledger.verify, Ledger):
        with pytest.raises(LedgerError, match=r"the outbox (entry of ledger row 4 is damaged|has lost)"):
            read(tmp_path)


def test_a_changed_identity_is_refused(tmp_path: Path) -> None:
    full_ledger(tmp_path)
    edit(tmp_path, "UPDATE identity SET secret = ?", bytes(32))
    for read in (ledger.read, ledger.verify, Ledger):
        with pytest.raises(LedgerError, match="lost its identity, or it is damaged"):
            read(tmp_path)


def test_rows_cannot_be_changed_or_deleted_by_accident(tmp_path: Path) -> None:
    full_ledger(tmp_path)
    connection = sqlite3.connect(tmp_path / store.LEDGER_NAME)
    for statement in ("UPDATE ledger SET round = 9 WHERE sequence = 3", "DELETE FROM ledger WHERE sequence = 3"):
        with pytest.raises(sqlite3.IntegrityError, match="never"):
            connection.execute(statement)
    connection.close()


def test_two_ledgers_of_the_same_data_show_nothing_in_common(tmp_path: Path) -> None:
    """A plain digest of private data in a row that others see would let them test guesses of a record."""
    shown = []
    for name in ("one", "two"):
        ledger.create(
            tmp_path / name,
            participant=PARTICIPANT,
            fingerprint=FINGERPRINT,
            lifetime_epsilon=1.0,
            lifetime_delta=1e-5,
            accepted_new_budget=False,
        )
        found = ledger.read(tmp_path / name)
        assert found.is_for(FINGERPRINT)
        assert not found.is_for("cd" * 32)
        exported = json.dumps(report.export(found))
        assert FINGERPRINT not in exported
        assert found.secret.hex() not in exported
        shown.append(found.init.fingerprint)
    assert shown[0] != shown[1]
