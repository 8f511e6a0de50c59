"""Receipts and versions of long ago, packed many in a row of the database. Nothing of them is forgotten.

A receipt in a row of its own takes about 220 bytes, and no more than 32 of them, its digest, cannot be said shorter:
rounds and ledger rows are counted up, and each head of a ledger follows from the one before it and the digest. So a
block holds up to 256 receipts of one participant, or 256 versions whose models are not kept. What is not regular (a
round without update, a refusal, a flag, a ledger row that is out of order) stays a row of its own.
"""

import functools
import hashlib
import itertools
import math
import sqlite3
import struct
import zlib
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from hushgrad.server import folder, layout, rows
from hushgrad.server.records import Disposition, Receipt
from hushgrad.wire import header as wire_header

BLOCK: Final = 256
"""Block b holds rounds, or versions, from 256 b to 256 b + 255."""

_LOOK_EVERY: Final = 32  # versions, between two looks at who has a block to pack
_BLOCKS_AT_ONCE: Final = 2  # in one checkpoint, so that none takes long
_PREFIX: Final = struct.Struct("<II")
_DIGEST_BYTES: Final = 32


@dataclass(frozen=True, slots=True)
class StoredVersion:
    """One published version as it is stored.

    Attributes:
        is_kept: whether its model still is.
        published_at: seconds since 1970; None where an earlier layout did not note it.
    """

    version: int
    previous: int
    sha256: bytes
    is_kept: bool
    published_at: float | None


def regular(receipts: Iterable[Receipt], after_sequence: int) -> list[Receipt]:
    """Returns those that can be packed.

    Args:
        receipts: of one participant, by round.
        after_sequence: the highest ledger row that was packed before.
    """
    found = []
    for one in receipts:
        if (
            one.disposition is Disposition.INCLUDED
            and one.included_in is not None
            and not one.reason
            and one.digest is not None
            and one.sequence is not None
            and one.sequence > after_sequence
            and one.head == wire_header.next_head(one.previous_head, one.digest)
        ):
            found.append(one)
            after_sequence = one.sequence
    return found


def pack_receipts(receipts: Sequence[Receipt]) -> bytes:
    """Packs what `regular` returned; at least one."""
    known = b""
    previous_heads = []
    for one in receipts:
        previous_heads.append(b"" if one.previous_head == known else one.previous_head)
        known = one.head
    numbers = np.array(
        [
            [one.round for one in receipts],
            [one.sequence for one in receipts],
            [one.included_in for one in receipts],
            [len(one) for one in previous_heads],
        ],
        "<i8",
    )
    return _packed(numbers, b"".join(one.digest or b"" for one in receipts) + b"".join(previous_heads))


def unpack_receipts(participant: str, packed: bytes) -> list[Receipt]:
    """Returns the receipts of a participant as they were before they were packed."""
    (rounds, sequences, versions, lengths), rest = _unpacked(packed, 4)
    found: list[Receipt] = []
    heads_at, head = len(rounds) * _DIGEST_BYTES, b""
    for at, (round_, sequence, version, length) in enumerate(zip(rounds, sequences, versions, lengths, strict=True)):
        digest = rest[at * _DIGEST_BYTES : (at + 1) * _DIGEST_BYTES]
        previous_head = rest[heads_at : heads_at + length] if length else head
        heads_at += length
        head = wire_header.next_head(previous_head, digest)
        found.append(
            Receipt(participant, round_, digest, sequence, previous_head, head, Disposition.INCLUDED, "", version)
        )
    return found


def pack_versions(versions: Sequence[StoredVersion]) -> bytes:
    """Packs versions whose models are not kept; at least one."""
    numbers = np.array([[one.version for one in versions], [one.previous for one in versions]], "<i8")
    times = np.array([math.nan if one.published_at is None else one.published_at for one in versions], "<f8")
    return _packed(numbers, times.tobytes() + b"".join(one.sha256 for one in versions))


def unpack_versions(packed: bytes) -> list[StoredVersion]:
    """Returns the versions as they were before they were packed."""
    (versions, before), rest = _unpacked(packed, 2)
    times = np.frombuffer(rest, "<f8", len(versions)).tolist()
    digests = rest[8 * len(versions) :]
    return [
        StoredVersion(
            version,
            previous,
            digests[at * _DIGEST_BYTES : (at + 1) * _DIGEST_BYTES],
            False,
            None if math.isnan(published_at) else published_at,
        )
        for at, (version, previous, published_at) in enumerate(zip(versions, before, times, strict=True))
    ]


