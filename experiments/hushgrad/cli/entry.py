"""The command group of `hushgrad`, and what every error is to the shell."""

import importlib
from collections.abc import Sequence

import click
from hushgrad.wire.errors import ContractError

VERBS = {
    "admin": "See how a running federation is administered, and pause, resume, evict, drain or end.",
    "certs": "Make, list, renew and revoke the certificates of a federation.",
    "conformance": "Judge a client or a server that somebody wrote from the contract.",
    "decode": "Print what a stored or captured message says.",
    "demo": "One server, five clients, one private model, on this machine.",
    "enroll": "Let somebody become a member of a federation with one file.",
    "mnist": "The paper's setting over gRPC: five clients with all 60,000 digits each.",
    "models": "List and fetch the models that a running server keeps.",
    "new": "Write the files that a federation on your own data starts from.",
    "plot": "Draw runs beside each other, or what a plan of the accountant asks for.",
    "report": "Make tables and figures of an experiment's results.",
    "reproduce": "Repeat the paper's experiments, and print our figures beside its own.",
    "run": "Make all runs of an experiment file that are not done yet.",
    "split": "Cut one table into a test set and disjoint parts for clients.",
    "watch": "Draw a running federation in the terminal.",
}
"""Verb and one line of help, so that --help imports nothing."""

INTERRUPTED = 1

_OUR_PACKAGES = ("hushgrad",)


class _Verbs(click.Group):
    """Imports `hushgrad.cli.VERB` when the verb is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        command: click.Command = importlib.import_module(f"hushgrad.cli.{cmd_name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(sorted(VERBS.items()))


@click.command(cls=_Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="hushgrad", prog_name="hushgrad")
def group() -> None:
    """Asynchronous federated learning with local differential privacy.

    The parts of a running federation have commands of their own: hushgrad-server, hushgrad-client and
    hushgrad-accountant.
    """


def run(arguments: Sequence[str]) -> int:
    """Runs the command line and returns its exit code.

    0: done. 1: failed. 2: bad input, nothing changed. 3: refused budget. 4: server out of reach. 5: a conflict that
    needs a person.
    """
    try:
        result = group.main(args=list(arguments), prog_name="hushgrad", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("hushgrad: interrupted; all processes have ended", err=True)
        return INTERRUPTED
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if not missing or missing in _OUR_PACKAGES:
            raise
        click.echo(f"hushgrad: this needs the package {missing}: pip install 'hushgrad[experiments]'", err=True)
        return 1
    except Exception as error:
        code = getattr(error, "exit_code", None)  # of the error trees of experiments, client and server
        if isinstance(error, ContractError):
            code = 2
        if not isinstance(code, int):
            raise
        click.echo(f"hushgrad: {error}", err=True)
        return code
    return result if isinstance(result, int) else 0
