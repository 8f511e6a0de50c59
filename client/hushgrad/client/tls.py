"""The client's side of TLS: its certificate, checked before anything is sent, and why a connection was refused.

gRPC says "unavailable" whatever is wrong with a certificate. What can be known here is said here, in one line.
"""

import os
import socket
import ssl
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import structlog
from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from hushgrad.client.config import ClientConfig, EvaluatorConfig, TlsConfig
from hushgrad.client.errors import InputError
from hushgrad.wire import certificates
from hushgrad.wire.certificates import Certificate
from hushgrad.wire.errors import ContractError
from hushgrad.wire.identity import Role

WARN_SECONDS = 14 * 86_400.0
_PROBE_SECONDS = 2.0
# From the end of the handshake to the first bytes of a server that has taken our certificate, or its hanging up.
_HANG_UP_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Credentials:
    """What opens a connection.

    Attributes:
        ca, certificate, key: PEM.
        own: what counts in our certificate.
        server_name: the name that the server's certificate must have; empty: the host of the address.
        source: the files that they were read from; None: from none.
    """

    ca: bytes
    certificate: bytes
    key: bytes = field(repr=False)
    own: Certificate
    server_name: str = ""
    source: TlsConfig | None = None

    def newer(self) -> "Credentials | None":
        """Returns what the files hold now, if that is another certificate of ours, and it holds; else None."""
        if self.source is None:
            return None
        try:
            found = load(self.source, name=self.own.identity.name, roles=(self.own.identity.role,))
        except InputError:
            return None
        return found if found.own.serial != self.own.serial else None

    def channel(self, address: str, options: tuple[tuple[str, Any], ...]) -> grpc.Channel:
        """Opens a channel that shows our certificate and believes the authority's alone."""
        if self.server_name:
            options = (*options, ("grpc.ssl_target_name_override", self.server_name))
        return grpc.secure_channel(
            address, grpc.ssl_channel_credentials(self.ca, self.key, self.certificate), options=options
        )


def of(config: ClientConfig | EvaluatorConfig) -> Credentials | None:
    """Returns the credentials of a configuration; None when it has no [tls].

    Raises:
        InputError: if they cannot be used, or are not for this participant or evaluator.
    """
    if config.tls is None:
        return None
    if isinstance(config, ClientConfig):
        return load(config.tls, name=config.participant, roles=("participant",))
    return load(config.tls, name=config.name, roles=("evaluator", "watcher", "participant"))


def load(config: TlsConfig, *, name: str, roles: tuple[Role, ...], now: float | None = None) -> Credentials:
    """Reads certificates and key, and refuses what a server would refuse.

    Args:
        config: with absolute paths.
        name: that the certificate must have.
        roles: of which it must have one.
        now: seconds since 1970; None: read the clock.

    Raises:
        InputError: says which file, and what is wrong with it.
    """
    now = time.time() if now is None else now
    ca, pem, key = (_read(what, getattr(config, what)) for what in ("ca", "certificate", "key"))
    where = f"[tls] certificate = {config.certificate}"
    own = _checked(ca, pem, key, config)
    if lapse := own.lapse(now):
        raise InputError(f"{where}: {lapse}; ask the operator for a new bundle")
    if own.identity.role not in roles:
        raise InputError(f"{where} is of {own.identity}; a certificate of role {' or '.join(roles)} was expected")
    if own.identity.name != name:
        raise InputError(f"{where} is of {own.identity}, the configuration says {name}; name the right file")
    if own.not_after - now < WARN_SECONDS:
        structlog.get_logger().warning(
            "certificate_expires_soon", on=certificates.date(own.not_after), what_to_do="hushgrad-client renew"
        )
    if os.stat(config.key).st_mode & 0o077:
        structlog.get_logger().warning("key_readable_by_others", file=config.key, what_to_do="chmod 600")
    return Credentials(ca, pem, key, own, config.server_name, config)


