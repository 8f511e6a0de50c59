"""What the theory verbs have in common on the way in: options, and texts that become schedules."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click
from hushgrad.accountant import claims, sizes
from hushgrad.accountant.claims import RoundGroup, Sampling
from hushgrad.accountant.errors import AccountantError
from hushgrad.accountant.sizes import SampleSizes

_Command = TypeVar("_Command", bound=Callable[..., Any])


def _together(*options: Callable[..., Any]) -> Callable[[_Command], _Command]:
    def decorate(command: _Command) -> _Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


COMMON = _together(
    click.option("--records", type=int, required=True, help="N, the declared number of records."),
    click.option("--delta", type=float, required=True, help="In (0, 1)."),
    click.option("--sampling", type=click.Choice(["poisson", "fixed"]), default="poisson", show_default=True),
    click.option(
        "--adjacency", type=click.Choice(["add-remove", "replace-one"]), default="add-remove", show_default=True
    ),
    click.option("--accept-large-delta", is_flag=True, help="Allow a delta above 1/N."),
    click.option("--json", "as_json", is_flag=True, help="Print one JSON object."),
)
SIZES = _together(
    click.option("--grad-computations", type=int, help="K, the sum of all sample sizes."),
    click.option("--sample-size", type=int, help="A constant sample size, for K/s rounds."),
    click.option("--sizes", "listed", metavar="SxT,...", help="Instead: T rounds of s records, and so on."),
    click.option("--polynomial", metavar="Q,P,T", help="Instead: sample sizes max(1, ceil(q * i^p)), i < T."),
)
ROUNDS = _together(
    click.option("--sample-size", type=int, help="Records per round."),
    click.option("--rounds", type=int, help="How many rounds."),
    click.option("--noise-multiplier", type=float, help="Standard deviation of the noise divided by the clip norm."),
)


def sample_sizes(
    grad_computations: int | None, sample_size: int | None, listed: str | None, polynomial: str | None
) -> SampleSizes:
    """Returns the sequence that the options of SIZES describe.

    Raises:
        AccountantError: unless exactly one of the three ways is used, and K is the sum of the sizes.
    """
    given = [value for value in (sample_size, listed, polynomial) if value is not None]
    if len(given) != 1 or (sample_size is not None and grad_computations is None):
        raise AccountantError("give --grad-computations and --sample-size, or --sizes, or --polynomial, and only one")
    if sample_size is not None and grad_computations is not None:
        return sizes.constant(sample_size, grad_computations)
    if listed is not None:
        found = SampleSizes(tuple(_fields("--sizes", "SxT", part, "x", int, int) for part in listed.split(",")))
    else:
        found = sizes.polynomial(*_fields("--polynomial", "Q,P,T", str(polynomial), ",", float, float, int))
    if grad_computations is not None and grad_computations != found.grad_computations:
        raise AccountantError(
            f"--grad-computations must be the sum of the sample sizes, {found.grad_computations:.0f}, found "
            f"{grad_computations}"
        )
    return found


def phases(
    sample_size: int | None, rounds: int | None, noise_multiplier: float | None, schedule: str | None
) -> list[tuple[int, int, float]]:
    """Returns (s, T, sigma) from the options of ROUNDS or from a schedule, of which exactly one must be given."""
    if schedule is not None and (sample_size, rounds, noise_multiplier) == (None, None, None):
        return parse_schedule(schedule)
    if schedule is None and sample_size is not None and rounds is not None and noise_multiplier is not None:
        return [(sample_size, rounds, noise_multiplier)]
    raise AccountantError("give --sample-size, --rounds and --noise-multiplier, or (where there is one) --schedule")


def parse_schedule(text: str | None) -> list[tuple[int, int, float]]:
    """Returns (s, T, sigma) for each S:T:X; none for None."""
    return [_fields("a phase", "S:T:X", part, ":", int, int, float) for part in (text.split(",") if text else ())]


def parse_further(text: str | None) -> list[tuple[int, float, float]]:
    """Returns (K, sigma, epsilon allowed) for each K:X:E; none for None."""
    return [
        _fields("a further phase", "K:X:E", part, ":", int, float, float) for part in (text.split(",") if text else ())
    ]


def _fields(what: str, form: str, text: str, separator: str, *types: Callable[[str], Any]) -> Any:
    try:
        return tuple(kind(part) for kind, part in zip(types, text.split(separator), strict=True))
    except ValueError:
        raise AccountantError(f"{what} is written {form}, found {text!r}") from None


def check_sampling(found: SampleSizes, sampling: Sampling, records: int) -> None:
    """Refuses a sample as large as the data set where its size is fixed: a neighbour with a record less has no such."""
    found.check_fits(records)
    if sampling == "fixed" and found.largest == records:
        raise AccountantError(
            f"fixed sampling needs sample sizes of at most {records - 1}, below the number of records, found {records}"
        )


def round_groups(schedule: Sequence[tuple[int, int]], sigma: float, records: int) -> list[RoundGroup]:
    """Returns (s, T) as groups of rounds with one noise multiplier; sizes above N are errors."""
    groups = []
    for size, rounds in schedule:
        if not 1 <= size <= records:
            raise AccountantError(f"a sample size must be 1 to {records}, the number of records, found {size}")
        groups.append(RoundGroup(size / records, sigma, rounds))
    return groups


def warn_of_large_delta(delta: float, records: int, accept_large: bool) -> None:
    """Prints the sentence of `claims.check_delta`, if there is one; errors as there."""
    sentence = claims.check_delta(delta, records, accept_large=accept_large)
    if sentence:
        click.echo(f"warning: {sentence}", err=True)
