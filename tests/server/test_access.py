"""Who gets in and what for: every call with every role, and certificates of every wrong kind, at a real server."""

import re
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from cryptography import x509
from google.protobuf.descriptor_pool import Default
from google.protobuf.message_factory import GetMessageClass
from grpc_health.v1 import health_pb2
from hushgrad.client import tls
from hushgrad.client.config import TlsConfig
from hushgrad.client.transport import RetryableError, Transport
from hushgrad.server import app, denylist, roles
from hushgrad.server import config as server_config
from hushgrad.server import tls as server_tls
from hushgrad.server.errors import InputError
from hushgrad.v1 import (
    admin_pb2,
    common_pb2,
    enrollment_pb2,
    enrollment_pb2_grpc,
    membership_pb2,
    models_pb2,
    status_pb2,
    terms_pb2,
    updates_pb2,
)
from hushgrad.wire import certificates
from hushgrad.wire import terms as wire_terms
from hushgrad.wire.identity import ROLES

from tests.support import pki as support
from tests.support.federations import Sender, make_terms
from tests.support.pki import Member, Pki
from tests.support.servers import Client, ServerProcess, make_state

pytestmark = pytest.mark.e2e

NAMES = ("client-1", "client-2", "client-3")
TERMS = make_terms(names=NAMES)
LARGE = 2**20
DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "identity.md"
CODES = grpc.StatusCode


class World:
    """A server with TLS, its authority, and a channel for each certificate."""

    def __init__(self, root: Path) -> None:
        self.root = root
        make_state(root, TERMS)
        self.pki = Pki(root)
        with open(root / "server.toml", "a") as file:
            file.write(self.pki.table())
        self.digest = wire_terms.digest(TERMS.to_bytes())
        self._channels: list[grpc.Channel] = []

    def start(self) -> ServerProcess:
        self.server = ServerProcess(self.root)
        return self.server

    def channel(self, member: Member | None) -> grpc.Channel:
        channel = self.pki.channel(self.server.address, member)
        self._channels.append(channel)
        return channel

    def client(self, name: str, member: Member) -> Client:
        client = Client(self.server.address, Sender(name, TERMS, self.digest))
        client.use(self.channel(member))
        return client

    def close(self) -> None:
        for channel in self._channels:
            channel.close()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    world = World(tmp_path_factory.mktemp("access"))
    with world.start():
        yield world
        world.close()


def request_of(method: str, name: str, digest: bytes) -> Any:
    """Returns a request of a call whose caller is `name`, else empty."""
    _, service, call = method.split("/")
    request = GetMessageClass(Default().FindServiceByName(service).methods_by_name[call].input_type)()
    caller = common_pb2.Caller(terms_digest=digest, participant=name)
    if isinstance(request, updates_pb2.UploadUpdateRequest):
        request.start.caller.CopyFrom(caller)
    elif "caller" in request.DESCRIPTOR.fields_by_name:
        request.caller.CopyFrom(caller)
    return request


def call(channel: grpc.Channel, method: str, request: Any) -> tuple[grpc.StatusCode, str]:
    """Makes any call and returns how it ended; one that has answered counts as OK, and is cancelled."""
    answers = channel.stream_stream(method, request_serializer=lambda message: message.SerializeToString())(
        iter([request]), timeout=10
    )
    try:
        for _ in answers:
            answers.cancel()
            return CODES.OK, ""
    except grpc.RpcError:
        pass
    return answers.code(), answers.details()


def refused(work: Callable[[], Any]) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.RpcError) as failed:
        work()
    return failed.value.code(), failed.value.details()


# The table


@pytest.mark.parametrize("role", ROLES)
def test_every_call_is_for_the_roles_of_the_table_and_for_no_other(world: World, role: Any) -> None:
    channel = world.channel(world.pki.member("client-1", role))
    found = {}
    for method in roles.ALLOWED:
        code, detail = call(channel, method, request_of(method, "client-1", world.digest))
        found[method] = not (code is CODES.PERMISSION_DENIED and "is for" in detail)
        assert code is not CODES.UNAUTHENTICATED, (method, detail)
    assert found == {method: role in allowed for method, allowed in roles.ALLOWED.items()}


def test_the_table_has_every_call_of_the_contract_and_of_health() -> None:
    files = (terms_pb2, membership_pb2, updates_pb2, models_pb2, status_pb2, admin_pb2, enrollment_pb2, health_pb2)
    declared = {
        f"/{service.full_name}/{method.name}"
        for file in files
        for service in file.DESCRIPTOR.services_by_name.values()
        for method in service.methods
    }
    # Nobody needs the third call of health, a list of all services.
    assert declared - {"/grpc.health.v1.Health/List"} == set(roles.ALLOWED)


