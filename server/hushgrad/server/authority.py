"""A small private authority: a folder with a key that signs certificates, and a register of everything it signed.

The folder holds ca.crt, ca.key (only its owner can read it), issued.jsonl (the register: a line before each certificate
leaves, so that each can be revoked), denied.txt (the deny list) and tokens/ (what was announced). Signing is all it
does; who may get what is decided by whoever calls.
"""

import contextlib
import datetime
import fcntl
import ipaddress
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.types import CertificatePublicKeyTypes
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from hushgrad.server import denylist
from hushgrad.server import folder as folder_module
from hushgrad.server.errors import InputError
from hushgrad.wire import names
from hushgrad.wire.identity import Identity

MAX_REQUEST_BYTES: Final = 8192
SERVER: Final = "server"
"""Stands in the register in the place of an identity."""

# Clocks differ; a certificate that is valid from now on is not valid yet for whoever is behind.
_BACKDATED_SECONDS: Final = 300.0


@dataclass(frozen=True, slots=True)
class Issued:
    """A line of the register.

    Attributes:
        serial: of the certificate.
        holder: its URI, or "server".
        not_after: seconds since 1970.
    """

    serial: int
    holder: str
    not_after: float

    @property
    def name(self) -> str:
        """The last part of the URI, or "server"."""
        return self.holder.rpartition("/")[2]


