"""What is long past is packed, and the database tells the same as before: row for row, answer for answer."""

import dataclasses
import hashlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hushgrad.server import backup, past
from hushgrad.server import database as database_module
from hushgrad.server.database import Database
from hushgrad.server.errors import StoreError
from hushgrad.server.folder import StateFolder
from hushgrad.server.past import StoredVersion
from hushgrad.server.records import Answer, Disposition, ParticipantRecord, Receipt, State
from hushgrad.wire import header as wire_header

from tests.conformance import store_suite
from tests.support.federations import Owner, Sender, make_terms, senders_of

TERMS = make_terms(parameters=3, final_version=5000, window=2)
NAMES = ("a", "b")


def ledger(name: str, rounds: int) -> Iterator[Receipt]:
    """Receipts of one participant as a real one leaves them: most are regular, some are not."""
    head = hashlib.sha256(name.encode()).digest()
    sequence = 2
    for round_ in range(rounds):
        if name == "b" and round_ % 50 == 7:  # a round that it skipped; its ledger has a row for that
            sequence += 1
            head = wire_header.next_head(head, hashlib.sha256(f"skip {round_}".encode()).digest())
            yield Receipt(name, round_, disposition=Disposition.SKIPPED, reason="reported by the participant")
            continue
        digest = hashlib.sha256(f"{name} {round_}".encode()).digest()
        sequence += 1
        before, head = head, wire_header.next_head(head, digest)
        fate = Disposition.INVALID if name == "b" and round_ % 50 == 20 else Disposition.INCLUDED
        reason = "an element is -2^31" if fate is Disposition.INVALID else "improbable" if round_ % 100 == 30 else ""
        yield Receipt(name, round_, digest, sequence, before, head, fate, reason)


def filled(
    folder: Path, versions: int, *, keep_last: int = 5, keep_every: int = 0
) -> tuple[StateFolder, list[Receipt]]:
    """A state, and its receipts as they were written."""
    state = StateFolder(folder)
    state.make()
    database_module.create(state, TERMS, TERMS.to_bytes(), np.zeros(3, np.float32))
    database = Database.open(state)
    database._connection.execute("PRAGMA synchronous = OFF")
    database.begin()
    database.write([ParticipantRecord(name, State.ACTIVE, 1, (), ((0, None),), 0, 0) for name in NAMES])
    written = []
    for version, *receipts in zip(range(1, versions + 1), *(ledger(name, versions) for name in NAMES), strict=True):
        database.write(receipts)
        included = [one for one in receipts if one.disposition is Disposition.INCLUDED]
        written += [dataclasses.replace(one, included_in=version) if one in included else one for one in receipts]
        folded = [(one.participant, one.round) for one in included]
        database.checkpoint(
            store_suite.published(version), version - 1, folded, (), keep_last, 1e9 + version / 8, keep_every
        )
    database.commit()
    database.close()
    return state, sorted(written, key=lambda one: (one.participant, one.round))


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> tuple[StateFolder, list[Receipt]]:
    return filled(tmp_path_factory.mktemp("past") / "state", 1200)


def rows_of(folder: StateFolder, table: str) -> int:
    with sqlite3.connect(folder.database) as connection:
        return int(connection.execute(f"SELECT COUNT(*) FROM {table}").fetchone()[0])


def test_packed_receipts_answer_every_question_as_rows_did(state: tuple[StateFolder, list[Receipt]]) -> None:
    folder, written = state
    database = Database.open(folder, read_only=True)
    # Four blocks of 256 rounds lie before version 1200 less window and margin; what is irregular among them stays.
    assert rows_of(folder, "past_receipts") == 8
    assert rows_of(folder, "receipts") < 2 * (1200 - 1024) + 1024 // 100 * 2 + 1024 // 50 * 2 + 8
    assert list(database.receipts()) == written
    for one in written[::7]:
        assert database.find(one.participant, one.round) == one
        if one.sequence is not None:
            assert database.find_row(one.participant, one.sequence) == one
    assert database.find("a", 5000) is None
    assert database.find("nobody", 3) is None
    assert database.find_row("a", 1) is None
    for version in (1, 8, 300, 1024, 1025, 1200):
        found = database.manifest(version)
        assert found == (version - 1, [one for one in written if one.included_in == version])
    assert database.manifest(1201) is None


