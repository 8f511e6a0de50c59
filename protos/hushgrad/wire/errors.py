"""The one error of this package."""


class ContractError(ValueError):
    """Bytes or numbers that the contract does not allow; the text says what was expected, found, and what to do."""
