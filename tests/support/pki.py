"""Certificates for tests: an authority in a folder, members of it, and members as no honest authority makes them."""

import datetime
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import grpc
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from hushgrad.server import authority as authority_module
from hushgrad.server.authority import Authority
from hushgrad.wire.identity import Identity, Role

DAY = 86_400.0


@dataclass(frozen=True)
class Member:
    """A key and a certificate, PEM."""

    key: bytes
    certificate: bytes

    @property
    def serial(self) -> int:
        """The certificate's serial number."""
        return x509.load_pem_x509_certificate(self.certificate).serial_number

    def save(self, folder: Path, name: str = "client") -> tuple[Path, Path]:
        """Writes both; returns the paths of certificate and key."""
        folder.mkdir(exist_ok=True)
        paths = folder / f"{name}.crt", folder / f"{name}.key"
        paths[0].write_bytes(self.certificate)
        paths[1].write_bytes(self.key)
        paths[1].chmod(0o600)
        return paths


class Pki:
    """An authority with a server's certificate for 127.0.0.1, in `root`/certificates."""

    def __init__(self, root: Path, federation: str = "test") -> None:
        self.folder = root / "certificates"
        self.authority: Authority = authority_module.create(self.folder, federation, seconds=100 * DAY, now=time.time())
        self.federation = federation
        self.renew_server()

    def renew_server(self, hosts: Sequence[str] = ("127.0.0.1", "localhost"), seconds: float = DAY) -> None:
        """Makes a server's certificate with a new key."""
        key = authority_module.new_key()
        pem = self.authority.issue_server(hosts, key.public_key(), seconds=seconds, now=time.time())
        (self.folder / "server.key").write_bytes(authority_module.key_pem(key))
        (self.folder / "server.crt").write_bytes(pem)

    def table(self, *, signs: bool = True) -> str:
        """Returns [tls] for a server.toml in the root."""
        keys = {"ca": "ca.crt", "certificate": "server.crt", "key": "server.key", "denied": "denied.txt"}
        lines = [f'{key} = "certificates/{name}"' for key, name in keys.items()]
        return "\n".join(["[tls]", *lines, *(['authority = "certificates"'] if signs else [])]) + "\n"

    def member(
        self, name: str, role: Role = "participant", *, seconds: float = DAY, now: float | None = None
    ) -> Member:
        """Issues what the authority would."""
        key = authority_module.new_key()
        pem = self.authority.issue(
            Identity(self.federation, role, name),
            key.public_key(),
            seconds=seconds,
            now=time.time() if now is None else now,
        )
        return Member(authority_module.key_pem(key), pem)

    def odd_member(self, *uris: str, dns: Sequence[str] = (), common_name: str = "client-1") -> Member:
        """Issues a certificate with any names, as an authority of somebody else might."""
        secret = serialization.load_pem_private_key((self.folder / "ca.key").read_bytes(), None)
        assert isinstance(secret, ec.EllipticCurvePrivateKey)
        key = authority_module.new_key()
        now = datetime.datetime.now(datetime.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)]))
            .issuer_name(self.authority.certificate.subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(hours=1))
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
        )
        names = [*map(x509.UniformResourceIdentifier, uris), *map(x509.DNSName, dns)]
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        pem = builder.sign(secret, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
        return Member(authority_module.key_pem(key), pem)

    def channel(self, address: str, member: Member | None) -> grpc.Channel:
        """Opens a connection of its own."""
        ca = self.authority.certificate_pem
        credentials = (
            grpc.ssl_channel_credentials(ca)
            if member is None
            else grpc.ssl_channel_credentials(ca, member.key, member.certificate)
        )
        return grpc.secure_channel(address, credentials, options=[("grpc.use_local_subchannel_pool", 1)])


def signing_request(key: ec.EllipticCurvePrivateKey | None = None) -> bytes:
    """Returns a signing request, DER."""
    key = key or authority_module.new_key()
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "anybody")])
    request = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key, hashes.SHA256())
    return request.public_bytes(serialization.Encoding.DER)
