"""`hushgrad reproduce`: repeats a table or figure of the paper and puts our numbers beside its own."""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec
from hushgrad.accountant import paper_tables
from hushgrad.experiments.errors import InputError
from hushgrad.experiments.study import beyond, conduct, figures, file, paper, report, store, tables, tally, utility
from hushgrad.experiments.study.conduct import Progress
from hushgrad.experiments.study.figures import Line
from hushgrad.experiments.study.file import Experiment
from hushgrad.experiments.study.tally import Row

SEEDED_CLAIM = (
    "claim: what one client's whole run would cost a record with secure noise, by the privacy loss distribution; "
    "the simulator's noise is seeded and claims nothing"
)
QUICK_ROUNDS = 5
PARTIAL = (
    f"PARTIAL: one seed and {QUICK_ROUNDS} rounds of each run, to see that everything is there. Accuracies and claims "
    "are of these rounds, and nothing to put beside the paper's"
)
_IJCNN1_RECORDS = 10_000


@dataclass(frozen=True, slots=True)
class Options:
    """How to make the runs.

    Attributes:
        runs: folder of all results.
        seeds: how many; None: as the experiment's file says.
        jobs: simulated runs at the same time.
        quick: one seed and a few rounds of each run, to see that it works: no result.
        progress: told how far a sweep is.
    """

    runs: Path
    seeds: int | None
    jobs: int
    progress: Progress | None
    quick: bool = False


@dataclass(frozen=True, slots=True)
class Part:
    """One table with what belongs to it.

    Attributes:
        name: "figure1c".
        title: above the table.
        rows: plain values, for JSON.
        header, body: the table.
        remarks: sentences below it.
        pictures: files that were drawn.
        yardsticks: rows of settings that the paper does not have.
    """

    name: str
    title: str
    rows: list[dict[str, Any]]
    header: list[str]
    body: list[list[str]]
    remarks: tuple[str, ...]
    pictures: tuple[Path, ...] = ()
    yardsticks: tuple[dict[str, Any], ...] = ()


def names() -> list[str]:
    """Returns what can be reproduced."""
    return ["tables", *paper.UTILITY, *paper.FIGURES, *paper.SAME_AS, "beyond", *beyond.NAMES]


def reproduce(name: str, options: Options) -> list[Part]:
    """Repeats one thing; makes only the runs that the folder lacks.

    Raises:
        InputError: if there is no such thing, or its data set is not at hand.
    """
    if name == "tables":
        return [_table(number) for number in (2, 3, 4, 5)]
    if name in paper.SAME_AS:
        return [part for one in paper.SAME_AS[name] for part in reproduce(one, options)]
    if name in paper.UTILITY:
        return [_utility(name, options)]
    if name in paper.FIGURES:
        return [_figure(paper.FIGURES[name], options)]
    if name == "beyond":
        return [part for one in beyond.NAMES for part in reproduce(one, options)]
    if name in beyond.NAMES:
        return [_beyond(name, options)]
    raise InputError(f"there is nothing called {name!r} to reproduce; there is {', '.join(names())}")


def to_json(name: str, parts: Sequence[Part], *, quick: bool = False) -> dict[str, Any]:
    """Returns what `--json` prints: the rows, where one part is asked for; else the parts."""
    found = _to_json(name, parts)
    return {"partial": PARTIAL, **found} if quick else found


def _to_json(name: str, parts: Sequence[Part]) -> dict[str, Any]:
    if name == "tables":
        return {part.name: part.rows for part in parts}
    if len(parts) == 1:
        extra = {"yardsticks": list(parts[0].yardsticks)} if parts[0].yardsticks else {}
        return {"rows": parts[0].rows, **extra, "claim_is": SEEDED_CLAIM, "remarks": list(parts[0].remarks)}
    return {"figures": [{"name": p.name, "title": p.title, "rows": p.rows, "remarks": list(p.remarks)} for p in parts]}


