"""The data owner's page as a program sees it: who is let in, what it says, and what of a ledger that was changed."""

import html
import http.client
import json
import re
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from hushgrad.client import ledger, overview, standing, store
from hushgrad.client.errors import InputError
from hushgrad.client.ledger import Ledger
from hushgrad.client.page import keeper, listener

from tests.support import client_world
from tests.support.client_world import DIGEST, payload


class Browser:
    """Asks one page, as a browser would or would not."""

    def __init__(self, url: str) -> None:
        self.parts = urlsplit(url)
        self.path = self.parts.path

    def ask(
        self, path: str = "", *, host: str | None = None, method: str = "GET", absolute: str | None = None
    ) -> tuple[int, str, dict[str, str]]:
        connection = http.client.HTTPConnection(self.parts.hostname or "", self.parts.port or 0, timeout=60)
        connection.putrequest(method, absolute or self.path + path, skip_host=True)
        if host != "":
            connection.putheader("Host", host or self.parts.netloc)
        connection.endheaders()
        answer = connection.getresponse()
        found = answer.status, answer.read().decode(), {name.lower(): value for name, value in answer.getheaders()}
        connection.close()
        return found

    def text(self, path: str = "") -> str:
        status, body, _ = self.ask(path)
        assert status == 200, body
        return body

    def words(self, path: str = "") -> str:
        """What a person reads: without tags, entities resolved, every run of blanks one blank."""
        plain = re.sub(r"<(script|style)[^>]*>.*?</\1>", "", self.text(path), flags=re.DOTALL)
        return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", plain)).split())


