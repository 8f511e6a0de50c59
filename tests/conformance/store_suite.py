"""What every store of the server keeps: the real database and the one in memory pass the same tests.

A subclass gives `make`, which returns a store on the terms, and `reopened`, which returns it after a crash.
"""

import abc
import hashlib
from typing import Any

import numpy as np
from hushgrad.server.aggregation import Published
from hushgrad.server.records import Disposition, ParticipantRecord, Receipt, State

from tests.support.federations import make_terms

TERMS = make_terms(parameters=3, final_version=50, window=2)


def receipt(round_: int, disposition: Disposition = Disposition.INCLUDED, name: str = "a") -> Receipt:
    return Receipt(
        name,
        round_,
        digest=bytes([round_]) * 32,
        sequence=round_ + 1,
        previous_head=bytes([round_, 1]) * 16,
        head=bytes([round_, 2]) * 16,
        disposition=disposition,
        reason="why",
    )


def published(version: int, average: bool = False) -> Published:
    total = np.array([0.5, 1.5, 2.5]) if average else None
    model = np.full(3, version, "<f4").tobytes()
    return Published(
        version, model, hashlib.sha256(model).digest(), np.full(3, version), total, 2 if average else 0, None
    )


class StoreSuite(abc.ABC):
    """Inherit, and give `make` and `reopened`."""

    @abc.abstractmethod
    def make(self, tmp_path: Any) -> Any:
        """Makes a new store in the folder."""

    @abc.abstractmethod
    def reopened(self, store: Any) -> Any:
        """Returns the same store as it is after a restart."""

    def test_a_new_store_begins_with_version_zero(self, tmp_path: Any) -> None:
        snapshot = self.make(tmp_path).snapshot(TERMS)
        assert (snapshot.version, snapshot.array.tolist(), snapshot.participants) == (0, [0, 0, 0], ())

    def test_participants_come_back_as_they_were_written_last(self, tmp_path: Any) -> None:
        store = self.make(tmp_path)
        record = ParticipantRecord("a", State.SUSPENDED, 3, ((b"j" * 16, 3),), ((2, 5), (7, None)), 1, 4)
        store.write([ParticipantRecord("a", State.ACTIVE, 1, (), (), 0, 0), record])
        assert self.reopened(store).snapshot(TERMS).participants == (record,)

    def test_an_accepted_update_is_open_until_a_checkpoint_holds_it(self, tmp_path: Any) -> None:
        store = self.make(tmp_path)
        store.write([receipt(0), receipt(1, Disposition.INVALID)])
        store = self.reopened(store)
        open_, invalid = sorted(store.snapshot(TERMS).receipts, key=lambda one: one.round)
        assert (open_.disposition, open_.digest, open_.lacks_content) == (None, bytes(32), True)
        assert (invalid.disposition, invalid.reason) == (Disposition.INVALID, "why")
        store.checkpoint(published(1), 0, [("a", 0)], [], 0)
        found = self.reopened(store).snapshot(TERMS)
        assert (found.version, found.array.tolist()) == (1, [1, 1, 1])
        assert {one.round: (one.disposition, one.included_in) for one in found.receipts} == {
            0: (Disposition.INCLUDED, 1),
            1: (Disposition.INVALID, None),
        }

    def test_a_skipped_round_gives_way_to_its_update(self, tmp_path: Any) -> None:
        store = self.make(tmp_path)
        store.write([Receipt("a", 0, disposition=Disposition.SKIPPED), receipt(0)])
        assert self.reopened(store).find("a", 0).digest == bytes(32)

    def test_old_receipts_are_left_in_the_archive_and_counted(self, tmp_path: Any) -> None:
        store = self.make(tmp_path)
        rounds = [*map(receipt, range(20)), Receipt("a", 20, disposition=Disposition.VOID)]
        store.write(rounds)
        store.checkpoint(published(20, average=True), 19, [("a", round_) for round_ in range(20) if round_ != 3], [], 0)
        store = self.reopened(store)
        snapshot = store.snapshot(TERMS)
        # Window 2 and a margin of two versions: rounds from 16 on, and the one that lost its content.
        assert sorted(one.round for one in snapshot.receipts) == [3, 16, 17, 18, 19, 20]
        history = snapshot.histories["a"]
        assert (history.accepted, history.invalid, history.without_update) == (20, 0, 1)
        assert (history.rounds_received, history.sequence, history.head) == (20, 20, receipt(19).head)
        assert history.forgotten_sequence == 16
        assert (snapshot.average_sum.tolist(), snapshot.average_count) == ([0.5, 1.5, 2.5], 2)
        assert store.find("a", 5).head == store.find_row("a", 6).head == receipt(5).head
        assert store.find("a", 99) is store.find_row("a", 99) is store.find("b", 5) is None
