"""What the browser tests play on: the demo's federation as processes that can be stopped, killed and started again."""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
from hushgrad.experiments import demo_files
from hushgrad.v1 import status_pb2, status_pb2_grpc
from playwright.sync_api import Browser, Page, Playwright, sync_playwright

# What every Chromium that runs by itself needs, and nothing that reaches for a network.
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
SECONDS = 40.0


def until(condition: Callable[[], object], seconds: float = SECONDS, what: str = "") -> None:
    """Waits until something is so."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds:g} s: {what or condition}")
        time.sleep(0.05)


def free_port() -> int:
    """Returns a port that nobody uses now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Stage:
    """The demo's server, clients and evaluator, none of them started.

    Attributes:
        url: of the page.
        names: of the participants.
    """

    def __init__(self, root: Path, rounds: int) -> None:
        self.root = root
        self.address = f"127.0.0.1:{free_port()}"
        web = f"127.0.0.1:{free_port()}"
        self.url = f"http://{web}/"
        prepared = demo_files.prepare(
            root, seed=1, rounds=rounds, listen=self.address, server=self.address, web_listen=web
        )
        self.names = prepared.plan.participants
        threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
        path = os.pathsep.join(path for path in sys.path if path)
        self._environment = {**os.environ, **threads, "HUSHGRAD_HOME": str(root / "home"), "PYTHONPATH": path}
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        files = ["--terms", "terms.toml", "--initial", "initial.safetensors"]
        self._do("hushgrad.server", "init", "--config", "server.toml", *files)
        for name in self.names:
            self._do("hushgrad.client", "ledger", "init", "--config", f"{name}.toml")

    def _do(self, *arguments: str) -> None:
        subprocess.run(
            [sys.executable, "-m", *arguments],
            cwd=self.root,
            env=self._environment,
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def start(self, *names: str) -> None:
        """Starts "server", "evaluator" or participants; waits until a server listens."""
        for name in names:
            module, verb = {
                "server": ("hushgrad.server", "run"),
                "evaluator": ("hushgrad.client", "evaluate"),
            }.get(name, ("hushgrad.client", "run"))
            log = self.root / f"{name}.log"
            before = log.read_text().count('"listening"') if log.exists() else 0
            with log.open("ab") as file:
                self.processes[name] = subprocess.Popen(
                    [sys.executable, "-m", module, verb, "--config", f"{name}.toml", "--log-format", "json"],
                    cwd=self.root,
                    env=self._environment,
                    stdout=subprocess.DEVNULL,
                    stderr=file,
                )
            if name == "server":
                until(lambda log=log, before=before: log.read_text().count('"listening"') > before)

    def send(self, name: str, what: signal.Signals) -> None:
        """Sends a signal to a process; waits for one that ends by it."""
        self.processes[name].send_signal(what)
        if what in (signal.SIGKILL, signal.SIGTERM):
            self.processes[name].wait(20)

    def status(self) -> status_pb2.GetStatusResponse:
        """Asks the server over gRPC, as an operator's program does."""
        with grpc.insecure_channel(self.address) as channel:
            stub = status_pb2_grpc.StatusServiceStub(channel)
            return stub.GetStatus(status_pb2.GetStatusRequest(), timeout=10, wait_for_ready=True)

    def order(self, verb: str, *options: str) -> None:
        """Gives an operator's order."""
        self._do("hushgrad.cli", "admin", verb, self.address, *options)

    def scores(self) -> list[dict[str, object]]:
        """Returns what the evaluator says that it scored."""
        found = []
        for line in (self.root / "evaluator.log").read_text().splitlines():
            with contextlib.suppress(ValueError):
                event = json.loads(line)
                if event.get("event") == "scored":
                    found.append(event)
        return found

    def close(self) -> None:
        """Ends everything."""
        for process in self.processes.values():
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
                process.wait()


class Viewer:
    """One page in a browser of its own, and what went wrong in it.

    Attributes:
        page: Playwright's.
        troubles: errors, warnings and failed loads, but those that a server that is away causes.
    """

    def __init__(self, browser: Browser, url: str, **options: object) -> None:
        self.context = browser.new_context(**options)  # type: ignore[arg-type]
        self.page: Page = self.context.new_page()
        self.troubles: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda message: self._note(message.type, message.text))
        self.page.on("pageerror", lambda error: self.troubles.append(f"error: {error}"))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(url)

    def _note(self, kind: str, text: str) -> None:
        if kind in ("error", "warning"):
            self.troubles.append(f"{kind}: {text}")

    def text(self, id_: str) -> str:
        """Returns the text of an element."""
        return self.page.locator(f"#{id_}").inner_text().strip()

    def await_text(self, id_: str, is_right: Callable[[str], object], seconds: float = SECONDS) -> str:
        """Waits until an element's text is right, and returns it."""
        until(lambda: is_right(self.text(id_)), seconds, f"#{id_} says {self.text(id_)!r}")
        return self.text(id_)

    def row(self, name: str) -> dict[str, str]:
        """Returns a participant's row by the names of its columns; empty texts when it is not there."""
        cells = self.page.locator(f"#participant-rows tr[data-key='{name}'] td").all_inner_texts()
        keys = ("name", "state", "round", "staleness", "behind", "since", "counted", "repeats", "refused", "budget")
        return dict(zip(keys, [cell.strip() for cell in cells] or [""] * len(keys), strict=True))

    def close(self) -> None:
        """Closes it."""
        self.context.close()


def chromium() -> str | None:
    """Returns the browser of this machine; None: Playwright's own is used."""
    return os.environ.get("HUSHGRAD_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")


@contextmanager
def browser() -> Iterator[Browser]:
    """Runs Chromium without a window, with a profile of its own."""
    with sync_playwright() as playwright:
        launched = launch(playwright)
        try:
            yield launched
        finally:
            launched.close()


def launch(playwright: Playwright) -> Browser:
    """Starts Chromium."""
    return playwright.chromium.launch(executable_path=chromium(), args=list(FLAGS))