def _packed(numbers: npt.NDArray[np.int64], rest: bytes) -> bytes:
    # What counts up by ones is the same number again and again in its differences.
    small = zlib.compress(np.diff(numbers, axis=1, prepend=0).astype("<i8").tobytes(), 6)
    return _PREFIX.pack(numbers.shape[1], len(small)) + small + rest


def _unpacked(packed: bytes, columns: int) -> tuple[list[list[int]], bytes]:
    count, size = _PREFIX.unpack_from(packed)
    small = zlib.decompress(packed[_PREFIX.size : _PREFIX.size + size])
    numbers = np.cumsum(np.frombuffer(small, "<i8").reshape(columns, count), axis=1)
    return numbers.tolist(), packed[_PREFIX.size + size :]


_PUT_RECEIPTS: Final = """
INSERT INTO past_receipts VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9,
    row_checksum('past_receipts', ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9), ?10)
"""
_PUT_VERSIONS: Final = "INSERT INTO past_versions VALUES (?1, ?2, row_checksum('past_versions', ?1, ?2), ?3)"
_GET_RECEIPTS: Final = f"SELECT {layout.CHECKED['past_receipts']}, checksum, packed FROM past_receipts "
_GET_VERSIONS: Final = f"SELECT {layout.CHECKED['past_versions']}, checksum, packed FROM past_versions "


