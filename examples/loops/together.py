"""One federation of loops: NumPy, PyTorch, JAX, and a client that trains a built-in model, on this machine.

    python examples/loops/together.py --rounds 60

It runs the commands of docs/your-data.md, prints what each client claims and whether its ledger is sound, and the
accuracy of the last model on a public test set. What runs is plain: read the list in `main`.
"""

import argparse
import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
LOOPS = {"numpy": ("numpy_loop.py", "sklearn"), "pytorch": ("pytorch_loop.py", "torch"), "jax": ("jax_loop.py", "jax")}
SECONDS = 180.0
PORT = "127.0.0.1:7443"


def run(folder: Path, module: str, *arguments: str) -> str:
    """Runs one of our commands to its end and returns what it printed."""
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments], cwd=folder, capture_output=True, text=True, timeout=SECONDS
    )
    if done.returncode:
        raise SystemExit(
            f"together: {module} {' '.join(arguments[:2])} ended with {done.returncode}: {done.stderr[-2000:]}"
        )
    return done.stdout


def start(folder: Path, name: str, *command: str) -> subprocess.Popen[bytes]:
    """Starts a process whose output goes into a file."""
    with open(folder / f"{name}.log", "wb") as log:
        return subprocess.Popen([sys.executable, *command], cwd=folder, stdout=log, stderr=log)


def federate(folder: Path, loops: list[str], rounds: int) -> dict:
    """Runs one federation: a client for each loop, and one with a built-in model. Returns what became of it."""
    clients = [f"client-{number}" for number in range(1, len(loops) + 2)]
    count = str(len(clients))
    split = run(
        folder, "hushgrad.cli", *f"split digits --clients {count} --test 0.2 --seed 1 --out parts --json".split()
    )
    numbers = f"--clients {count} --records {json.loads(split)['rows']} --rounds {rounds} --epsilon 7.8 --delta 1e-4"
    model = "--model softmax --data digits --clip-norm 1 --bounds 0 16"
    run(folder, "hushgrad.cli", *f"new fed {model} {numbers}".split())
    config = folder / "fed" / "server.toml"
    config.write_text(config.read_text().replace(PORT, "127.0.0.1:0"))  # any port that is free
    files = "--config fed/server.toml --terms fed/terms.toml --initial fed/initial.safetensors"
    run(folder, "hushgrad.server", "init", *files.split())
    server = start(
        folder, "server", "-m", "hushgrad.server", "run", "--config", "fed/server.toml", "--log-format", "json"
    )
    processes = {"server": server}
    try:
        address = listening(folder / "server.log")
        ends = ["--server", address, "--config", "fed/evaluator.toml", "--data", "parts/test.npz", "--json"]
        processes["evaluator"] = start(folder, "evaluator", "-m", "hushgrad.client", "evaluate", *ends)
        config = folder / "fed" / "client.toml"
        # The noise is calibrated to 7.8 for the built-in model; float32 loops are charged a little more, up to 8.
        settings = config.read_text().replace(PORT, address)
        config.write_text(re.sub(r"^((lifetime_)?epsilon = )7\.8", r"\g<1>8.0", settings, flags=re.MULTILINE))
        for client, loop in zip(clients, [*loops, "built-in"], strict=True):
            mine = ["--config", "fed/client.toml", "--participant", client, "--state", f"state/{client}",
                    "--data", f"parts/{client}.npz"]  # fmt: skip
            run(folder, "hushgrad.client", "ledger", "init", *mine)
            command = ["-m", "hushgrad.client", "run"] if loop == "built-in" else [str(HERE / LOOPS[loop][0])]
            processes[client] = start(folder, client, *command, *mine)
        wait(folder, {name: process for name, process in processes.items() if name != "server"})
    finally:
        for process in processes.values():
            if process.poll() is None:
                process.kill()
                process.wait()
    found = {}
    for client, loop in zip(clients, [*loops, "built-in"], strict=True):
        mine = ["--config", "fed/client.toml", "--participant", client, "--state", f"state/{client}", "--json"]
        verified = json.loads(run(folder, "hushgrad.client", "ledger", "verify", *mine))
        (ran,) = json.loads(run(folder, "hushgrad.client", "status", *mine))["runs"]
        found[client] = {"loop": loop, "sound": verified["sound"], "rounds": verified["updates"], "claim": ran["claim"]}
    curve = (folder / "fed" / "curve.csv").read_text().splitlines()
    score = dict(zip(curve[0].split(","), curve[-1].split(","), strict=True))
    return {"clients": found, "accuracy": float(score["accuracy"]), "version": int(score["version"])}


def wait(folder: Path, processes: dict[str, subprocess.Popen[bytes]]) -> None:
    """Waits until all have ended well; says what the first one that did not had to say."""
    deadline = time.monotonic() + SECONDS
    while any(process.poll() is None for process in processes.values()):
        time.sleep(0.1)
        for name, process in processes.items():
            if process.poll() or time.monotonic() > deadline:
                said = (folder / f"{name}.log").read_text()[-2000:]
                raise SystemExit(f"together: {name} ended with {process.poll()} (None: it took too long): {said}")


def listening(log: Path) -> str:
    """Waits for the line that says where the server listens."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        for line in log.read_text().splitlines():
            if '"listening"' in line:
                return str(json.loads(line)["address"])
        time.sleep(0.05)
    raise SystemExit(f"together: the server did not start: {log.read_text()}")


def main() -> None:
    """Runs the federation and prints its end."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--loops", default="numpy,pytorch,jax", help="which of them; those not installed are left out")
    parser.add_argument("--json", action="store_true", help="print the outcome as JSON")
    options = parser.parse_args()
    loops = [name for name in options.loops.split(",") if importlib.util.find_spec(LOOPS[name][1])]
    with tempfile.TemporaryDirectory(prefix="hushgrad-loops-") as name:
        os.environ["HUSHGRAD_HOME"] = name
        outcome = federate(Path(name), loops, options.rounds)
    if options.json:
        print(json.dumps(outcome, indent=2))
        return
    for client, ended in outcome["clients"].items():
        claim = ended["claim"]
        print(f"{client} ({ended['loop']}): {ended['rounds']} rounds, ledger sound: {ended['sound']}, claims "
              f"({claim['epsilon']:g}, {claim['delta']:g})-DP per {claim['unit']}, {claim['adjacency']}, "
              f"{claim['sampling']} sampling, {claim['method'].upper()} {claim['method_version']}")  # fmt: skip
    print(f"version {outcome['version']}: accuracy {outcome['accuracy']:.3f} on the public test set")


if __name__ == "__main__":
    main()
