"""Who somebody is: the one URI, and the certificates that carry it."""

import time
from pathlib import Path

import pytest
from hushgrad.wire import bundle, certificates, identity
from hushgrad.wire.bundle import Bundle
from hushgrad.wire.errors import ContractError
from hushgrad.wire.identity import Identity

from tests.support.pki import Pki

URI = "hushgrad://demo/participant/client-1"


def test_an_identity_and_its_uri_are_the_same() -> None:
    for role in identity.ROLES:
        made = Identity("demo", role, "client-1")
        assert identity.from_uri(made.uri) == made
    assert identity.from_uri(URI) == Identity("demo", "participant", "client-1")


@pytest.mark.parametrize(
    "uri",
    [
        "",
        "client-1",
        "https://demo/participant/client-1",
        "HUSHGRAD://demo/participant/client-1",
        "hushgrad://demo/participant",
        "hushgrad://demo/participant/client-1/",
        "hushgrad://demo/participant/client-1?x",
        "hushgrad://demo/participant/client-1#x",
        "hushgrad://demo/Participant/client-1",
        "hushgrad://demo/owner/client-1",
        "hushgrad:///participant/client-1",
        "hushgrad://demo/participant/",
        "hushgrad://demo/participant/%63lient-1",
        "hushgrad://demo/participant/../client-1",
        " hushgrad://demo/participant/client-1",
        "hushgrad://demo/participant/client-1\n",
        "hushgrad://user@demo/participant/client-1",
    ],
)
def test_what_is_not_exactly_an_identity_is_none(uri: str) -> None:
    with pytest.raises(ContractError):
        identity.from_uri(uri)


def test_a_certificate_says_whose_it_is_and_until_when(tmp_path: Path) -> None:
    now = time.time()
    found = certificates.read(Pki(tmp_path, "demo").member("client-1", seconds=600, now=now).certificate)
    assert found.identity.uri == URI
    assert found.lapse(now) == ""
    assert "expired on" in found.lapse(now + 601)
    assert "not valid before" in found.lapse(now - 3600)


@pytest.mark.parametrize(
    ("uris", "dns", "said"),
    [
        ((), (), "found none"),
        ((URI, URI.replace("1", "2")), (), "exactly one URI, found 2"),
        ((URI, URI), (), "exactly one URI, found 2"),
        ((URI,), ("client-1",), "exactly one URI, found 2"),
        ((), ("client-1",), "by one URI, found client-1"),
    ],
    ids=["common name only", "two", "the same twice", "a host name too", "a host name"],
)
def test_a_certificate_names_its_holder_by_exactly_one_uri(
    tmp_path: Path, uris: tuple[str, ...], dns: tuple[str, ...], said: str
) -> None:
    member = Pki(tmp_path).odd_member(*uris, dns=dns)
    with pytest.raises(ContractError, match=said):
        certificates.read(member.certificate)


def made_bundle() -> Bundle:
    return Bundle(
        federation="demo",
        role="participant",
        name="client-1",
        address="localhost:7443",
        ca="authority",
        certificate="certificate",
        key="SECRET KEY",
        token="ab" * 32,
        expires=1e9,
        terms_digest="cd" * 32,
        configuration='# "quoted" \n',
    )


def test_a_bundle_comes_back_as_it_was() -> None:
    assert bundle.loads(bundle.dumps(made_bundle())) == made_bundle()


def test_every_damaged_character_of_a_bundle_is_found() -> None:
    text = bundle.dumps(made_bundle())
    for place, character in enumerate(text):
        if character.isspace():
            continue  # the space between the parts of a JSON document means nothing
        with pytest.raises(ContractError):
            bundle.loads(text[:place] + ("x" if character != "x" else "y") + text[place + 1 :])


@pytest.mark.parametrize("text", ["", "{}", "[]", "null", "no bundle", '{"format": "hushgrad bundle 1"}'])
def test_what_is_no_bundle_is_refused(text: str) -> None:
    with pytest.raises(ContractError):
        bundle.loads(text)


def test_a_bundle_that_is_printed_shows_no_secret() -> None:
    shown = repr(made_bundle()) + str(made_bundle())
    assert "SECRET" not in shown
    assert "abab" not in shown
