"""What people read: the answers of the verbs as text."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hushgrad.client.config import ClientConfig


def claim(values: Mapping[str, Any]) -> str:
    """Returns a claim in one line; its parts only ever appear together."""
    return (
        f"({values['epsilon']:g}, {values['delta']:g})-DP per {values['unit']}, {values['adjacency']}, "
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
        f"left for life      epsilon {answer['left']['epsilon']:g} at delta {answer['left']['delta']:g}"
        + ("; this run is committed already" if answer["committed"] else ""),
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
    """Returns the answer of `status`."""
    lines = [
        f"participant   {answer['participant']}",
        f"data          {answer['fingerprint'][:16]}..."
        + (" (had another ledger before: second budget)" if answer["accepted_new_budget"] else ""),
        f"lifetime      epsilon {answer['lifetime']['epsilon']:g} at delta {answer['lifetime']['delta']:g}",
        f"left          epsilon {answer['left']['epsilon']:g} at delta {answer['left']['delta']:g}",
    ]
    if not answer["runs"]:
        lines.append("no run committed yet")
    for run in answer["runs"]:
        reading = run["odometer"]
        rounds = (
            f"{run['rounds_spent']} of {run['rounds_committed']} spent, {run['rounds_skipped']} skipped, "
            f"{run['rounds_void']} void"
        )
        outbox = (
            f"{run['updates_unanswered']} waiting for an answer, {run['updates_accepted']} accepted, "
            f"{run['updates_refused']} refused, {run['updates_held']} still held"
        )
        lines += [
            f"run           {run['federation']} (terms {run['terms_digest'][:16]}...)",
            f"  claim       {claim(run['claim'])}; {_notes(run)}",
            f"  rounds      {rounds}",
            f"  so far      epsilon {reading['epsilon']:g} at delta {reading['delta']:g} ({reading['label']})",
            f"  outbox      {outbox}",
            f"  waits for   {run['waiting_for']}",
        ]
    return "\n".join(lines)


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
