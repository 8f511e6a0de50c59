"""Privacy accounting as values in, values out: claims, schedules, budgets and calibration.

The names below are the public ones, and so are the modules about the paper (docs/paper.md lists them). Importing this
package is cheap; the libraries beneath are loaded by the first computation.
"""

from hushgrad.accountant.budget import Budget
from hushgrad.accountant.calibration import affordable_rounds, noise_multiplier, smallest_noise_multiplier
from hushgrad.accountant.claims import Claim, RoundGroup, check_delta, from_schedule, rounded_up, suggest_delta
from hushgrad.accountant.errors import AccountantError, BudgetError, RefusedError
from hushgrad.accountant.events import Schedule, from_dp_event, to_dp_event
from hushgrad.accountant.ladder import Ladder
from hushgrad.accountant.lifetime import CommittedRun, RecordClaim, of_record, together
from hushgrad.accountant.mechanism import Mechanism
from hushgrad.accountant.odometer import Reading, reading
from hushgrad.accountant.runs import Distances, Run, claim, distances
from hushgrad.accountant.sampler import log_batch_tail
from hushgrad.accountant.streaming import Filter, Meter, best_order

__all__ = [
    "AccountantError",
    "Budget",
    "BudgetError",
    "Claim",
    "CommittedRun",
    "Distances",
    "Filter",
    "Ladder",
    "Mechanism",
    "Meter",
    "Reading",
    "RecordClaim",
    "RefusedError",
    "RoundGroup",
    "Run",
    "Schedule",
    "affordable_rounds",
    "best_order",
    "check_delta",
    "claim",
    "distances",
    "from_dp_event",
    "from_schedule",
    "log_batch_tail",
    "noise_multiplier",
    "of_record",
    "reading",
    "rounded_up",
    "smallest_noise_multiplier",
    "suggest_delta",
    "to_dp_event",
    "together",
]
