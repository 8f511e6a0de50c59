"""What a ledger says to people and programs: the table, the status, and the export that anybody can re-check.

Everything here is computed from a snapshot; nothing in it depends on the data beyond what the ledger recorded.
"""

from collections import Counter
from dataclasses import asdict
from typing import Any

from hushgrad.client import commitment
from hushgrad.client.ledger import Snapshot
from hushgrad.client.rows import Committed, Group, Row
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
                "outbox": _fate(entry.state, entry.reason, entry.included_in) if entry and row.kind == "update" else "",
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


def status(snapshot: Snapshot) -> dict[str, Any]:
    """Returns how a ledger stands: per run what was committed and what has happened, and what is left for life."""
    init = snapshot.init
    budget = commitment.budget(init, snapshot.runs)
    left_epsilon, left_delta = budget.left()
    return {
        "participant": init.participant,
        "ledger_id": init.ledger_id,
        "fingerprint": init.fingerprint,
        "accepted_new_budget": init.accepted_new_budget,
        "ledger_rows": len(snapshot.rows),
        "lifetime": {"epsilon": init.lifetime_epsilon, "delta": init.lifetime_delta},
        "left": {"epsilon": left_epsilon, "delta": left_delta},
        "runs": [_run_status(snapshot, run) for run in snapshot.runs],
    }


def odometer(committed: Committed, spent: list[int]) -> dict[str, Any]:
    """Returns what the rounds so far have cost. A reading, not a promise: the promise is the committed claim."""
    from hushgrad import accountant
    from hushgrad.accountant import claims

    counts: Counter[Group] = Counter()
    for round_ in spent:
        group = committed.group(round_)
        if group is not None:
            counts[group] += 1
    groups = [
        accountant.RoundGroup(group.sampling_probability, group.charged_noise_multiplier, rounds)
        for group, rounds in counts.items()
    ]
    reading = accountant.from_schedule(
        groups,
        sampling=committed.sampler,  # type: ignore[arg-type]
        adjacency=committed.adjacency,  # type: ignore[arg-type]
        delta=committed.delta,
        delta_charged=claims.MAX_CHARGED_SHARE * committed.delta,  # what samplers and tables may take at most
    )
    # The claim holds for every beginning of its schedule, so no reading need be larger.
    epsilon = min(reading.epsilon, committed.epsilon)
    return {
        "label": "odometer reading of the executed rounds, not a guarantee",
        "rounds": len(spent),
        "epsilon": epsilon,
        "delta": committed.delta,
    }


def _run_status(snapshot: Snapshot, run: Committed) -> dict[str, Any]:
    mine = [row for row in snapshot.rows if row.terms_digest == run.terms_digest]
    sealed = [row.round for row in mine if row.kind == "update" and row.round is not None]
    entries = [entry for digest, entry in snapshot.entries if digest == run.terms_digest]
    return {
        "federation": run.federation,
        "terms_digest": run.terms_digest.hex(),
        "rounds_committed": run.rounds,
        "rounds_spent": len(sealed),
        "rounds_skipped": sum(row.kind == "skipped" for row in mine),
        "rounds_void": sum(row.kind == "void" for row in mine),
        "next_round": max((row.round for row in mine if row.round is not None), default=-1) + 1,
        "claim": dict(run.claim),
        **notes(run),
        "odometer": odometer(run, sealed),
        "updates_unanswered": sum(entry.state == "sealed" for entry in entries),
        "updates_accepted": sum(entry.state == "accepted" for entry in entries),
        "updates_refused": sum(entry.state == "final" and entry.reason != "VOID" for entry in entries),
        "updates_held": sum(entry.held for entry in entries),
        "waiting_for": _waiting_for(run, mine, [entry.round for entry in entries if entry.state == "sealed"]),
    }


def _waiting_for(run: Committed, mine: list[Row], unanswered: list[int]) -> str:
    """Returns one sentence: what the next thing here waits for, as far as the ledger knows."""
    if unanswered:
        return f"round {min(unanswered)} is sealed and waits for the server's answer"
    next_round = max((row.round for row in mine if row.round is not None), default=-1) + 1
    if next_round >= run.rounds:
        return "nothing: every committed round has been spent, skipped or made void, and every update was answered"
    return f"everything sealed was answered; round {next_round} waits for a version that permits it"


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


def _fate(state: str, reason: str, included_in: int) -> str:
    if state == "accepted":
        return f"accepted, in version {included_in}"
    return f"final: {reason}" if state == "final" else "waiting"
