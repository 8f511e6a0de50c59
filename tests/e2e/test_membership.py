"""From an authority to a running federation of members, and out again: the commands that people type."""

import json
import os
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from hushgrad.cli import entry
from hushgrad.client import __main__ as client_command
from hushgrad.client import connection
from hushgrad.client.config import load_client, load_evaluator
from hushgrad.client.transport import FatalError, Transport
from hushgrad.server import commands as server_commands
from hushgrad.wire import certificates

from tests.support.servers import ServerProcess

pytestmark = pytest.mark.e2e

DER = Encoding.DER
NAMES = ("client-1", "client-2")


class Place:
    """A folder with a federation, its authority, and members beside it. Commands run in this process."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.fed = root / "fed"
        self.certificates = self.fed / "certificates"

    def hushgrad(self, *arguments: str, code: int = 0) -> None:
        assert entry.run(list(arguments)) == code, arguments

    def client(self, *arguments: str, stdin: str | None = None) -> Result:
        return CliRunner().invoke(client_command.main, list(arguments), input=stdin)

    def make(self) -> None:
        self.hushgrad("split", "breast_cancer", "--clients", "2", "--test", "0.2", "--seed", "1", "--out", "parts")
        numbers = ("--records", "227", "--rounds", "100", "--epsilon", "8", "--delta", "1e-4", "--clip-norm", "1")
        files = ("--model", "logistic", "--data", "breast_cancer", "--clients", "2", "--bounds-from", "parts/test.npz")
        self.hushgrad("new", "fed", *files, *numbers)
        self.hushgrad("certs", "init", "federation", "--host", "127.0.0.1", "--dir", str(self.certificates))
        text = (self.fed / "server.toml").read_text().replace("127.0.0.1:7443", "127.0.0.1:0")
        table = "".join(
            f'{key} = "certificates/{name}"\n'
            for key, name in {
                "ca": "ca.crt",
                "certificate": "server.crt",
                "key": "server.key",
                "denied": "denied.txt",
                "authority": "",
            }.items()
        )
        (self.fed / "server.toml").write_text(f"{text}\n[tls]\n{table}")
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "hushgrad.server",
                "init",
                "--terms",
                "terms.toml",
                "--initial",
                "initial.safetensors",
            ],
            cwd=self.fed,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr

    def announce(self, name: str, *arguments: str) -> Path:
        out = self.root / f"{name}-{time.monotonic_ns()}.bundle"
        config = str(self.fed / "server.toml")
        self.hushgrad(
            "enroll", "new", name, "--config", config, "--server", self.address, "--out", str(out), *arguments
        )
        return out

    def enroll(self, bundle: Path, folder: str, *arguments: str) -> Result:
        return self.client("enroll", str(bundle), "--folder", folder, *arguments)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    root = tmp_path_factory.mktemp("membership")
    before = Path.cwd(), os.environ.get("HUSHGRAD_HOME")
    os.chdir(root)
    os.environ["HUSHGRAD_HOME"] = str(root / "home")
    try:
        place = Place(root)
        place.make()
        with ServerProcess(place.fed) as server:
            place.server, place.address = server, server.address
            yield place
    finally:
        os.chdir(before[0])
        os.environ.pop("HUSHGRAD_HOME")
        if before[1] is not None:
            os.environ["HUSHGRAD_HOME"] = before[1]


def data(name: str) -> str:
    return f"parts/{name}.npz"


def last_line(path: Path) -> str:
    return path.read_text().strip().splitlines()[-1]


def wait_until(true: object, seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not true():  # type: ignore[operator]
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.05)


def start(folder: Path) -> tuple[subprocess.Popen[bytes], Path]:
    log = folder / "log"
    with open(log, "wb") as file:
        command = [sys.executable, "-m", "hushgrad.client", "run", "--config", "client.toml", "--log-format", "json"]
        return subprocess.Popen(command, cwd=folder, stderr=file, stdout=subprocess.DEVNULL), log


def test_two_members_train_until_one_is_revoked(place: Place) -> None:
    running = {}
    for name in NAMES:
        done = place.enroll(place.announce(name), name, "--data", data(name), "--yes")
        assert done.exit_code == 0, done.output
        assert stat.S_IMODE((place.root / name / "client.key").stat().st_mode) == 0o600
        running[name] = start(place.root / name)
    try:
        (first, first_log), (second, second_log) = running.values()
        wait_until(lambda: all("update_answered" in log.read_text() for log in (first_log, second_log)))
        place.hushgrad("certs", "revoke", "client-2", "--reason", "stolen", "--dir", str(place.certificates))
        # It learns so at its next call, says so in one line, and ends as for a person.
        assert second.wait(timeout=10) == 5
        assert last_line(second_log).startswith("hushgrad-client: ")
        assert "the certificate of participant client-2 of federation was revoked" in last_line(second_log)
        assert first.poll() is None  # everybody else goes on
        # A new bundle lets the same member back in, with its ledger and a new key.
        old = (place.root / "client-2" / "client.key").read_bytes()
        done = place.enroll(place.announce("client-2"), "client-2")
        assert done.exit_code == 0, done.output
        assert (place.root / "client-2" / "client.key").read_bytes() != old
        transport = connection.of(load_client(place.root / "client-2" / "client.toml", {}))
        assert transport.get_terms()
        transport.close()
    finally:
        for process, _ in running.values():
            process.terminate()
        for process, _ in running.values():
            process.wait(timeout=20)
    for name in NAMES:
        shown = place.client("ledger", "verify", "--config", f"{name}/client.toml", "--json")
        assert json.loads(shown.stdout)["sound"] is True


def files_in(folder: Path) -> set[str]:
    return {path.name for path in folder.rglob("*")} if folder.exists() else set()


def test_bad_input_writes_nothing_and_spends_no_token(place: Place, tmp_path: Path) -> None:
    bundle, folder = place.announce("client-1"), tmp_path / "me"
    damaged = tmp_path / "damaged.bundle"
    damaged.write_text(bundle.read_text().replace('"federation": "f', '"federation": "g', 1))
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "file").touch()
    for arguments, said in (
        ((damaged, folder, "--data", data("client-1")), "its checksum differs"),
        ((tmp_path / "missing", folder), "cannot be read"),
        ((bundle, folder), "the data file must be given"),
        ((bundle, folder, "--data", "nothing.npz"), "nothing.npz"),
        ((bundle, tmp_path / "foreign", "--data", data("client-1")), "holds other files"),
    ):
        done = place.enroll(arguments[0], str(arguments[1]), *arguments[2:])
        assert (done.exit_code, said in done.output) == (2, True), done.output
        assert len(done.output.strip().splitlines()) == 1
    assert files_in(folder) == set()
    assert place.enroll(bundle, str(folder), "--data", data("client-1"), "--yes", "--accept-new-budget").exit_code == 0


def test_an_answer_that_was_lost_costs_nothing_and_a_bundle_makes_one_member(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle, folder = place.announce("client-1"), tmp_path / "me"
    honest, got = Transport.enroll, []

    def lossy(self: Transport, token: str, request: bytes) -> bytes:
        got.append(honest(self, token, request))
        raise FatalError("the power failed here")

    monkeypatch.setattr(Transport, "enroll", lossy)
    assert place.enroll(bundle, str(folder), "--data", data("client-1")).exit_code == 5
    assert "client.toml" not in files_in(folder)
    monkeypatch.setattr(Transport, "enroll", honest)
    arguments = ("--data", data("client-1"), "--yes", "--accept-new-budget")
    for _ in range(2):  # once more when all is done changes nothing
        done = place.enroll(bundle, str(folder), *arguments)
        assert done.exit_code == 0, done.output
        assert x509.load_pem_x509_certificate((folder / "client.crt").read_bytes()).public_bytes(DER) == got[0]
    assert "without a ledger" not in done.output
    again = place.enroll(bundle, str(tmp_path / "thief"), *arguments)
    assert (again.exit_code, "was used already, with another key" in again.output) == (5, True)


def test_a_person_is_asked_before_there_is_a_ledger(place: Place, tmp_path: Path) -> None:
    folder = tmp_path / "me"
    done = place.client(
        "enroll", str(place.announce("client-1")), "--folder", str(folder), "--data", data("client-1"), stdin="n\n"
    )
    assert done.exit_code == 0, done.output
    assert "epsilon 8 at delta 0.0001 for life" in done.output
    assert f"without a ledger nothing runs: hushgrad-client ledger init --config {folder}/client.toml" in done.output
    assert "ledger.sqlite" not in files_in(folder)


def test_evaluators_and_operators_enroll_without_a_ledger(place: Place, tmp_path: Path) -> None:
    bundle = place.announce("board", "--role", "evaluator")
    done = place.enroll(bundle, str(tmp_path / "board"), "--data", data("test"))
    assert done.exit_code == 0, done.output
    assert load_evaluator(tmp_path / "board" / "evaluator.toml", {}).name == "board"
    folder = tmp_path / "ada"
    assert place.enroll(place.announce("ada", "--role", "operator"), str(folder)).exit_code == 0
    tls = [
        "--tls-ca",
        folder / "ca.crt",
        "--tls-certificate",
        folder / "client.crt",
        "--tls-key",
        folder / "client.key",
    ]
    shown = CliRunner().invoke(server_commands.group, ["status", place.address, *map(str, tls)])
    assert (shown.exit_code, "federation: " in shown.output) == (0, True), shown.output


def test_renewing_keeps_the_key_and_puts_off_the_end(place: Place, tmp_path: Path) -> None:
    folder = tmp_path / "me"
    bundle = place.announce("client-1", "--member-days", "10")
    assert place.enroll(bundle, str(folder), "--data", data("client-1"), "--yes", "--accept-new-budget").exit_code == 0
    config, crt, key = str(folder / "client.toml"), folder / "client.crt", folder / "client.key"
    before, secret = certificates.read(crt.read_bytes()), key.read_bytes()
    assert place.client("renew", "--config", config, "--within-days", "5").exit_code == 0
    assert certificates.read(crt.read_bytes()) == before
    done = place.client("renew", "--config", config, "--within-days", "30", "--json")
    assert done.exit_code == 0, done.output
    after = certificates.read(crt.read_bytes())
    assert (after.identity, key.read_bytes()) == (before.identity, secret)
    assert after.not_after > before.not_after + 70 * 86_400
    place.hushgrad("certs", "renew", str(crt), "--days", "300", "--dir", str(place.certificates))
    assert certificates.read(crt.read_bytes()).not_after > after.not_after + 200 * 86_400


def test_nobody_announces_what_the_terms_do_not_admit(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    config = str(place.fed / "server.toml")
    place.hushgrad("enroll", "new", "mallory", "--config", config, "--server", place.address, code=2)
    assert "the terms do not name mallory" in capsys.readouterr().err
    assert not list(place.root.glob("mallory*"))


def test_no_secret_is_anywhere_but_in_its_own_file(place: Place, tmp_path: Path) -> None:
    bundle, folder = place.announce("client-1"), tmp_path / "me"
    done = place.enroll(bundle, str(folder), "--data", data("client-1"), "--yes", "--accept-new-budget")
    assert done.exit_code == 0, done.output
    written = json.loads(bundle.read_text())
    keys = [path.read_text() for path in (folder / "client.key", *place.certificates.glob("*.key"))]
    secrets = [written["token"], *(key.splitlines()[1] for key in (*keys, written["key"]))]
    assert len(secrets) == 5
    own = {bundle, folder / "client.key", *place.certificates.glob("*.key")}
    others = [path for root in (place.fed, folder) for path in root.rglob("*") if path.is_file() and path not in own]
    assert len(others) > 10  # logs, registers, tokens, configuration, ledger
    shown = {str(path): path.read_bytes() for path in others} | {"what it printed": done.output.encode()}
    assert [name for name, content in shown.items() for secret in secrets if secret.encode() in content] == []
