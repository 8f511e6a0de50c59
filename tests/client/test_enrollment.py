"""An enrolment that is interrupted between any two of its steps goes on where it was, with the same key."""

import os
import threading
import time
from collections.abc import Iterator
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from hushgrad.client import enrollment
from hushgrad.server import authority as authority_module
from hushgrad.server import tokens
from hushgrad.v1 import enrollment_pb2, enrollment_pb2_grpc, terms_pb2_grpc
from hushgrad.wire import bundle as bundle_module
from hushgrad.wire.bundle import Bundle
from hushgrad.wire.identity import Identity

from tests.client.test_config import CLIENT
from tests.support import client_world
from tests.support.fake_server import FakeServer
from tests.support.pki import DAY, Pki

TOKEN = "ab" * 32
FILES = {"ca.crt", "client.crt", "client.key", "client.toml", "enrolled"}


class Signing(enrollment_pb2_grpc.EnrollmentServiceServicer):
    """Trades tokens with the real books, and counts."""

    def __init__(self, pki: Pki) -> None:
        self._pki = pki
        self.requests: list[bytes] = []

    def announce(self) -> None:
        """Makes the token good again."""
        self.requests.clear()
        tokens.announce(
            self._pki.authority,
            tokens.Announcement("participant", "client-1", bundle_module.hashed(TOKEN), time.time() + 60, DAY),
        )

    def Enroll(self, request: Any, context: Any) -> Any:  # noqa: N802
        self.requests.append(request.signing_request)
        pem = tokens.trade(self._pki.authority, "client-1", request.token, request.signing_request)
        der = x509.load_pem_x509_certificate(pem).public_bytes(Encoding.DER)
        return enrollment_pb2.EnrollResponse(certificate=der)


@pytest.fixture
def signing(tmp_path: Path) -> Iterator[tuple[Signing, Bundle]]:
    pki, fake = Pki(tmp_path), FakeServer(client_world.make_terms())
    service = Signing(pki)
    server = grpc.server(futures.ThreadPoolExecutor(2), options=[("grpc.so_reuseport", 0)])
    terms_pb2_grpc.add_TermsServiceServicer_to_server(fake, server)
    enrollment_pb2_grpc.add_EnrollmentServiceServicer_to_server(service, server)
    pair = (pki.folder / "server.key").read_bytes(), (pki.folder / "server.crt").read_bytes()
    credentials = grpc.ssl_server_credentials([pair], pki.authority.certificate_pem, require_client_auth=True)
    port = server.add_secure_port("127.0.0.1:0", credentials)
    server.start()
    service.announce()
    key = authority_module.new_key()
    guest = pki.authority.issue(
        Identity("test", "enrollment", "client-1"), key.public_key(), seconds=60, now=time.time()
    )
    yield (
        service,
        Bundle(
            federation="test",
            role="participant",
            name="client-1",
            address=f"127.0.0.1:{port}",
            ca=pki.authority.certificate_pem.decode(),
            certificate=guest.decode(),
            key=authority_module.key_pem(key).decode(),
            token=TOKEN,
            expires=time.time() + 60,
            terms_digest=fake.digest.hex(),
            configuration=CLIENT.replace('file = "data.npz"', 'label = "y"'),
        ),
    )
    server.stop(0)


@pytest.fixture
def data(tmp_path: Path) -> str:
    np.savez(tmp_path / "data.npz", X=np.eye(4), y=np.array([0, 1, 0, 1]))
    return str(tmp_path / "data.npz")


class PowerCut(BaseException):
    """Not an error that anybody handles."""


def steps(monkeypatch: pytest.MonkeyPatch, allowed: int) -> None:
    """Lets so many changes to the client's disk happen, then cuts the power before the next."""
    happened: list[str] = []

    def counted(name: str, work: Any) -> Any:
        def step(*arguments: Any, **keywords: Any) -> Any:
            if threading.current_thread() is threading.main_thread():  # the server's disk has power
                if len(happened) >= allowed:
                    raise PowerCut
                happened.append(name)
            return work(*arguments, **keywords)

        return step

    monkeypatch.setattr(enrollment, "_write", counted("write", WRITE))
    monkeypatch.setattr(Path, "rename", counted("rename", os.rename))
    monkeypatch.setattr(Path, "unlink", counted("unlink", UNLINK))


WRITE, UNLINK = enrollment._write, Path.unlink


def test_it_can_be_interrupted_anywhere(
    signing: tuple[Signing, Bundle], data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service, bundle = signing
    was_cut, cuts = True, 0
    while was_cut:
        service.announce()
        folder, was_cut = tmp_path / f"me-{cuts}", False
        with monkeypatch.context() as patch:
            steps(patch, allowed=cuts)
            try:
                enrollment.enroll(bundle, folder, data)
            except PowerCut:
                was_cut = True
                cuts += 1
        enrolled = enrollment.enroll(bundle, folder, data)
        assert enrolled.config is not None
        assert {path.name for path in folder.iterdir()} == FILES
        # One token, so one request: a second key would have been refused.
        assert len(set(service.requests)) == 1
    assert cuts >= 10


def test_what_is_done_is_not_done_again(signing: tuple[Signing, Bundle], data: str, tmp_path: Path) -> None:
    service, bundle = signing
    folder = tmp_path / "me"
    first = enrollment.enroll(bundle, folder, data)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert enrollment.enroll(bundle, folder, None) == first
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert len(service.requests) == 1
