"""What people read: the answers of the verbs as text."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hushgrad.client import figures

if TYPE_CHECKING:
    from hushgrad.client.config import ClientConfig


def claim(values: Mapping[str, Any]) -> str:
    """Returns a claim in one line; its parts only ever appear together."""
    return (
        f"({figures.up(values['epsilon'])}, {values['delta']!r})-DP per {values['unit']}, {values['adjacency']}, "
        f"{values['sampling']} sampling, {values['method'].upper()} {values['method_version']}"
    )


def _notes(answer: Mapping[str, Any]) -> str:
    return f"{answer['timing']}; clipping: {answer['clipping']}"


def dry_run(answer: Mapping[str, Any]) -> str:
    """Returns the answer of `run --dry-run`."""
    lines = [
        f"federation         {answer['federation']} (terms {answer['terms_digest'][:16]}...)",
        f"rounds             {answer['rounds']}",
        f"rounds affordable  {answer['rounds_affordable']}",
        f"claim at the end   {claim(answer['claim'])}; {_notes(answer)}",
        f"left for life      epsilon {figures.down(answer['left']['epsilon'])} at delta "
        f"{figures.down(answer['left']['delta'])}" + ("; this run is committed already" if answer["committed"] else ""),
        "fits; nothing was drawn or written"
        if answer["fits"]
        else "does not fit: raise noise_multiplier or epsilon; nothing was drawn or written",
    ]
    if answer["warning"]:
        lines.append(f"warning: {answer['warning']}")
    return "\n".join(lines)


def init(answer: Mapping[str, Any]) -> str:
    """Returns the answer of `ledger init`."""
    text = (
        f"made ledger {answer['ledger']} for participant {answer['participant']!r}, data "
        f"{answer['fingerprint'][:16]}..., lifetime epsilon {answer['lifetime_epsilon']:g} at delta "
        f"{answer['lifetime_delta']:g}. Keep it: without it this data's budget is not known"
    )
    if answer["accepted_new_budget"]:
        text += "\nthis data had a ledger before; that it has a second budget now is recorded"
    return text


def enrolled(answer: Mapping[str, Any], address: str) -> str:
    """Returns the first part of the answer of `enroll`."""
    return (
        f"{answer['role']} {answer['name']}: key, certificate and configuration lie in {answer['folder']}; the "
        f"certificate holds until {answer['certificate_expires']}; the server is at {address}"
    )


def ledger_question(config: "ClientConfig") -> str:
    """Returns what a person says yes to before a ledger is made."""
    privacy = config.privacy
    return (
        f"Make the privacy ledger for {config.data.file or config.data.sklearn}? It is made once, and without it this "
        f"data's budget is not known: at most epsilon {privacy.epsilon:g} at delta {privacy.delta:g} for this run, "
        f"epsilon {privacy.lifetime_epsilon:g} at delta {privacy.lifetime_delta:g} for life"
    )


def after_enrolling(answer: Mapping[str, Any], *, has_ledger: bool) -> str:
    """Returns the last part of the answer of `enroll`: what to do next."""
    configuration = answer["configuration"]
    if answer["role"] != "participant":
        return f"next: hushgrad-client evaluate --config {configuration}"
    lines = []
    if answer["ledger"] is not None:
        lines.append(init(answer["ledger"]))
    elif not has_ledger:
        lines.append(f"without a ledger nothing runs: hushgrad-client ledger init --config {configuration}")
    lines.append(f"next: hushgrad-client run --dry-run --config {configuration}, then without --dry-run")
    return "\n".join(lines)


def status(answer: Mapping[str, Any]) -> str:
    """Returns the answer of `status`. What was promised or spent is rounded up, what is left is rounded down."""
    lifetime, committed, left = answer["lifetime"], answer["committed"], answer["left"]
    more = fitting(answer["runs_like_the_last_that_fit"])
    second = " (had another ledger before: second budget)" if answer["accepted_new_budget"] else ""
    chain = "the chain holds" if answer["chain"]["checked"] else "not checked"
    whole = f"epsilon {lifetime['epsilon']!r} at delta {lifetime['delta']!r}"
    gone = f"epsilon {figures.up(committed['epsilon'])} at delta {figures.up(committed['delta'])}"
    rest = f"epsilon {figures.down(left['epsilon'])} at delta {figures.down(left['delta'])}"
    lines = [
        f"participant   {answer['participant']}",
        f"data          {answer['fingerprint'][:16]}...{second}",
        f"ledger        {figures.count(answer['chain']['rows'], 'row')}, {chain}",
        f"client        {PROCESS[answer['process']]}",
        f"lifetime      {whole}: what all runs may cost together",
        f"committed     {gone}: promised, and gone from the lifetime",
        f"left          {rest}: for later runs{more}",
    ]
    if not answer["runs"]:
        lines.append("no run committed yet")
    for run in answer["runs"]:
        lines += _run_status(run)
    lines += ["not covered by any claim of this ledger:", *(f"  - {line}" for line in answer["not_covered"])]
    return "\n".join(lines)


PROCESS = {
    "running": "a process is running on this ledger",
    "not seen": "no process is seen on this ledger from here",
    "unknown": "whether a process runs cannot be seen from here",
}


def _run_status(run: Mapping[str, Any]) -> list[str]:
    rounds = (
        f"{run['rounds_spent']:,} of {run['rounds_committed']:,} spent, {run['rounds_skipped']:,} skipped, "
        f"{run['rounds_void']:,} void, {run['rounds_left']:,} to come"
    )
    outbox = (
        f"{run['updates_unanswered']:,} waiting for an answer, {run['updates_accepted']:,} accepted, "
        f"{run['updates_refused']:,} refused, {run['updates_held']:,} still held"
    )
    lines = [
        f"run           {run['federation']} (terms {run['terms_digest'][:16]}...)",
        f"  claim       {claim(run['claim'])}; {_notes(run)}",
        f"  rounds      {rounds}",
        f"  so far      {_reading(run['odometer'])} ({run['odometer']['label']})",
    ]
    if run["last_updates"] is not None:
        lines.append(f"  last {run['last_updates']['updates']:<6} {last_updates(run['last_updates'])}")
    lines += [
        f"  outbox      {outbox}",
        f"  next        {run['next']}",
        f"  pace        {pace(run['pace'])}",
    ]
    if run["records_zeroed"]:
        lines.append(f"  zeroed      {zeroed(run['records_zeroed'])}")
    return lines


def last_updates(last: Mapping[str, Any]) -> str:
    """Returns what the last updates of a run changed, in one line that says what kind of number it is."""
    before, after = figures.up(last["epsilon_before"]), figures.up(last["epsilon_after"])
    return (
        f"the reading rose by at most {figures.up(last['rise'])}, from {before} to {after}; these updates alone: "
        f"{_reading(last['alone'])}"
    )


def fitting(number: int | None) -> str:
    """Returns how many more runs like the newest would fit into what is left; nothing where there is no run."""
    if number is None:
        return ""
    return f"; {figures.count(number, 'more run') if number else 'no further run'} like the newest would fit"


def zeroed(number: int) -> str:
    """Returns what it means that so many gradients were not finite. For the owner of the data alone."""
    times = "once" if number == 1 else f"{number:,} times"
    return (
        f"{times} a record counted as zero, because its gradient was not finite: look for missing or huge values in "
        "the data. Nobody else is told"
    )


def pace(found: Mapping[str, Any] | None) -> str:
    """Returns how fast updates come and when the budget of the run ends, or that it is not known."""
    if found is None:
        return "not known: this ledger has not noted when two updates were sealed"
    steps = "one update" if found["updates"] == 1 else f"{found['updates']} updates"
    text = f"{steps} in {figures.span(found['seconds'])}, the last one {figures.span(found['seconds_since_last'])} ago"
    if found["seconds_to_end"] is None:
        return f"{text}; the committed rounds are over"
    end = f"the committed rounds last for about {figures.span(found['seconds_to_end'])}"
    if found["quiet"]:
        return f"{text}; nothing was sealed since. Once it goes on at that pace, {end}"
    return f"{text}; at this pace {end}, until {found['ends_at'] or 'a day centuries away'}"


def _reading(reading: Mapping[str, Any]) -> str:
    return f"epsilon {figures.up(reading['epsilon_so_far'])} at delta {figures.up(reading['delta'])}"


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Returns the answer of `ledger show`."""
    lines = [f"{'row':>6}  {'kind':<8} {'federation':<12} {'round':>7}  {'digest':<16}  outbox"]
    for row in rows:
        round_ = "" if row["round"] is None else row["round"]
        lines.append(
            f"{row['sequence']:>6}  {row['kind']:<8} {row['federation']:<12} {round_:>7}  {row['digest']:<16}  "
            f"{row['outbox']}"
        )
    return "\n".join(line.rstrip() for line in lines)