def test_the_page_shows_the_table_that_the_code_has() -> None:
    found = re.search(r"<!-- roles -->\n(.*?)\n<!-- end of roles -->", DOCUMENT.read_text(), flags=re.DOTALL)
    assert found
    assert found.group(1).strip() == roles.markdown(), "copy what hushgrad.server.roles.markdown() returns"


def test_a_call_that_is_not_in_the_table_is_for_nobody() -> None:
    assert roles.ALLOWED.get("/hushgrad.v1.UpdateService/Anything") is None


# Names


NAMING = [
    method
    for method in roles.ALLOWED
    if method.startswith("/hushgrad.")
    and "Administration" not in method
    and method.split("/")[2] not in ("GetTerms", "GetStatus", "Enroll", "Renew")
]


@pytest.mark.parametrize("method", NAMING)
def test_a_message_that_names_another_participant_is_refused(world: World, method: str) -> None:
    role: Any = "participant" if "participant" in roles.ALLOWED[method] else min(roles.ALLOWED[method])
    channel = world.channel(world.pki.member("client-1", role))
    code, detail = call(channel, method, request_of(method, "client-2", world.digest))
    assert (code, "client-1" in detail, "client-2" in detail) == (CODES.PERMISSION_DENIED, True, True)


@pytest.mark.parametrize(("holder", "named"), [("client-1", "client-2"), ("mallory", "mallory")])
def test_an_upload_of_somebody_else_costs_its_first_message_and_leaves_nothing(
    world: World, holder: str, named: str
) -> None:
    taken = []

    def pieces() -> Iterator[updates_pb2.UploadUpdateRequest]:
        yield request_of("/hushgrad.v1.UpdateService/UploadUpdate", named, world.digest)
        for offset in range(0, LARGE, 1024):
            taken.append(1024)
            yield updates_pb2.UploadUpdateRequest(chunk=updates_pb2.UploadChunk(offset=offset, data=bytes(1024)))

    client = world.client(holder, world.pki.member(holder))
    code, _ = refused(lambda: client.updates.UploadUpdate(pieces(), timeout=10))
    assert code is CODES.PERMISSION_DENIED
    # A sender can push what flow control lets it, 64 KiB, before it hears of it; the server reads none of that.
    assert sum(taken) <= 65_536
    assert list((world.root / "server" / "spool").iterdir()) == []


def test_a_participant_whom_the_terms_do_not_name_is_refused_before_it_is_read(world: World) -> None:
    stranger = world.client("mallory", world.pki.member("mallory"))
    sealed = Sender("mallory", TERMS, world.digest).seal(0)
    assert refused(lambda: stranger.submit(sealed))[0] is CODES.PERMISSION_DENIED
    code, detail = refused(stranger.join)
    assert (code, detail) == (CODES.PERMISSION_DENIED, "the terms of test do not name mallory")
    assert stranger.get_terms().terms_digest == world.digest  # so that its own client can say so first


# Certificates of every wrong kind


def bad(world: World, what: str) -> Member:
    pki = world.pki
    match what:
        case "common name only":
            return pki.odd_member()
        case "several names":
            return pki.odd_member("hushgrad://test/participant/client-1", "hushgrad://test/participant/client-2")
        case "a host name beside it":
            return pki.odd_member("hushgrad://test/participant/client-1", dns=["localhost"])
        case "another federation":
            return pki.odd_member("hushgrad://other/participant/client-1")
        case "no identity":
            return pki.odd_member("https://example.org/client-1")
        case "no role of ours":
            return pki.odd_member("hushgrad://test/owner/client-1")
    member = pki.member("client-1")
    pki.authority.revoke({member.serial: "lost"})
    return member


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("common name only", "found none; a common name counts for nothing"),
        ("several names", "exactly one URI, found 2"),
        ("a host name beside it", "exactly one URI, found 2"),
        ("another federation", "is for another federation, this one is test"),
        ("no identity", "must be written hushgrad://FEDERATION/ROLE/NAME"),
        ("no role of ours", "role must be one of"),
        ("revoked", "was revoked"),
    ],
)
def test_a_certificate_that_is_good_for_nothing_is_refused_with_the_reason(world: World, what: str, said: str) -> None:
    client = world.client("client-1", bad(world, what))
    for attempt in (client.get_terms, client.join, client.status):
        code, detail = refused(attempt)
        assert code is CODES.UNAUTHENTICATED
        assert said in detail


