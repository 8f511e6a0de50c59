"""Minutes of everything at once: python -m tests.faults.soak --minutes 10 [--out soak.json].

Five clients; the server is killed every three seconds and clients at random; 5 % of packets are lost (without root: 5 %
of calls) and 10 % of calls repeated. Beside them an idle client pings a server of its own all the time. At the end the
oracle judges every sealed update and every version. Client-1 is never killed: its memory and descriptors are what must
stay flat, and those of each server, just before its end.
"""

import argparse
import contextlib
import json
import os
import random
import statistics
import sys
import tempfile
import time
from concurrent import futures
from pathlib import Path
from typing import Any

from tests.faults import crowd
from tests.faults.network import idle
from tests.faults.network.switch import CALM, Switch, Weather
from tests.faults.process.proxies import Proxy
from tests.faults.process.test_kills import judge_unfinished, outboxes, stop_clients

SERVER_LIVES_SECONDS = 3.0
CLIENT_KILL_CHANCE = 0.15
CLIENTS = 5
ROUNDS = 50_000


def usage(pid: int) -> tuple[float, int]:
    """Returns resident memory in MB and the number of open descriptors."""
    status = Path(f"/proc/{pid}/status").read_text()
    kilobytes = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))
    return kilobytes / 1024, len(os.listdir(f"/proc/{pid}/fd"))


def growth(samples: list[tuple[float, int]]) -> dict[str, float]:
    """Compares the second quarter of some samples with the last one: the first is for warming up."""
    quarter = max(1, len(samples) // 4)
    early, late = samples[quarter : 2 * quarter] or samples, samples[-quarter:]
    found = {}
    for place, what in enumerate(("megabytes", "descriptors")):
        before, after = (statistics.median(sample[place] for sample in part) for part in (early, late))
        found |= {what: round(after, 1), f"{what}_grown": round(after - before, 1)}
    return found


def soak(root: Path, minutes: float, seed: int) -> dict[str, Any]:
    """Runs it and returns the figures.

    Raises:
        AssertionError: if anything was lost, doubled or changed.
    """
    chance = random.Random(seed)
    names = [f"client-{number}" for number in range(1, CLIENTS + 1)]
    has_network = os.geteuid() == 0
    with contextlib.ExitStack() as stack:
        switch = stack.enter_context(Switch(("server", "proxy", *names), seed)) if has_network else None
        federation = stack.enter_context(crowd.crowd(root, clients=CLIENTS, rounds=ROUNDS, round_seconds=0.05))

        def on(host: str) -> tuple[str, ...]:
            return switch.on(host) if switch else ()

        def start_server() -> None:
            listen = federation.address or (f"{switch.address('server')}:7443" if switch else "")
            federation.start_server(*on("server"), listen=listen)

        start_server()
        faults = ["--repeats", "0.1", *([] if switch else ["--drop-requests", "0.025", "--drop-responses", "0.025"])]
        listen = ["--listen", f"{switch.address('proxy')}:7444"] if switch else []
        proxy = stack.enter_context(Proxy(root, federation.address, *faults, *listen, prefix=on("proxy")))
        for name in names:
            federation.start_client(name, *on(name), address=proxy.address)
        federation.wait(lambda: federation.version >= 2, 180, "version 2")
        if switch:
            switch.weather = Weather(loss=0.05)
        began, kills, samples, servers = time.monotonic(), {"server": 0, "clients": 0}, [], []
        while time.monotonic() - began < 60 * minutes:
            time.sleep(SERVER_LIVES_SECONDS)
            samples.append(usage(federation.processes["client-1"].pid))
            servers.append(usage(federation.processes["server"].pid))
            federation.kill("server")
            kills["server"] += 1
            start_server()
            for name in names[1:]:
                assert federation.is_running(name), federation.tails()
                if chance.random() < CLIENT_KILL_CHANCE:
                    federation.kill(name)
                    kills["clients"] += 1
                    federation.start_client(name, *on(name), address=proxy.address)
        if switch:
            switch.weather = CALM
        at = federation.version
        federation.wait(lambda: federation.version >= at + 2, 60, "two versions after the last kill")
        stop_clients(federation)
        counts = proxy.stop()
        verdict = judge_unfinished(federation)
        return {
            "minutes": minutes,
            "kills": kills,
            "sealed": len(verdict.sealed),
            "versions": verdict.versions - 1,
            "lost": 0,
            "doubled": 0,
            "too_late_for_the_window": len(outboxes(federation, "reason = 'STALE'")),
            "calls": counts,
            "frames": None if switch is None else {"all": switch.counts.frames, "lost": switch.counts.lost},
            "client": growth(samples),
            "server": growth(servers),
            "server_ready_seconds": round(statistics.median(federation.ready_seconds), 2),
        }


def main() -> int:
    """Runs it, prints the figures, and returns 1 when memory or descriptors are not flat."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="hushgrad-soak-") as folder,
        tempfile.TemporaryDirectory() as quiet,
        futures.ThreadPoolExecutor(1) as pool,
    ):
        idling = pool.submit(idle.idle, Path(quiet), 60 * options.minutes)
        figures = soak(Path(folder) / "run", options.minutes, options.seed)
        figures["idle"] = idling.result()
    assert figures["idle"]["lost_ours"] == 0, "an idle client that pings was sent away"
    text = json.dumps(figures, indent=2)
    print(text)
    if options.out:
        options.out.write_text(text + "\n")
    is_flat = all(
        figures[who]["megabytes_grown"] <= 0.1 * figures[who]["megabytes"] and figures[who]["descriptors_grown"] <= 4
        for who in ("client", "server")
    )
    if not is_flat:
        print("soak: memory or descriptors grew", file=sys.stderr)
    return 0 if is_flat else 1


if __name__ == "__main__":
    sys.exit(main())
