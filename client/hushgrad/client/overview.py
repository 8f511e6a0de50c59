"""What a data owner is shown of a ledger: promised, spent, left, what comes next, and what is not covered.

Values in, values out: from how a ledger stands and the time of day to plain values. Every number about privacy is the
accountant's. None is smaller than the truth, and what is left is never larger.
"""

import functools
import itertools
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from hushgrad import accountant
from hushgrad.accountant import claims, odometer
from hushgrad.accountant.errors import AccountantError
from hushgrad.client import commitment, figures, pace, report
from hushgrad.client.rows import Committed
from hushgrad.client.standing import Process, RunStanding, Standing
from hushgrad.wire import header

LAST_UPDATES = 100
"""How many updates "the last updates" are."""

QUIET_STEPS, QUIET_SECONDS = 10, 60.0
"""A client that has sealed nothing for so many of its own steps, and for so long, is said to be quiet."""


def status(standing: Standing, *, now: float) -> dict[str, Any]:
    """Returns how a ledger stands: per run what was committed and what has happened, and what is left for life.

    Args:
        standing: of the ledger.
        now: seconds since 1970.

    Raises:
        AccountantError: if the committed runs do not fit the lifetime budget; no sound ledger has such.
    """
    init = standing.init
    budget = commitment.budget(init, tuple(run.committed for run in standing.runs))
    (spent_epsilon, spent_delta), (left_epsilon, left_delta) = budget.spent(), budget.left()
    return {
        "participant": init.participant,
        "ledger_id": init.ledger_id,
        "fingerprint": init.fingerprint,
        "accepted_new_budget": init.accepted_new_budget,
        "ledger_rows": standing.rows,
        "chain": {"checked": standing.checked, "rows": standing.rows, "head": standing.head.hex()},
        "process": standing.process,
        "lifetime": {"epsilon": init.lifetime_epsilon, "delta": init.lifetime_delta},
        "committed": {"epsilon": spent_epsilon, "delta": spent_delta},
        "left": {"epsilon": left_epsilon, "delta": left_delta},
        "runs_like_the_last_that_fit": _runs_that_fit(standing, left_epsilon, left_delta),
        "runs": [_run(run, standing, now) for run in standing.runs],
        "not_covered": not_covered(standing),
    }


def reading(committed: Committed, rounds: Sequence[int]) -> dict[str, Any]:
    """Returns what these rounds of a committed run would have cost as a schedule of their own.

    It is an odometer reading, not a promise: the promise is the committed claim, which holds for every part of its
    schedule. So no reading need be larger, and the claim stands in where none can be computed.
    """
    firsts = list(itertools.accumulate((group.rounds for group in committed.schedule), initial=0))
    counts = Counter(bisect_right(firsts, round_) - 1 for round_ in rounds if 0 <= round_ < committed.rounds)
    charged = tuple(
        (group.sampling_probability, group.charged_noise_multiplier, counts[at])
        for at, group in enumerate(committed.schedule)
        if counts[at]
    )
    try:
        found = _epsilon(charged, committed.sampler, committed.adjacency, committed.delta)
    except AccountantError:
        found = committed.epsilon
    return odometer.Reading(len(rounds), min(found, committed.epsilon), committed.delta).to_dict()


@functools.lru_cache(maxsize=256)
def _epsilon(charged: tuple[tuple[float, float, int], ...], sampler: str, adjacency: str, delta: float) -> float:
    return accountant.from_schedule(
        [accountant.RoundGroup(*group) for group in charged],
        sampling=sampler,  # type: ignore[arg-type]
        adjacency=adjacency,  # type: ignore[arg-type]
        delta=delta,
        delta_charged=claims.MAX_CHARGED_SHARE * delta,  # what samplers and tables may take at most
    ).epsilon


def last_updates(run: RunStanding, now_reading: dict[str, Any]) -> dict[str, Any] | None:
    """Returns what the last hundred updates of a run changed; None if it has none.

    `epsilon_before` and `epsilon_after` are the odometer without and with them, `rise` by how much it rose at most.
    `alone` is the reading of these updates and no others: a bound for whoever saw only them. The rise is smaller,
    because epsilon grows about with the square root of the number of updates; it is a difference of two readings, and
    promises nothing about these updates.
    """
    last, earlier = run.sealed[-LAST_UPDATES:], run.sealed[:-LAST_UPDATES]
    if not last:
        return None
    before, after = reading(run.committed, earlier)["epsilon_so_far"], now_reading["epsilon_so_far"]
    return {
        "updates": len(last),
        "lowest_round": min(last),
        "highest_round": max(last),
        "epsilon_before": before,
        "epsilon_after": after,
        "rise": figures.rise(before, after),
        "alone": reading(run.committed, last),
    }