def _checked(ca: bytes, pem: bytes, key: bytes, config: TlsConfig) -> Certificate:
    where = f"[tls] certificate = {config.certificate}"
    try:
        authorities = x509.load_pem_x509_certificates(ca)
    except ValueError as error:
        raise InputError(f"[tls] ca = {config.ca}: a certificate in PEM form was expected: {error}") from None
    try:
        chain = x509.load_pem_x509_certificates(pem)
        own = certificates.of(chain[0])
    except (ValueError, ContractError) as error:
        raise InputError(f"{where}: {error}") from None
    try:
        private = serialization.load_pem_private_key(key, None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise InputError(f"[tls] key = {config.key}: a private key in PEM form was expected: {error}") from None
    if private.public_key() != chain[0].public_key():
        raise InputError(f"[tls] key = {config.key} is not the key of certificate = {config.certificate}")
    if not any(_signed_by(chain[-1], authority) for authority in authorities):
        raise InputError(
            f"{where} is of {own.identity} and was not signed by the authority in ca = {config.ca}; the two are of "
            "different federations"
        )
    return own


def _signed_by(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _read(what: str, path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise InputError(f"[tls] {what} = {path} cannot be read: {error.strerror}") from None


# Why there is no connection


def why_refused(address: str, credentials: Credentials | None) -> str:
    """Returns why a server that can be reached gives no connection; empty when that cannot be known.

    Makes one connection of its own, which sends nothing but a handshake.

    Args:
        credentials: ours; None: we speak plain text.
    """
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=_PROBE_SECONDS) as plain:
            if credentials is None:
                return _speaks_tls(plain, address)
            return _handshake(plain, host.strip("[]"), address, credentials)
    except OSError:
        return ""


def _speaks_tls(plain: socket.socket, address: str) -> str:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # nothing is sent or believed: the question is which language is spoken
    try:
        context.wrap_socket(plain).close()
    except ssl.SSLError:
        return ""
    return f"the server at {address} speaks TLS and this client plain text; add [tls] with a certificate"


def _handshake(plain: socket.socket, host: str, address: str, credentials: Credentials) -> str:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=credentials.ca.decode("ascii", "replace"))
    context.set_alpn_protocols(["h2"])
    with _as_files(credentials) as (certificate, key):
        context.load_cert_chain(certificate, key)
    try:
        tls = context.wrap_socket(plain, server_hostname=credentials.server_name or host)
    except ssl.SSLCertVerificationError as error:
        reason = error.verify_message
        if "expired" in reason:
            return f"the certificate of the server at {address} has expired; its operator must renew it"
        if "mismatch" in reason or "doesn't match" in reason:
            name = credentials.server_name or host
            return f"the certificate of the server at {address} is not for {name}; correct the address, or server_name"
        return (
            f"the certificate of the server at {address} is not of the authority in our ca ({reason}); another "
            "federation's server answers there, or its authority was replaced"
        )
    except ssl.SSLError as error:
        if error.reason in ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "PACKET_LENGTH_TOO_LONG", "RECORD_LAYER_FAILURE"):
            return f"the server at {address} speaks plain text, not TLS; correct the address, or remove [tls]"
        return ""
    with tls:
        tls.settimeout(_HANG_UP_SECONDS)
        try:
            hung_up = tls.recv(1) == b""
        except TimeoutError:
            hung_up = False
        except OSError:
            hung_up = True
    if not hung_up:
        return ""
    return (
        f"the server at {address} refused the certificate of {credentials.own.identity} (serial number "
        f"{credentials.own.serial:x}): it is of an authority that the server does not know, or expired by the server's "
        "clock"
    )


class _as_files:  # noqa: N801  # reads as a function does
    """Certificate and key as files for a moment: the standard library takes nothing else. In memory only."""

    def __init__(self, credentials: Credentials) -> None:
        self._contents = (credentials.certificate, credentials.key)
        self._descriptors: list[int] = []

    def __enter__(self) -> list[str]:
        for content in self._contents:
            descriptor = os.memfd_create("hushgrad-tls", os.MFD_CLOEXEC)
            self._descriptors.append(descriptor)
            os.write(descriptor, content)
        return [f"/proc/self/fd/{descriptor}" for descriptor in self._descriptors]

    def __exit__(self, *_: object) -> None:
        for descriptor in self._descriptors:
            os.close(descriptor)
