"""The one file that an operator hands to a new member: everything that `hushgrad-client enroll` needs.

It holds a secret, good once and for a short time; whoever has it may become that member. The checksum finds damage on
the way, nothing else: hand the file over in a way that you trust.
"""

import hashlib
import hmac
import json

import msgspec
from hushgrad.wire import names
from hushgrad.wire.errors import ContractError
from hushgrad.wire.identity import Identity, Role

FORMAT = "hushgrad bundle 1"


class Bundle(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A whole bundle.

    Attributes:
        federation, role, name: whom it makes.
        address: host:port of the server.
        ca: certificate of the authority, PEM.
        certificate, key: the way in until there is a certificate of one's own, PEM; good for enrolling only.
        token: 64 hexadecimal digits, good once.
        expires: seconds since 1970; then token and certificate are good for nothing.
        terms_digest: of the federation, 64 hexadecimal digits; the server must have these terms.
        configuration: the member's configuration file, ready but for the data.
    """

    federation: str
    role: Role
    name: str
    address: str
    ca: str
    certificate: str
    key: str
    token: str
    expires: float
    terms_digest: str
    configuration: str

    def __repr__(self) -> str:
        """Returns whose it is, without its secrets."""
        return f"Bundle({self.identity.uri})"

    @property
    def identity(self) -> Identity:
        """Whom it makes."""
        return Identity(self.federation, self.role, self.name)


def dumps(bundle: Bundle) -> str:
    """Returns the text of the file."""
    content = msgspec.structs.asdict(bundle)
    return json.dumps({"format": FORMAT, **content, "checksum": _checksum(content)}, indent=1) + "\n"


def loads(text: str) -> Bundle:
    """Returns the bundle in a file's text.

    Raises:
        ContractError: if it is no bundle, or damaged.
    """
    try:
        content = json.loads(text)
    except ValueError:
        content = None
    if not isinstance(content, dict) or content.pop("format", None) != FORMAT:
        raise ContractError(f"a file of `hushgrad enroll new` was expected ({FORMAT!r}), found something else")
    checksum = content.pop("checksum", "")
    if not isinstance(checksum, str) or not hmac.compare_digest(checksum.encode(), _checksum(content).encode()):
        raise ContractError("the bundle was damaged on the way: its checksum differs; ask for it again")
    try:
        bundle = msgspec.convert(content, Bundle)
    except msgspec.ValidationError as error:
        raise ContractError(f"the bundle cannot be used: {error}; update hushgrad, or ask for another") from None
    names.check_name(bundle.name)
    for key in ("token", "terms_digest"):
        if not _is_hexadecimal(getattr(bundle, key)):
            raise ContractError(f"{key} in the bundle must be 64 hexadecimal digits")
    return bundle


def hashed(token: str) -> str:
    """Returns what a server keeps of a token."""
    return hashlib.sha256(token.encode()).hexdigest()


def _checksum(content: dict[str, object]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True, ensure_ascii=True).encode()).hexdigest()


def _is_hexadecimal(text: str) -> bool:
    return len(text) == 64 and all(character in "0123456789abcdef" for character in text)
