"""Watching a live run: what is drawn, what is printed, and that a server that goes away is waited for."""

import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hushgrad.cli import entry
from hushgrad.experiments import watch_view, watching
from hushgrad.experiments.watching import Access, Seen
from hushgrad.server.errors import UnreachableError
from rich.console import Console

from tests.support import federations
from tests.support.servers import Client, ServerProcess, make_state


def participant(name: str, rounds: int, **more: Any) -> dict[str, Any]:
    return {
        "participant": name,
        "state": "active",
        "entry_round": 0,
        "exit_round": None,
        "wanted_rounds": [],
        "suspensions": 0,
        "evicted": False,
        "next_owed_round": rounds,
        "rounds_received": rounds,
        "updates_accepted": rounds,
        "updates_duplicate": 0,
        "updates_invalid": 0,
        "rounds_without_update": 0,
        "rounds_lost": 0,
        "updates_flagged": 0,
        **more,
    }


def status(version: int = 7, **more: Any) -> dict[str, Any]:
    return {
        "server_epoch": 1,
        "retention_watermark": version,
        "newest_version": version,
        "federation": "clinics",
        "terms_digest": "00" * 32,
        "phase": "running",
        "final_version": 20,
        "waiting_for": f"version {version + 1} waits for round {version} of south",
        "participants": [participant("north", version + 2), participant("south", version)],
        "uptime_seconds": 100.0 + version,
        "watchers": 2,
        "is_paused": False,
        "is_draining": False,
        **more,
    }


def drawn(seen: Seen, width: int, height: int = 30) -> str:
    console = Console(file=io.StringIO(), width=width, height=height, force_terminal=True, color_system=None)
    console.print(watch_view.Screen(seen))
    file = console.file
    assert isinstance(file, io.StringIO)
    return file.getvalue()


@pytest.mark.parametrize("width", [36, 50, 80, 200])
def test_every_width_shows_what_is_waited_for_and_who_is_where(width: int) -> None:
    lines = drawn(Seen(status(), 0.5, 1.0), width).splitlines()
    assert max(len(line.rstrip()) for line in lines) <= width
    words = " ".join(" ".join(lines).split())
    assert "version 8 waits for round 7 of south" in words
    assert "version 7 of 20" in words
    # north's newest round is 8, one more than the newest version; south's is 6.
    rows = {line.split()[0]: line.split() for line in lines if line.split() and line.split()[0] in ("north", "south")}
    assert rows["north"][:5] == ["north", "active", "8", "1", "9"]
    assert rows["south"][:5] == ["south", "active", "6", "0", "7"]


def test_a_crowd_is_cut_to_those_furthest_behind() -> None:
    crowd = [participant(f"p{number:03d}", number) for number in range(500)]
    text = drawn(Seen(status(participants=crowd)), 80, 24)
    assert len(text.splitlines()) <= 24
    assert "p000" in text
    assert "p400" not in text
    assert "furthest behind of 500: 500 active" in text


def test_what_went_wrong_is_marked() -> None:
    bad = [participant("north", 3, updates_invalid=2), participant("south", 3, state="suspended")]
    text = drawn(Seen(status(participants=bad, is_paused=True)), 80)
    assert "! north: 2 invalid" in text
    assert "suspended" in text
    assert "paused" in text


def test_letters_that_order_a_terminal_about_are_not_passed_on() -> None:
    seen = Seen(status(waiting_for="version 8 \x1b[2J\x1b]0;owned\x07 waits"))
    for text in (drawn(seen, 80), watch_view.line(seen)):
        assert "\x1b[2J" not in text
        assert "\x07" not in text


class Script:
    """A server as a list of answers, and a clock that moves with each look."""

    def __init__(self, *answers: dict[str, Any] | None) -> None:
        self.answers = list(answers)
        self.now = 0.0

    def ask(self, access: Access) -> dict[str, Any]:
        found = self.answers.pop(0)
        if found is None:
            raise UnreachableError(f"no server answers at {access.address}")
        return found

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def seen(self) -> list[Seen]:
        moments = watching.follow(
            Access("127.0.0.1:1"), every_seconds=1.0, ask=self.ask, clock=lambda: self.now, sleep=self.sleep
        )
        return list(moments)


def test_a_server_that_restarts_is_asked_on_and_the_end_is_the_last_moment() -> None:
    script = Script(
        status(7), status(8), None, None, status(8, uptime_seconds=1.0), status(20, uptime_seconds=9.0, phase="ended")
    )
    seen = script.seen()
    assert [one.silent_seconds for one in seen] == [None, None, 1.0, 2.0, None, None]
    assert [one.restarts for one in seen] == [0, 0, 0, 0, 1, 1]
    # One version in one second, and one update each of two participants; nothing across the restart.
    assert (seen[1].versions_per_second, seen[1].updates_per_second) == (1.0, 2.0)
    assert seen[4].versions_per_second is None
    assert seen[-1].has_ended
    assert "not answered for 2 s" in watch_view.headline(seen[3])
    assert seen[3].told()["reachable"] is False


def test_a_server_that_never_answered_is_an_error() -> None:
    with pytest.raises(UnreachableError):
        Script(None).seen()


def test_the_command_says_in_one_line_what_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    assert entry.run(["watch", "127.0.0.1:1", "--once"]) == 4
    assert "no server answers at 127.0.0.1:1" in capsys.readouterr().err
    for address, complaint in (("nonsense", "nonsense"), ("example.org:443", "is another machine")):
        assert entry.run(["watch", address, "--once"]) == 2
        assert complaint in capsys.readouterr().err


@pytest.mark.e2e
def test_a_live_run_is_followed_over_a_restart_of_its_server(tmp_path: Path) -> None:
    terms = federations.make_terms(names=("north",), final_version=3)
    make_state(tmp_path, terms)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    with ServerProcess(tmp_path) as server:
        address = server.address
        watch = subprocess.Popen(
            [sys.executable, "-m", "hushgrad.cli", "watch", address, "--json", "--every", "0.2"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        try:
            assert watch.stdout is not None
            first = json.loads(watch.stdout.readline())
            assert (first["phase"], first["newest_version"], first["reachable"]) == ("gathering", 0, True)
            server.stop(signal.SIGKILL)
            lost = json.loads(watch.stdout.readline())
            assert lost["reachable"] is False
            with ServerProcess(tmp_path, "--listen", address) as again:
                back = json.loads(watch.stdout.readline())
                assert back["reachable"] is True
                sender = federations.Sender("north", terms)
                client = Client(again.address, sender)
                client.join()
                client.start()
                joined = json.loads(watch.stdout.readline())
                assert [one["participant"] for one in joined["participants"]] == ["north"]
                watch.send_signal(signal.SIGINT)
                assert watch.wait(10) == 0
                assert watch.stderr is not None
                assert watch.stderr.read() == ""
                client.close()
        finally:
            watch.kill()


def test_nothing_is_printed_twice(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    answers = [status(7), status(7, uptime_seconds=200.0), status(8), status(20, phase="ended")]
    monkeypatch.setattr(watching, "ask", lambda access: answers.pop(0))
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    follow = watching.follow
    monkeypatch.setattr(
        watching, "follow", lambda access, every_seconds: follow(access, every_seconds=0.0, ask=watching.ask)
    )
    assert entry.run(["watch", "127.0.0.1:1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(";")[0] for line in lines] == ["version 7 of 20", "version 8 of 20", "version 20 of 20"]
    assert lines[-1].endswith("the federation has ended with version 20")
