"""What a client says about certificates: its own before anything is sent, and why a server gives no connection."""

import time
from collections.abc import Iterator
from concurrent import futures
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest
from hushgrad.client import connection, template, tls
from hushgrad.client.config import EvaluatorConfig, TlsConfig, load_client, load_evaluator
from hushgrad.client.errors import InputError
from hushgrad.client.tls import Credentials
from hushgrad.client.transport import FatalError, RetryableError, Transport
from hushgrad.v1 import terms_pb2_grpc

from tests.client.test_config import CLIENT
from tests.support import client_world
from tests.support.fake_server import FakeServer
from tests.support.pki import DAY, Member, Pki

URI = "hushgrad://test/participant/client-1"


@pytest.fixture
def pki(tmp_path: Path) -> Pki:
    return Pki(tmp_path)


def config_of(pki: Pki, member: Member, folder: Path) -> TlsConfig:
    certificate, key = member.save(folder)
    return TlsConfig(str(pki.folder / "ca.crt"), str(certificate), str(key))


def load(config: TlsConfig, now: float | None = None) -> Credentials:
    return tls.load(config, name="client-1", roles=("participant",), now=now)


# Before anything is sent


def test_a_good_certificate_is_taken(pki: Pki, tmp_path: Path) -> None:
    found = load(config_of(pki, pki.member("client-1"), tmp_path / "me"))
    assert found.own.identity.uri == URI
    assert b"PRIVATE" not in repr(found).encode()


def refused(config: TlsConfig, now: float | None = None) -> str:
    with pytest.raises(InputError) as failed:
        load(config, now)
    assert "\n" not in str(failed.value)
    return str(failed.value)


def test_an_expired_certificate_is_named_with_its_date(pki: Pki, tmp_path: Path) -> None:
    config = config_of(pki, pki.member("client-1", seconds=3600), tmp_path / "me")
    assert "the certificate of participant client-1 of test expired on 2" in refused(config, time.time() + 7200)
    assert "not valid before" in refused(config, time.time() - DAY)


def test_a_foreign_certificate_is_named_before_it_is_shown(pki: Pki, tmp_path: Path) -> None:
    other = Pki(tmp_path / "other")
    config = config_of(pki, other.member("client-1"), tmp_path / "me")
    assert "was not signed by the authority in ca" in refused(config)


@pytest.mark.parametrize(
    ("uris", "said"),
    [
        ((), "found none; a common name counts for nothing"),
        ((URI, URI.replace("1", "2")), "exactly one URI, found 2"),
        (("https://example.org",), "must be written hushgrad://"),
        ((URI.replace("client-1", "client-2"),), "is of participant client-2 of test, the configuration says client-1"),
        ((URI.replace("participant", "watcher"),), "a certificate of role participant was expected"),
    ],
    ids=["common name only", "several names", "another URI", "another's", "another role"],
)
def test_a_certificate_that_does_not_say_who_we_are_is_refused(
    pki: Pki, tmp_path: Path, uris: tuple[str, ...], said: str
) -> None:
    assert said in refused(config_of(pki, pki.odd_member(*uris), tmp_path / "me"))


def test_files_that_cannot_be_used_are_named(pki: Pki, tmp_path: Path) -> None:
    good = config_of(pki, pki.member("client-1"), tmp_path / "me")
    other = config_of(pki, pki.member("client-1"), tmp_path / "other")
    assert "is not the key of" in refused(TlsConfig(good.ca, good.certificate, other.key))
    assert "[tls] key" in refused(TlsConfig(good.ca, good.certificate, good.certificate))
    assert "[tls] ca" in refused(TlsConfig(good.key, good.certificate, good.key))
    assert "[tls] certificate" in refused(TlsConfig(good.ca, good.key, good.key))
    assert "cannot be read" in refused(TlsConfig(good.ca, str(tmp_path / "missing"), good.key))


# Configuration


def written(folder: Path, text: str) -> Path:
    path = folder / "client.toml"
    path.write_text(text)
    return path


