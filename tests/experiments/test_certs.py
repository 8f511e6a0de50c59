"""`hushgrad certs`: what it makes, what it refuses, and that a refusal changes nothing."""

import json
import stat
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from hushgrad.cli import entry
from hushgrad.server import config as server_config
from hushgrad.server import tls
from hushgrad.wire import certificates

from tests.support.pki import signing_request

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> Path:
    """A folder with an authority, and we stand in it."""
    monkeypatch.chdir(tmp_path)
    assert entry.run(["certs", "init", "demo", "--host", "example.org", "--host", "10.0.0.1"]) == 0
    capsys.readouterr()
    return tmp_path


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_init_prints_a_table_that_the_server_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured):
    monkeypatch.chdir(tmp_path)
    assert entry.run(["certs", "init", "demo", "--host", "example.org"]) == 0
    table = capsys.readouterr().out.partition("In server.toml:\n")[2]
    (tmp_path / "server.toml").write_text('listen = "0.0.0.0:7443"\n' + table)
    config = server_config.load(tmp_path / "server.toml")
    assert config.tls is not None
    tls.Rotation(config.tls, print).credentials()
    for name in ("ca.key", "server.key"):
        assert stat.S_IMODE((tmp_path / "certificates" / name).stat().st_mode) == 0o600


def test_the_servers_certificate_is_for_the_hosts_that_were_named(place: Path) -> None:
    served = x509.load_pem_x509_certificate((place / "certificates" / "server.crt").read_bytes())
    names = served.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [str(name.value) for name in names] == ["example.org", "10.0.0.1"]


def test_a_certificate_is_issued_with_a_key_or_for_a_request(place: Path, capsys: Captured) -> None:
    assert entry.run(["certs", "issue", "ada", "--role", "operator", "--days", "7", "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    folder = place / "certificates" / "members" / "ada"
    assert {Path(path).name for path in made["files"]} == {"ada.crt", "ada.key", "ca.crt"} == set(contents(folder))
    assert certificates.read((folder / "ada.crt").read_bytes()).identity.uri == "hushgrad://demo/operator/ada"
    request = x509.load_der_x509_csr(signing_request())
    (place / "bob.csr").write_bytes(request.public_bytes(Encoding.PEM))
    arguments = ["certs", "issue", "bob", "--role", "watcher", "--csr", "bob.csr", "--out", "bob"]
    assert entry.run(arguments) == 0
    assert set(contents(place / "bob")) == {"bob.crt", "ca.crt"}
    signed = x509.load_pem_x509_certificate((place / "bob" / "bob.crt").read_bytes())
    assert signed.public_key() == request.public_key()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["init", "demo", "--host", "x"], "already"),
        (["init", "Not A Name", "--host", "x", "--dir", "new"], "federation must be"),
        (["init", "demo", "--host", "a b", "--dir", "new"], "host name"),
        (["issue", "Not A Name", "--role", "watcher"], "name must be"),
        (["issue", "../../x", "--role", "watcher"], "name must be"),
        (["issue", "x", "--role", "server"], "--host goes with --role server"),
        (["issue", "x", "--role", "watcher", "--host", "y"], "--host goes with --role server"),
        (["issue", "x", "--role", "watcher", "--csr", "missing"], "cannot be read"),
        (["issue", "x", "--role", "watcher", "--csr", "certificates/ca.crt"], "signing request"),
        (["issue", "x", "--role", "watcher", "--dir", "nowhere"], "certs init"),
        (["renew", "missing.crt"], "cannot be read"),
        (["renew", "certificates/ca.key"], "PEM"),
        (["revoke", "nobody"], "no certificate of 'nobody'"),
        (["revoke"], "NAME or --serial"),
        (["revoke", "--serial", "zz"], "hexadecimal"),
        (["revoke", "../x"], "name must be"),
    ],
)
def test_bad_input_is_one_line_and_changes_nothing(
    place: Path, capsys: Captured, arguments: list[str], said: str
) -> None:
    before = contents(place)
    assert entry.run(["certs", *arguments]) == 2
    error = capsys.readouterr().err.strip()
    assert said in error
    assert len(error.splitlines()) == 1
    assert contents(place) == before


def test_what_was_signed_is_listed_and_can_be_taken_back(place: Path, capsys: Captured) -> None:
    assert entry.run(["certs", "issue", "ada", "--role", "operator"]) == 0
    assert entry.run(["certs", "revoke", "ada", "--reason", "left us"]) == 0
    capsys.readouterr()
    assert entry.run(["certs", "list", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(row["holder"], row["state"]) for row in rows] == [
        ("server", "holds"),
        ("hushgrad://demo/operator/ada", "revoked"),
    ]
    assert "left us" in (place / "certificates" / "denied.txt").read_text()
    assert entry.run(["certs", "revoke", "--serial", rows[0]["serial"]]) == 0
    assert entry.run(["certs", "renew", "certificates/server.crt"]) == 2
    assert "was revoked" in capsys.readouterr().err
