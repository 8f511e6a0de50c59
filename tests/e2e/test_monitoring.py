"""A real Prometheus watches a real federation: an alert fires when it stalls, and clears when it goes on.

`make monitoring` runs these; they need Prometheus.
"""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hushgrad.cli import entry

from tests.support.federations import make_terms
from tests.support.monitoring import ALERTS, FOLDER
from tests.support.pki import Pki
from tests.support.servers import ServerProcess, configure, make_state

pytestmark = [
    pytest.mark.monitoring,
    pytest.mark.skipif(shutil.which("prometheus") is None, reason="Prometheus is not installed"),
]

CLIENTS = [f"client-{number}" for number in range(1, 6)]
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


class Prometheus:
    """One Prometheus that scrapes its targets every half second."""

    def __init__(self, folder: Path, rules: str, *scrapes: dict[str, Any]) -> None:
        folder.mkdir()
        (folder / "alerts.yml").write_text(rules)
        config = {
            "global": {"scrape_interval": "500ms", "evaluation_interval": "500ms"},
            "rule_files": ["alerts.yml"],
            "scrape_configs": [{"job_name": "hushgrad", **scrape} for scrape in scrapes],
        }
        (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        with open(folder / "log", "wb") as log:
            self.process = subprocess.Popen(
                [
                    "prometheus",
                    "--config.file=prometheus.yml",
                    "--storage.tsdb.path=data",
                    f"--web.listen-address=127.0.0.1:{port}",
                ],
                cwd=folder,
                stdout=log,
                stderr=log,
            )

    def __enter__(self) -> "Prometheus":
        wait_for("Prometheus", lambda: self.ask("/api/v1/query", query="vector(1)"))
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()

    def ask(self, path: str, **arguments: str) -> Any:
        """Returns what its API answers."""
        try:
            with urllib.request.urlopen(f"{self.url}{path}?{urllib.parse.urlencode(arguments)}", timeout=5) as answer:
                return json.load(answer)["data"]
        except OSError:
            return None

    def value(self, expression: str) -> float | None:
        """Returns the value of an expression with one result; None when it has none."""
        found = (self.ask("/api/v1/query", query=expression) or {"result": []})["result"]
        return float(found[0]["value"][1]) if found else None

    def firing(self) -> set[tuple[str, str]]:
        """Returns (alert, participant or empty) of all that fire, but for the disk's: it is not the test's alone."""
        alerts = (self.ask("/api/v1/alerts") or {"alerts": []})["alerts"]
        return {
            (alert["labels"]["alertname"], alert["labels"].get("participant", ""))
            for alert in alerts
            if alert["state"] == "firing" and alert["labels"]["alertname"] != "HushgradDiskFills"
        }


def wait_for(what: str, found: Callable[[], object], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not found():
        if time.monotonic() > deadline:
            raise AssertionError(f"{what} did not come within {seconds:g} s")
        time.sleep(0.1)


def hurried(rules: str) -> str:
    """Returns the alert rules with seconds in place of minutes: same expressions, same labels."""
    replaced = {
        "+ 300": "+ 2",
        "for: 1m": "for: 1s",
        "for: 15m": "for: 1s",
        "< 900": "< 3",
        "[5m]) == 1": "[3s]) == 1",
        "interval: 15s": "",
    }
    for old, new in replaced.items():
        assert old in rules, f"the rules say {old!r} no longer"
        rules = rules.replace(old, new)
    return rules


@pytest.fixture
def demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The demo's federation, ready to run: slower, longer, and with a short patience."""
    monkeypatch.setitem(ENVIRONMENT, "HUSHGRAD_HOME", str(tmp_path / "home"))
    folder = tmp_path / "demo"
    where = ("--listen", "127.0.0.1:0", "--server", "127.0.0.1:7443")
    assert entry.run(["demo", "--prepare-only", "--rounds", "10000", "--out", str(folder), *where]) == 0
    edit(folder / "terms.toml", r"^straggler_timeout_seconds = .*", "straggler_timeout_seconds = 1.0")
    server = folder / "server.toml"
    server.write_text('web_listen = "127.0.0.1:0"\n' + re.sub(r"(?m)^#? *web_listen.*\n", "", server.read_text()))
    done = hushgrad(
        folder, "server", "init", "--config", "server.toml", "--terms", "terms.toml", "--initial", "initial.safetensors"
    )
    assert done.returncode == 0, done.stderr
    for name in CLIENTS:
        edit(folder / f"{name}.toml", r"^release_interval_seconds = .*", "release_interval_seconds = 0.2")
        done = hushgrad(folder, "client", "ledger", "init", "--config", f"{name}.toml")
        assert done.returncode == 0, done.stderr
    return folder


def edit(path: Path, pattern: str, replacement: str) -> None:
    text, count = re.subn(pattern, replacement, path.read_text(), flags=re.MULTILINE)
    assert count == 1, f"{path} has no line like {pattern}"
    path.write_text(text)


def hushgrad(folder: Path, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", f"hushgrad.{program}", *arguments]
    return subprocess.run(command, cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, timeout=60)


class Clients:
    """The five client processes."""

    def __init__(self, folder: Path, address: str) -> None:
        self._folder = folder
        self._address = address
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, *names: str) -> None:
        for name in names:
            with open(self._folder / f"{name}.log", "ab") as log:
                self._processes[name] = subprocess.Popen(
                    [
                        sys.executable,
                        "-m",
                        "hushgrad.client",
                        "run",
                        "--config",
                        f"{name}.toml",
                        "--server",
                        self._address,
                    ],
                    cwd=self._folder,
                    env=ENVIRONMENT,
                    stderr=log,
                    stdout=subprocess.DEVNULL,
                )

    def stop(self, *names: str, how: signal.Signals = signal.SIGTERM) -> None:
        for name in names:
            self._processes[name].send_signal(how)
        for name in names:
            self._processes.pop(name).wait(timeout=30)

    def stop_all(self) -> None:
        self.stop(*list(self._processes), how=signal.SIGKILL)


@pytest.fixture
def server(demo: Path) -> Iterator[ServerProcess]:
    with ServerProcess(demo, "--config", "server.toml") as process:
        yield process


def page_of(server: ServerProcess) -> str:
    wait_for("the page", lambda: server.events("listening_for_web"))
    return str(server.events("listening_for_web")[0]["url"])


@pytest.mark.timeout(240)
def test_the_alert_for_a_stalled_federation_fires_and_clears(demo: Path, server: ServerProcess, tmp_path: Path) -> None:
    address = urllib.parse.urlsplit(page_of(server)).netloc
    clients = Clients(demo, server.address)
    target = {"static_configs": [{"targets": [address]}]}
    try:
        with Prometheus(tmp_path / "prometheus", hurried(ALERTS.read_text()), target) as prometheus:
            clients.start(*CLIENTS)
            wait_for("version 10", lambda: (prometheus.value("hushgrad_newest_version") or 0) >= 10)
            # Long enough for every rule to have seen what a federation that runs looks like.
            time.sleep(5)
            assert prometheus.firing() == set()
            with urllib.request.urlopen(f"{page_of(server)}metrics", timeout=10) as scrape:
                linted = subprocess.run(["promtool", "check", "metrics"], input=scrape.read(), capture_output=True)
            assert (linted.returncode, linted.stdout, linted.stderr) == (0, b"", b"")

            stopped = CLIENTS[2:]
            clients.stop(*stopped)
            wait_for("the alert", lambda: ("HushgradStalled", "") in prometheus.firing())
            wait_for("the names", lambda: {name for _, name in prometheus.firing() if name} == set(stopped))
            stalled_at = prometheus.value("hushgrad_newest_version")
            assert prometheus.value('hushgrad_participants{state="suspended"}') == 3

            clients.start(*stopped)
            wait_for("the end of all alerts", lambda: not prometheus.firing())
            wait_for("a newer version", lambda: (prometheus.value("hushgrad_newest_version") or 0) > stalled_at)
            assert prometheus.value('hushgrad_participants{state="active"}') == 5
            # What Prometheus remembers says the same: it fired once, for a while.
            assert prometheus.value('max_over_time(ALERTS{alertname="HushgradStalled",alertstate="firing"}[5m])') == 1
    finally:
        clients.stop_all()


def test_an_observers_certificate_is_enough_to_scrape_and_a_participants_is_not(tmp_path: Path) -> None:
    make_state(tmp_path, make_terms(participants=2, final_version=4))
    pki = Pki(tmp_path)
    configure(tmp_path, web_listen="0.0.0.0:0")
    with open(tmp_path / "server.toml", "a") as file:
        file.write(pki.table())
    (tmp_path / "certificates" / "denied.txt").touch()
    with ServerProcess(tmp_path) as server:
        port = urllib.parse.urlsplit(page_of(server)).port
        scrapes = []
        for role in ("observer", "operator", "participant", "evaluator"):
            certificate, key = pki.member("client-1", role).save(tmp_path / role)  # type: ignore[arg-type]
            # As deploy/monitoring/prometheus.yml has it, with this machine's paths.
            [scrape] = yaml.safe_load((FOLDER / "prometheus.yml").read_text())["scrape_configs"]
            assert set(scrape["tls_config"]) == {"ca_file", "cert_file", "key_file"}
            files = {
                "ca_file": str(tmp_path / "certificates" / "ca.crt"),
                "cert_file": str(certificate),
                "key_file": str(key),
            }
            targets = [{"targets": [f"127.0.0.1:{port}"]}]
            scrapes.append({**scrape, "job_name": role, "tls_config": files, "static_configs": targets})
        with Prometheus(tmp_path / "prometheus", "groups: []", *scrapes) as prometheus:
            wait_for("a scrape", lambda: prometheus.value("count(up)") == len(scrapes))
            ups = {scrape["job_name"]: prometheus.value(f'up{{job="{scrape["job_name"]}"}}') for scrape in scrapes}
            assert ups == {"observer": 1, "operator": 1, "participant": 0, "evaluator": 0}
            left = prometheus.value('hushgrad_certificate_expiry_timestamp_seconds{job="observer"} - time()')
            assert left == pytest.approx(86_400, abs=60)
