"""How the server's values lie in the rows of its database: the schema, and both ways between rows and values."""

import base64
import json
from typing import Any, Final

from hushgrad.server.records import Disposition, ParticipantRecord, Receipt, State

APPLICATION_ID: Final = int.from_bytes(b"HGsv", "big")
SCHEMA_VERSION: Final = 1

SCHEMA: Final = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE participants (name TEXT PRIMARY KEY, body TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE receipts (
    participant TEXT NOT NULL,
    round INTEGER NOT NULL,
    digest BLOB,
    sequence INTEGER,
    previous_head BLOB NOT NULL,
    head BLOB NOT NULL,
    disposition TEXT NOT NULL,
    reason TEXT NOT NULL,
    included_in INTEGER,
    PRIMARY KEY (participant, round)
) WITHOUT ROWID;
CREATE INDEX receipts_by_row ON receipts (participant, sequence);
CREATE INDEX receipts_by_version ON receipts (included_in);
CREATE TABLE versions (
    version INTEGER PRIMARY KEY,
    previous INTEGER NOT NULL,
    sha256 BLOB NOT NULL,
    model BLOB,
    file TEXT
);
CREATE TABLE arrays (
    name TEXT PRIMARY KEY,
    version INTEGER NOT NULL,
    count INTEGER NOT NULL,
    sha256 BLOB NOT NULL,
    data BLOB,
    file TEXT
) WITHOUT ROWID;
"""

PUT_RECEIPT: Final = """
INSERT INTO receipts
    (participant, round, digest, sequence, previous_head, head, disposition, reason, included_in)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, NULL)
ON CONFLICT (participant, round) DO UPDATE SET
    digest = excluded.digest, sequence = excluded.sequence, previous_head = excluded.previous_head,
    head = excluded.head, disposition = excluded.disposition, reason = excluded.reason, included_in = NULL
"""
GET_RECEIPTS: Final = (
    "SELECT participant, round, digest, sequence, previous_head, head, disposition, reason, included_in FROM receipts "
)


def receipt_from_row(row: tuple[Any, ...]) -> Receipt:
    """Reads a row of GET_RECEIPTS."""
    participant, round_, digest, sequence, previous_head, head, disposition, reason, included_in = row
    return Receipt(
        participant, round_, digest, sequence, previous_head, head, Disposition(disposition), reason, included_in
    )


def opened(receipt: Receipt) -> Receipt:
    """Takes the disposition from a receipt whose content did not reach a checkpoint."""
    if receipt.disposition is Disposition.INCLUDED and receipt.included_in is None:
        return Receipt(
            receipt.participant,
            receipt.round,
            receipt.digest,
            receipt.sequence,
            receipt.previous_head,
            receipt.head,
        )
    return receipt


def participant_to_json(record: ParticipantRecord) -> str:
    """Returns the body of a participant's row."""
    return json.dumps(
        {
            "name": record.name,
            "state": record.state.name,
            "session": record.session,
            "joins": [[base64.b64encode(join_id).decode(), session] for join_id, session in record.joins],
            "intervals": record.intervals,
            "suspensions": record.suspensions,
            "duplicates": record.duplicates,
        }
    )


def participant_from_json(body: str) -> ParticipantRecord:
    """Reads the body of a participant's row."""
    fields = json.loads(body)
    return ParticipantRecord(
        name=fields["name"],
        state=State[fields["state"]],
        session=fields["session"],
        joins=tuple((base64.b64decode(join_id), session) for join_id, session in fields["joins"]),
        intervals=tuple((entry, exit_) for entry, exit_ in fields["intervals"]),
        suspensions=fields["suspensions"],
        duplicates=fields["duplicates"],
    )
