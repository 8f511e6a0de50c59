"""From a bundle to a member: a key that never leaves this machine, a certificate for it, and a configuration.

Every step may be repeated: what was made before is used again, so that an answer that was lost costs nothing.
"""

import itertools
import os
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import msgspec
import structlog
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from hushgrad.client import config as configuration
from hushgrad.client import data as records
from hushgrad.client import template, tls
from hushgrad.client.config import ClientConfig, EvaluatorConfig, TlsConfig
from hushgrad.client.errors import ConflictError, InputError, UnreachableError
from hushgrad.client.retry import Backoff
from hushgrad.client.tls import Credentials
from hushgrad.client.transport import RetryableError, Transport
from hushgrad.wire import bundle as bundle_module
from hushgrad.wire import certificates
from hushgrad.wire.bundle import Bundle
from hushgrad.wire.errors import ContractError

KEY_NAME = "client.key"
CERTIFICATE_NAME = "client.crt"
CA_NAME = "ca.crt"
# Says which bundle made what lies in a folder, by the hash of its token.
_MARK_NAME = "enrolled"
# What is being made lies here until all of it is there: the folder of a member is never half new.
_PENDING_NAME = "enrolling"
_REQUEST_NAME = "client.csr"
_TRIES = 6


@dataclass(frozen=True, slots=True)
class Enrolled:
    """What was made.

    Attributes:
        folder: where everything lies.
        config_path: the configuration; None for an operator, who needs none.
        config: the same, read; None likewise, and for an evaluator.
        role, name: what we are now.
        expires: seconds since 1970.
    """

    folder: Path
    config_path: Path | None
    config: ClientConfig | None
    role: str
    name: str
    expires: float


