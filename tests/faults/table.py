"""Writes the tables of docs/reliability.md from what was measured: python -m tests.faults.table FILE...

Each FILE is JSON. A campaign of the simulator has "cases"; a list has one planted bug per entry; other harnesses may
add lists of the same shape with a "harness" of their own. The text around the tables is kept.
"""

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import click

from tests.faults.planted.bugs import BUGS
from tests.faults.simulator import counts

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reliability.md"


def cases(campaigns: list[dict[str, Any]]) -> str:
    """Returns the table of hard cases, summed over campaigns."""
    schedules = sum(one["schedules"] for one in campaigns)
    failed = sum(len(one["failures"]) for one in campaigns)
    found: Counter[str] = Counter()
    for one in campaigns:
        found.update(one["cases"])
    rows = [f"| {case} | {found[case]:,} |" for case in counts.HARD_CASES]
    excused = [f"| {case} | {count:,} |" for case, count in sorted(found.items()) if case.startswith("excused")]
    head = f"{schedules:,} schedules, {failed} broke a promise.\n\n| case | how often |\n| --- | ---: |"
    return "\n".join((head, *rows, *excused))


def bugs(found: list[dict[str, Any]]) -> str:
    """Returns the table of planted bugs: one row each, one column per harness."""
    harnesses = sorted({one.get("harness", "simulator") for one in found} | {"simulator"})
    by_key = {(one["bug"], one.get("harness", "simulator")): one for one in found}
    names = [bug.name for bug in BUGS]
    names += [one["bug"] for one in found if one["bug"] not in names]
    where = {bug.name: bug.where for bug in BUGS}
    rows = []
    for name in dict.fromkeys(names):
        cells = [_cell(by_key.get((name, harness))) for harness in harnesses]
        rows.append(f"| {name} | {where.get(name, 'product')} | {' | '.join(cells)} |")
    head = f"| planted bug | planted in | {' | '.join(harnesses)} |\n| --- | --- |{' --- |' * len(harnesses)}"
    return "\n".join((head, *rows))


def _cell(one: dict[str, Any] | None) -> str:
    if one is None:
        return ""
    if one.get("by", one.get("seeds")) is None:
        return "missed"
    if "by" in one:
        return f"caught by {one['by']}"
    return f"caught, {one['seeds']} seed{'s' if one['seeds'] != 1 else ''}"


def put(page: str, name: str, table: str) -> str:
    """Returns the page with a table between its two markers."""
    pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end of {name} -->)", re.DOTALL)
    if not pattern.search(page):
        raise click.ClickException(f"{PAGE} lacks the markers of the table {name!r}")
    return pattern.sub(lambda found: f"{found[1]}\n{table}\n\n{found[2]}", page)


@click.command()
@click.argument("files", nargs=-1, type=click.Path(path_type=Path, exists=True))
def main(files: tuple[Path, ...]) -> None:
    """Writes the tables."""
    read = [json.loads(path.read_text()) for path in files]
    campaigns = [one for one in read if isinstance(one, dict) and "cases" in one]
    found = [entry for one in read if isinstance(one, list) for entry in one]
    page = PAGE.read_text()
    if campaigns:
        page = put(page, "hard cases", cases(campaigns))
    if found:
        page = put(page, "planted bugs", bugs(found))
    PAGE.write_text(page)


if __name__ == "__main__":
    main()