def test_plain_text_stays_on_this_machine(tmp_path: Path) -> None:
    far = CLIENT.replace("127.0.0.1:7443", "example.org:7443")
    with pytest.raises(
        InputError, match=r"without \[tls\], server must be an address on loopback, found example.org:7443"
    ):
        load_client(written(tmp_path, far), {})
    assert load_client(written(tmp_path, "insecure_plaintext_to_anyone = true\n" + far), {}).tls is None
    for near in ("localhost:1", "[::1]:1", "127.3.2.1:1"):
        load_client(written(tmp_path, CLIENT.replace("127.0.0.1:7443", near)), {})
    both = "insecure_plaintext_to_anyone = true\n" + CLIENT + '[tls]\nca="a"\ncertificate="b"\nkey="c"\n'
    with pytest.raises(InputError, match="exclude each other"):
        load_client(written(tmp_path, both), {})


def test_the_environment_may_say_where_certificates_are(tmp_path: Path) -> None:
    path = written(tmp_path, CLIENT)
    given = {"tls_ca": str(tmp_path / "a"), "tls_certificate": str(tmp_path / "b"), "tls_key": str(tmp_path / "c")}
    assert load_client(path, given).tls == TlsConfig(*given.values())
    with pytest.raises(InputError, match=r"\[tls\] key must be given, here or as HUSHGRAD_TLS_KEY"):
        load_client(path, {**given, "tls_key": None})
    inside = load_client(written(tmp_path, CLIENT + '[tls]\nca="a"\ncertificate="b"\nkey="c"\n'), {"tls_key": "/k"})
    assert inside.tls == TlsConfig(str(tmp_path / "a"), str(tmp_path / "b"), "/k")


def test_an_evaluator_has_certificates_too(pki: Pki, tmp_path: Path) -> None:
    certificate, key = pki.member("board", "watcher").save(tmp_path / "me")
    (tmp_path / "evaluator.toml").write_text(
        f'server = "example.org:1"\nname = "board"\n[data]\nfile = "x.npz"\n[model]\nkind = "logistic"\n[tls]\n'
        f'ca = "certificates/ca.crt"\ncertificate = "{certificate}"\nkey = "{key}"\n'
    )
    config = load_evaluator(tmp_path / "evaluator.toml", {})
    assert isinstance(config, EvaluatorConfig)
    transport = connection.of(config)
    assert transport.participant == "board"
    transport.close()


# Why there is no connection


@contextmanager
def secured(pki: Pki, clients_ca: bytes | None = None) -> Iterator[str]:
    """A small honest server behind TLS."""
    fake = FakeServer(client_world.make_terms())
    server = grpc.server(futures.ThreadPoolExecutor(2), options=[("grpc.so_reuseport", 0)])
    terms_pb2_grpc.add_TermsServiceServicer_to_server(fake, server)
    pair = (pki.folder / "server.key").read_bytes(), (pki.folder / "server.crt").read_bytes()
    ca = clients_ca or pki.authority.certificate_pem
    port = server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([pair], ca, require_client_auth=True))
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(0)


def final(address: str, credentials: Credentials | None) -> str:
    """Asks for the terms; returns the one line in which that ends."""
    transport = Transport(address, "client-1", credentials)
    try:
        with pytest.raises(FatalError) as failed:
            transport.get_terms()
        return str(failed.value)
    finally:
        transport.close()


def test_a_good_certificate_gets_an_answer(pki: Pki, tmp_path: Path) -> None:
    credentials = load(config_of(pki, pki.member("client-1"), tmp_path / "me"))
    with secured(pki) as address:
        transport = Transport(address, "client-1", credentials)
        assert transport.get_terms()
        transport.close()
        assert tls.why_refused(address, credentials) == ""


def test_a_server_of_another_authority_is_called_so(pki: Pki, tmp_path: Path) -> None:
    other = Pki(tmp_path / "other")
    credentials = load(config_of(pki, pki.member("client-1"), tmp_path / "me"))
    with secured(other) as address:
        assert "is not of the authority in our ca" in final(address, credentials)


def test_a_server_that_does_not_know_our_authority_hangs_up_and_we_say_why(pki: Pki, tmp_path: Path) -> None:
    other = Pki(tmp_path / "other")
    credentials = load(config_of(pki, pki.member("client-1"), tmp_path / "me"))
    with secured(pki, clients_ca=other.authority.certificate_pem) as address:
        said = final(address, credentials)
    assert "refused the certificate of participant client-1 of test" in said
    assert "an authority that the server does not know, or expired by the server's clock" in said


