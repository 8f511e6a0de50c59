"""python -m tests.faults.simulator: runs schedules by seed, shows one, or writes down what a campaign showed."""

import json
from pathlib import Path

import click

from tests.faults.simulator import plan as plan_module
from tests.faults.simulator import run as run_module


@click.command()
@click.option("--seed", type=int, help="Run this one and say what it shows.")
@click.option("--trace", is_flag=True, help="With --seed: print everything that happens.")
@click.option("--seeds", default="0:1000", show_default=True, help="FIRST:END, run all of them.")
@click.option("--most-failures", default=1, show_default=True, help="Stop after so many failing seeds.")
@click.option("--explain/--no-explain", default=True, help="Find out what the first failing seed takes.")
@click.option("--output", type=click.Path(path_type=Path), help="Write the campaign's figures here, as JSON.")
def main(seed: int | None, trace: bool, seeds: str, most_failures: int, explain: bool, output: Path | None) -> None:
    """Deterministic schedules of the whole protocol."""
    if seed is not None:
        plan = plan_module.make(seed)
        result = run_module.run(plan, print if trace else None)
        print(
            f"seed {seed}: {result.failure or 'all promises kept'}; version {result.versions}, {result.seconds:.1f} s"
        )
        if result.failure and not trace and explain:
            _explain(seed)
        raise SystemExit(bool(result.failure))
    first, _, end = seeds.partition(":")
    found = run_module.campaign(range(int(first), int(end)), most_failures=most_failures)
    rate = 60 * found.schedules / found.cpu_seconds
    print(f"{found.schedules} schedules, {len(found.failures)} failed, {rate:.0f} a minute of processor time")
    for name, count in sorted(found.counts.items()):
        print(f"  {count:8d} in {found.schedules_with[name]:6d} schedules  {name}")
    for failure in found.failures:
        print(f"seed {failure.seed}: {failure.failure}")
    if output is not None:
        output.write_text(
            json.dumps(
                {
                    "first_seed": int(first),
                    "schedules": found.schedules,
                    "failures": [{"seed": one.seed, "failure": one.failure} for one in found.failures],
                    "schedules_a_minute": round(rate),
                    "cases": dict(sorted(found.counts.items())),
                },
                indent=1,
            )
            + "\n"
        )
    if found.failures and explain:
        _explain(found.failures[0].seed)
    raise SystemExit(bool(found.failures))


def _explain(seed: int) -> None:
    """Prints the few faults that a failing seed needs, the end of its trace, and how to run it again."""
    plan = run_module.shrink(plan_module.make(seed))
    lines: list[str] = []
    run_module.run(plan, lines.append)
    print(f"\nseed {seed} still fails with these faults of {len(plan_module.make(seed).faults)}:")
    for fault in plan.faults:
        print(f"  {fault}")
    print("the end of its trace:")
    for line in lines[-40:]:
        print(f"  {line}")
    print(f"run it again: python -m tests.faults.simulator --seed {seed} --trace")


main()
