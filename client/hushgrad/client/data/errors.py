"""The one error of this package."""

from hushgrad.client.errors import InputError


class DataError(InputError, ValueError):
    """The records cannot be used; the text says what was expected, what was found, where, and what to do."""