def experiment(study: str) -> Experiment:
    """Returns a packaged experiment."""
    packaged = resources.files("hushgrad.experiments.study").joinpath(f"files/{study}.toml")
    return file.parse(packaged.read_bytes(), where=f"{study}.toml", folder=Path())


def made(one: Experiment, folder: Path, options: Options) -> list[Row]:
    """Makes the runs of an experiment that are not done, and returns all of its rows."""
    if options.quick:
        training = msgspec.structs.replace(one.training, rounds=QUICK_ROUNDS, grad_computations=None)
        one = msgspec.structs.replace(one, seeds=one.seeds[:1], training=training)
        folder = folder.with_name(f"{folder.name}-quick")
    elif options.seeds is not None:
        one = msgspec.structs.replace(one, seeds=list(range(1, options.seeds + 1)))
        folder = folder.with_name(f"{folder.name}-{options.seeds}-seeds")
    conduct.conduct(one, folder, jobs=options.jobs, progress=options.progress)
    return tally.rows(store.read(folder))


def _table(number: int) -> Part:
    rows = [paper_tables.beside(row) for row in paper_tables.rows(number)]
    plain = [
        {
            **row,
            "table": number,
            "published": {
                "paper_epsilon": float(str(row["printed_epsilon"])),
                "sigma": float(str(row["printed_sigma"])),
            },
            "recomputed": {"paper_epsilon": row["published_epsilon"], "sigma": float(str(row["published_sigma"]))},
            "tight": {"poisson": row["claim_poisson"], "fixed": row["claim_fixed"]},
        }
        for row in rows
    ]
    header = ["s", "T", "epsilon printed", "sigma printed", "sigma recomputed", "repaired (epsilon, sigma)"]
    header += ["Theorem 2 at printed sigma", "tight, Poisson", "tight, fixed"]
    body = [
        [
            str(row["sample_size"]),
            str(row["rounds"]),
            str(row["printed_epsilon"]),
            str(row["printed_sigma"]),
            str(row["published_sigma"]),
            f"{row['repaired_epsilon']:.5f}, {row['repaired_sigma']:.5f}",
            f"{row['paper_epsilon_at_printed_sigma']:.5g}",
            f"{row['claim_poisson']['epsilon']:g}",  # type: ignore[index]
            f"{row['claim_fixed']['epsilon']:g}",  # type: ignore[index]
        ]
        for row in rows
    ]
    first = paper_tables.rows(number)[0]
    title = (
        f"Table {number}: N = {first.records:,}, K = {first.grad_computations:,} gradients per client, "
        f"delta = {float(first.delta):g}"
    )
    remark = (
        "recomputed: the reading under which the printed digits come out; it leaves epsilon out of condition (12). "
        "repaired: the smallest pair that Theorem 2 allows at this s. tight: what the printed sigma costs by the "
        "privacy loss distribution, one record added or removed, at delta = 1/N; fixed sampling is charged with half "
        "the noise."
    )
    return Part(f"table{number}", title, plain, header, body, (remark,))