def test_a_server_for_another_host_and_an_expired_one_are_called_so(pki: Pki, tmp_path: Path) -> None:
    credentials = load(config_of(pki, pki.member("client-1"), tmp_path / "me"))
    pki.renew_server(["example.org"])
    with secured(pki) as address:
        assert "is not for 127.0.0.1" in final(address, credentials)
        named = Credentials(credentials.ca, credentials.certificate, credentials.key, credentials.own, "example.org")
        transport = Transport(address, "client-1", named)
        assert transport.get_terms()
        transport.close()
    pki.renew_server(seconds=-1)
    with secured(pki) as address:
        assert "has expired; its operator must renew it" in final(address, credentials)


def test_a_members_certificate_cannot_play_the_server(pki: Pki, tmp_path: Path) -> None:
    credentials = load(config_of(pki, pki.member("client-1"), tmp_path / "me"))
    member = pki.member("localhost")
    (pki.folder / "server.key").write_bytes(member.key)
    (pki.folder / "server.crt").write_bytes(member.certificate)
    with secured(pki) as address:
        assert "certificate of the server at" in final(address.replace("127.0.0.1", "localhost"), credentials)


def test_plain_text_and_tls_that_meet_are_told_apart(pki: Pki, tmp_path: Path) -> None:
    credentials = load(config_of(pki, pki.member("client-1"), tmp_path / "me"))
    with secured(pki) as address:
        assert "speaks TLS and this client plain text; add [tls]" in final(address, None)
    with FakeServer(client_world.make_terms()).serving() as address:
        assert "speaks plain text, not TLS" in final(address, credentials)


def test_our_own_expiry_ends_a_run_at_the_next_fault(pki: Pki, tmp_path: Path) -> None:
    config = config_of(pki, pki.member("client-1", seconds=1), tmp_path / "me")
    credentials = load(config, time.time() - 1)
    time.sleep(max(0.0, credentials.own.not_after - time.time()) + 0.05)
    with secured(pki) as address:
        assert "the certificate of participant client-1 of test expired on" in final(address, credentials)


def test_a_certificate_that_was_renewed_in_the_meantime_is_taken_up(pki: Pki, tmp_path: Path) -> None:
    config = config_of(pki, pki.member("client-1", seconds=1), tmp_path / "me")
    credentials = load(config, time.time() - 1)
    time.sleep(max(0.0, credentials.own.not_after - time.time()) + 0.05)
    with secured(pki) as address:
        transport = Transport(address, "client-1", credentials)
        pki.member("client-1").save(tmp_path / "me")
        with pytest.raises(RetryableError):
            transport.get_terms()
        assert transport.get_terms()
        transport.close()


def test_a_server_that_is_away_is_no_matter_of_certificates(pki: Pki, tmp_path: Path) -> None:
    credentials = load(config_of(pki, pki.member("client-1"), tmp_path / "me"))
    assert tls.why_refused("127.0.0.1:1", credentials) == ""
    assert tls.why_refused("127.0.0.1:1", None) == ""


# Configuration files that are changed key by key


def test_keys_are_set_and_everything_else_stays() -> None:
    text = 'a = 1 # one\n# server = "old"\n\n[data]\n# file = "x"\nlabel = "y" # label\nsklearn = "z"\n'
    text += '\n[model]\nfile = "m"\n'
    text = template.with_keys(text, "", {"server": 'h"o\\st:1'})
    text = template.with_keys(text, "data", {"file": "/d"}, without=("sklearn",))
    text = template.with_keys(text, "tls", {"ca": "ca.crt"})
    assert text == (
        'server = "h\\"o\\\\st:1"\na = 1 # one\n\n[data]\nfile = "/d"\nlabel = "y" # label\n\n[model]\nfile = "m"\n\n'
        '[tls]\nca = "ca.crt"\n'
    )


@pytest.mark.parametrize("text", ['server = """\nold\n"""\n', "x = [\n", 'data.file = "x"\n[data]\n'])
def test_a_file_that_cannot_be_changed_so_is_refused(text: str) -> None:
    with pytest.raises(InputError):
        template.with_keys(template.with_keys(text, "", {"server": "new"}), "data", {"file": "y"})


def test_a_value_cannot_bring_keys_of_its_own() -> None:
    with pytest.raises(InputError):
        template.with_keys("", "", {"server": 'x"\ninsecure_plaintext_to_anyone = true\ny = "'})
