"""How the server's values lie in the rows of its database: the statements, and both ways between rows and values."""

import base64
import dataclasses
import json
from typing import Any, Final

from hushgrad.server import layout
from hushgrad.server.records import Act, DeclaredClaim, Disposition, ParticipantRecord, Receipt, State, Verb

_RECEIPT: Final = layout.CHECKED["receipts"]

PUT_RECEIPT: Final = f"""
INSERT INTO receipts ({_RECEIPT}, checksum)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, NULL, row_checksum('receipts', ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, NULL))
ON CONFLICT (participant, round) DO UPDATE SET
    digest = excluded.digest, sequence = excluded.sequence, previous_head = excluded.previous_head,
    head = excluded.head, disposition = excluded.disposition, reason = excluded.reason, included_in = NULL,
    checksum = excluded.checksum
"""
PUT_PARTICIPANT: Final = """
INSERT INTO participants VALUES (?1, ?2, row_checksum('participants', ?1, ?2))
ON CONFLICT (name) DO UPDATE SET body = excluded.body, checksum = excluded.checksum
"""
PUT_META: Final = """
INSERT INTO meta VALUES (?1, ?2, row_checksum('meta', ?1, ?2))
ON CONFLICT (key) DO UPDATE SET value = excluded.value, checksum = excluded.checksum
"""
PUT_ARRAY: Final = """
INSERT INTO arrays (name, version, count, sha256, file, data, checksum)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, row_checksum('arrays', ?1, ?2, ?3, ?4, ?5))
ON CONFLICT (name) DO UPDATE SET
    version = excluded.version, count = excluded.count, sha256 = excluded.sha256, file = excluded.file,
    data = excluded.data, checksum = excluded.checksum
"""
PUT_VERSION: Final = """
INSERT INTO versions (version, previous, sha256, file, model, published_at, checksum)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, row_checksum('versions', ?1, ?2, ?3, ?4, ?5 IS NOT NULL, ?6))
"""
DROP_VERSION: Final = "DELETE FROM versions WHERE version = ?"
INCLUDE: Final = """
UPDATE receipts SET included_in = ?1, checksum = row_checksum(
    'receipts', participant, round, digest, sequence, previous_head, head, disposition, reason, ?1)
WHERE participant = ?2 AND round = ?3
"""
PUT_ACT: Final = """
INSERT INTO acts (number, at, who, verb, detail, checksum)
VALUES (?1, ?2, ?3, ?4, ?5, row_checksum('acts', ?1, ?2, ?3, ?4, ?5))
"""
PUT_SCORE: Final = """
INSERT INTO scores VALUES (?1, ?2, ?3, ?4, ?5, ?6, row_checksum('scores', ?1, ?2, ?3, ?4, ?5, ?6))
ON CONFLICT (evaluator, version) DO UPDATE SET
    accuracy = excluded.accuracy, averaged_accuracy = excluded.averaged_accuracy, examples = excluded.examples,
    reported_at = excluded.reported_at, checksum = excluded.checksum
"""
GET_ACTS: Final = f"SELECT {layout.CHECKED['acts']}, checksum FROM acts ORDER BY number"
GET_SCORES: Final = f"SELECT {layout.CHECKED['scores']}, checksum FROM scores "
GET_RECEIPTS: Final = f"SELECT {_RECEIPT}, checksum FROM receipts "
GET_PARTICIPANTS: Final = "SELECT name, body, checksum FROM participants ORDER BY name"
GET_VERSIONS: Final = f"SELECT {layout.CHECKED['versions']}, checksum FROM versions "
GET_ARRAY: Final = f"SELECT {layout.CHECKED['arrays']}, checksum, data FROM arrays WHERE name = ?"


def receipt_from_row(row: tuple[Any, ...]) -> Receipt:
    """Reads a row of GET_RECEIPTS.

    Raises:
        StoreError: if it is damaged.
    """
    fields = layout.verified("receipts", row)
    participant, round_, digest, sequence, previous_head, head, disposition, reason, included_in = fields
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
            reason=receipt.reason,
        )
    return receipt


def act_to_row(number: int, act: Act) -> tuple[Any, ...]:
    """Returns what PUT_ACT takes."""
    detail = {
        "request_id": act.request_id.hex(),
        "changed": act.changed,
        "participant": act.participant,
        "final_version": act.final_version,
        "at_once": act.at_once,
        "reason": act.reason,
    }
    return number, float(act.at), act.who, act.verb.value, json.dumps(detail)


def act_from_row(row: tuple[Any, ...]) -> Act:
    """Reads a row of GET_ACTS.

    Raises:
        StoreError: if it is damaged.
    """
    _, at, who, verb, detail = layout.verified("acts", row)
    fields = json.loads(detail)
    return Act(at, who, Verb(verb), **{**fields, "request_id": bytes.fromhex(fields["request_id"])})


def participant_to_json(record: ParticipantRecord) -> str:
    """Returns the body of a participant's row."""
    # Left out when there is none, so that rows of participants that declare nothing are what they always were.
    declared = {} if record.declared is None else {"declared": dataclasses.asdict(record.declared)}
    return json.dumps(
        {
            "name": record.name,
            "state": record.state.name,
            "session": record.session,
            "joins": [[base64.b64encode(join_id).decode(), session] for join_id, session in record.joins],
            "intervals": record.intervals,
            "suspensions": record.suspensions,
            "duplicates": record.duplicates,
            "must_report": record.must_report,
            **declared,
        }
    )


def participant_from_row(row: tuple[Any, ...]) -> ParticipantRecord:
    """Reads a row of GET_PARTICIPANTS.

    Raises:
        StoreError: if it is damaged.
    """
    _, body = layout.verified("participants", row)
    return participant_from_json(body)


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
        must_report=fields.get("must_report", False),  # unknown to programs before layout 2
        declared=DeclaredClaim(**fields["declared"]) if "declared" in fields else None,
    )
