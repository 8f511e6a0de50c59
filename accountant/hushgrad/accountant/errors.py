"""What can go wrong here, as a tree of classes that callers tell apart."""


class AccountantError(ValueError):
    """Numbers that make no sense together; the text says what was expected, what was found, and what to do."""


class RefusedError(AccountantError):
    """Sensible numbers for which no guarantee can be given: nothing is ever claimed instead."""


class BudgetError(AccountantError):
    """A run that does not fit into what is left of a lifetime budget.

    Attributes:
        requested: (epsilon, delta) of the run that was refused.
        left: (epsilon, delta) that was left, and still is.
    """

    def __init__(self, message: str, *, requested: tuple[float, float], left: tuple[float, float]) -> None:
        super().__init__(message)
        self.requested = requested
        self.left = left
