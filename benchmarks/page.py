"""Draws docs/performance.md's picture and writes its tables from what `make bench` and `make bench-peers` measured.

Usage: python -m benchmarks.page [BENCH_JSON PEERS_JSON]

The two files are copied to docs/figures, so that the page and what it is drawn from stay together; without any, the
page is drawn anew from the copies. Text outside the marked tables is left as it is.
"""

import json
import re
import shutil
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
from matplotlib import pyplot as plt

DOCS = Path(__file__).parent.parent / "docs"
PAGE = DOCS / "performance.md"
BENCH, PEERS = DOCS / "figures" / "bench.json", DOCS / "figures" / "bench-peers.json"
PICTURE = DOCS / "figures" / "performance.png"

_STYLES = {
    "hushgrad, wire": ("#00695c", "o-"),
    "hushgrad, durable": ("#26a69a", "o--"),
    "Flower 1.17 (gRPC-bidi)": ("#ef6c00", "s-"),
    "Flower (SuperLink)": ("#fb8c00", "s:"),
    "NVIDIA FLARE (POC)": ("#558b2f", "^-"),
}


def main() -> int:
    if len(sys.argv) == 3:
        for source, target in zip(sys.argv[1:], (BENCH, PEERS), strict=True):
            if Path(source).resolve() != target.resolve():
                shutil.copyfile(source, target)
    elif len(sys.argv) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    bench, peers = json.loads(BENCH.read_text()), json.loads(PEERS.read_text())
    draw(bench, peers)
    PAGE.write_text(with_tables(PAGE.read_text(), bench, peers))
    print(f"wrote {PICTURE.relative_to(DOCS.parent)} and the tables of {PAGE.relative_to(DOCS.parent)}")
    return 0


