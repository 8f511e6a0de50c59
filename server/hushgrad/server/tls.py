"""The server's side of TLS: what it shows, whom it believes, and a certificate that changes while it runs.

Puts the parts together (`access`, `denylist`, `authority`) from the [tls] table of server.toml.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from hushgrad.server.access import Access
from hushgrad.server.authority import Authority
from hushgrad.server.config import TlsConfig
from hushgrad.server.counting import Counters
from hushgrad.server.denylist import DenyList
from hushgrad.server.errors import InputError
from hushgrad.wire import certificates
from hushgrad.wire.errors import ContractError
from hushgrad.wire.terms import Terms


@dataclass(frozen=True, slots=True)
class Door:
    """What a server with TLS stands behind.

    Attributes:
        rotation: gives the listener its credentials.
        access: looks at every call.
        authority: signs certificates; None: this server signs none.
    """

    rotation: "Rotation"
    access: Access
    authority: Authority | None


def door(config: TlsConfig, terms: Terms, log: Any, counters: Counters | None = None) -> Door:
    """Returns what [tls] in server.toml asks for.

    Raises:
        InputError: if a file cannot be used, or the authority is of another federation.
    """

    def trouble(why: str) -> None:
        log.error("tls_files_not_taken", why=why)

    authority = Authority(Path(config.authority)) if config.authority else None
    if authority is not None and authority.federation != terms.federation:
        raise InputError(
            f"[tls] authority = {config.authority} is of federation {authority.federation}, the terms are of "
            f"{terms.federation}"
        )
    denied = DenyList(Path(config.denied), trouble) if config.denied else None
    if denied is None:
        log.warning("no_deny_list", why="[tls] names none, so nobody's certificate can be revoked")
    access = Access(terms.federation, terms.participants, denied, log, counters=counters)
    return Door(Rotation(config, trouble), access, authority)


@dataclass(frozen=True, slots=True)
class _Material:
    """Contents of the three files."""

    ca: bytes
    certificate: bytes
    key: bytes

    def configuration(self) -> grpc.ServerCertificateConfiguration:
        return grpc.ssl_server_certificate_configuration([(self.key, self.certificate)], self.ca)


class Rotation:
    """Server credentials that follow their files: every new connection gets what they say now.

    Args:
        config: with absolute paths.
        on_trouble: told in one line, possibly on another thread, why changed files were not taken. What was in force
            stays in force: half of a pair that is being replaced must not close the door.

    Raises:
        InputError: if the files cannot be used at the start.
    """

    def __init__(self, config: TlsConfig, on_trouble: Callable[[str], None]) -> None:
        self._config = config
        self._on_trouble = on_trouble
        self._guard = threading.Lock()
        self._taken = self._seen = _read(config)

    @property
    def expires_at(self) -> float:
        """When the certificate in force expires, seconds since 1970. May be asked on any thread."""
        return certificates.load(self._taken.certificate).not_valid_after_utc.timestamp()

    def credentials(self) -> grpc.ServerCredentials:
        """Returns credentials that demand a certificate from every client."""
        return grpc.dynamic_ssl_server_credentials(
            self._taken.configuration(), self._fetch, require_client_authentication=True
        )

    def _fetch(self) -> grpc.ServerCertificateConfiguration | None:
        # Called by gRPC before every handshake, on a thread of its own; an exception here would refuse the caller.
        with self._guard:
            try:
                found = _files(self._config)
                if found == self._seen:
                    return None
                self._seen = found
                _check(found, self._config)
            except InputError as error:
                self._on_trouble(str(error))
                return None
            self._taken = found
            return found.configuration()


def check(config: TlsConfig) -> None:
    """Refuses files that cannot be used now.

    Raises:
        InputError: says which, and why.
    """
    _read(config)


def _read(config: TlsConfig) -> _Material:
    material = _files(config)
    _check(material, config)
    return material


def _files(config: TlsConfig) -> _Material:
    contents = []
    for key, path in (("ca", config.ca), ("certificate", config.certificate), ("key", config.key)):
        try:
            contents.append(Path(path).read_bytes())
        except OSError as error:
            raise InputError(f"[tls] {key} = {path} cannot be read: {error.strerror}") from None
    return _Material(*contents)


def _check(material: _Material, config: TlsConfig) -> None:
    try:
        certificates.load(material.ca)
    except ContractError as error:
        raise InputError(f"[tls] ca = {config.ca}: {error}") from None
    try:
        certificate = certificates.load(material.certificate)
    except ContractError as error:
        raise InputError(f"[tls] certificate = {config.certificate}: {error}") from None
    try:
        key = serialization.load_pem_private_key(material.key, None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise InputError(f"[tls] key = {config.key}: a private key in PEM form was expected: {error}") from None
    expires = certificate.not_valid_after_utc.timestamp()
    if time.time() > expires:
        raise InputError(
            f"[tls] certificate = {config.certificate} expired on {certificates.date(expires)}; renew it with "
            "`hushgrad certs renew`"
        )
    if key.public_key() != certificate.public_key():
        raise InputError(f"[tls] key = {config.key} is not the key of certificate = {config.certificate}")
