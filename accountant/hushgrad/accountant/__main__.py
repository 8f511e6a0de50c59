"""Entry point of `hushgrad-accountant`: runs a verb and turns errors into one line and an exit code."""

import sys

import click
from hushgrad.accountant.commands import commands
from hushgrad.accountant.errors import AccountantError, BudgetError


def main() -> None:
    """Runs the command line.

    Exit codes: 0 done, 1 a ledger that disagrees or a missing package, 2 bad input or a claim that cannot be made, 3 a
    budget that does not suffice.
    """
    try:
        sys.exit(commands(prog_name="hushgrad-accountant", standalone_mode=False))
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        sys.exit(error.exit_code)
    except click.ClickException as error:
        click.echo(f"error: {' '.join(error.format_message().split())}", err=True)
        sys.exit(error.exit_code)
    except AccountantError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(3 if isinstance(error, BudgetError) else 2)
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing in ("", "hushgrad"):
            raise
        click.echo(f"error: this needs the package {missing}: pip install 'hushgrad[accountant]'", err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
