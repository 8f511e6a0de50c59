"""`hushgrad report`: tables and figures of a folder of results, made from the folder alone."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hushgrad.experiments.study import figures, store, tables, tally
from hushgrad.experiments.study.figures import Line, Series
from hushgrad.experiments.study.store import Rows
from hushgrad.experiments.study.tally import Row

MOST_LINES = 12


def write(folder: Path, out: Path, form: Rows = "csv") -> list[Path]:
    """Writes report.md, report.tex, report.json, rows.csv or rows.parquet, and figures.

    Args:
        folder: of the results.
        out: where the report goes; may exist.
        form: of the rows; .csv is the table as it is shown, .parquet has numbers in full.

    Returns:
        What was written.

    Raises:
        InputError: if there are no results.
    """
    runs = store.read(folder)
    rows = tally.rows(runs)
    name = str(runs[0]["name"])
    out.mkdir(parents=True, exist_ok=True)
    header, body = tables.cells(rows)
    note = tally.caution(len(runs), [row.backend for row in rows])
    written = [out / "report.md", out / "report.tex", out / "report.json", out / f"rows.{form}"]
    pictures = _pictures(rows, out, name)
    links = "".join(f"\n![{path.stem}]({path.name})\n" for path in pictures)
    description = str(runs[0]["configuration"].get("description", ""))
    written[0].write_text(
        f"# {name}\n\n{description + chr(10) * 2 if description else ''}{tables.markdown(header, body)}\n\n"
        f"epsilon is each client's, for its whole run, at the delta beside it. Accuracy: mean and standard deviation "
        f"over the runs of a row. {note}\n{''.join(f'{chr(10)}- {line}{chr(10)}' for line in happened(runs))}{links}"
    )
    written[1].write_text(tables.latex(header, body, f"{name}. {note}") + "\n")
    written[2].write_text(json.dumps(contents(folder), indent=1) + "\n")
    written[3].write_bytes(store.encoded(body, header, "csv") if form == "csv" else _numbers(rows))
    return [*written, *pictures]


def contents(folder: Path) -> dict[str, Any]:
    """Returns what a report says, as plain values.

    Raises:
        InputError: if there are no results.
    """
    runs = store.read(folder)
    rows = tally.rows(runs)
    return {
        "name": runs[0]["name"],
        "runs": len(runs),
        "note": tally.caution(len(runs), [row.backend for row in rows]),
        "happened": happened(runs),
        "rows": [tally.summary(row) for row in rows],
    }


def happened(runs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Returns a sentence for each machine that was lost on the way, and for each claim that was not collected."""
    found = []
    for run in runs:
        for lost in run.get("lost", []):
            back = f"back at version {lost['returned_at_version']}" if lost["returned"] else "not back before the end"
            found.append(
                f"run {run['number']}: {lost['member']} on {lost['host']} was lost at version {lost['at_version']} of "
                f"{run['rounds']}; {back}"
            )
        for name in run.get("claims_not_collected", []):
            found.append(
                f"run {run['number']}: the ledger of {name} was not asked; its claim here is the one that it committed "
                "before its first round"
            )
    return found


def compare(path: Path, places: Sequence[Path]) -> list[str]:
    """Draws runs beside each other, those that differ in their seed alone as one line; returns the labels.

    Args:
        path: of the .png file.
        places: files of runs, or folders of results.

    Raises:
        InputError: if one of them holds no run.
    """
    found = [run for place in places for run in (store.read(place) if place.is_dir() else [store.read_run(place)])]
    rows = tally.rows(found)
    several = len({row.first["name"] for row in rows}) > 1
    labels = [
        f"{row.first['name']}: {text}" if several else text for row, text in zip(rows, _labels(rows), strict=True)
    ]
    lines = [
        Line(text, tuple(tuple(run["points"]) for run in row.runs)) for text, row in zip(labels, rows, strict=True)
    ]
    figures.curves(path, lines, title="runs beside each other", subtitle="mean and standard deviation over seeds")
    return labels