def draw(bench: dict[str, Any], peers: dict[str, Any]) -> None:
    """Draws rounds per second of all systems, and a round of ours beside its yardsticks."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.6), layout="constrained")
    for system, (colour, style) in _STYLES.items():
        found = [
            (size["parameters"], row["rounds_per_second"])
            for size in peers["sizes"]
            for row in size["rows"]
            if row["system"] == system and "rounds_per_second" in row
        ]
        if found:
            plain = system.split(" (")[0].removesuffix(" 1.17")
            name = system if system.startswith("hushgrad") else f"{plain} {peers['versions'].get(system, '')}"
            left.plot(*zip(*sorted(found), strict=True), style, color=colour, label=name, markersize=5)
    left.set(title="Five clients, every version to everybody", xlabel="parameters", ylabel="rounds per second")
    lockstep = {int(record["parameters"]): record for record in _rounds(bench) if record["row"] == "wire"}
    durable = {int(record["parameters"]): record for record in _rounds(bench) if record["row"] == "durable"}
    yardsticks = (
        ("a round, wire", lockstep, "round_ms", "#00695c", "o-"),
        ("a round, durable", durable, "round_ms", "#26a69a", "o--"),
        ("5 gRPC echoes at once", lockstep, "grpc_echoes_ms", "#616161", "v-"),
        ("5 socket echoes in turn", lockstep, "raw_echoes_ms", "#9e9e9e", "x-"),
        ("one memcpy", lockstep, "memcpy_ms", "#bdbdbd", "+:"),
    )
    for name, records, key, colour, style in yardsticks:
        if records:
            values = [records[size][key] for size in sorted(records)]
            right.plot(sorted(records), values, style, color=colour, label=name, markersize=5)
    right.set(title="The same bytes without a server of ours", xlabel="parameters", ylabel="milliseconds")
    for axes in (left, right):
        axes.set(xscale="log", yscale="log")
        axes.grid(visible=True, which="major", alpha=0.3)
        axes.legend(fontsize=8)
    figure.savefig(PICTURE, dpi=110)


def machine_line(bench: dict[str, Any], peers: dict[str, Any]) -> Iterable[str]:
    """Says where it was measured."""
    for name, found in (("make bench", bench["machine"]), ("make bench-peers", peers["machine"])):
        yield (
            f"- `{name}`: {found['processor']}, {found['cores']} cores, {found['memory_gib']} GiB, {found['system']}, "
            f"Python {found['python']}, grpcio {found['grpcio']}, numpy {found['numpy']}; load before it "
            f"{found['load_before']}."
        )
    for found in (bench, peers):
        if "note" in found:
            yield f"- {found['note']}"


def rounds_table(bench: dict[str, Any], _peers: dict[str, Any]) -> Iterable[str]:
    """Lists our rows."""
    yield (
        "| parameters | row | rounds/s | round, ms | server CPU, ms | in, MB/s | peak, MiB | in 5 socket echoes | "
        "in 5 gRPC echoes |"
    )
    yield "| --: | :-- | --: | --: | --: | --: | --: | --: | --: |"
    for record in _rounds(bench):
        names = ("rounds_per_second", "round_ms", "server_cpu_ms", "ingest_mb_per_second", "peak_mib")
        cells = [_short(record[name]) for name in (*names, "x_raw_echoes", "x_grpc_echoes")]
        yield f"| {int(record['parameters']):,} | {record['row']} | {' | '.join(cells)} |"


def yardsticks_table(bench: dict[str, Any], _peers: dict[str, Any]) -> Iterable[str]:
    """Lists what was measured beside our rows."""
    yield (
        "| parameters | 5 socket echoes, ms | in a row, ms | 5 gRPC echoes, ms | their server's CPU, ms | "
        "one memcpy, ms |"
    )
    yield "| --: | --: | --: | --: | --: | --: |"
    for record in _rounds(bench):
        if record["row"] == "wire":
            names = ("raw_echoes_ms", "raw_echoes_in_a_row_ms", "grpc_echoes_ms", "grpc_echoes_cpu_ms", "memcpy_ms")
            cells = [_short(record[name]) if name in record else "" for name in names]
            yield f"| {int(record['parameters']):,} | {' | '.join(cells)} |"


def others_table(bench: dict[str, Any], _peers: dict[str, Any]) -> Iterable[str]:
    """Lists the records that are no rounds."""
    yield "| measured | values |"
    yield "| :-- | :-- |"
    for record in bench["records"]:
        if record["kind"] != "rounds":
            values = [f"{key.replace('_', ' ')} {_short(value)}" for key, value in record.items() if _is_number(value)]
            yield f"| {record['name']} | {'; '.join(values)} |"


def bounds_table(bench: dict[str, Any], peers: dict[str, Any]) -> Iterable[str]:
    """Lists what there is a bar for."""
    yield "| figure | measured | bar | |"
    yield "| :-- | --: | --: | :-- |"
    for one in (*bench["bounds"], *peers["bounds"]):
        sign = "<=" if one["sense"] == "at most" else ">="
        verdict = "holds" if one["holds"] else "**missed**"
        yield f"| {one['name']} | {_short(one['value'])} {one['unit']} | {sign} {_short(one['bar'])} | {verdict} |"


def peers_table(_bench: dict[str, Any], peers: dict[str, Any]) -> Iterable[str]:
    """Lists all systems."""
    yield (
        "| parameters | system | rounds/s | server CPU, ms a round | server, MiB | first round after, s | "
        "its round, in ours (wire) |"
    )
    yield "| --: | :-- | --: | --: | --: | --: | --: |"
    for size in peers["sizes"]:
        for row in size["rows"]:
            names = ("rounds_per_second", "server_cpu_ms", "server_peak_mib", "first_round_seconds", "x_wire")
            cells = [_short(row[name]) if name in row else "" for name in names]
            system = f"{row['system']} {row.get('version', '')}".strip()
            yield f"| {size['parameters']:,} | {system} | {' | '.join(cells)} |"
    yield ""
    for size in peers["sizes"]:
        for row in size["rows"]:
            if "not_finished" in row:
                reason = row["not_finished"].replace("|", "/").replace("<", "(").replace(">", ")")
                yield f"- {row['system']} at {size['parameters']:,} parameters did not finish: {reason}."


def client_table(bench: dict[str, Any], _peers: dict[str, Any]) -> Iterable[str]:
    """Lists the figures that are judged by a ratio."""
    yield "| figure | measured | yardstick | ratio | bar | |"
    yield "| :-- | --: | :-- | --: | --: | :-- |"
    for row in bench["ratios"]:
        verdict = "holds" if row["holds"] else "**missed**"
        yield (
            f"| {row['name']} | {_short(row['value'])} {row['unit']} | {row['against']} | {_short(row['ratio'])} | "
            f"{_short(row['bar'])} | {verdict} |"
        )


TABLES: dict[str, Callable[[dict[str, Any], dict[str, Any]], Iterable[str]]] = {
    "machine": machine_line,
    "rounds": rounds_table,
    "yardsticks": yardsticks_table,
    "others": others_table,
    "bounds": bounds_table,
    "peers": peers_table,
    "client": client_table,
}


def with_tables(text: str, bench: dict[str, Any], peers: dict[str, Any]) -> str:
    """Returns a page with all tables written anew.

    Raises:
        ValueError: if the page has no place for one of them.
    """
    for name, table in TABLES.items():
        text = _replaced(text, name, "\n".join(table(bench, peers)).strip())
    return text


def _rounds(bench: dict[str, Any]) -> list[dict[str, Any]]:
    return [record for record in bench["records"] if record["kind"] == "rounds"]


def _is_number(value: object) -> bool:
    return isinstance(value, int | float)


def _short(value: float) -> str:
    """Returns three digits that matter, without an exponent.

    >>> _short(1234.5), _short(0.01234), _short(3.0)
    ('1,230', '0.0123', '3')
    """
    rounded = float(f"{value:.3g}")
    return f"{rounded:,.0f}" if abs(rounded) >= 100 else f"{rounded:.10f}".rstrip("0").rstrip(".")


def _replaced(text: str, name: str, table: str) -> str:
    pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end of {name} -->)", re.DOTALL)
    if not pattern.search(text):
        raise ValueError(f"{PAGE} has no place for the table {name!r}")
    return pattern.sub(lambda match: f"{match[1]}\n{table}\n\n{match[2]}", text)


if __name__ == "__main__":
    sys.exit(main())
