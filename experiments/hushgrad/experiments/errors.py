"""What can go wrong here; each class knows the exit code of the command that meets it."""


class ExperimentError(Exception):
    """Root of what this package raises on purpose, and what a run raises that went wrong."""

    exit_code = 1


class InputError(ExperimentError):
    """Something that was given cannot be used; nothing was changed."""

    exit_code = 2


class BudgetRefusedError(ExperimentError):
    """No noise that the terms could ask for reaches the privacy that was asked for."""

    exit_code = 3
