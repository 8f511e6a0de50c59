"""Who may look: on loopback whoever is at the machine, elsewhere the holder of a certificate whose role may look.

The certificate is the one of the connection; each request is held to it, and each live stream again and again.
"""

import asyncio
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from cryptography import x509
from hushgrad.server import config as config_module
from hushgrad.server import roles, tls
from hushgrad.server.config import TlsConfig
from hushgrad.server.denylist import DenyList
from hushgrad.server.errors import InputError
from hushgrad.wire import certificates
from hushgrad.wire.errors import ContractError

CERTIFICATE: Final = "hushgrad.certificate"
"""Key of a request's state under which its connection's certificate lies, DER."""

_LOOK_SECONDS: Final = 0.5


class OpenDoor:
    """On loopback. Refuses requests for another host's name: a page from elsewhere cannot read this one through a name
    that it makes point here."""

    def __init__(self, host: str | None) -> None:
        """Args: host is where the listener is, and must be loopback; None: any name is let in, because anyone is."""
        self._checks = host is not None

    def refusal(self, certificate: bytes | None, host: str) -> str:
        """Returns why a request is refused; empty when it is not."""
        del certificate
        name = host.rpartition(":")[0] if host.rpartition(":")[2].isdecimal() else host
        if self._checks and not config_module.is_loopback(name):
            return f"this page is for this machine, at a name such as localhost; found {host[:80]!r}"
        return ""


class CertificateDoor:
    """Elsewhere. Lets in who holds a certificate of this federation in a role that may look.

    Args:
        federation: name of the federation.
        denied: the deny list; None: there is none.
        clock: seconds since 1970.
    """

    def __init__(self, federation: str, denied: DenyList | None = None, clock: Callable[[], float] = time.time) -> None:
        self._federation = federation
        self._denied = denied
        self._clock = clock

    def refusal(self, certificate: bytes | None, host: str) -> str:
        """Returns why a request is refused; empty when it is not."""
        del host
        if certificate is None:
            return "a certificate was expected, found none"
        try:
            found = certificates.of(x509.load_der_x509_certificate(certificate))
        except (ContractError, ValueError) as error:
            return str(error)
        identity = found.identity
        if identity.federation != self._federation:
            return f"the certificate of {identity} is for another federation, this one is {self._federation}"
        if identity.role not in roles.LOOKERS:
            return f"this page is for {', '.join(sorted(roles.LOOKERS))}; the certificate is of {identity}"
        if self._denied is not None and self._denied.holds(found.serial):
            return f"the certificate of {identity} was revoked (serial number {found.serial:x})"
        return found.lapse(self._clock())


Door = OpenDoor | CertificateDoor


def context(config: TlsConfig) -> ssl.SSLContext:
    """Returns a context that shows the server's certificate and demands one of its authority from everybody.

    Raises:
        InputError: if a file cannot be used.
    """
    tls.check(config)
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.minimum_version = ssl.TLSVersion.TLSv1_2
    made.verify_mode = ssl.CERT_REQUIRED
    _load(made, config)
    return made


async def follow_files(made: ssl.SSLContext, config: TlsConfig, on_trouble: Callable[[str], None]) -> None:
    """Lets new connections see changed files; runs until it is cancelled. What cannot be used is not taken."""
    seen = _stamps(config)
    while True:
        await asyncio.sleep(_LOOK_SECONDS)
        found = _stamps(config)
        if found == seen:
            continue
        seen = found
        try:
            tls.check(config)
            _load(made, config)
        except InputError as error:
            on_trouble(str(error))


def _load(made: ssl.SSLContext, config: TlsConfig) -> None:
    try:
        made.load_verify_locations(config.ca)
        made.load_cert_chain(config.certificate, config.key)
    except (OSError, ssl.SSLError) as error:
        raise InputError(f"[tls] cannot be used for web_listen: {error}") from None


def _stamps(config: TlsConfig) -> list[Any]:
    found: list[Any] = []
    for path in (config.ca, config.certificate, config.key):
        try:
            stat = Path(path).stat()
        except OSError:
            found.append(None)
        else:
            found.append((stat.st_mtime_ns, stat.st_ino, stat.st_size))
    return found
