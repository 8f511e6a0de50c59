"""Announcements: who may enroll under which name and role, until when, by the hash of a token that is good once.

One small file per name, replaced in one step: the newest announcement of a name is the only one. A token that was used
stays, with the request that used it, so that a client whose answer was lost gets the same certificate again.
"""

import hashlib
import hmac
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec
from hushgrad.server import authority as authority_module
from hushgrad.server import folder
from hushgrad.server.authority import Authority
from hushgrad.server.errors import InputError, ServerError
from hushgrad.wire import bundle
from hushgrad.wire.identity import Identity, Role

MEMBER_SECONDS: Final = 90 * 86_400.0
"""How long a member's certificate holds unless somebody says otherwise."""


class Announcement(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One file.

    Attributes:
        role, name: whom it makes.
        token_sha256: hash of the token, in hexadecimal.
        expires: seconds since 1970.
        member_seconds: how long the certificate will hold.
        request_sha256, certificate: what the token was traded for; empty until then.
    """

    role: Role
    name: str
    token_sha256: str
    expires: float
    member_seconds: float
    request_sha256: str = ""
    certificate: str = ""


class TokenRefusedError(ServerError):
    """The token is wrong, used, expired or withdrawn."""


def announce(authority: Authority, announcement: Announcement) -> bool:
    """Writes an announcement; says whether it took the place of one that was open."""
    path = _path(authority, announcement.name)
    with authority.locked():
        before = _find(path)
        folder.write_durably(path, msgspec.json.encode(announcement))
    return before is not None and not before.certificate


def withdraw(authority: Authority, name: str) -> bool:
    """Removes what was announced for a name; says whether it was open."""
    path = _path(authority, name)
    with authority.locked():
        before = _find(path)
        path.unlink(missing_ok=True)
    return before is not None and not before.certificate


def trade(
    authority: Authority, name: str, token: str, request: bytes, *, now: Callable[[], float] = time.time
) -> bytes:
    """Returns the certificate, PEM, for a token and a signing request (DER).

    Raises:
        TokenRefusedError: if the token is not good for it; nothing is changed.
        InputError: if the request cannot be signed; the token stays good.
    """
    path = _path(authority, name)
    key = authority_module.signing_request(request)
    request_sha256 = hashlib.sha256(request).hexdigest()
    with authority.locked():
        found = _find(path)
    # The comparison takes the same time wherever two hashes differ, and is made even when there is nothing to compare.
    known = found.token_sha256 if found is not None else bundle.hashed("")
    matches = hmac.compare_digest(known, bundle.hashed(token))
    if found is None or not matches:
        raise TokenRefusedError(f"this is no token for {name}: a newer bundle was made, or it was withdrawn")
    if now() > found.expires:
        raise TokenRefusedError(f"the token for {name} has expired; ask the operator for a new bundle")
    if found.certificate:
        if not hmac.compare_digest(found.request_sha256, request_sha256):
            raise TokenRefusedError(
                f"the token for {name} was used already, with another key; if that was not you, tell the operator"
            )
        return found.certificate.encode()
    certificate = authority.issue(
        Identity(authority.federation, found.role, name), key, seconds=found.member_seconds, now=now()
    )
    used = msgspec.structs.replace(found, request_sha256=request_sha256, certificate=certificate.decode())
    with authority.locked():
        if _find(path) != found:
            raise TokenRefusedError(f"the token for {name} was used or withdrawn at the same moment; try again")
        folder.write_durably(path, msgspec.json.encode(used))
    return certificate


def _path(authority: Authority, name: str) -> Path:
    Identity(authority.federation, "participant", name)  # names are names, never paths
    return authority.tokens / f"{name}.json"


def _find(path: Path) -> Announcement | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Announcement)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.ValidationError, msgspec.DecodeError) as error:
        raise InputError(f"{path} cannot be read: {error}") from None