@contextmanager
def serving(folder: Path) -> Iterator[Browser]:
    stopping, ready, found = threading.Event(), threading.Event(), []

    def announce(url: str) -> None:
        found.append(url)
        ready.set()

    thread = threading.Thread(
        target=lambda: listener.serve(folder, 0, announce=announce, stopping=stopping), daemon=True
    )
    thread.start()
    assert ready.wait(20)
    try:
        yield Browser(found[0])
    finally:
        stopping.set()
        thread.join(20)
        assert not thread.is_alive()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A ledger with 120 sealed rounds of 150, at rest."""
    with client_world.make_ledger(tmp_path, rounds=150) as book:
        for round_ in range(120):
            book.seal(DIGEST, round_, payload())
    return tmp_path


def change(folder: Path, statement: str) -> None:
    """Changes a ledger behind its back, so that its schema does not tell."""
    connection = sqlite3.connect(folder / store.LEDGER_NAME)
    triggers = connection.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'").fetchall()
    for name, _ in triggers:
        connection.execute(f"DROP TRIGGER {name}")
    assert connection.execute(statement).rowcount == 1
    for _, sql in triggers:
        connection.execute(sql)
    connection.commit()
    connection.close()


def test_only_the_whole_address_on_this_machine_is_let_in(folder: Path) -> None:
    with serving(folder) as browser:
        port = browser.parts.port
        for path in ("", "status.json", "page.css", "page.js", "icon.svg"):
            for host in (f"127.0.0.1:{port}", f"localhost:{port}", f"LOCALHOST:{port}", f"[::1]:{port}"):
                assert browser.ask(path, host=host)[0] == 200
            # A name that somebody lets point to this machine, no name, and another port.
            for host in (
                f"evil.example:{port}",
                "127.0.0.1",
                f"127.0.0.1:{(port or 0) + 1}",
                "",
                f"127.0.0.1.evil:{port}",
            ):
                assert browser.ask(path, host=host)[0] in (400, 403)
        secret = browser.path.strip("/")
        assert len(secret) >= 32
        wrong = secret[:-1] + ("A" if secret[-1] != "A" else "B")
        for absolute in (
            "/",
            "/status.json",
            "/page.js",
            f"/{wrong}/",
            f"/{secret[:-1]}/",
            "//",
            f"/x/{secret}/",
            "/%00/",
            "/%ff/",
        ):
            status, body, _ = browser.ask(absolute=absolute)
            assert status == 404
            assert "client-1" not in body
        assert browser.ask(method="POST")[0] == 405
        assert browser.ask("no-such-page")[0] == 404
        assert browser.ask("../page.js")[0] == 404
        for status, _, headers in (browser.ask(), browser.ask(absolute="/"), browser.ask(host="evil.example")):
            assert status in (200, 403, 404)
            assert headers["content-security-policy"].startswith("default-src 'none'; script-src 'self';")
            assert "unsafe" not in headers["content-security-policy"]
            assert headers["cache-control"] == "no-store"
            assert headers["referrer-policy"] == "no-referrer"
            assert "access-control-allow-origin" not in headers


def test_the_page_listens_on_loopback_alone(folder: Path) -> None:
    with serving(folder) as browser:
        assert browser.parts.hostname == "127.0.0.1"
        addresses = {found[4][0] for found in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)}
        for address in addresses - {"127.0.0.1"}:
            with pytest.raises(OSError), socket.create_connection((str(address), browser.parts.port or 0), timeout=1):
                pass


def test_two_pages_have_two_secrets(folder: Path) -> None:
    with serving(folder) as one, serving(folder) as other:
        assert one.path != other.path


def test_the_page_says_what_the_command_says(folder: Path) -> None:
    answer = overview.status(standing.read(folder, check=True), now=0.0)
    with serving(folder) as browser:
        words = browser.words()
        shown = json.loads(browser.text("status.json"))
    for key in ("committed", "left", "lifetime", "process", "participant", "not_covered"):
        assert shown[key] == answer[key]
    assert shown["chain"] == {**answer["chain"], "rows_checked": 122}
    (run,) = answer["runs"]
    for key in ("odometer", "last_updates", "claim", "waiting_for"):
        assert shown["runs"][0][key] == run[key]
    last = run["last_updates"]
    assert "120 of 150 promised rounds are over." in words
    assert "Chain holds: 122 rows checked" in words
    assert f"Promised ε {answer['committed']['epsilon']} at δ {answer['committed']['delta']}" in words
    assert f"Left for later runs ε {answer['left']['epsilon']:g} at δ 0" in words
    assert f"The last 100 updates +{last['rise']}" in words
    assert f"from {last['epsilon_before']} to {last['epsilon_after']}" in words
    assert "an odometer reading of 120 updates, not a guarantee" in words
    for line in answer["not_covered"]:
        assert line in words


def test_every_row_is_on_one_of_the_pages(folder: Path) -> None:
    with serving(folder) as browser:
        seen: list[int] = []
        path = ""
        while True:
            text = browser.text(path)
            seen += [int(number) for number in re.findall(r'class="number row">(\d+)<', text)]
            assert text.count('data-tone="good">fits<') == len(re.findall('class="number row"', text))
            older = re.search(r'rel="next" href="(\?to=\d+)#', text)
            if older is None:
                break
            path = older[1]
        assert seen == list(range(122, 0, -1))
        assert "Ledger made" in browser.words("?to=1")
        assert "Row What it records Charged as Became Chain 3 Round 0 of test" in browser.words("?to=3")
        assert "each record with chance 0.08, noise 3.99 times" in browser.words("?to=3")
        assert browser.ask("?to=99999999999")[0] == 200
        for path in ("?to=0x3", "?to=-4", "?to=%00", "?to=1e9", "?to=" + "9" * 40):
            assert browser.ask(path)[0] == 400


@pytest.mark.parametrize(
    ("statement", "row", "said"),
    [
        ("UPDATE ledger SET digest = zeroblob(32) WHERE sequence = 60", 60, "the chain is broken here"),
        ("UPDATE ledger SET round = 149 WHERE sequence = 60", 60, "header"),
        ("DELETE FROM ledger WHERE sequence = 60", 60, "rows are missing"),
        ("UPDATE outbox SET included_in = 7 WHERE sequence = 60", 60, "does not have its checksum"),
    ],
)
def test_a_changed_ledger_shows_the_row_and_no_number(folder: Path, statement: str, row: int, said: str) -> None:
    change(folder, statement)
    with serving(folder) as browser:
        words, text = browser.words("?to=80"), browser.text("?to=80")
        assert f"Row {row} of this ledger does not fit" in words
        assert said in words
        assert "Do not make a new one in its place" in words
        assert f'class="number row">{row + 1}<' in browser.text() or "cannot be shown" in browser.words()
        assert json.loads(browser.text("status.json"))["broken"]["row"] == row
        for number in ("Left for later runs", "odometer", "at δ", "0.4"):
            assert number not in words.replace("noise 3.99", "")
        fitting = [int(found) for found in re.findall(r'class="number row">(\d+)<(?:(?!</tr>).)*?"good">fits', text)]
        assert all(number < row for number in fitting)


def test_a_row_that_is_sealed_while_somebody_looks_appears(folder: Path) -> None:
    with serving(folder) as browser, Ledger(folder) as book:
        assert "120 of 150" in browser.words()
        book.seal(DIGEST, 120, payload())
        deadline = threading.Event()
        for _ in range(100):
            words = browser.words()
            if "121 of 150 promised rounds are over." in words:
                break
            deadline.wait(0.1)
        assert "121 of 150 promised rounds are over." in words
        assert "A client is running on this ledger." in words
        assert "Chain holds: 123 rows checked" in words


def test_a_ledger_that_breaks_while_somebody_looks_is_refused(folder: Path) -> None:
    with serving(folder) as browser:
        assert "120 of 150" in browser.words()
        change(folder, "UPDATE ledger SET body = zeroblob(192) WHERE sequence = 9")
        for _ in range(100):
            words = browser.words()
            if "Row 9 of this ledger does not fit" in words:
                break
            threading.Event().wait(0.1)
        assert "Row 9 of this ledger does not fit" in words


def test_a_large_ledger_is_shown_while_it_is_checked_and_says_so(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeper, "SMALL_BYTES", 0)
    go_on = threading.Event()
    check = standing.check

    def slowly(where: Path) -> standing.Checked:
        assert go_on.wait(30)
        return check(where)

    monkeypatch.setattr(standing, "check", slowly)
    with serving(folder) as browser:
        words = browser.words()
        assert "122 rows, the chain is being checked" in words
        assert "not checked yet" in words
        go_on.set()
        for _ in range(100):
            words = browser.words()
            if "Chain holds: 122 rows checked" in words:
                break
            threading.Event().wait(0.1)
        assert "Chain holds: 122 rows checked" in words
        assert "not checked yet" not in words


def test_rows_that_came_between_reading_and_checking_are_no_negative_number(folder: Path) -> None:
    found = standing.read(folder, check=False)
    answer = overview.status(found, now=0.0)
    picture = keeper.Picture(found, answer, None, standing.Checked(found.rows + 3, b"3" * 32), 0.0, {})
    told = keeper.told(picture, 0.0)
    assert told is not None
    assert (told["chain"]["checked"], told["chain"]["rows_checked"]) == (True, found.rows)


def test_names_in_a_ledger_are_text_and_nothing_more(tmp_path: Path) -> None:
    hostile = "<script>alert(1)</script>\"'&"
    ledger.create(
        tmp_path,
        participant=f"{hostile}1",
        fingerprint=client_world.FINGERPRINT,
        lifetime_epsilon=1.0,
        lifetime_delta=1e-4,
        accepted_new_budget=False,
    )
    with Ledger(tmp_path) as book:
        for digest in (DIGEST, b"2" * 32):
            book.commit(replace(client_world.make_committed(terms_digest=digest), federation=f"{hostile}2"))
    with serving(tmp_path) as browser:
        text = browser.text()
        assert "<script>alert" not in text
        for name in (f"{hostile}1", f"{hostile}2"):
            assert html.escape(name) in text


def test_a_port_that_is_taken_is_said(folder: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(InputError, match=rf"cannot listen on 127\.0\.0\.1:{port}: .* --port"):
            listener.serve(folder, port, announce=lambda url: None, stopping=threading.Event())


def test_the_command_prints_an_address_and_ends_without_a_fuss(folder: Path) -> None:
    config = folder.parent / f"{folder.name}.toml"
    config.write_text(
        f'participant = "client-1"\nserver = "127.0.0.1:1"\nstate = "{folder}"\n[data]\nfile = "x.npz"\n[model]\n'
        'kind = "logistic"\n[privacy]\nrecords = 100\nclip_norm = 0.5\nnoise_multiplier = 4.0\nsampler = "poisson"\n'
        "epsilon = 1.0\ndelta = 1e-5\nlifetime_epsilon = 0.5\nlifetime_delta = 1e-5\n"
    )
    command = [sys.executable, "-m", "hushgrad.client", "page", "--config", str(config)]
    process = subprocess.Popen([*command, "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        browser = Browser(json.loads(process.stdout.readline())["url"])
        assert "120 of 150" in browser.words()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=20)
        assert (process.returncode, out, err) == (0, "", "")
    finally:
        process.kill()
    (folder / store.LEDGER_NAME).unlink()
    missing = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert missing.returncode == 2
    assert missing.stderr.startswith("hushgrad-client: there is no ledger at")
