"""What can go wrong at a client, as a tree; each class knows the exit code of the command that meets it."""


class ClientError(Exception):
    """Root of everything that this package raises on purpose.

    ClientError (1)
    +-- InputError (2)              configuration, data, or state that cannot be used as it is
    |   +-- LedgerError             the ledger: missing, foreign, locked, damaged, or asked for something it refuses
    |       +-- PayloadUnreadableError  a sealed update whose bytes cannot be read any more
    +-- BudgetRefusedError (3)      the privacy budget does not allow it
    +-- UnreachableError (4)        no server answered
    +-- ConflictError (5)           the server and this client disagree; a person must look
    """

    exit_code = 1


class InputError(ClientError):
    """Something that was given cannot be used; the text says what was expected, what was found, and what to do."""

    exit_code = 2


class LedgerError(InputError):
    """The ledger refuses, and has changed nothing."""


class PayloadUnreadableError(LedgerError):
    """The sealed bytes of a round cannot be read, or are not the bytes that were sealed.

    Attributes:
        round: the round that was sealed.
    """

    def __init__(self, message: str, *, round_: int) -> None:
        super().__init__(message)
        self.round = round_


class BudgetRefusedError(ClientError):
    """The privacy budget does not allow what was asked."""

    exit_code = 3


class UnreachableError(ClientError):
    """No server answered in the time that was given."""

    exit_code = 4


class ConflictError(ClientError):
    """Server and client disagree in a way that only a person can settle. Nothing more is drawn."""

    exit_code = 5