def read(path: Path) -> Bundle:
    """Returns the bundle in a file.

    Raises:
        InputError: if it cannot be read, is damaged, or has expired.
    """
    try:
        bundle = bundle_module.loads(path.read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"bundle {path} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    except ContractError as error:
        raise InputError(f"bundle {path}: {error}") from None
    return bundle


def enroll(
    bundle: Bundle, folder: Path, data: str | None, *, server: str | None = None, now: float | None = None
) -> Enrolled:
    """Makes key and configuration in a folder and has the server sign a certificate. The ledger is somebody else's.

    A second bundle for the same member, after a revocation for example, gets a new key and keeps the configuration.

    Args:
        bundle: from `read`.
        folder: new, empty, or one in which this was done or begun before.
        data: the data file; None: the configuration names one.
        server: host:port to enroll at, in place of the bundle's; the configuration keeps that one.

    Raises:
        InputError: if something cannot be used; then nothing was written.
        ConflictError: if the server has other terms than the bundle says; then no token was spent.
        UnreachableError: if no server answers.
        FatalError: if the server refuses.
    """
    now = time.time() if now is None else now
    bundle = msgspec.structs.replace(bundle, address=server or bundle.address)
    name = {"participant": "client.toml", "operator": "", "observer": ""}.get(bundle.role, "evaluator.toml")
    config_path = folder / name if name else None
    _check_folder(folder, bundle)
    text = ""
    if config_path is not None:
        text = _kept(config_path, bundle, data) or _checked_configuration(bundle, name, data)
    if not _is_done(folder, bundle):
        if now > bundle.expires:
            raise InputError(
                f"the bundle expired on {certificates.date(bundle.expires)}; ask the operator for a new one"
            )
        _install(_get_certificate(bundle, folder), folder, bundle, config_path, text)
    _tidy(folder / _PENDING_NAME, bundle)
    credentials = tls.load(
        TlsConfig(str(folder / CA_NAME), str(folder / CERTIFICATE_NAME), str(folder / KEY_NAME)),
        name=bundle.name,
        roles=(bundle.role,),
        now=now,
    )
    is_participant = config_path is not None and bundle.role == "participant"
    config = configuration.load_client(config_path, {}) if config_path is not None and is_participant else None
    return Enrolled(folder, config_path, config, bundle.role, bundle.name, credentials.own.not_after)


def renew(config: ClientConfig | EvaluatorConfig, *, within_seconds: float | None, now: float | None = None) -> float:
    """Gets a certificate for the same key that holds longer, and puts it in the place of the old one.

    Args:
        within_seconds: do nothing if the old one holds longer than that; None: in any case.

    Returns:
        Until when the certificate holds, in seconds since 1970.

    Raises:
        ClientError: as its class says; the old certificate stays.
    """
    now = time.time() if now is None else now
    if config.tls is None:
        raise InputError("there is no [tls] in this configuration, so no certificate to renew")
    credentials = tls.of(config)
    if credentials is None:
        raise InputError("there is no certificate to renew")
    if within_seconds is not None and credentials.own.not_after - now > within_seconds:
        return credentials.own.not_after
    key = serialization.load_pem_private_key(credentials.key, None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise InputError("only a certificate of an elliptic curve key can be renewed by the server")
    with closing(Transport(config.server, credentials.own.identity.name, credentials)) as transport:
        try:
            der = transport.renew(_signing_request(key, credentials.own.identity.name))
        except RetryableError as error:
            raise UnreachableError(f"no server answered at {config.server} ({error}); the certificate stays") from None
    pem = _checked_certificate(der, key, credentials.own.identity.uri)
    _write(Path(config.tls.certificate), pem)
    structlog.get_logger().info("certificate_renewed", until=certificates.date(certificates.read(pem).not_after))
    return certificates.read(pem).not_after


def _check_folder(folder: Path, bundle: Bundle) -> None:
    """Refuses a folder in which something else lies."""
    try:
        found = {path.name for path in folder.iterdir()} if folder.exists() else set()
    except OSError as error:
        raise InputError(f"{folder} cannot be read: {error.strerror}; name another --folder") from None
    if found and not found & {_MARK_NAME, _PENDING_NAME}:
        raise InputError(f"{folder} holds other files; name a new folder with --folder")
    if CERTIFICATE_NAME in found:
        own = certificates.read((folder / CERTIFICATE_NAME).read_bytes())
        if own.identity != bundle.identity:
            raise InputError(f"{folder} holds the certificate of {own.identity}; name a new folder with --folder")


def _is_done(folder: Path, bundle: Bundle) -> bool:
    mark = folder / _MARK_NAME
    return mark.exists() and mark.read_text().strip() == bundle_module.hashed(bundle.token)


def _kept(path: Path, bundle: Bundle, data: str | None) -> str:
    """Returns the configuration that is there already; empty when there is none."""
    if not path.exists():
        return ""
    if bundle.role == "participant":
        found = configuration.load_client(path, {})
        if found.terms_digest is not None and found.terms_digest.lower() != bundle.terms_digest:
            raise InputError(f"{path} is for terms {found.terms_digest}; a new federation needs a new --folder")
        if data and str(Path(data).resolve()) != found.data.file:
            raise InputError(f"{path} names other data than --data; edit it, or leave --data out")
    return path.read_text()


def _checked_configuration(bundle: Bundle, name: str, data: str | None) -> str:
    """Returns the configuration with the data in its place, after reading both as a client would."""
    if not name:
        return ""
    text = bundle.configuration
    if data:
        keys = {"file": str(Path(data).resolve())}
        text = template.with_keys(text, "data", keys, without=("sklearn",))
    with tempfile.TemporaryDirectory(prefix="hushgrad-enroll-") as scratch:
        path = Path(scratch) / name
        path.write_text(text)
        config: ClientConfig | EvaluatorConfig
        if bundle.role == "participant":
            config = configuration.load_client(path, {})
        else:
            config = configuration.load_evaluator(path, {})
        if data or config.data.sklearn:
            records.load(config.data)
        elif bundle.role == "participant":
            raise InputError("the data file must be given: --data FILE")
    return text


def _get_certificate(bundle: Bundle, folder: Path) -> Path:
    """Gets key and certificate into the folder of what is being made, and returns it."""
    own = certificates.read(bundle.certificate.encode())
    guest = Credentials(bundle.ca.encode(), bundle.certificate.encode(), bundle.key.encode(), own)
    pending = folder / _PENDING_NAME
    with closing(Transport(bundle.address, bundle.name, guest)) as transport:
        terms_digest = _patiently(lambda: transport.get_terms()[1], bundle)
        if terms_digest.hex() != bundle.terms_digest:
            raise ConflictError(
                f"the federation at {bundle.address} has terms {terms_digest.hex()}, the bundle says "
                f"{bundle.terms_digest}; ask the operator which one is meant. Nothing was written"
            )
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        pending.mkdir(mode=0o700, exist_ok=True)
        mark = pending / _MARK_NAME
        if not mark.exists() or mark.read_text().strip() != bundle_module.hashed(bundle.token):
            for path in pending.iterdir():  # begun with another bundle, whose token these cannot be traded for
                path.unlink()
            _write(mark, bundle_module.hashed(bundle.token).encode())
        if (pending / CERTIFICATE_NAME).exists():
            return pending
        key = _key(pending / KEY_NAME)
        request = _request(pending / _REQUEST_NAME, key, bundle.name)
        der = _patiently(lambda: transport.enroll(bundle.token, request), bundle)
    _write(pending / CERTIFICATE_NAME, _checked_certificate(der, key, bundle.identity.uri))
    return pending


def _install(pending: Path, folder: Path, bundle: Bundle, config_path: Path | None, text: str) -> None:
    """Moves what was made to its place; a move that was interrupted goes on. The configuration is there last."""
    _write(folder / CA_NAME, bundle.ca.encode())
    if (pending / KEY_NAME).exists():
        (pending / KEY_NAME).rename(folder / KEY_NAME)
    _write(folder / CERTIFICATE_NAME, (pending / CERTIFICATE_NAME).read_bytes())
    if config_path is not None and not config_path.exists():
        _write(config_path, text.encode())
    _write(folder / _MARK_NAME, bundle_module.hashed(bundle.token).encode())


def _tidy(pending: Path, bundle: Bundle) -> None:
    """Removes what this bundle left behind; its mark goes last."""
    mark = pending / _MARK_NAME
    if pending.exists() and (not mark.exists() or mark.read_text().strip() == bundle_module.hashed(bundle.token)):
        for path in sorted(pending.iterdir(), key=lambda path: path == mark):
            path.unlink()
        pending.rmdir()


def _patiently(call: Callable[[], bytes], bundle: Bundle) -> bytes:
    backoff = Backoff()
    for attempt in itertools.count(1):
        try:
            return call()
        except RetryableError as error:
            if attempt == _TRIES:
                raise UnreachableError(
                    f"no server answered at {bundle.address} ({error}); try again, nothing is lost"
                ) from None
            time.sleep(backoff.next())
    raise AssertionError("the count has no end")


def _key(path: Path) -> ec.EllipticCurvePrivateKey:
    """Returns the key in a file that only its owner can read; makes it the first time."""
    if path.exists():
        found = serialization.load_pem_private_key(path.read_bytes(), None)
        if not isinstance(found, ec.EllipticCurvePrivateKey):
            raise InputError(f"{path} holds a key of another kind; name a new folder with --folder")
        return found
    key = ec.generate_private_key(ec.SECP256R1())
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    _write(path, pem)
    return key


def _request(path: Path, key: ec.EllipticCurvePrivateKey, name: str) -> bytes:
    """Returns the signing request that was sent before, or a new one: a repeated call must be the same call."""
    if path.exists():
        return path.read_bytes()
    request = _signing_request(key, name)
    _write(path, request)
    return request


def _signing_request(key: ec.EllipticCurvePrivateKey, name: str) -> bytes:
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    request = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key, hashes.SHA256())
    return request.public_bytes(serialization.Encoding.DER)


def _checked_certificate(der: bytes, key: ec.EllipticCurvePrivateKey, uri: str) -> bytes:
    try:
        signed = x509.load_der_x509_certificate(der)
        own = certificates.of(signed)
    except (ValueError, ContractError) as error:
        raise ConflictError(f"the server answered with no certificate that can be used: {error}") from None
    if own.identity.uri != uri or signed.public_key() != key.public_key():
        raise ConflictError(f"the server answered with a certificate of {own.identity} or of another key")
    return signed.public_bytes(serialization.Encoding.PEM)


def _write(path: Path, content: bytes) -> None:
    """Writes a file that only its owner can read, in one step and durably."""
    temporary = path.with_name(path.name + ".new")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with open(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.rename(path)
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def describe(enrolled: Enrolled) -> dict[str, object]:
    """Returns what was made, for JSON."""
    return {
        "folder": str(enrolled.folder),
        "configuration": None if enrolled.config_path is None else str(enrolled.config_path),
        "role": enrolled.role,
        "name": enrolled.name,
        "certificate_expires": certificates.date(enrolled.expires),
        "privacy": None if enrolled.config is None else msgspec.structs.asdict(enrolled.config.privacy),
    }