@pytest.mark.parametrize("what", ["none", "another authority", "expired", "a server's"])
def test_a_certificate_that_the_authority_did_not_sign_gets_no_connection(
    world: World, tmp_path: Path, what: str
) -> None:
    member = None
    if what == "another authority":
        member = Pki(tmp_path).member("client-1")
    elif what == "expired":
        member = world.pki.member("client-1", seconds=3600, now=time.time() - 2 * support.DAY)
    elif what == "a server's":
        folder = world.pki.folder
        member = Member((folder / "server.key").read_bytes(), (folder / "server.crt").read_bytes())
    channel = world.channel(member)
    code, _ = call(channel, "/hushgrad.v1.TermsService/GetTerms", terms_pb2.GetTermsRequest())
    assert code is CODES.UNAVAILABLE


def test_plain_text_gets_no_connection(world: World) -> None:
    with grpc.insecure_channel(world.server.address) as channel:
        code, _ = call(channel, "/hushgrad.v1.TermsService/GetTerms", terms_pb2.GetTermsRequest())
    assert code is CODES.UNAVAILABLE


# What happens to connections that stand


def ended(stream: Any) -> tuple[float, grpc.StatusCode, str]:
    """Reads a stream to its end; returns how long that took and how it ended."""
    began = time.monotonic()
    with pytest.raises(grpc.RpcError) as failed:
        for _ in stream:
            pass
    return time.monotonic() - began, failed.value.code(), failed.value.details()


def test_revoking_closes_open_streams_and_refuses_the_next_call_on_the_same_connection(world: World) -> None:
    member = world.pki.member("client-2")
    client = world.client("client-2", member)
    other = world.client("client-1", world.pki.member("client-1"))
    stream, others = client.watch(), other.watch()
    next(stream), next(others)
    world.pki.authority.revoke({member.serial: "machine lost"})
    seconds, code, detail = ended(stream)
    assert (code, "was revoked" in detail) == (CODES.UNAUTHENTICATED, True)
    assert seconds < 1.5  # it is looked at every quarter of a second
    assert refused(client.status)[0] is CODES.UNAUTHENTICATED
    next(others)  # everybody else goes on
    others.cancel()


def test_revoking_ends_an_upload_that_waits_for_its_next_piece(world: World) -> None:
    member = world.pki.member("client-2")
    client = world.client("client-2", member)
    client.join()
    sealed = client.sender.seal(0)

    def pieces() -> Iterator[updates_pb2.UploadUpdateRequest]:
        yield next(client.pieces(sealed))
        world.pki.authority.revoke({member.serial: "stolen"})
        time.sleep(3)

    began = time.monotonic()
    code, _ = refused(lambda: client.updates.UploadUpdate(pieces(), timeout=10))
    assert (code, time.monotonic() - began < 2.5) == (CODES.UNAUTHENTICATED, True)


def test_a_certificate_that_expires_ends_what_its_connection_does(world: World) -> None:
    client = world.client("client-3", world.pki.member("client-3", seconds=2))
    stream = client.watch()
    next(stream)
    _, code, detail = ended(stream)
    assert (code, "expired" in detail) == (CODES.UNAUTHENTICATED, True)
    code, detail = refused(client.status)
    assert (code, "expired" in detail) == (CODES.UNAUTHENTICATED, True)


def test_a_running_client_takes_up_its_renewed_certificate(world: World, tmp_path: Path) -> None:
    certificate, key = world.pki.member("client-3", seconds=1).save(tmp_path / "me")
    config = TlsConfig(str(world.pki.folder / "ca.crt"), str(certificate), str(key))
    credentials = tls.load(config, name="client-3", roles=("participant",))
    transport = Transport(world.server.address, "client-3", credentials)
    assert transport.get_terms()
    world.pki.member("client-3").save(tmp_path / "me")
    time.sleep(max(0.0, credentials.own.not_after - time.time()) + 0.1)
    # The connection stands, and the server refuses the call: the client looks for a newer certificate and goes on.
    with pytest.raises(RetryableError, match="was renewed"):
        transport.get_terms()
    assert transport.get_terms()
    transport.close()


def test_every_connection_is_made_anew_after_an_hour() -> None:
    options = dict(app.CHANNEL_OPTIONS)
    assert (options["grpc.max_connection_age_ms"], options["grpc.max_connection_age_grace_ms"]) == (3_600_000, 60_000)