def test_packed_versions_keep_their_digests_and_times(state: tuple[StateFolder, list[Receipt]]) -> None:
    folder, _ = state
    database = Database.open(folder, read_only=True)
    assert rows_of(folder, "versions") == 1 + 1201 - 1024
    assert database.versions() == [
        StoredVersion(
            version,
            max(version - 1, 0),
            store_suite.published(version).sha256,
            version == 0 or version > 1195,
            1e9 + version / 8 if version else None,
        )
        for version in range(1201)
    ]
    assert database.publications(-1, 2000)[1:] == [(version, 1e9 + version / 8) for version in range(1, 1201)]
    assert [version for version, _ in database.publications(100, 11)] == list(range(200, 1201, 100))
    assert database.publications(1200, 5) == []
    assert database.model(700) is None


def test_a_server_begins_with_the_sums_of_everything(state: tuple[StateFolder, list[Receipt]]) -> None:
    folder, written = state
    snapshot = Database.open(folder, read_only=True).snapshot(TERMS)
    for name in NAMES:
        mine = [one for one in written if one.participant == name]
        latest = max(mine, key=lambda one: one.sequence or 0)
        history = snapshot.histories[name]
        assert history.accepted == sum(one.disposition is Disposition.INCLUDED for one in mine)
        assert history.invalid == sum(one.disposition is Disposition.INVALID for one in mine)
        assert history.without_update == sum(one.disposition is Disposition.SKIPPED for one in mine)
        assert history.flagged == sum(one.is_flagged for one in mine)
        assert (history.sequence, history.head, history.rounds_received) == (latest.sequence, latest.head, 1200)


def test_a_backup_of_a_packed_state_is_verified_whole(state: tuple[StateFolder, list[Receipt]], tmp_path: Path) -> None:
    folder, written = state
    found = backup.backup(folder, tmp_path / "backup")
    assert (found.version, found.updates) == (1200, sum(one.included_in is not None for one in written))
    with sqlite3.connect(tmp_path / "backup" / "server.sqlite") as connection:
        (packed,) = connection.execute("SELECT packed FROM past_receipts WHERE block = 2").fetchone()
        damaged = packed[:-5] + bytes([packed[-5] ^ 1]) + packed[-4:]
        connection.execute("UPDATE past_receipts SET packed = ? WHERE block = 2 AND participant = 'a'", (damaged,))
    database = Database.open(StateFolder(tmp_path / "backup"), read_only=True)
    database.check()
    with pytest.raises(StoreError, match="block 2 of the receipts of a is damaged"):
        database.check(whole=True)
    with pytest.raises(StoreError, match="block 2 of the receipts of a is damaged"):
        database.find("a", 600)


@pytest.mark.parametrize("table", ["past_receipts", "past_versions"])
def test_a_block_that_is_missing_is_noticed_at_start(
    state: tuple[StateFolder, list[Receipt]], tmp_path: Path, table: str
) -> None:
    copy = backup.backup(state[0], tmp_path / "copy")
    assert copy.version == 1200
    with sqlite3.connect(tmp_path / "copy" / "server.sqlite") as connection:
        trigger = f"{table}_delete"
        (sql,) = connection.execute("SELECT sql FROM sqlite_schema WHERE name = ?", (trigger,)).fetchone()
        connection.execute(f"DROP TRIGGER {trigger}")
        connection.execute(f"DELETE FROM {table} WHERE block = 1")
        connection.execute(sql)
    with pytest.raises(StoreError, match=f"{table} does not hold the rows that were written last"):
        Database.open(StateFolder(tmp_path / "copy"), read_only=True).snapshot(TERMS)


def test_a_ledger_that_jumps_about_stays_in_rows_and_costs_no_look_up_more(tmp_path: Path) -> None:
    """A hostile participant may number its ledger as it likes; no question may unpack more than one block for it."""
    receipts = []
    for round_ in range(past.BLOCK):
        digest, before = hashlib.sha256(bytes([round_])).digest(), bytes(32)
        sequence = 2**62 - round_ if round_ % 2 else round_ + 1
        head = wire_header.next_head(before, digest)
        receipts.append(
            Receipt("a", round_, digest, sequence, before, head, Disposition.INCLUDED, "", included_in=round_ + 1)
        )
    packable = past.regular(receipts, after_sequence=0)
    sequences = [one.sequence for one in packable]
    assert sequences == sorted(set(sequences))
    assert past.regular(receipts, after_sequence=2**62) == []
    assert past.unpack_receipts("a", past.pack_receipts(packable)) == packable


