"""What can go wrong at the server, as one tree; each error knows the exit code of a command that ends with it."""

from typing import ClassVar


class ServerError(Exception):
    """Root of the server's errors."""

    exit_code: ClassVar[int] = 1


class InputError(ServerError):
    """What a person gave (configuration, terms, state folder, address) cannot be used; nothing was changed."""

    exit_code = 2


class UnreachableError(ServerError):
    """No server answers at the address."""

    exit_code = 4


class StoreError(ServerError):
    """The store failed. Nothing may be answered any more: the process has to end and recover by a restart."""
