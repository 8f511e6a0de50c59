"""What `hushgrad enroll new` does: an announcement for the server, and the bundle that uses it."""

import secrets
import time
from pathlib import Path
from typing import Any, cast

from hushgrad.client import config as client_config
from hushgrad.client import template as template_module
from hushgrad.experiments.errors import InputError
from hushgrad.server import authority as authority_module
from hushgrad.server import config as server_config
from hushgrad.server import tokens
from hushgrad.server.authority import Authority
from hushgrad.server.database import Database
from hushgrad.server.folder import StateFolder
from hushgrad.server.tokens import Announcement
from hushgrad.wire import bundle as bundle_module
from hushgrad.wire import certificates
from hushgrad.wire import terms as wire_terms
from hushgrad.wire.bundle import Bundle
from hushgrad.wire.identity import Identity, Role


def new(
    name: str,
    role: str,
    *,
    config_path: Path,
    server: str,
    template: Path | None,
    hours: float,
    member_days: float,
    out: Path,
    now: float | None = None,
) -> dict[str, Any]:
    """Writes a bundle into a new file and announces its token.

    Args:
        config_path: the server's; its state must have been made, because the bundle pins the terms.
        server: host:port as the member reaches it.
        template: the member's configuration; None: the one beside the server's.
        hours: how long the bundle is good.
        member_days: how long the member's certificate will hold.

    Raises:
        InputError: if something cannot be used; nothing was written or announced.
    """
    now = time.time() if now is None else now
    config = server_config.load(config_path)
    if config.tls is None or not config.tls.authority:
        raise InputError(
            f"{config_path} must have [tls] with an authority, so that the server can sign; make one with `hushgrad "
            "certs init`"
        )
    if out.exists():
        raise InputError(f"{out} exists already; name another file with --out")
    authority = Authority(Path(config.tls.authority))
    identity = Identity(authority.federation, cast(Role, role), name)
    terms, terms_digest = _terms(Path(config.state))
    if authority.federation != terms.federation:
        raise InputError(f"the authority is of federation {authority.federation}, the terms are of {terms.federation}")
    if role == "participant" and terms.participants and name not in terms.participants:
        raise InputError(f"the terms do not name {name}; they name {', '.join(terms.participants)}")
    configuration = _configuration(identity, server, terms_digest, template, config_path.absolute().parent)
    token = secrets.token_hex(32)
    key = authority_module.new_key()
    expires = now + hours * 3600
    guest = authority.issue(
        Identity(authority.federation, "enrollment", name), key.public_key(), seconds=hours * 3600, now=now
    )
    bundle = Bundle(
        federation=authority.federation,
        role=identity.role,
        name=name,
        address=server,
        ca=authority.certificate_pem.decode(),
        certificate=guest.decode(),
        key=authority_module.key_pem(key).decode(),
        token=token,
        expires=float(int(expires)),
        terms_digest=terms_digest.hex(),
        configuration=configuration,
    )
    try:
        authority_module.write_secret(out, bundle_module.dumps(bundle).encode())
    except OSError as error:
        raise InputError(f"{out} cannot be written: {error.strerror}") from None
    replaced = tokens.announce(
        authority,
        Announcement(
            role=identity.role,
            name=name,
            token_sha256=bundle_module.hashed(token),
            expires=bundle.expires,
            member_seconds=member_days * 86_400,
        ),
    )
    return {
        "bundle": str(out),
        "role": role,
        "name": name,
        "expires": certificates.date(expires),
        "terms_digest": terms_digest.hex(),
        "replaced": replaced,
    }


def _terms(state: Path) -> tuple[wire_terms.Terms, bytes]:
    database = Database.open(StateFolder(state), read_only=True)
    try:
        content = database.terms_bytes()
    finally:
        database.close()
    return wire_terms.from_bytes(content), wire_terms.digest(content)


def _configuration(identity: Identity, server: str, terms_digest: bytes, template: Path | None, beside: Path) -> str:
    """Returns the member's configuration file, ready but for the data."""
    host, _, port = server.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise InputError(f"--server must be host:port with a port from 1 to 65535, found {server!r}")
    if identity.role in ("operator", "observer"):
        return ""
    is_participant = identity.role == "participant"
    path = template or beside / ("client.toml" if is_participant else "evaluator.toml")
    try:
        text = path.read_text()
    except OSError as error:
        raise InputError(f"template {path} cannot be read: {error.strerror}; name one with --template") from None
    keys = {"server": server}
    if is_participant:
        keys = {"participant": identity.name, **keys, "state": "state", "terms_digest": terms_digest.hex()}
    else:
        keys = {"name": identity.name, **keys, "output": "curve.csv"}
    text = template_module.with_keys(text, "", keys, without=("insecure_plaintext_to_anyone",))
    tls = {"ca": "ca.crt", "certificate": "client.crt", "key": "client.key"}
    text = template_module.with_keys(text, "tls", tls)
    client_config.check_text(text, is_participant=is_participant, source=str(path))
    return text
