"""The hard cases that a campaign must have met often enough, by the words under which the simulator counts them."""

from tests.faults.simulator import plan

SCHEDULES = 20_000
LEAST = 500
"""So often in SCHEDULES each of them has to occur."""

HARD_CASES = (
    "late: after a version that should have held it",
    "suspension",
    "return after suspension",
    "leave with open rounds",
    "join during recovery",
    "restore of a backup",
    "duplicate concurrent with its original",
    "crash with updates between receipt and checkpoint",
    "a copied or rolled back ledger halts",
    "order: pause",
    "order: evicted before version 1",
    "order: evicted",
    "order: end",
    "order: a drain is done",
    *(f"crash of the server: {point}" for point in plan.SERVER_POINTS),
    *(f"crash of the client: {point}" for point in plan.CLIENT_POINTS),
)
