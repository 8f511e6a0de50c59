"""What `hushgrad certs` does: files around the authority of one federation."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, cast

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.x509.oid import ExtendedKeyUsageOID
from hushgrad.experiments.errors import InputError
from hushgrad.server import authority as authority_module
from hushgrad.server import denylist, tokens
from hushgrad.server import folder as files
from hushgrad.server.authority import SERVER, Authority
from hushgrad.wire import certificates
from hushgrad.wire.errors import ContractError
from hushgrad.wire.identity import Identity, Role

DAY = 86_400.0
MEMBER_DAYS = tokens.MEMBER_SECONDS / DAY
SERVER_DAYS = 365.0

Kind = Literal["participant", "watcher", "evaluator", "operator", "observer", "server"]


def init(
    folder: Path, federation: str, hosts: Sequence[str], *, days: float, server_days: float, now: float | None = None
) -> dict[str, Any]:
    """Makes an authority and the server's certificate in a folder.

    Args:
        hosts: names and IP addresses under which the server is reached.

    Raises:
        InputError: if something cannot be; nothing was made.
    """
    now = time.time() if now is None else now
    for host in hosts:
        authority_module.host_name(host)
    for name in ("server.crt", "server.key"):
        if (folder / name).exists():
            raise InputError(f"there is a {name} in {folder} already; name another --dir")
    authority = authority_module.create(folder, federation, seconds=days * DAY, now=now)
    _make_server(authority, folder, hosts, server_days, now)
    return {"folder": str(folder), "federation": federation, "hosts": list(hosts)}


def server_table(folder: Path) -> str:
    """Returns the [tls] table for a server.toml beside the folder."""
    lines = ["[tls]"]
    for key, name in (("ca", "ca.crt"), ("certificate", "server.crt"), ("key", "server.key"), ("denied", "denied.txt")):
        lines.append(f'{key} = "{folder / name}"')
    return "\n".join([*lines, f'authority = "{folder}"'])


def member_table(folder: Path, name: str) -> str:
    """Returns the [tls] table of a member's configuration, for files of `issue` in a folder."""
    files_ = (("ca", "ca.crt"), ("certificate", f"{name}.crt"), ("key", f"{name}.key"))
    return "\n".join(["[tls]", *(f'{key} = "{folder / file}"' for key, file in files_)])


def issue(
    folder: Path,
    name: str,
    role: str,
    *,
    hosts: Sequence[str] = (),
    csr: Path | None = None,
    days: float | None = None,
    out: Path | None = None,
    now: float | None = None,
) -> dict[str, Any]:
    """Makes a certificate, and a key unless a signing request comes from somebody who has one.

    Raises:
        InputError: if something cannot be; no certificate was signed.
    """
    now = time.time() if now is None else now
    authority = Authority(folder)
    out = out or folder / "members" / name
    kind = cast(Kind, role)
    if (kind == SERVER) != bool(hosts):
        raise InputError("--host goes with --role server, and is needed there")
    identity = None if kind == SERVER else Identity(authority.federation, cast(Role, kind), name)
    for host in hosts:
        authority_module.host_name(host)
    targets = [out / f"{name}.crt", *([] if csr else [out / f"{name}.key"])]
    for path in targets:
        if path.exists():
            raise InputError(f"{path} exists already; name another --out, or renew it with `hushgrad certs renew`")
    secret = None
    if csr is not None:
        public = authority_module.signing_request(_request(csr))
    else:
        secret = authority_module.new_key()
        public = secret.public_key()
    seconds = DAY * (days or (SERVER_DAYS if kind == SERVER else MEMBER_DAYS))
    try:
        out.mkdir(parents=True, exist_ok=True)
        if secret is not None:
            authority_module.write_secret(out / f"{name}.key", authority_module.key_pem(secret))
    except OSError as error:
        raise InputError(f"{error.filename or out} cannot be written: {error.strerror}") from None
    if identity is None:
        pem = authority.issue_server(hosts, public, seconds=seconds, now=now)
    else:
        pem = authority.issue(identity, public, seconds=seconds, now=now)
    files.write_durably(out / f"{name}.crt", pem)
    files.write_durably(out / "ca.crt", authority.certificate_pem)
    return {"files": [str(path) for path in (*targets, out / "ca.crt")], **_described(pem)}


def renew(folder: Path, path: Path, *, days: float | None, now: float | None = None) -> dict[str, Any]:
    """Replaces a certificate, in one step, by one for the same key and names that holds from now on.

    Raises:
        InputError: if it is of another authority, or was revoked; the file stays.
    """
    now = time.time() if now is None else now
    authority = Authority(folder)
    try:
        old = certificates.load(path.read_bytes())
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
    except ContractError as error:
        raise InputError(f"{path}: {error}") from None
    usage = old.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    is_server = ExtendedKeyUsageOID.SERVER_AUTH in usage
    pem = authority.reissue(old, seconds=DAY * (days or (SERVER_DAYS if is_server else MEMBER_DAYS)), now=now)
    files.write_durably(path, pem)
    return {"certificate": str(path), **_described(pem)}


def revoke(folder: Path, *, name: str | None, serial: str | None, reason: str) -> dict[str, Any]:
    """Denies certificates: all of a name, in whatever role, or one by its number.

    Raises:
        InputError: if there is nothing of that name, or the number is none.
    """
    authority = Authority(folder)
    if (name is None) == (serial is None):
        raise InputError("give a NAME or --serial NUMBER")
    day = certificates.date(time.time())
    note = " ".join(f"{day} {reason}".split())
    withdrawn = False
    if serial is not None:
        try:
            number = int(serial, 16)
        except ValueError:
            raise InputError(f"--serial must be hexadecimal, found {serial!r}") from None
        revoked = authority.revoke({number: note})
    else:
        found = [one for one in authority.issued() if one.name == name]
        withdrawn = tokens.withdraw(authority, name or "")
        if not found and not withdrawn:
            raise InputError(f"no certificate of {name!r} was signed here; `hushgrad certs list` shows what was")
        revoked = authority.revoke({one.serial: f"{one.holder} {note}" for one in found})
    return {"revoked": [f"{number:x}" for number in revoked], "withdrawn": withdrawn}


def listed(folder: Path, *, now: float | None = None) -> list[dict[str, Any]]:
    """Returns what was signed, oldest first, and whether it still holds."""
    now = time.time() if now is None else now
    authority = Authority(folder)
    denied = denylist.read(authority.denied)
    return [
        {
            "serial": f"{one.serial:x}",
            "holder": one.holder,
            "not_after": certificates.date(one.not_after),
            "state": "revoked" if one.serial in denied else "expired" if now > one.not_after else "holds",
        }
        for one in authority.issued()
    ]


def _make_server(authority: Authority, folder: Path, hosts: Sequence[str], days: float, now: float) -> None:
    key = authority_module.new_key()
    authority_module.write_secret(folder / "server.key", authority_module.key_pem(key))
    pem = authority.issue_server(hosts, key.public_key(), seconds=days * DAY, now=now)
    files.write_durably(folder / "server.crt", pem)


def _request(path: Path) -> bytes:
    try:
        request = x509.load_pem_x509_csr(path.read_bytes())
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise InputError(f"{path}: a signing request in PEM form was expected: {error}") from None
    return request.public_bytes(serialization.Encoding.DER)


def _described(pem: bytes) -> dict[str, str]:
    signed = certificates.load(pem)
    return {
        "serial": f"{signed.serial_number:x}",
        "not_after": certificates.date(signed.not_valid_after_utc.timestamp()),
    }
