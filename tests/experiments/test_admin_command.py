"""`hushgrad admin` at a real server: every verb, what it prints, what it refuses, and with which exit code."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hushgrad.cli import entry

from tests.support.federations import Sender, make_terms
from tests.support.servers import Client, ServerProcess, configure, make_state

TERMS = make_terms(names=("a", "b", "c"))


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    make_state(tmp_path, TERMS)
    configure(tmp_path, admin_listen="127.0.0.1:0")
    with ServerProcess(tmp_path) as running:
        yield running


class Admin:
    """Runs `hushgrad admin`."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *words: str, code: int = 0) -> str:
        """Returns what was printed, on stderr when it fails."""
        assert entry.run(["admin", *words]) == code
        printed = self._capsys.readouterr()
        assert (printed.err == "") is (code == 0)
        return printed.out if code == 0 else printed.err

    def json(self, *words: str) -> Any:
        return json.loads(self(*words, "--json"))


@pytest.mark.e2e
def test_an_operator_brings_a_federation_from_an_absentee_to_its_end(
    server: ServerProcess, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    admin, main = Admin(capsys), server.address
    desk = server.events("listening_for_admin")[0]["address"]
    clients = [Client(main, Sender(name, TERMS)) for name in "ab"]
    for client in clients:
        client.join()
        client.start()
        client.submit(client.sender.seal(0))
    assert "version 1 waits for 1 of 3 participants: c" in admin("status", desk)

    # What cannot be undone is not done by a slip.
    assert "cannot be undone; add --yes" in admin("evict", desk, "c", code=2)
    assert "nothing was changed (unknown participant): the terms name a, b, c, found d" in admin(
        "evict", desk, "d", "--yes", code=2
    )
    assert "give NAME or --vacant-seat" in admin("evict", desk, code=2)
    assert "no seat is vacant" in admin("evict", desk, "--vacant-seat", "--yes", code=2)
    assert admin.json("log", desk) == {"acts": []}

    assert "evict c: never came" in admin("evict", desk, "c", "--yes", "--reason", "never came")
    clients[0].wait_for_version(1)
    assert admin.json("participants", desk)["evicted_before_they_joined"] == ["c"]

    paused = admin.json("pause", main, "--reason", "disk")
    assert (paused["act"]["who"], paused["act"]["changed"]) == ("(loopback)", True)
    assert "paused by (loopback)" in admin("status", desk)
    assert admin.json("status", desk)["administration"]["paused_by"] == paused["act"]
    assert admin.json("resume", desk)["standing"]["paused_by"] is None

    (first, newest) = admin.json("versions", main)["versions"]
    assert (first["version"], first["updates"]) == (0, [])
    assert [(one["participant"], one["round"]) for one in newest["updates"]] == [("a", 0), ("b", 0)]
    assert newest["published_at"]
    assert "give the server's main address" in admin("versions", desk, code=2)
    file = tmp_path / "model.safetensors"
    assert admin.json("export", main, "-o", str(file))["sha256"] == newest["sha256"]
    assert file.exists()
    assert "is there already" in admin("export", main, "-o", str(file), code=2)

    assert admin("final-version", desk) == "6\n"
    assert "it cannot be raised" in admin("final-version", desk, "7", "--yes", code=2)
    assert admin.json("final-version", desk, "5", "--yes")["standing"]["final_version"] == 5
    assert "add --yes" in admin("end", desk, code=2)
    ended = admin.json("end", desk, "--yes", "--reason", "enough")
    assert (ended["act"]["final_version"], ended["standing"]["has_ended"]) == (1, True)
    assert "nothing was changed (run ended)" in admin("pause", desk, code=2)
    verbs = [act["verb"] for act in admin.json("log", desk)["acts"]]
    assert verbs == ["evict", "pause", "resume", "end", "end"]
    assert "end with version 1, at once: enough" in admin("log", desk)
    assert "drains: it takes nobody new" in admin("drain", desk)
    assert server.process.wait(10) == 0


def test_where_nobody_answers_is_said_with_code_4(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hushgrad.experiments.administration.PATIENCE_SECONDS", 0.0)
    for words in (("status",), ("pause",), ("log",)):
        assert "no server answers at 127.0.0.1:1" in Admin(capsys)(*words, "127.0.0.1:1", code=4)


def test_plain_text_does_not_leave_the_machine(capsys: pytest.CaptureFixture[str]) -> None:
    assert "plain text stays on this one" in Admin(capsys)("pause", "example.org:7443", code=2)
