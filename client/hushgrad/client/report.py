"""What a ledger says row by row: the table, and the export that anybody can re-check. How it stands is in `overview`.

Everything here is computed from a snapshot; nothing in it depends on the data beyond what the ledger recorded.
"""

from dataclasses import asdict
from typing import Any

from hushgrad.client.ledger import Snapshot
from hushgrad.client.outbox import Entry
from hushgrad.client.rows import Committed, Row
from hushgrad.wire import header

EXPORT_FORMAT = 1

TIMING_NOTE = {
    "covered": "timing covered by the release interval",
    "not covered": "timing not covered",
}


CLIPPING_NOTE = {False: "by the library", True: "declared by caller"}


def notes(run: Committed) -> dict[str, str]:
    """Returns what must be said beside a run's claim: whether timing is covered, and who clipped the gradients."""
    return {"timing": TIMING_NOTE.get(run.timing, run.timing), "clipping": _clipping(run)}


def _clipping(run: Committed) -> str:
    return CLIPPING_NOTE[bool(run.flags & header.FLAG_CLIPPING_DECLARED)]


def table(snapshot: Snapshot) -> list[dict[str, Any]]:
    """Returns one dictionary per row of the ledger, for a table."""
    states = {(digest, entry.round): entry for digest, entry in snapshot.entries}
    lines = []
    for row in snapshot.rows:
        entry = states.get((row.terms_digest or b"", row.round if row.round is not None else -1))
        lines.append(
            {
                "sequence": row.sequence,
                "kind": row.kind,
                "federation": row.terms_digest.hex()[:12] if row.terms_digest else "",
                "round": row.round,
                "digest": row.digest.hex()[:16],
                "outbox": fate(entry) if row.kind == "update" else "",
            }
        )
    return lines


def export(snapshot: Snapshot) -> dict[str, Any]:
    """Returns a whole ledger such that anybody can check the chain and recompute the privacy loss from update rows.

    An update row's q is `sampling_probability`, its sigma `charged_noise_multiplier`; with sampling "fixed" the
    accountant takes half of that. Rows without payload carry the canonical text whose SHA-256 is their digest.
    """
    init, runs = snapshot.init, {run.terms_digest: run for run in snapshot.runs}
    return {
        "format": EXPORT_FORMAT,
        "participant": init.participant,
        "ledger_id": init.ledger_id,
        "fingerprint": init.fingerprint,
        "lifetime": {"epsilon": init.lifetime_epsilon, "delta": init.lifetime_delta},
        "accepted_new_budget": init.accepted_new_budget,
        "head": snapshot.rows[-1].head.hex(),
        "runs": [_run(run) for run in runs.values()],
        "rows": [_row(row, runs) for row in snapshot.rows],
    }


def _run(run: Committed) -> dict[str, Any]:
    return {
        "terms_digest": run.terms_digest.hex(),
        "federation": run.federation,
        "sampling": run.sampler,
        "adjacency": run.adjacency,
        "records": run.records,
        "parameters": run.parameters,
        "timing": run.timing,
        "clipping": _clipping(run),
        "claim": dict(run.claim),
        "delta": run.delta,
        "schedule": [asdict(group) for group in run.schedule],
    }


def _row(row: Row, runs: dict[bytes, Committed]) -> dict[str, Any]:
    line: dict[str, Any] = {
        "sequence": row.sequence,
        "kind": row.kind,
        "round": row.round,
        "digest": row.digest.hex(),
        "head": row.head.hex(),
        "terms_digest": row.terms_digest.hex() if row.terms_digest else None,
    }
    if row.kind != "update":
        return {**line, "text": row.body.decode()}
    run = runs[row.terms_digest or b""]
    group = run.group(row.round or 0)
    if group is None:  # verify would have refused the ledger
        return line
    return {
        **line,
        "header": row.body.hex(),
        "sampling": run.sampler,
        "clipping": _clipping(run),
        "sample_size": group.sample_size,
        "sampling_probability": group.sampling_probability,
        "noise_multiplier": group.noise_multiplier,
        "charged_noise_multiplier": group.charged_noise_multiplier,
        "clip_norm": group.clip_norm,
    }


def fate(entry: Entry | None) -> str:
    """Returns in a few words what became of a sealed update."""
    if entry is None:
        return ""
    if entry.state == "accepted":
        return f"accepted, in version {entry.included_in}"
    return f"final: {entry.reason}" if entry.state == "final" else "waiting"
