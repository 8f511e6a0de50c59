"""Certificates as both sides read them: who it is for, from when until when. Knows no sockets and no authority.

A certificate of a client names its holder by exactly one subject alternative name, a URI. A common name is for people
and counts for nothing; two names would let one holder choose who to be.
"""

import datetime
from dataclasses import dataclass

from cryptography import x509
from hushgrad.wire import identity as identity_module
from hushgrad.wire.errors import ContractError
from hushgrad.wire.identity import Identity


@dataclass(frozen=True, slots=True)
class Certificate:
    """What counts in a client's certificate.

    Attributes:
        identity: whose it is.
        serial: its number in its authority's books.
        not_before, not_after: seconds since 1970; it holds from the first to the second, both included.
    """

    identity: Identity
    serial: int
    not_before: float
    not_after: float

    def lapse(self, now: float) -> str:
        """Returns why it does not hold at a time, in seconds since 1970; empty when it does."""
        if now > self.not_after:
            return f"the certificate of {self.identity} expired on {date(self.not_after)}"
        if now < self.not_before:
            return f"the certificate of {self.identity} is not valid before {date(self.not_before)}; compare the clocks"
        return ""


def read(pem: bytes) -> Certificate:
    """Returns what counts in the first certificate of a PEM file.

    Raises:
        ContractError: if it is none, or does not name its holder by exactly one URI.
    """
    return of(load(pem))


def load(pem: bytes) -> x509.Certificate:
    """Returns the first certificate of a PEM file.

    Raises:
        ContractError: if there is none.
    """
    try:
        return x509.load_pem_x509_certificate(pem)
    except ValueError as error:
        raise ContractError(f"a certificate in PEM form was expected: {error}") from None


def of(certificate: x509.Certificate) -> Certificate:
    """Returns what counts in a parsed certificate; see `read`."""
    try:
        found = list(certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value)
    except x509.ExtensionNotFound:
        found = []
    except ValueError as error:
        raise ContractError(f"the certificate's names cannot be read: {error}") from None
    if not found:
        raise ContractError(
            "the certificate must name its holder by one URI (subject alternative name), found none; a common name "
            "counts for nothing"
        )
    if len(found) > 1:
        shown = ", ".join(str(name.value) for name in found[:4])
        raise ContractError(f"the certificate must name its holder by exactly one URI, found {len(found)}: {shown}")
    if not isinstance(found[0], x509.UniformResourceIdentifier):
        raise ContractError(f"the certificate must name its holder by one URI, found {found[0].value}")
    return Certificate(
        identity_module.from_uri(found[0].value),
        certificate.serial_number,
        certificate.not_valid_before_utc.timestamp(),
        certificate.not_valid_after_utc.timestamp(),
    )


def date(seconds: float) -> str:
    """Returns a time as people read it.

    >>> date(0)
    '1970-01-01 00:00 UTC'
    """
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")