def _figure(figure: paper.Figure, options: Options) -> Part:
    base = experiment(figure.study)
    if figure.data == "ijcnn1":
        base = msgspec.structs.replace(
            base,
            name=f"{base.name}-ijcnn1",
            data=file.Data(set="ijcnn1", test_records=0),
            partition=file.Partition(kind="iid", records=_IJCNN1_RECORDS),
        )
    folder = options.runs / figure.name
    rows = made(base, folder, options)
    by_epsilon = figure.axis.startswith("labels.")
    plain, body = [], []
    for row in rows:
        found = row.axes[figure.axis]
        printed = figure.printed.get(found)
        plain.append(
            {
                **_place(found, by_epsilon),
                "claim": row.claim,
                "claim_for_shared_record": row.first["would_claim_for_shared_record"],
                "accuracy_mean": row.mean("accuracy"),
                "accuracy_std": row.std("accuracy"),
                "accuracy_paper": printed,
                "noise_multiplier": row.first["noise_multiplier"],
                "sample_size": row.first["sample_size"],
                "rounds": row.first["rounds"],
                "seeds": [int(run["seed"]) for run in row.runs],
            }
        )
        body.append(
            [
                tables.value(found),
                tables.value(row.first["noise_multiplier"]),
                str(row.first["sample_size"]),
                str(row.first["rounds"]),
                f"{row.claim['epsilon']:g}" if row.claim else "none",
                str(len(row.runs)),
                tables.spread(row.mean("accuracy"), row.std("accuracy"), len(row.runs)),
                "" if printed is None else f"{100 * printed:.0f}",
            ]
        )
    delta = base.privacy.delta
    words = "epsilon printed" if by_epsilon else "sample size"
    header = [words, "sigma", "s", "T", f"our epsilon (delta {delta:g})", "runs", "accuracy %", "paper %"]
    folder.mkdir(parents=True, exist_ok=True)
    picture = folder / f"{figure.name}.png"
    lines = [
        Line(_label(words, row.axes[figure.axis]), tuple(tuple(run["points"]) for run in row.runs)) for row in rows
    ]
    title = f"{figure.name}: {figure.objective}, {figure.data}"
    note = "mean and standard deviation over seeds; at most 40 versions of a run are scored"
    figures.curves(picture, lines, title=title, subtitle=note, across="version", log=True)
    remarks = (
        *figure.remarks,
        tally.caution(sum(len(row.runs) for row in rows), ["simulate"]),
    )
    extra = tuple(one for one in plain if one.get("setting", paper.NO_PRIVACY) != paper.NO_PRIVACY)
    return Part(
        figure.name,
        title,
        [one for one in plain if one not in extra],
        header,
        body,
        remarks,
        (picture,),
        extra,
    )


def _label(words: str, found: Any) -> str:
    return found if isinstance(found, str) else f"{words} {tables.value(found)}"


def _place(found: Any, by_epsilon: bool) -> dict[str, Any]:
    if not by_epsilon:
        return {"sample_size": found}
    if isinstance(found, str):
        return {"epsilon_printed": None, "setting": found}
    return {"epsilon_printed": found}


def _utility(name: str, options: Options) -> Part:
    objective, data = paper.UTILITY[name]
    graph = utility.graph(objective, data)
    folder = options.runs / name
    folder.mkdir(parents=True, exist_ok=True)
    picture = folder / f"{name}.png"
    title = f"{name}: {objective}, {data}; accuracy of w* {graph.accuracy:.1%}"
    figures.utility(picture, graph.sigmas, graph.clip_norms, graph.fractions, title=title)
    header = ["C", *[f"sigma {sigma:g}" for sigma in graph.sigmas]]
    body = [
        [f"{clip:g}", *[f"{fraction:.3f}" for fraction in row]]
        for clip, row in zip(graph.clip_norms, graph.fractions, strict=True)
    ]
    rows = [
        {
            "clip_norm": clip,
            "noise_multiplier": sigma,
            "accuracy_fraction": fraction,
            "accuracy_of_optimum": graph.accuracy,
        }
        for clip, row in zip(graph.clip_norms, graph.fractions, strict=True)
        for sigma, fraction in zip(graph.sigmas, row, strict=True)
    ]  # fmt: skip
    return Part(name, title, rows, header, body, (graph.remark,), (picture,))


def _beyond(name: str, options: Options) -> Part:
    part = beyond.PARTS[name]
    folder = options.runs / name
    rows = made(experiment(name), folder, options)
    header, body = tables.cells(rows, part.columns)
    plain = [tally.summary(row) for row in rows]
    folder.mkdir(parents=True, exist_ok=True)
    picture = folder / f"{name}.png"
    lines = [Line(report.label(row, part.columns), tuple(tuple(run["points"]) for run in row.runs)) for row in rows]
    figures.curves(picture, lines, title=part.title, subtitle="mean and standard deviation over seeds",
                   across=part.across, log=part.log)  # fmt: skip
    remarks = (*part.remarks, tally.caution(sum(len(row.runs) for row in rows), ["simulate"]))
    return Part(name, part.title, plain, header, body, remarks, (picture,))
