"""The page's listener in a real server: off the gRPC loop, behind certificates, and no way to exhaust the server."""

import contextlib
import json
import socket
import ssl
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from http.client import HTTPSConnection
from pathlib import Path

import pytest
from hushgrad.server import config as server_config
from hushgrad.server.errors import InputError

from tests.support.federations import make_terms, senders_of
from tests.support.pki import Member, Pki
from tests.support.servers import Client, ServerProcess, configure, make_state

TERMS = make_terms(participants=2)


def url_of(server: ServerProcess) -> str:
    return str(server.events("listening_for_web")[0]["url"])


def get(url: str) -> dict:
    with urllib.request.urlopen(url, timeout=10) as answer:
        return json.load(answer)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    root = tmp_path_factory.mktemp("web")
    make_state(root, TERMS)
    configure(root, web_listen="127.0.0.1:0")
    with ServerProcess(root) as running:
        yield running


@pytest.mark.e2e
def test_it_shows_what_the_status_says(server: ServerProcess) -> None:
    clients = [Client(server.address, sender) for sender in senders_of(TERMS)]
    for client in clients:
        client.join()
        client.start()
    for client in clients:
        client.submit(client.sender.seal(0))
    clients[0].submit(clients[0].sender.sealed[0])
    clients[0].wait_for_version(1)
    status = clients[0].status()
    picture = get(url_of(server) + "api/overview")["overview"]
    assert picture["newest_version"] == status.server.newest_version == 1
    assert picture["waiting_for"] == status.waiting_for
    for shown, said in zip(picture["participants"], status.participants, strict=True):
        assert shown["name"] == said.participant
        assert shown["round"] == said.rounds_received - 1
        assert shown["accepted"] == said.updates_accepted
        assert shown["duplicates"] == said.updates_duplicate
    assert picture["totals"]["accepted"] == 2
    for client in clients:
        client.close()


@pytest.mark.e2e
def test_silent_connections_do_not_keep_others_out(server: ServerProcess) -> None:
    url = url_of(server)
    where = ("127.0.0.1", int(url.rstrip("/").rpartition(":")[2]))
    with contextlib.ExitStack() as silent:
        # More than it takes at once: those beyond wait in the system, and cost the server no file.
        for _ in range(120):
            silent.enter_context(socket.create_connection(where, timeout=10))
        before = time.monotonic()
        try:
            urllib.request.urlopen(url + "healthz", timeout=1.0).close()
        except OSError:
            # Full for now; who asks for nothing is sent away, and then there is room.
            urllib.request.urlopen(url + "healthz", timeout=30.0).close()
        assert time.monotonic() - before < 15.0


@pytest.mark.e2e
def test_a_port_that_is_taken_is_said_in_one_line(tmp_path: Path, server: ServerProcess) -> None:
    make_state(tmp_path, TERMS)
    taken = url_of(server).removeprefix("http://").rstrip("/")
    configure(tmp_path, web_listen=taken)
    done = subprocess.run(
        [sys.executable, "-m", "hushgrad.server", "run"], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2
    assert f"cannot listen on web_listen = {taken}" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("address", ["0.0.0.0:7480", "10.1.2.3:7480"])
def test_without_certificates_it_listens_on_loopback_only(tmp_path: Path, address: str) -> None:
    configure(tmp_path, web_listen=address)
    with pytest.raises(InputError, match="web_listen must be an address on loopback"):
        server_config.load(tmp_path / "server.toml")
    configure(tmp_path, web_listen=address, insecure_plaintext_to_anyone=True)
    assert server_config.load(tmp_path / "server.toml").web_listen == address


@pytest.mark.e2e
def test_elsewhere_it_takes_a_certificate_whose_role_may_look(tmp_path: Path) -> None:
    make_state(tmp_path, TERMS)
    pki = Pki(tmp_path)
    configure(tmp_path, web_listen="0.0.0.0:0")
    with open(tmp_path / "server.toml", "a") as file:
        file.write(pki.table())

    def asked(port: int, member: Member | None) -> tuple[int, bytes, bytes]:
        context = ssl.create_default_context(cafile=str(pki.folder / "ca.crt"))
        if member is not None:
            context.load_cert_chain(*member.save(tmp_path / "members"))
        connection = HTTPSConnection("127.0.0.1", port, context=context, timeout=10)
        try:
            connection.request("GET", "/api/overview")
            shown = connection.sock.getpeercert(binary_form=True)
            answer = connection.getresponse()
            return answer.status, answer.read(), shown
        finally:
            connection.close()

    with ServerProcess(tmp_path) as server:
        url = url_of(server)
        assert url.startswith("https://")
        port = int(url.rstrip("/").rpartition(":")[2])
        for role in ("operator", "observer"):
            status, body, _ = asked(port, pki.member("eve", role))
            assert (status, json.loads(body)["overview"]["federation"]) == (200, "test")
        status, body, _ = asked(port, pki.member("client-1"))
        assert (status, b"participant client-1" in body) == (403, True)
        with pytest.raises((ssl.SSLError, OSError)):
            asked(port, None)
        with pytest.raises((ssl.SSLError, OSError)):
            asked(port, Pki(tmp_path / "other").member("eve", "operator"))
        with pytest.raises(OSError):
            urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=5)
        operator = pki.member("eve", "operator")
        before = asked(port, operator)[2]
        pki.renew_server()
        deadline = time.monotonic() + 10
        while asked(port, operator)[2] == before:
            assert time.monotonic() < deadline, "a certificate that was replaced is still shown"
            time.sleep(0.2)


@pytest.mark.e2e
def test_a_viewer_does_not_hold_up_a_server_that_stops_and_gets_a_last_picture(tmp_path: Path) -> None:
    make_state(tmp_path, TERMS)
    configure(tmp_path, web_listen="127.0.0.1:0")
    with ServerProcess(tmp_path) as server:
        with urllib.request.urlopen(url_of(server) + "events", timeout=10) as stream:
            assert stream.readline() == b"retry: 1000\n"
            before = time.monotonic()
            assert server.stop() == 0
            assert time.monotonic() - before < 3.0
            pictures = [line for line in stream.read().splitlines() if line.startswith(b"data: ")]
            assert json.loads(pictures[-1].removeprefix(b"data: "))["overview"]["newest_version"] == 0
        assert server.events("page_failed") == []
