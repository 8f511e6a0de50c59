"""Fuzzes the server with coverage: `python -m tests.fuzz [--minutes 10] [--targets service,admission,decoder]`.

Each target runs in processes of its own under atheris (libFuzzer), all at a time. Inputs that found new code stay in
the corpus folder and are the seeds of the next run. Prints executions, coverage and memory; ends with 1 when an input
made a target fail, hang for five seconds or grow, and leaves that input beside the corpus.
"""

import argparse
import asyncio
import os
import re
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from tests.fuzz import seeding

MOST_GROWTH_MIB = 100
"""Between a fifth of the time and the end: what the fuzzer itself keeps of its corpus, and no more."""

_HANG_SECONDS = 5
_MEMORY_LIMIT_MIB = 1500
_STATUS = re.compile(r"#(\d+)\s+\w+\s+cov: (\d+) ft: (\d+).*?exec/s: (\d+) rss: (\d+)Mb")


@dataclass(frozen=True, slots=True)
class Status:
    """One line of a fuzzer."""

    seconds: float
    executions: int
    coverage: int
    memory_mib: int


def main() -> None:
    """Runs all targets, or is one of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--targets", default="service,admission,decoder")
    parser.add_argument("--corpus", type=Path, default=Path("runs/fuzz"))
    parser.add_argument("--run", help=argparse.SUPPRESS)
    arguments, rest = parser.parse_known_args()
    if arguments.run:
        _fuzz(arguments.run, rest)
        return
    names = arguments.targets.split(",")
    for name in names:
        if name not in seeding.TARGETS:
            sys.exit(f"fuzz: targets must be from {', '.join(seeding.TARGETS)}, found {name!r}")
        seeding.write(arguments.corpus / name, name)
    results = asyncio.run(_run_all(names, arguments.corpus, 60 * arguments.minutes))
    if not all(results):
        sys.exit("fuzz: see the inputs named crash-*, timeout-* or oom-* above; each belongs into tests/fuzz/found/")


async def _run_all(names: list[str], corpus: Path, seconds: float) -> list[bool]:
    return list(await asyncio.gather(*(_run(name, corpus / name, seconds) for name in names)))


async def _run(name: str, folder: Path, seconds: float) -> bool:
    """Runs one target; says whether nothing was found."""
    command = [sys.executable, "-m", "tests.fuzz", "--run", name, str(folder)]
    options = [
        f"-max_total_time={round(seconds)}", f"-timeout={_HANG_SECONDS}", f"-rss_limit_mb={_MEMORY_LIMIT_MIB}",
        f"-artifact_prefix={folder.parent}/{name}-", "-max_len=4096", "-len_control=20", "-print_final_stats=0",
    ]  # fmt: skip
    process = await asyncio.create_subprocess_exec(
        *command,
        *options,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        limit=2**20,
    )
    assert process.stderr is not None
    begin, statuses, last = time.monotonic(), [], []
    async for raw in process.stderr:
        line = raw.decode("utf-8", "replace").rstrip()
        last = [*last[-40:], line]
        if found := _STATUS.search(line):
            executions, coverage, _, _, memory = map(int, found.groups())
            statuses.append(Status(time.monotonic() - begin, executions, coverage, memory))
    code = await process.wait()
    if code != 0 or not statuses:
        print(f"{name}: ended with {code}\n  " + "\n  ".join(last))
        return False
    return _report(name, statuses)


def _report(name: str, statuses: list[Status]) -> bool:
    first, end = statuses[0], statuses[-1]
    settled = next((one for one in statuses if one.seconds >= end.seconds / 5), first)
    growth = end.memory_mib - settled.memory_mib
    print(
        f"{name}: {end.executions} executions in {end.seconds:.0f} s ({end.executions / end.seconds:.0f}/s), coverage "
        f"{first.coverage} -> {settled.coverage} -> {end.coverage}, memory {settled.memory_mib} -> {end.memory_mib} MiB"
        + ("" if growth <= MOST_GROWTH_MIB else f": grew by more than {MOST_GROWTH_MIB} MiB")
    )
    return growth <= MOST_GROWTH_MIB


def _fuzz(name: str, arguments: list[str]) -> None:
    import atheris

    with atheris.instrument_imports(include=["hushgrad.server", "hushgrad.wire"], enable_loader_override=False):
        from tests.fuzz import targets

    async def inline(call, /, *args, **kwargs):  # type: ignore[no-untyped-def]
        return call(*args, **kwargs)

    # Threads would make coverage depend on their timing.
    asyncio.to_thread = inline
    atheris.Setup([sys.argv[0], *arguments], targets.TARGETS[name])
    atheris.Fuzz()


if __name__ == "__main__":
    main()
