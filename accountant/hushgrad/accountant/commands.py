"""The verbs of `hushgrad-accountant`: noise multipliers here are the plain mathematical ones, without a grid.

What a real client is charged (sensitivity on its grid, imperfect samplers) is a little more; `hushgrad-client run
--dry-run` tells.
"""

import json
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click
from hushgrad.accountant import calibration, claims, commands_plan, commands_procedure, commands_theory
from hushgrad.accountant.claims import Adjacency, RoundGroup, Sampling
from hushgrad.accountant.errors import AccountantError

_Command = TypeVar("_Command", bound=Callable[..., Any])


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def commands() -> None:
    """Compute what differentially private training costs."""


for _verb in (*commands_theory.VERBS, *commands_procedure.VERBS, *commands_plan.VERBS):
    commands.add_command(_verb)


def _common(command: _Command) -> _Command:
    for option in reversed(
        (
            click.option("--sampling", type=click.Choice(["poisson", "fixed"]), required=True),
            click.option("--adjacency", type=click.Choice(["add-remove", "replace-one"]), required=True),
            click.option("--records", type=int, required=True, help="N, the declared number of records."),
            click.option("--sample-size", type=int, help="Records per round: nominal (poisson) or exact (fixed)."),
            click.option("--rounds", type=int, help="How many rounds."),
            click.option("--delta", type=float, required=True, help="In (0, 1)."),
            click.option("--accept-large-delta", is_flag=True, help="Allow a delta above 1/N."),
            click.option("--json", "as_json", is_flag=True, help="Print one JSON object."),
        )
    ):
        command = option(command)
    return command


@commands.command()
@_common
@click.option("--noise-multiplier", type=float, help="Standard deviation of the noise divided by the clip norm.")
@click.option(
    "--schedule",
    metavar="S:T:X,...",
    help="Instead of the three: sample size, rounds and noise multiplier of each phase.",
)
def epsilon(
    sampling: Sampling,
    adjacency: Adjacency,
    records: int,
    sample_size: int | None,
    rounds: int | None,
    delta: float,
    accept_large_delta: bool,
    as_json: bool,
    noise_multiplier: float | None,
    schedule: str | None,
) -> None:
    """Compute the claim for a schedule of rounds."""
    single = (sample_size, rounds, noise_multiplier)
    if schedule is not None and any(value is not None for value in single):
        raise AccountantError("give either --schedule or --sample-size, --rounds and --noise-multiplier, found both")
    if schedule is not None:
        phases = _parse_schedule(schedule)
    elif sample_size is not None and rounds is not None and noise_multiplier is not None:
        phases = [(sample_size, rounds, noise_multiplier)]
    else:
        raise AccountantError("give --sample-size, --rounds and --noise-multiplier, or --schedule")
    _warn(claims.check_delta(delta, records, accept_large=accept_large_delta))
    claim = claims.from_schedule(_groups(phases, records), sampling=sampling, adjacency=adjacency, delta=delta)
    click.echo(json.dumps(claim.to_dict()) if as_json else claim.describe())


@commands.command()
@_common
@click.option("--epsilon", "target", type=float, required=True, help="The most that all rounds together may cost.")
def calibrate(
    sampling: Sampling,
    adjacency: Adjacency,
    records: int,
    sample_size: int | None,
    rounds: int | None,
    delta: float,
    accept_large_delta: bool,
    as_json: bool,
    target: float,
) -> None:
    """Find the smallest noise multiplier (four digits) that keeps a number of rounds within epsilon."""
    if sample_size is None or rounds is None:
        raise AccountantError("give --sample-size and --rounds")
    size, count = sample_size, rounds
    _warn(claims.check_delta(delta, records, accept_large=accept_large_delta))

    def groups(sigma: float) -> list[RoundGroup]:
        return _groups([(size, count, sigma)], records)

    sigma, claim = calibration.smallest_noise_multiplier(
        lambda sigma: claims.from_schedule(groups(sigma), sampling=sampling, adjacency=adjacency, delta=delta),
        epsilon=target,
        quick_epsilon_for=lambda sigma: claims.privacy_curve(
            groups(sigma), sampling=sampling, adjacency=adjacency, quick=True
        ).epsilon(delta),
    )
    if as_json:
        click.echo(json.dumps({"noise_multiplier": sigma, "claim": claim.to_dict()}))
    else:
        click.echo(f"noise multiplier {sigma:g}: {claim.describe()}")


def _groups(phases: Sequence[tuple[int, int, float]], records: int) -> list[RoundGroup]:
    groups = []
    for size, rounds, sigma in phases:
        if not 1 <= size <= records:
            raise AccountantError(f"a sample size must be 1 to {records}, the number of records, found {size}")
        groups.append(RoundGroup(size / records, sigma, rounds))
    return groups


def _parse_schedule(text: str) -> list[tuple[int, int, float]]:
    phases = []
    for phase in text.split(","):
        try:
            size, rounds, sigma = phase.split(":")
            phases.append((int(size), int(rounds), float(sigma)))
        except ValueError:
            raise AccountantError(
                f"a phase of --schedule is SAMPLE_SIZE:ROUNDS:NOISE_MULTIPLIER, found {phase!r}"
            ) from None
    return phases


def _warn(sentence: str | None) -> None:
    if sentence:
        click.echo(f"warning: {sentence}", err=True)
