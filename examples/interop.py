"""Federations of our clients, of the minimal one, of the Node.js one, and of all three: all must learn as well.

Usage: make interop. Data: the packaged phishing data in five parts. What is compared is the averaged model of each
federation on the public test set; all federations have the same settings, and different noise.
"""

import argparse
import dataclasses
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from hushgrad.experiments import data, demo_settings, fetch, files, new, plan, processes, split
from hushgrad.experiments.files import DataSource
from hushgrad.experiments.plan import Plan
from hushgrad.experiments.tables import Table

EXAMPLES = Path(__file__).resolve().parent
PROTOS = EXAMPLES.parent / "protos"

MIXED = {"client-1": "ours", "client-2": "ours", "client-3": "minimal", "client-4": "minimal", "client-5": "node"}
FEDERATIONS = {
    "all ours": dict.fromkeys(MIXED, "ours"),
    "mixed": MIXED,
    # In a mixed federation a client that sends noise alone costs less than half a point; alone it learns nothing.
    "all minimal": dict.fromkeys(MIXED, "minimal"),
    "all node": dict.fromkeys(MIXED, "node"),
}

LARGEST_DIFFERENCE = 0.01
"""In accuracy. Eight federations of these four kinds, all in order, lay between 0.9249 and 0.9276."""

EPSILON = 2.0
"""Four times the demo's, so that the noise of one run hides less of a difference between clients."""

EXAMPLES_EPSILON = 2.5
"""The examples bound the same noise by Renyi divergences, which are looser than our loss distributions."""

SECONDS = 240.0


class InteropError(Exception):
    """What one line on stderr says."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A federation's numbers and the public test set."""

    plan: Plan
    test: Table


def prepare(folder: Path, rounds: int) -> Prepared:
    """Writes the files of server and clients: the demo's federation with EPSILON in place of its own."""
    table = data.phishing()
    cut = split.split(table, clients=len(MIXED), test_fraction=demo_settings.TEST_FRACTION, seed=1)
    parts = [table.take(rows) for rows in cut.parts]
    request = demo_settings.request(
        name="interop", features=table.features.shape[1], records=min(part.rows for part in parts), rounds=rounds
    )
    made = plan.make(dataclasses.replace(request, epsilon=EPSILON))
    initial = made.model.initial(1)
    (folder / "data").mkdir(parents=True)
    (folder / "terms.toml").write_text(new.checked_terms(made, initial, straggler_timeout_seconds=60.0))
    new.save_initial(folder / "initial.safetensors", made, initial)
    server = files.server(
        listen="127.0.0.1:0", state="../state/server", keep_sealed=False, keep_last=2, linger_seconds=30.0
    )
    (folder / "server.toml").write_text(server)
    for name, part in zip(made.participants, parts, strict=True):
        part.save(folder / "data" / f"{name}.npz")
        ours = files.client(
            made,
            participant=name,
            server="127.0.0.1:1",
            state=f"../state/{name}",
            data=DataSource(f"data/{name}.npz"),
            release_interval_seconds=0.0,
        )
        (folder / f"{name}.toml").write_text(ours)
    return Prepared(made, table.take(cut.test))


def federate(kinds: Mapping[str, str], rounds: int, folder: Path) -> tuple[Prepared, fetch.Outcome]:
    """Runs one federation to its end; `kinds` says which client each participant is."""
    prepared = prepare(folder / "configuration", rounds)
    (folder / "logs").mkdir()
    (folder / "state").mkdir()
    configuration, environment = folder / "configuration", processes.environment(folder / "state" / "home")
    group = processes.Group(folder / "logs", environment)
    others: list[subprocess.Popen[bytes]] = []
    try:
        terms = ["--terms", str(configuration / "terms.toml"), "--initial", str(configuration / "initial.safetensors")]
        server = ["--config", str(configuration / "server.toml")]
        group.start("server-init", "hushgrad.server", ["init", *server, *terms])
        group.wait(["server-init"], 60)
        group.start("server", "hushgrad.server", ["run", *server, "--log-format", "json"])
        address = _address(group)
        watcher = fetch.Watcher(address, "interop")
        for name, kind in kinds.items():
            if kind == "ours":
                ours = ["--config", str(configuration / f"{name}.toml")]
                group.start(f"{name}-ledger", "hushgrad.client", ["ledger", "init", *ours])
                group.wait([f"{name}-ledger"], 60)
                group.start(name, "hushgrad.client", ["run", *ours, "--server", address, "--log-format", "json"])
            else:
                others.append(_start_example(kind, name, address, folder, prepared, environment))
        outcome = watcher.outcome(SECONDS)
        group.wait([name for name, kind in kinds.items() if kind == "ours"], 30)
        codes = [process.wait(timeout=30) for process in others]
        if any(codes):
            raise InteropError(f"the examples ended with exit codes {codes}; their logs are in {folder / 'logs'}")
        return prepared, outcome
    finally:
        for process in others:
            process.kill()
        group.stop()


