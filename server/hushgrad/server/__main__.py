"""The command hushgrad-server: parses, runs, and turns errors into one line and an exit code."""

import os
import sys

import click
from hushgrad.server import commands
from hushgrad.server.errors import ServerError
from hushgrad.wire.errors import ContractError


def main() -> None:
    """Runs the command line and exits: 0 done, 2 bad input, 4 unreachable, 1 anything else."""
    # gRPC's own log lines would stand beside our one line; it reads this when it is first imported.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    try:
        commands.group.main(prog_name="hushgrad-server", standalone_mode=False)
    except click.exceptions.Exit as error:
        sys.exit(error.exit_code)
    except click.ClickException as error:
        click.echo(f"hushgrad-server: {error.format_message()}", err=True)
        sys.exit(2)
    except click.Abort:
        sys.exit(1)
    except ServerError as error:
        click.echo(f"hushgrad-server: {error}", err=True)
        sys.exit(error.exit_code)
    except ContractError as error:
        click.echo(f"hushgrad-server: {error}", err=True)
        sys.exit(2)


if __name__ == "__main__":
    main()
