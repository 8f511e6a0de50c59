"""The authority, its books, the deny list and the tokens: what is signed, for whom, and what is refused."""

import stat
import time
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from hushgrad.server import authority as authority_module
from hushgrad.server import denylist, tokens
from hushgrad.server.authority import Authority
from hushgrad.server.denylist import DenyList
from hushgrad.server.enrollment_service import REST_SECONDS, TRIES, Patience
from hushgrad.server.errors import InputError
from hushgrad.server.tokens import Announcement, TokenRefusedError
from hushgrad.wire import bundle, certificates
from hushgrad.wire.errors import ContractError
from hushgrad.wire.identity import Identity

from tests.support.pki import DAY, Pki, signing_request

TOKEN = "ab" * 32


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return authority_module.create(tmp_path / "ca", "demo", seconds=100 * DAY, now=time.time())


def test_secrets_can_be_read_by_their_owner_only(authority: Authority) -> None:
    for path in (authority.folder / "ca.key", authority.tokens):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0


def test_an_authority_is_never_overwritten(authority: Authority) -> None:
    before = (authority.folder / "ca.key").read_bytes()
    with pytest.raises(InputError, match="never overwritten"):
        authority_module.create(authority.folder, "demo", seconds=DAY, now=time.time())
    assert (authority.folder / "ca.key").read_bytes() == before


def test_everything_that_is_signed_is_in_the_register(authority: Authority) -> None:
    key = authority_module.new_key().public_key()
    pem = authority.issue(Identity("demo", "watcher", "board"), key, seconds=DAY, now=time.time())
    server = authority.issue_server(["localhost", "::1"], key, seconds=DAY, now=time.time())
    serials = [x509.load_pem_x509_certificate(each).serial_number for each in (pem, server)]
    assert [one.serial for one in authority.issued()] == serials
    assert [one.name for one in authority.issued()] == ["board", "server"]
    assert Authority(authority.folder).issued() == authority.issued()


def test_it_signs_for_its_own_federation_only(authority: Authority) -> None:
    key = authority_module.new_key().public_key()
    with pytest.raises(InputError, match="of federation demo, not of other"):
        authority.issue(Identity("other", "participant", "client-1"), key, seconds=DAY, now=time.time())


def test_a_members_certificate_serves_no_host(authority: Authority) -> None:
    key = authority_module.new_key().public_key()
    pem = authority.issue(Identity("demo", "participant", "localhost"), key, seconds=DAY, now=time.time())
    signed = x509.load_pem_x509_certificate(pem)
    usage = signed.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usage) == [ExtendedKeyUsageOID.CLIENT_AUTH]
    (common_name,) = signed.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    assert " " in str(common_name.value)  # no host is called so
    assert not signed.extensions.get_extension_for_class(x509.BasicConstraints).value.ca


def test_no_certificate_outlives_its_authority(tmp_path: Path) -> None:
    now = time.time()
    short = authority_module.create(tmp_path / "ca", "demo", seconds=100, now=now)
    key = authority_module.new_key().public_key()
    pem = short.issue(Identity("demo", "participant", "client-1"), key, seconds=DAY, now=now)
    assert certificates.read(pem).not_after <= now + 101
    with pytest.raises(InputError, match="has expired"):
        short.issue(Identity("demo", "participant", "client-1"), key, seconds=DAY, now=now + 200)


def test_reissuing_keeps_names_and_key_and_refuses_what_is_foreign_or_revoked(
    authority: Authority, tmp_path: Path
) -> None:
    now = time.time()
    key = authority_module.new_key().public_key()
    old = x509.load_pem_x509_certificate(authority.issue_server(["localhost"], key, seconds=60, now=now))
    new = x509.load_pem_x509_certificate(authority.reissue(old, seconds=DAY, now=now))
    assert new.public_key() == old.public_key()
    assert new.serial_number != old.serial_number
    kind = x509.SubjectAlternativeName
    assert new.extensions.get_extension_for_class(kind).value == old.extensions.get_extension_for_class(kind).value
    other = Pki(tmp_path, "demo").member("client-1")
    with pytest.raises(InputError, match="another authority"):
        authority.reissue(x509.load_pem_x509_certificate(other.certificate), seconds=DAY, now=now)
    authority.revoke({old.serial_number: ""})
    with pytest.raises(InputError, match="was revoked"):
        authority.reissue(old, seconds=DAY, now=now)


@pytest.mark.parametrize("host", ["", "a b", "http://x", "localhost:7443", "x\ny"])
def test_what_is_no_host_gets_no_certificate(host: str) -> None:
    with pytest.raises(InputError, match="host name"):
        authority_module.host_name(host)


def test_a_signing_request_must_be_signed_with_its_own_key() -> None:
    good = signing_request()
    assert isinstance(authority_module.signing_request(good), ec.EllipticCurvePublicKey)
    with pytest.raises(InputError):
        authority_module.signing_request(good[:-1] + bytes([good[-1] ^ 1]))
    with pytest.raises(InputError, match="P-256 or P-384"):
        authority_module.signing_request(signing_request(ec.generate_private_key(ec.SECP521R1())))


