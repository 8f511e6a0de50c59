"""What is done at the machine where it lies: a server's state and certificates are made, a ledger is summed up.

    python -m hushgrad.experiments.study.onhost VERB ARGUMENT ...

Each verb prints one JSON object. A ledger never leaves its machine; its summary has nothing in it but what the client
declares of itself: its claim, its noise, and how many rounds it has spent.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

BUNDLE_HOURS = 24.0
MEMBER_DAYS = 30.0


def server(config: str, federation: str, address: str) -> dict[str, Any]:
    """Makes the state of a new federation and, if clients come from other machines, its authority. May be repeated."""
    from hushgrad.experiments import certificates
    from hushgrad.server import config as server_config
    from hushgrad.server import initialize
    from hushgrad.server.folder import StateFolder

    settings = server_config.load(Path(config))
    done = initialize.initialize(
        StateFolder(Path(settings.state)), Path(config).with_name("terms.toml"),
        Path(config).with_name("initial.safetensors"),
    )  # fmt: skip
    if settings.tls is not None and not Path(settings.tls.certificate).exists():
        certificates.init(Path(settings.tls.authority), federation, [address], days=365, server_days=365)
    return {"terms_digest": done.terms_digest.hex()}


def bundles(config: str, address: str, *members: str) -> dict[str, str]:
    """Announces members, ROLE:NAME each, and returns the bundles that make them so. NAME.toml is the template."""
    from hushgrad.experiments import announce

    found = {}
    for member in members:
        role, _, name = member.partition(":")
        out = Path(config).with_name(f"{name}.bundle")
        out.unlink(missing_ok=True)  # of an interrupted start; the new one replaces it
        announce.new(
            name, role, config_path=Path(config), server=address, template=Path(config).with_name(f"{name}.toml"),
            hours=BUNDLE_HOURS, member_days=MEMBER_DAYS, out=out,
        )  # fmt: skip
        found[name] = out.read_text()
        out.unlink()
    return found


def outcome(config: str) -> dict[str, Any]:
    """Returns what a server published: how many updates each version holds, and the digest of the last model."""
    from collections import Counter

    from hushgrad.server import config as server_config
    from hushgrad.server.database import Database
    from hushgrad.server.folder import StateFolder

    database = Database.open(StateFolder(Path(server_config.load(Path(config)).state)), read_only=True)
    try:
        versions = database.versions()
        receipts = list(database.receipts())
    finally:
        database.close()
    added = Counter(receipt.included_in for receipt in receipts if receipt.included_in is not None)
    updates, total = [], 0
    for version in versions:
        total += added[version.version]
        updates.append([version.version, total])
    fates = Counter(receipt.disposition.value for receipt in receipts if receipt.disposition is not None)
    return {"updates": updates, "sha256": versions[-1].sha256.hex(), "dispositions": dict(fates)}


def curve(folder: str) -> dict[str, Any]:
    """Returns what the evaluator wrote, one list of rows for each time that it was started."""
    import csv

    found = {}
    for path in sorted(Path(folder).glob("curve-*.csv")):
        with path.open(newline="") as file:
            found[path.stem.rpartition("-")[2]] = list(csv.DictReader(file))
    return found


def summary(config: str) -> dict[str, Any]:
    """Checks a client's ledger from end to end and returns what may be told of it."""
    from hushgrad.client import commands
    from hushgrad.client import config as client_config

    loaded = client_config.load_client(Path(config), {"server": "127.0.0.1:1"})
    checked = commands.ledger_verify(loaded)
    status = commands.status(loaded)
    runs = status["runs"]
    found: dict[str, Any] = {
        "participant": status["participant"],
        "ledger_sound": bool(checked["sound"]),
        "second_budget_for_these_records": bool(status["accepted_new_budget"]),
        "claim": None,
    }
    if runs:
        run = runs[-1]
        kept = ("claim", "timing", "clipping", "rounds_committed", "rounds_spent", "rounds_skipped", "rounds_void",
                "updates_accepted", "updates_refused", "updates_unanswered")  # fmt: skip
        found |= {key: run[key] for key in kept}
    return found


VERBS: dict[str, Callable[..., dict[str, Any]]] = {
    "server": server,
    "bundles": bundles,
    "outcome": outcome,
    "curve": curve,
    "summary": summary,
}


def main(arguments: list[str]) -> int:
    """Runs one verb; errors of ours are one line and their exit code."""
    verb, *rest = arguments
    try:
        answer = VERBS[verb](*rest)
    except Exception as error:
        code = getattr(error, "exit_code", 2 if type(error).__module__.startswith("hushgrad.") else None)
        if not isinstance(code, int):
            raise
        print(f"hushgrad: {' '.join(str(error).split())}", file=sys.stderr)  # noqa: T201
        return code
    print(json.dumps(answer))  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
