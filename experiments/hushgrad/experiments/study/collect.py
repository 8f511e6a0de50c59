"""`hushgrad run collect`: asks hosts for what their clients' ledgers say in sum, and completes results with it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hushgrad.experiments.errors import InputError
from hushgrad.experiments.study import backends, journal, members, store
from hushgrad.experiments.study.inventory import Inventory
from hushgrad.experiments.study.machines import There

_BACKEND = "hosts"


def collect(folder: Path, found: Inventory) -> dict[str, Any]:
    """Gathers the summaries of all runs of a folder, finished or not.

    Returns:
        By run its number, its key, the summary of each client that was reached, and who was not.

    Raises:
        InputError: if there are no runs on hosts in the folder, or the inventory lacks one of their hosts.
    """
    states = [journal.read(path) for path in sorted((folder / backends.WORK).glob(f"*-{_BACKEND}/{journal.NAME}"))]
    if not states:
        raise InputError(f"{folder} holds no runs that were made with --backend {_BACKEND}")
    there = {host.name: There(host) for host in found.hosts}
    gathered = []
    for state in states:
        clients = {name: host for name, host in state.hosts.items() if name != members.EVALUATOR}
        if unknown := sorted(set(clients.values()) - set(there)):
            raise InputError(f"the inventory lacks {', '.join(unknown)}, where clients of run {state.number} are")
        at = {name: there[host] for name, host in clients.items()}
        reached = backends.summaries(sorted(at, key=_number), at.__getitem__, state.token, "member/client.toml")
        path = folder / "runs" / f"{state.number:05d}-{state.key}-{_BACKEND}.json"
        if path.exists() and reached:
            _complete(path, reached)
        gathered.append(
            {
                "number": state.number,
                "key": state.key,
                "is_finished": path.exists(),
                "clients": {name: {**summary, "host": clients[name]} for name, summary in reached.items()},
                "out_of_reach": [name for name in sorted(clients, key=_number) if name not in reached],
            }
        )
    return {"folder": str(folder), "runs": gathered}


def cells(found: Mapping[str, Any]) -> list[Sequence[str]]:
    """Returns the table's rows."""
    body: list[Sequence[str]] = []
    for run in found["runs"]:
        for name, one in run["clients"].items():
            claim = one["claim"] or {}
            numbers = [f"{claim['epsilon']:g}", f"{claim['delta']:g}"] if claim else ["nothing spent", ""]
            ledger = "sound" if one["ledger_sound"] else "NOT SOUND"
            rounds = [str(one.get("rounds_spent", 0)), str(one.get("rounds_committed", 0))]
            body.append([str(run["number"]), name, one["host"], *numbers, *rounds, ledger])
        body += [[str(run["number"]), name, "out of reach", "", "", "", "", ""] for name in run["out_of_reach"]]
    return body


def _complete(path: Path, reached: Mapping[str, Mapping[str, Any]]) -> None:
    """Puts what was gathered into the results of a run. Claims are what they were: committed before its first round."""
    run = store.read_run(path)
    participants = {name: {**one, **reached.get(name, {})} for name, one in run["participants"].items()}
    claims = {name: one["claim"] for name, one in participants.items() if one.get("claim")}
    missing = [name for name in run["claims_not_collected"] if name not in reached]
    known = [*claims.values(), *([run["claim"]] if run["claim"] else [])]
    largest = backends.claim_of({str(i): claim for i, claim in enumerate(known)})
    store.amend(path, {"participants": participants, "claims_not_collected": missing, "claim": largest})


def _number(name: str) -> tuple[int, str]:
    return len(name), name