def label(row: Row, only: Sequence[str] = ()) -> str:
    """Returns what tells a row from the others, for a legend; of the varied keys those in `only`, if there are any."""
    parts = [
        f"{tables.shown_key(key)} {tables.value(found)}" if not isinstance(found, str) else found
        for key, found in row.axes.items()
        if found != "unset" and (not only or key in only)
    ]
    return ", ".join(parts) or str(row.first["name"])


def _labels(rows: Sequence[Row]) -> list[str]:
    """Returns a label for each row, with its backend where there are several."""
    backends = len({row.backend for row in rows}) > 1
    return [f"{label(row)}, {row.backend}" if backends else label(row) for row in rows]


def _pictures(rows: list[Row], out: Path, name: str) -> list[Path]:
    pictures = []
    if any(run["points"] for row in rows for run in row.runs):
        lines = [
            Line(text, tuple(tuple(run["points"]) for run in row.runs))
            for row, text in zip(rows[:MOST_LINES], _labels(rows), strict=False)
        ]
        left_out = f"; {len(rows) - MOST_LINES} more settings are in the table" if len(rows) > MOST_LINES else ""
        for across in ("version", "seconds"):
            path = out / f"accuracy-by-{'rounds' if across == 'version' else 'time'}.png"
            subtitle = f"mean and standard deviation over seeds{left_out}"
            figures.curves(path, lines, title=name, subtitle=subtitle, across=across)
            pictures.append(path)
    for key in _numeric_axes(rows):
        path = out / f"accuracy-by-{tables.shown_key(key).replace(' ', '-')}.png"
        figures.against(path, _series(rows, key), title=name, xlabel=tables.shown_key(key), log=_is_wide(rows, key))
        pictures.append(path)
    return pictures


def _numeric_axes(rows: list[Row]) -> list[str]:
    """Returns the axes whose values are all different numbers, at least two."""
    keys = dict.fromkeys(key for row in rows for key in row.axes)
    return [
        key
        for key in keys
        if len({row.axes.get(key) for row in rows if _is_number(row.axes.get(key))}) > 1
        and all(_is_number(row.axes.get(key)) for row in rows)
    ]


def _is_wide(rows: list[Row], key: str) -> bool:
    values = [float(row.axes[key]) for row in rows]
    return min(values) > 0 and max(values) / min(values) > 20


def _series(rows: list[Row], key: str) -> list[Series]:
    groups: dict[str, list[Row]] = {}
    several = len({row.backend for row in rows}) > 1
    for row in rows:
        others = {other: found for other, found in row.axes.items() if other != key}
        words = [f"{tables.shown_key(other)} {tables.value(found)}" for other, found in others.items()]
        groups.setdefault(", ".join([*words, row.backend] if several else words), []).append(row)
    if len(groups) > MOST_LINES or (not several and all(len(group) == 1 for group in groups.values())):
        groups = {"": rows}
    found = []
    for text, group in groups.items():
        ordered = sorted(group, key=lambda row: float(row.axes[key]))
        found.append(
            Series(
                text or "all runs",
                tuple(float(row.axes[key]) for row in ordered),
                tuple(row.mean("accuracy") for row in ordered),
                tuple(row.std("accuracy") for row in ordered),
            )
        )
    return found


def _is_number(found: Any) -> bool:
    return isinstance(found, int | float) and not isinstance(found, bool)


def _numbers(rows: list[Row]) -> bytes:
    """Returns what the table is made of as .parquet: claims by their parts, lists as text."""
    flat: list[dict[str, Any]] = []
    for row in rows:
        line: dict[str, Any] = {}
        for key, found in tally.summary(row).items():
            if isinstance(found, Mapping):
                line |= {f"{key}_{inner}": value for inner, value in found.items()}
            else:
                line[key] = tables.value(found) if isinstance(found, list) else found
        flat.append(line)
    columns = list(dict.fromkeys(key for line in flat for key in line))
    mixed = {key for key in columns if len({type(line[key]) for line in flat if line.get(key) is not None}) > 1}
    body = [
        [tables.value(line.get(key)) if key in mixed else line.get(key) for key in columns] for line in flat
    ]  # a column has one type: numbers beside words become words
    return store.encoded(body, columns, "parquet")