def accuracy(prepared: Prepared, outcome: fetch.Outcome) -> float:
    """Returns the share of the public test set that the averaged model gets right."""
    probabilities = prepared.plan.model.predict(outcome.averaged.astype(np.float64), prepared.test.features)
    return float((probabilities.argmax(axis=1) == prepared.test.labels).mean())


def install_node_packages() -> None:
    """Makes examples/node ready to run.

    Raises:
        InteropError: if Node.js or npm is missing, or npm fails.
    """
    for program in ("node", "npm"):
        if shutil.which(program) is None:
            raise InteropError(
                f"interop needs {program} (Node.js 20 or newer) and it is not installed; nothing was run"
            )
    if not (EXAMPLES / "node" / "node_modules").exists():
        done = subprocess.run(
            ["npm", "install", "--silent"], cwd=EXAMPLES / "node", check=False, capture_output=True, text=True
        )
        if done.returncode:
            raise InteropError(f"npm install failed: {(done.stderr or done.stdout).strip().splitlines()[-1:]}")


def _address(group: processes.Group) -> str:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        for _, event in group.events(0.1):
            if event.get("event") == "listening":
                return str(event["address"])
        group.check()
    raise InteropError("the server did not say where it listens")


def _start_example(
    kind: str, name: str, address: str, folder: Path, prepared: Prepared, environment: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    table_file, state, request = (
        folder / "configuration" / "data" / f"{name}.npz",
        folder / "state" / name,
        prepared.plan.request,
    )
    state.mkdir()
    with np.load(table_file) as arrays:
        columns = [*(f"x{j}" for j in range(arrays["X"].shape[1])), "label"]
        table = np.column_stack([arrays["X"], arrays["y"]])
        np.savetxt(
            table_file.with_suffix(".csv"), table, fmt="%.17g", delimiter=",", header=",".join(columns), comments=""
        )
    privacy = {
        "records": request.records,
        "clip_norm": request.clip_norm,
        "noise_multiplier": prepared.plan.noise_multiplier,
        "sampler": request.sampler,
        "sample_size": prepared.plan.sample_size,
        "epsilon": EXAMPLES_EPSILON,
        "delta": request.delta,
    }
    command = {
        "minimal": [sys.executable, str(EXAMPLES / "python-minimal" / "client.py")],
        "node": ["node", str(EXAMPLES / "node" / "client.js")],
    }[kind]
    variables = {
        "PYTHONPATH": str(PROTOS),
        "HUSHGRAD_SERVER": address,
        "HUSHGRAD_PARTICIPANT": name,
        "HUSHGRAD_STATE_DIR": str(state),
        "HUSHGRAD_DATA": str(table_file),
        "HUSHGRAD_PRIVACY": json.dumps(privacy),
    }
    with (folder / "logs" / f"{name}.log").open("wb") as log:
        return subprocess.Popen(command, env={**environment, **variables}, stdout=log, stderr=log)


def main() -> int:
    """Runs both federations and returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=140)
    options = parser.parse_args()
    found = {}
    try:
        install_node_packages()
        with tempfile.TemporaryDirectory(prefix="hushgrad-interop-") as scratch:
            for label, kinds in FEDERATIONS.items():
                started = time.monotonic()
                prepared, outcome = federate(kinds, options.rounds, Path(scratch) / label.replace(" ", "-"))
                found[label] = accuracy(prepared, outcome)
                count = ", ".join(f"{list(kinds.values()).count(kind)} {kind}" for kind in sorted(set(kinds.values())))
                print(
                    f"{label}: accuracy {found[label]:.4f} after {outcome.version} versions, clients: {count}, "
                    f"{time.monotonic() - started:.0f} s",
                    flush=True,
                )
    except InteropError as error:
        print(f"interop: {error}", file=sys.stderr)
        return 1
    worst = max(abs(found[label] - found["all ours"]) for label in found)
    verdict = "within" if worst <= LARGEST_DIFFERENCE else "NOT within"
    print(f"accuracies differ from ours by at most {worst:.4f}, {verdict} {LARGEST_DIFFERENCE}")
    return int(worst > LARGEST_DIFFERENCE)


if __name__ == "__main__":
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    sys.exit(main())