def not_covered(standing: Standing) -> list[str]:
    """Returns, in a person's words, what the claims of this ledger do not promise; what differs by ledger first."""
    runs = [run.committed for run in standing.runs]
    found = []
    if any(run.flags & header.FLAG_INSECURE_NOISE for run in runs):
        found.append("Anything at all: a run was made with noise for simulations, which protects nobody.")
    if any(run.timing != "covered" for run in runs):
        found.append("When your messages leave: no release interval is set, so timing may tell something of the data.")
    if any(run.flags & header.FLAG_CLIPPING_DECLARED for run in runs):
        found.append("Clipping: a training program of your own did it, and the claim takes its word.")
    if standing.init.accepted_new_budget:
        found.append("What the data's earlier ledger has spent: this is a second budget, and both add up.")
    return [
        *found,
        "Several records of one person: the claim is for one record. For k of them think of k times epsilon.",
        "Records that other participants hold too: the claims of all of them add up for such a record.",
        "What you make public yourself: the declared number of records, the bounds of features, the names of classes.",
        "The choice of one run out of many by results on your data.",
        "This machine in other hands, or a configuration that says something untrue of the data.",
        "A ledger that somebody put back to an older state together with the server. An accident is found.",
        "What the model tells about people in general; it would with and without your records.",
    ]


def next_step(run: RunStanding, process: Process) -> str:
    """Returns in a sentence or two what this client does next in a run, as far as the ledger knows."""
    step = waiting_for(run)
    if process == "not seen" and not _finished(run):
        return f"No client is seen running on this ledger from here; when it runs: {step}"
    return step[0].upper() + step[1:]


def waiting_for(run: RunStanding) -> str:
    """Returns one sentence: what the next thing in a run waits for, as far as the ledger knows."""
    if run.outbox.oldest_unanswered is not None:
        return f"round {run.outbox.oldest_unanswered} is sealed and waits for the server's answer"
    if _finished(run):
        return "nothing: every committed round has been spent, skipped or made void, and every update was answered"
    return f"everything sealed was answered; round {run.next_round} waits for a version that permits it"


def _finished(run: RunStanding) -> bool:
    return run.outbox.oldest_unanswered is None and run.next_round >= run.committed.rounds


def _run(run: RunStanding, standing: Standing, now: float) -> dict[str, Any]:
    committed = run.committed
    so_far = reading(committed, run.sealed)
    return {
        "federation": committed.federation,
        "terms_digest": committed.terms_digest.hex(),
        "rounds_committed": committed.rounds,
        "rounds_spent": len(run.sealed),
        "rounds_skipped": run.skipped,
        "rounds_void": run.void,
        "rounds_left": _rounds_left(run),
        "next_round": run.next_round,
        "claim": dict(committed.claim),
        **report.notes(committed),
        "odometer": so_far,
        "last_updates": last_updates(run, so_far),
        "updates_unanswered": run.outbox.unanswered,
        "updates_accepted": run.outbox.accepted,
        "updates_refused": run.outbox.refused,
        "updates_held": run.outbox.held,
        "waiting_for": waiting_for(run),
        "next": next_step(run, standing.process),
        "pace": run_pace(run, standing, now),
        # For the owner alone: it depends on the records, so it is in no message, no log and no export.
        "records_zeroed": standing.zeroed.get(committed.terms_digest.hex()),
    }


def _rounds_left(run: RunStanding) -> int:
    return max(0, run.committed.rounds - run.next_round)


def run_pace(run: RunStanding, standing: Standing, now: float) -> dict[str, Any] | None:
    """Returns how fast updates of a run come, and when its last committed round would be sealed if that goes on.

    None where the ledger did not note when two of them were sealed.
    """
    found = pace.of([seal for seal in standing.seals if seal.sequence in run.last_rows])
    if found is None:
        return None
    rounds_left = _rounds_left(run)
    quiet = max(0.0, now - found.last_unix_seconds)
    usual = max(QUIET_SECONDS, QUIET_STEPS * found.seconds_for(1))
    left = found.seconds_for(rounds_left)
    # While updates come, the estimate counts from the last one; after a pause it can only count from now.
    begin = now if quiet > usual else found.last_unix_seconds
    return {
        "updates": found.steps,
        "seconds": round(found.seconds, 3),
        "last_sealed_at": _moment(found.last_unix_seconds),
        "seconds_since_last": round(quiet, 3),
        "quiet": quiet > usual,
        "ends_at": _moment(begin + left) if rounds_left else None,
        "seconds_to_end": round(max(0.0, begin + left - now), 3) if rounds_left else None,
    }


def _runs_that_fit(standing: Standing, left_epsilon: float, left_delta: float) -> int | None:
    """Returns how many more runs with the newest run's claim would fit into what is left; None without a claim."""
    if not standing.runs or not standing.runs[-1].committed.epsilon:
        return None
    newest = standing.runs[-1].committed
    by_epsilon = Decimal(repr(left_epsilon)) // Decimal(repr(newest.epsilon))
    by_delta = Decimal(repr(left_delta)) // Decimal(repr(float(newest.claim["delta"])))
    return int(min(by_epsilon, by_delta))


def _moment(unix_seconds: float) -> str | None:
    try:
        return datetime.fromtimestamp(unix_seconds, UTC).isoformat(timespec="seconds")
    except (OverflowError, ValueError, OSError):  # centuries away: no date, the span says enough
        return None