def test_some_older_versions_stay_for_ever(tmp_path: Path) -> None:
    folder, _ = filled(tmp_path / "state", 300, keep_last=3, keep_every=100)
    database = Database.open(folder)
    assert [one.version for one in database.kept(-1, 1000)] == [0, 100, 200, 298, 299, 300]
    assert database.model(100) == (store_suite.published(100).model, store_suite.published(100).sha256)
    # Others are wanted by the next process: what does not fit goes, what is gone does not come back.
    for version, keep_last, keep_every, kept in (
        (301, 2, 50, [0, 100, 200, 300, 301]),
        (302, 1, 200, [0, 200, 302]),
        (303, 0, 0, [0, 200, 302, 303]),
    ):
        database = Database.open(folder)
        database.begin()
        database.checkpoint(store_suite.published(version), version - 1, (), (), keep_last, 1e9, keep_every)
        database.commit()
        assert [one.version for one in database.kept(-1, 1000)] == kept
        database.close()


class InTransactions:
    """The database as an owner's store: each write in a transaction of its own, none synced."""

    def __init__(self, folder: StateFolder) -> None:
        self._database = Database.open(folder)
        self._database._connection.execute("PRAGMA synchronous = OFF")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._database, name)

    def write(self, records: Any) -> None:
        self._database.begin()
        self._database.write(records)
        self._database.commit()

    def checkpoint(self, *args: Any) -> None:
        self._database.begin()
        self._database.checkpoint(*args)
        self._database.commit()


def test_what_is_sent_again_from_long_ago_is_answered_as_ever(tmp_path: Path) -> None:
    """A duplicate, a conflict, a copied ledger: the answers rest on digests and heads, which packing keeps whole."""
    terms = make_terms(parameters=3, participants=2, final_version=1000, window=2)
    state = StateFolder(tmp_path / "state")
    state.make()
    database_module.create(state, terms, terms.to_bytes(), np.zeros(3, np.float32))
    store: Any = InTransactions(state)
    owner = Owner(terms, store)
    one, other = senders = senders_of(terms)
    owner.begin(senders)
    for round_ in range(300):
        for sender in senders:
            assert owner.submit(sender, sender.seal(round_)).answer is Answer.ACCEPTED
    assert rows_of(state, "past_receipts") == 2
    for process in (owner, owner.restart()):
        process.join(one)
        old = process.submit(one, one.sealed[17])
        assert (old.answer, old.first_answer, old.included_in) == (Answer.DUPLICATE, Answer.ACCEPTED, 18)
        forged = Sender(one.name, terms, seed=1).seal(17)
        assert process.submit(one, forged).answer is Answer.CONFLICT
        # A copy of the ledger, made at row 100, that has gone on elsewhere: the server knows row 101 with another head.
        copy = one.seal(300, ledger_sequence=101, ledger_previous_head=one.sealed[99].head)
        found = process.submit(one, copy)
        assert (found.answer, "row 101" in found.detail) == (Answer.CONFLICT, True)
        # One that does not continue what the server knows of row 100, which is packed.
        stray = one.seal(300, ledger_sequence=101, ledger_previous_head=bytes(32))
        assert process.submit(one, stray).answer is Answer.CONFLICT
        # A held round that is packed: known, and with another digest two ledgers exist.
        assert process.federation.report(one.caller, [(17, "held", one.sealed[17].digest)]).answer is Answer.ACCEPTED
        assert process.federation.report(one.caller, [(17, "held", bytes(32))]).answer is Answer.CONFLICT
    joined = process.join(other)
    assert (joined.sequence, joined.head) == (300, other.sealed[299].head)
    # The model is what it is without any packing.
    plain = Owner(terms)
    plain.begin(senders)
    for round_ in range(300):
        for sender in senders:
            plain.submit(sender, sender.sealed[round_])
    assert store.model(300)[0] == plain.models[300].model