# The deny list


def test_the_deny_list_is_read_again_when_it_changes(authority: Authority) -> None:
    troubles: list[str] = []
    denied = DenyList(authority.denied, troubles.append)
    assert not denied.holds(1)
    authority.revoke({1: "first", 0xABC: "second"})
    assert denied.holds(1)
    assert denied.holds(0xABC)
    assert denylist.read(authority.denied) == {1: "first", 0xABC: "second"}
    authority.denied.write_text("zzz\n")
    assert denied.holds(1)
    assert troubles == [
        f"deny list {authority.denied}, line 1: a serial number in hexadecimal was expected, found 'zzz'"
    ]
    authority.denied.unlink()
    assert denied.holds(1)


def test_a_deny_list_that_is_missing_at_the_start_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        DenyList(tmp_path / "denied.txt", print)


def test_half_a_copy_of_a_deny_list_lets_nobody_back_in(authority: Authority) -> None:
    denied = DenyList(authority.denied, lambda why: None)
    authority.revoke({0xABCDEF: "first", 0x123456: "second"})
    whole = authority.denied.read_text()
    assert denied.holds(0x123456)
    for length in range(len(whole)):
        if length == 0 or whole[length - 1] != "\n":
            authority.denied.write_text(whole[:length])
            assert denied.holds(0x123456)
            with pytest.raises(InputError):
                denylist.read(authority.denied)


def test_people_may_write_comments_and_empty_lines(tmp_path: Path) -> None:
    path = tmp_path / "denied.txt"
    path.write_text("# a comment\n\n  1f  # stolen\nABC\n")
    assert denylist.read(path) == {0x1F: "stolen", 0xABC: ""}


# Tokens


def announce(authority: Authority, name: str = "client-1", **changes: object) -> None:
    fields = {
        "role": "participant",
        "name": name,
        "token_sha256": bundle.hashed(TOKEN),
        "expires": time.time() + 60,
        "member_seconds": DAY,
        **changes,
    }
    tokens.announce(authority, Announcement(**fields))  # type: ignore[arg-type]


def test_a_token_is_good_once_and_the_same_request_gets_the_same_certificate(authority: Authority) -> None:
    announce(authority)
    request = signing_request()
    first = tokens.trade(authority, "client-1", TOKEN, request)
    assert certificates.read(first).identity.uri == "hushgrad://demo/participant/client-1"
    assert tokens.trade(authority, "client-1", TOKEN, request) == first
    with pytest.raises(TokenRefusedError, match="used already, with another key"):
        tokens.trade(authority, "client-1", TOKEN, signing_request())


def test_the_server_keeps_no_token(authority: Authority) -> None:
    announce(authority)
    tokens.trade(authority, "client-1", TOKEN, signing_request())
    assert not [path for path in authority.folder.rglob("*") if path.is_file() and TOKEN in path.read_text()]


def test_a_wrong_an_expired_a_withdrawn_and_an_older_token_are_refused(authority: Authority) -> None:
    with pytest.raises(TokenRefusedError):
        tokens.trade(authority, "client-1", TOKEN, signing_request())
    announce(authority)
    with pytest.raises(TokenRefusedError):
        tokens.trade(authority, "client-1", "0" * 64, signing_request())
    with pytest.raises(TokenRefusedError):
        tokens.trade(authority, "client-2", TOKEN, signing_request())
    with pytest.raises(TokenRefusedError, match="has expired"):
        tokens.trade(authority, "client-1", TOKEN, signing_request(), now=lambda: time.time() + 61)
    announce(authority, token_sha256=bundle.hashed("1" * 64))
    with pytest.raises(TokenRefusedError, match="newer bundle"):
        tokens.trade(authority, "client-1", TOKEN, signing_request())
    assert tokens.withdraw(authority, "client-1")
    with pytest.raises(TokenRefusedError):
        tokens.trade(authority, "client-1", "1" * 64, signing_request())


def test_a_request_that_cannot_be_signed_leaves_the_token_good(authority: Authority) -> None:
    announce(authority)
    with pytest.raises(InputError):
        tokens.trade(authority, "client-1", TOKEN, b"junk")
    assert tokens.trade(authority, "client-1", TOKEN, signing_request())


@pytest.mark.parametrize("name", ["../ca", "a/b", "", ".hidden", "x" * 64])
def test_a_name_is_never_a_path(authority: Authority, name: str) -> None:
    with pytest.raises(ContractError):
        tokens.trade(authority, name, TOKEN, signing_request())


def test_patience_ends_after_five_failures_and_comes_back_slowly() -> None:
    now = [0.0]
    patience = Patience(lambda: now[0])
    for _ in range(TRIES):
        assert not patience.is_exhausted("client-1")
        patience.failed("client-1")
    assert patience.is_exhausted("client-1")
    assert not patience.is_exhausted("client-2")
    now[0] += REST_SECONDS
    assert not patience.is_exhausted("client-1")
    patience.failed("client-1")
    assert patience.is_exhausted("client-1")