class Past:
    """What is packed in one database. Writes inside of the transaction that its caller has begun.

    Invariant: a receipt, or a version, is either a row of its own or in a block, never both.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._next: dict[str, tuple[int, int]] = {}
        self._queue: deque[str] = deque()
        self._next_versions: int | None = None
        self._looked_at = -1

    # Packing

    def pack(self, version: int, first_round: int, first_version: int) -> None:
        """Packs a little of what is old enough; called with every checkpoint.

        Args:
            version: of the checkpoint.
            first_round: receipts of rounds from here on are needed as rows.
            first_version: likewise of versions.
        """
        if version // _LOOK_EVERY != self._looked_at:
            self._looked_at = version // _LOOK_EVERY
            self._queue.extend(sorted(self._due(first_round).difference(self._queue)))
        for _ in range(max(_BLOCKS_AT_ONCE, len(self._queue) // (BLOCK // 2))):
            if not self._queue:
                break
            name = self._queue.popleft()
            self._pack_receipts(name)
            if self._is_due(name, first_round):
                self._queue.append(name)
        self._pack_versions(first_version)

    def _due(self, first_round: int) -> set[str]:
        for (name,) in self._connection.execute("SELECT name FROM participants"):
            if name not in self._next:
                packed, sequence = self._connection.execute(
                    "SELECT MAX(block), MAX(last_sequence) FROM past_receipts WHERE participant = ?", (name,)
                ).fetchone()
                (first,) = self._connection.execute(
                    "SELECT MIN(round) FROM receipts WHERE participant = ?", (name,)
                ).fetchone()
                if packed is not None:
                    self._next[name] = packed + 1, sequence
                elif first is not None:
                    self._next[name] = first // BLOCK, 0
        return {name for name in self._next if self._is_due(name, first_round)}

    def _is_due(self, name: str, first_round: int) -> bool:
        return (self._next[name][0] + 1) * BLOCK <= first_round

    def _pack_receipts(self, name: str) -> None:
        block, sequence = self._next[name]
        found = self._connection.execute(
            f"{rows.GET_RECEIPTS} WHERE participant = ? AND round >= ? AND round < ? ORDER BY round",
            (name, block * BLOCK, (block + 1) * BLOCK),
        )
        packable = regular(map(rows.receipt_from_row, found.fetchall()), sequence)
        self._next[name] = block + 1, packable[-1].sequence or 0 if packable else sequence
        if not packable:
            return
        packed = pack_receipts(packable)
        versions = [one.included_in or 0 for one in packable]
        self._connection.execute(
            _PUT_RECEIPTS,
            (
                name,
                block,
                len(packable),
                packable[-1].round + 1,
                packable[0].sequence,
                packable[-1].sequence,
                min(versions),
                max(versions),
                hashlib.sha256(packed).digest(),
                packed,
            ),
        )
        self._connection.executemany(
            "DELETE FROM receipts WHERE participant = ? AND round = ?", [(name, one.round) for one in packable]
        )

    def _pack_versions(self, first_version: int) -> None:
        if self._next_versions is None:
            (packed,) = self._connection.execute("SELECT MAX(block) FROM past_versions").fetchone()
            self._next_versions = 0 if packed is None else packed + 1
        block = self._next_versions
        if (block + 1) * BLOCK > first_version:
            return
        self._next_versions += 1
        found = self._connection.execute(
            f"{rows.GET_VERSIONS} WHERE version >= ? AND version < ? ORDER BY version",
            (block * BLOCK, (block + 1) * BLOCK),
        )
        packable = [one for one in map(stored_version, found.fetchall()) if not one.is_kept]
        if packable:
            packed = pack_versions(packable)
            self._connection.execute(_PUT_VERSIONS, (block, hashlib.sha256(packed).digest(), packed))
            self._connection.executemany(rows.DROP_VERSION, [(one.version,) for one in packable])

    # Reading

    def find(self, participant: str, round_: int) -> Receipt | None:
        """Returns the packed receipt of a round, if there is one."""
        found = self._receipts("WHERE participant = ? AND block = ?", participant, round_ // BLOCK)
        return next((one for one in found if one.round == round_), None)

    def find_row(self, participant: str, sequence: int) -> Receipt | None:
        """Returns the packed receipt whose ledger row has this number, if there is one."""
        found = self._receipts(
            "WHERE participant = ? AND first_sequence <= ? AND last_sequence >= ?", participant, sequence, sequence
        )
        return next((one for one in found if one.sequence == sequence), None)

    def receipts(self) -> Iterator[Receipt]:
        """Yields all that are packed, ordered by participant, then round."""
        return self._receipts("ORDER BY participant, block")

    def receipts_of(self, version: int) -> list[Receipt]:
        """Returns those that a version adds, ordered by participant, then round."""
        found = self._receipts(
            "WHERE first_version <= ? AND last_version >= ? ORDER BY participant, block", version, version
        )
        return [one for one in found if one.included_in == version]

    def totals(self) -> dict[str, tuple[int, int, int]]:
        """Returns by participant (updates accepted, rounds received, highest ledger row) of what is packed."""
        found = self._connection.execute(
            "SELECT participant, SUM(accepted), MAX(rounds_received), MAX(last_sequence) FROM past_receipts "
            "GROUP BY participant"
        )
        return {name: (accepted, received, sequence) for name, accepted, received, sequence in found}

    def versions(self) -> Iterator[StoredVersion]:
        """Yields the packed versions in order."""
        blocks = map(self._version_block, self._connection.execute(f"{_GET_VERSIONS} ORDER BY block"))
        return itertools.chain.from_iterable(blocks)

    def first_version(self, first: int) -> Sequence[StoredVersion]:
        """Returns the first packed version from one on, if there is one."""
        query = f"{_GET_VERSIONS} WHERE block >= ? ORDER BY block LIMIT 2"
        for row in self._connection.execute(query, (first // BLOCK,)):
            for one in self._version_block(row):
                if one.version >= first:
                    return (one,)
        return ()

    def version(self, version: int) -> StoredVersion | None:
        """Returns a packed version, if it is one."""
        row = self._connection.execute(f"{_GET_VERSIONS} WHERE block = ?", (version // BLOCK,)).fetchone()
        return None if row is None else next((one for one in self._version_block(row) if one.version == version), None)

    def check(self) -> None:
        """Unpacks everything.

        Raises:
            StoreError: if something is damaged.
        """
        for _ in self.receipts():
            pass
        for _ in self.versions():
            pass

    def _receipts(self, where: str, *arguments: Any) -> Iterator[Receipt]:
        for *fields, packed in self._connection.execute(_GET_RECEIPTS + where, arguments):
            participant, block, *_, sha256 = layout.verified("past_receipts", fields)
            what = f"block {block} of the receipts of {participant}"
            yield from _receipts_of_block(participant, folder.verified(packed, sha256, what))

    @staticmethod
    def _version_block(row: tuple[Any, ...]) -> list[StoredVersion]:
        *fields, packed = row
        block, sha256 = layout.verified("past_versions", fields)
        return _versions_of_block(folder.verified(packed, sha256, f"block {block} of the versions"))


@functools.lru_cache(maxsize=8)
def _receipts_of_block(participant: str, packed: bytes) -> list[Receipt]:
    # Whoever asks for one receipt of a block often asks for its neighbours next.
    return unpack_receipts(participant, packed)


@functools.lru_cache(maxsize=2)
def _versions_of_block(packed: bytes) -> list[StoredVersion]:
    return unpack_versions(packed)


def stored_version(row: tuple[Any, ...]) -> StoredVersion:
    """Reads a row of GET_VERSIONS.

    Raises:
        StoreError: if it is damaged.
    """
    version, previous, sha256, file, is_inline, published_at = layout.verified("versions", row)
    return StoredVersion(version, previous, sha256, bool(is_inline) or file is not None, published_at)