def test_a_deny_list_that_cannot_be_read_lets_nobody_back_in(world: World) -> None:
    member = world.pki.member("client-2")
    client, good = world.client("client-2", member), world.client("client-1", world.pki.member("client-1"))
    world.pki.authority.revoke({member.serial: ""})
    assert refused(client.status)[0] is CODES.UNAUTHENTICATED
    path = world.pki.authority.denied
    content = path.read_bytes()
    try:
        path.write_text("this is no serial number\n")
        assert refused(client.status)[0] is CODES.UNAUTHENTICATED
        assert good.status().federation == "test"
        assert world.server.events("tls_files_not_taken")
        path.unlink()
        assert refused(client.status)[0] is CODES.UNAUTHENTICATED
    finally:
        path.write_bytes(content)
    assert member.serial in denylist.read(path)


def served_serial(world: World) -> int:
    """Returns the serial number of the certificate that a new connection is shown."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    host, _, port = world.server.address.rpartition(":")
    with socket.create_connection((host, int(port))) as plain, context.wrap_socket(plain) as tls:
        return x509.load_der_x509_certificate(tls.getpeercert(binary_form=True) or b"").serial_number


def test_the_servers_certificate_is_replaced_while_it_runs(world: World) -> None:
    client = world.client("client-1", world.pki.member("client-1"))
    stream = client.watch()
    next(stream)
    before = served_serial(world)
    crt, key = world.pki.folder / "server.crt", world.pki.folder / "server.key"
    old = crt.read_bytes()
    world.pki.renew_server()
    new, new_key = crt.read_bytes(), key.read_bytes()
    # Half of a new pair is not taken: connections go on with the old one.
    crt.write_bytes(old)
    assert served_serial(world) == before
    crt.write_bytes(new)
    assert served_serial(world) != before
    assert key.read_bytes() == new_key
    next(stream)  # the connection that stood goes on
    stream.cancel()
    again = world.client("client-1", world.pki.member("client-1"))
    assert again.get_terms().terms_digest == world.digest


def test_a_server_whose_certificate_has_expired_or_is_another_federations_does_not_start(tmp_path: Path) -> None:
    pki = Pki(tmp_path)
    config = server_config.TlsConfig(*(str(pki.folder / name) for name in ("ca.crt", "server.crt", "server.key")))
    assert server_tls.door(config, TERMS, FakeLog()).authority is None
    pki.renew_server(seconds=-1)
    with pytest.raises(InputError, match=r"expired on .* certs renew"):
        server_tls.door(config, TERMS, FakeLog())
    other = Pki(tmp_path / "other", "other")
    config = server_config.TlsConfig(
        *(str(other.folder / name) for name in ("ca.crt", "server.crt", "server.key")), authority=str(other.folder)
    )
    with pytest.raises(InputError, match="is of federation other, the terms are of test"):
        server_tls.door(config, TERMS, FakeLog())


class FakeLog:
    """Takes every event."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_, **__: None


# Certificates from the server


def test_a_member_renews_its_own_certificate_and_gets_no_other_name(world: World) -> None:
    channel = world.channel(world.pki.member("board", "watcher"))
    stub = enrollment_pb2_grpc.EnrollmentServiceStub(channel)
    request = enrollment_pb2.RenewRequest(signing_request=support.signing_request())
    got = certificates.of(x509.load_der_x509_certificate(stub.Renew(request, timeout=10).certificate))
    assert got.identity.uri == "hushgrad://test/watcher/board"
    assert got.serial in {one.serial for one in world.pki.authority.issued()}
    # One a minute is plenty: each stays in the register.
    assert refused(lambda: stub.Renew(request, timeout=10))[0] is CODES.RESOURCE_EXHAUSTED


@pytest.mark.parametrize("request_bytes", [b"", b"not a request", b"\x30" * 9000], ids=["empty", "junk", "large"])
def test_a_signing_request_that_is_none_is_refused(world: World, request_bytes: bytes) -> None:
    stub = enrollment_pb2_grpc.EnrollmentServiceStub(world.channel(world.pki.member("client-1")))
    code, detail = refused(lambda: stub.Renew(enrollment_pb2.RenewRequest(signing_request=request_bytes), timeout=10))
    assert (code, "signing request" in detail) == (CODES.INVALID_ARGUMENT, True)


def test_guessing_tokens_is_slowed_down(world: World) -> None:
    stub = enrollment_pb2_grpc.EnrollmentServiceStub(world.channel(world.pki.member("client-1", "enrollment")))
    request = enrollment_pb2.EnrollRequest(token="0" * 64, signing_request=support.signing_request())
    codes = [refused(lambda: stub.Enroll(request, timeout=10))[0] for _ in range(7)]
    # The walk through the table tried once.
    assert set(codes[:4]) == {CODES.PERMISSION_DENIED}
    assert set(codes[5:]) == {CODES.RESOURCE_EXHAUSTED}
