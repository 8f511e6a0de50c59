"""A server's state with hundreds of thousands of versions behind it, made in seconds instead of days."""

import hashlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from hushgrad.server import database as database_module
from hushgrad.server import rows
from hushgrad.server.aggregation import Published
from hushgrad.server.database import Database
from hushgrad.server.folder import StateFolder
from hushgrad.server.records import Disposition, ParticipantRecord, Receipt, Score, State
from hushgrad.wire import header

from tests.support.federations import digest_of, make_terms

SECONDS_EACH = 0.5
"""Between one version and the next."""


def make(root: Path, versions: int, participants: int = 2) -> bytes:
    """Makes the state of a federation that has published so many versions, each scored by an evaluator.

    Returns:
        The digest of its terms.
    """
    terms = make_terms(participants=participants, final_version=versions + 100)
    folder = StateFolder(root / "server")
    folder.make()
    database_module.create(folder, terms, terms.to_bytes(), np.zeros(terms.parameters, np.float32))
    database = Database.open(folder)
    connection = database._connection
    sha256 = hashlib.sha256(b"").digest()
    names = [f"client-{number + 1}" for number in range(participants)]
    started = 1_750_000_000.0
    database.begin()
    connection.executemany(
        rows.PUT_VERSION,
        (
            (version, version - 1, sha256, None, None, started + SECONDS_EACH * version)
            for version in range(1, versions)
        ),
    )
    for name in names:
        database.write(_receipts(name, versions))
        connection.executemany(rows.INCLUDE, ((round_ + 1, name, round_) for round_ in range(versions - 1)))
    for version in range(0, versions, 2):
        share = 0.93 - 0.4 / (1 + version / 2000)
        database.write_score(Score("evaluator", version, share, share, 2000, started + SECONDS_EACH * version))
    model = np.zeros(terms.parameters, "<f4").tobytes()
    array = np.zeros(terms.parameters, np.int64)
    last = Published(versions, model, hashlib.sha256(model).digest(), array, None, 0, None)
    everybody = [ParticipantRecord(name, State.ACTIVE, 1, ((bytes(16), 1),), ((0, None),), 0, 0) for name in names]
    folded = [(name, versions - 1) for name in names]
    database.checkpoint(last, versions - 1, folded, everybody, 0, started + SECONDS_EACH * versions)
    # As a server does little by little, with its checkpoints.
    for version in range(0, versions, 32):
        database._past.pack(version, versions - 10, versions - 10)
    database.commit()
    database.close()
    return digest_of(terms)


def _receipts(name: str, rounds: int) -> Iterator[Receipt]:
    """Yields the receipts of a participant whose ledger has a row for each round."""
    head = header.first_head(hashlib.sha256(name.encode()).digest()[:16])
    for round_ in range(rounds):
        digest = hashlib.sha256(f"{name} {round_}".encode()).digest()
        before, head = head, header.next_head(head, digest)
        yield Receipt(name, round_, digest, round_ + 1, before, head, Disposition.INCLUDED)
