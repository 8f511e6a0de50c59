"""Who somebody is in a federation: one name in one role, written as the one URI in a certificate."""

from dataclasses import dataclass
from typing import Final, Literal, get_args

from hushgrad.wire import names
from hushgrad.wire.errors import ContractError

Role = Literal["participant", "watcher", "evaluator", "operator", "observer", "enrollment"]
"""What a certificate is for. `enrollment`: it lies in a bundle and is good for getting one of the others, once."""

ROLES: Final[tuple[Role, ...]] = get_args(Role)
SCHEME: Final = "hushgrad://"


@dataclass(frozen=True, slots=True)
class Identity:
    """One name in one federation.

    Attributes:
        federation: name of the federation, as in its terms.
        role: what it may do.
        name: the participant's name, or a watcher's, evaluator's, operator's or observer's.
    """

    federation: str
    role: Role
    name: str

    def __post_init__(self) -> None:
        names.check_name(self.federation, what="federation")
        names.check_name(self.name, what="name")
        if self.role not in ROLES:
            raise ContractError(f"role must be one of {', '.join(ROLES)}, found {self.role!r}")

    @property
    def uri(self) -> str:
        """The identity as it stands in a certificate.

        >>> Identity("demo", "participant", "client-1").uri
        'hushgrad://demo/participant/client-1'
        """
        return f"{SCHEME}{self.federation}/{self.role}/{self.name}"

    def __str__(self) -> str:
        """Returns the identity as people read it: "participant client-1 of demo"."""
        return f"{self.role} {self.name} of {self.federation}"


def from_uri(uri: str) -> Identity:
    """Returns the identity that a URI writes.

    Raises:
        ContractError: if it is not exactly of the form hushgrad://FEDERATION/ROLE/NAME.

    >>> from_uri("hushgrad://demo/watcher/board").role
    'watcher'
    """
    parts = uri.removeprefix(SCHEME).split("/")
    if not uri.startswith(SCHEME) or len(parts) != 3:
        raise ContractError(f"an identity must be written {SCHEME}FEDERATION/ROLE/NAME, found {uri!r}")
    federation, role, name = parts
    return Identity(federation, role, name)  # type: ignore[arg-type]  # checked in __post_init__