class Authority:
    """An authority in its folder. Each change holds a lock, so that commands and a server may work side by side.

    Raises:
        InputError: if there is none in the folder, or it cannot be read.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.denied = folder / "denied.txt"
        self.tokens = folder / "tokens"
        self._register = folder / "issued.jsonl"
        try:
            self.certificate_pem = (folder / "ca.crt").read_bytes()
            key = serialization.load_pem_private_key((folder / "ca.key").read_bytes(), None)
            self.certificate = x509.load_pem_x509_certificate(self.certificate_pem)
        except OSError as error:
            raise InputError(
                f"no authority in {folder}: {error.filename}: {error.strerror}; make one with `hushgrad certs init`"
            ) from None
        except (ValueError, TypeError, UnsupportedAlgorithm) as error:
            raise InputError(f"the authority in {folder} cannot be used: {error}") from None
        if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != self.certificate.public_key():
            raise InputError(f"the authority in {folder} cannot be used: ca.key is not the key of ca.crt")
        self._key = key
        organisations = self.certificate.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
        if not organisations:
            raise InputError(f"the authority in {folder} was not made by `hushgrad certs init`: it names no federation")
        self.federation = names.check_name(str(organisations[0].value), what="federation")

    # Signing

    def issue(self, identity: Identity, key: CertificatePublicKeyTypes, *, seconds: float, now: float) -> bytes:
        """Returns a client's certificate, PEM, after it is in the register."""
        if identity.federation != self.federation:
            raise InputError(f"this authority is of federation {self.federation}, not of {identity.federation}")
        # The common name holds a space: no host is called so, whoever believes common names.
        return self._sign(
            key,
            common_name=f"{identity.role} {identity.name}",
            alternatives=[x509.UniformResourceIdentifier(identity.uri)],
            usage=ExtendedKeyUsageOID.CLIENT_AUTH,
            holder=identity.uri,
            seconds=seconds,
            now=now,
        )

    def issue_server(
        self, hosts: Sequence[str], key: CertificatePublicKeyTypes, *, seconds: float, now: float
    ) -> bytes:
        """Returns a server's certificate, PEM, after it is in the register.

        Args:
            hosts: host names and IP addresses under which clients reach it.
        """
        return self._sign(
            key,
            common_name=f"server of {self.federation}",
            alternatives=[host_name(host) for host in hosts],
            usage=ExtendedKeyUsageOID.SERVER_AUTH,
            holder=SERVER,
            seconds=seconds,
            now=now,
        )

    def reissue(
        self, old: x509.Certificate, *, seconds: float, now: float, key: CertificatePublicKeyTypes | None = None
    ) -> bytes:
        """Returns a certificate, PEM, like one that this authority made, for the same key or another one.

        Raises:
            InputError: if it is of another authority, or was revoked.
        """
        try:
            old.verify_directly_issued_by(self.certificate)
        except (ValueError, TypeError, InvalidSignature):
            raise InputError("this certificate is of another authority; only its own can be renewed") from None
        if old.serial_number in denylist.read(self.denied):
            raise InputError(f"certificate {old.serial_number:x} was revoked; issue a new one, with a new key")
        usage = old.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
        alternatives = old.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        uris = alternatives.get_values_for_type(x509.UniformResourceIdentifier)
        return self._sign(
            key or old.public_key(),
            common_name=str(old.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value),
            alternatives=list(alternatives),
            usage=next(iter(usage)),
            holder=uris[0] if uris else SERVER,
            seconds=seconds,
            now=now,
        )

    def _sign(
        self,
        key: CertificatePublicKeyTypes,
        *,
        common_name: str,
        alternatives: Sequence[x509.GeneralName],
        usage: x509.ObjectIdentifier,
        holder: str,
        seconds: float,
        now: float,
    ) -> bytes:
        last = self.certificate.not_valid_after_utc.timestamp()
        if now >= last:
            raise InputError("the authority's own certificate has expired; make a new one with `hushgrad certs init`")
        serial = x509.random_serial_number()
        not_after = float(int(min(now + seconds, last)))
        signed = (
            _builder(common_name, self.federation, key, serial, now - _BACKDATED_SECONDS, not_after)
            .issuer_name(self.certificate.subject)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
            .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        with self.locked(), open(self._register, "a") as register:
            register.write(json.dumps({"serial": f"{serial:x}", "holder": holder, "not_after": not_after}) + "\n")
            register.flush()
            os.fsync(register.fileno())
        return signed.public_bytes(serialization.Encoding.PEM)

    # Books

    def issued(self) -> list[Issued]:
        """Returns everything that was signed, oldest first.

        Raises:
            InputError: if the register cannot be read.
        """
        found = []
        try:
            lines = self._register.read_text().splitlines()
        except OSError as error:
            raise InputError(f"register {self._register} cannot be read: {error.strerror}") from None
        for number, line in enumerate(lines, start=1):
            try:
                entry = json.loads(line)
                found.append(Issued(int(entry["serial"], 16), str(entry["holder"]), float(entry["not_after"])))
            except (ValueError, KeyError, TypeError):
                raise InputError(f"register {self._register}, line {number}, is damaged; repair it by hand") from None
        return found

    def revoke(self, serials: dict[int, str]) -> list[int]:
        """Puts certificates on the deny list: serial numbers and a note for people; returns the new ones."""
        with self.locked():
            denied = denylist.read(self.denied)
            new = {serial: note for serial, note in serials.items() if serial not in denied}
            if new:
                denylist.write(self.denied, {**denied, **new})
        return sorted(new)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Holds the folder's lock."""
        descriptor = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


def create(folder: Path, federation: str, *, seconds: float, now: float) -> Authority:
    """Makes a new authority.

    Raises:
        InputError: if there is one in the folder already; nothing is changed.
    """
    names.check_name(federation, what="federation")
    if (folder / "ca.crt").exists() or (folder / "ca.key").exists():
        raise InputError(f"there is an authority in {folder} already; one is never overwritten")
    key = new_key()
    certificate = (
        _builder(
            f"authority of {federation}",
            federation,
            key.public_key(),
            x509.random_serial_number(),
            now - _BACKDATED_SECONDS,
            now + seconds,
        )
        .issuer_name(_subject(f"authority of {federation}", federation))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "tokens").mkdir(mode=0o700, exist_ok=True)
        write_secret(folder / "ca.key", key_pem(key))
        denylist.write(folder / "denied.txt", {})
        (folder / "issued.jsonl").touch()
        folder_module.write_durably(folder / "ca.crt", certificate.public_bytes(serialization.Encoding.PEM))
    except OSError as error:
        raise InputError(f"{error.filename or folder} cannot be written: {error.strerror}") from None
    return Authority(folder)


def signing_request(der: bytes) -> CertificatePublicKeyTypes:
    """Returns the key of a signing request whose sender holds it.

    Raises:
        InputError: if it is malformed, wrongly signed, or its key is of another kind.
    """
    if len(der) > MAX_REQUEST_BYTES:
        raise InputError(f"a signing request must be at most {MAX_REQUEST_BYTES} bytes, found {len(der)}")
    try:
        request = x509.load_der_x509_csr(der)
        key = request.public_key()
        is_signed = request.is_signature_valid
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise InputError(f"a signing request (PKCS #10, DER) was expected: {error}") from None
    if not isinstance(key, ec.EllipticCurvePublicKey) or key.curve.name not in ("secp256r1", "secp384r1"):
        raise InputError("the key of a signing request must be an elliptic curve key on P-256 or P-384")
    if not is_signed:
        raise InputError("the signing request is not signed with its own key")
    return key


def host_name(host: str) -> x509.GeneralName:
    """Returns a host name or an IP address as it stands in a server's certificate.

    Raises:
        InputError: if it is neither.
    """
    try:
        return x509.IPAddress(ipaddress.ip_address(host.strip("[]")))
    except ValueError:
        pass
    try:
        if not host or "/" in host or ":" in host or any(character.isspace() for character in host):
            raise ValueError
        return x509.DNSName(host)
    except ValueError:
        raise InputError(f"a host name or an IP address was expected, found {host!r}") from None


def new_key() -> ec.EllipticCurvePrivateKey:
    """Returns a new key on P-256, from the operating system's generator."""
    return ec.generate_private_key(ec.SECP256R1())


def key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """Returns a key as PEM, without a passphrase."""
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def write_secret(path: Path, data: bytes) -> None:
    """Writes a new file that only its owner can read; one that exists is never overwritten."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    folder_module.sync_directory(path.parent)


def _subject(common_name: str, federation: str) -> x509.Name:
    return x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, federation),
            x509.NameAttribute(NameOID.COMMON_NAME, common_name[:64]),
        ]
    )


def _builder(
    common_name: str, federation: str, key: CertificatePublicKeyTypes, serial: int, not_before: float, not_after: float
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(_subject(common_name, federation))
        .public_key(key)
        .serial_number(serial)
        .not_valid_before(datetime.datetime.fromtimestamp(int(not_before), datetime.UTC))
        .not_valid_after(datetime.datetime.fromtimestamp(int(not_after), datetime.UTC))
    )


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )
