"""Tables as Markdown and LaTeX. Values in, text out."""

from collections.abc import Mapping, Sequence
from typing import Any

from hushgrad.experiments.study.tally import Row, summary

_LATEX = str.maketrans(
    {"&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}", "~": r"\~{}", "^": r"\^{}"}
)


def markdown(header: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    """Returns a table in Markdown, columns aligned for the eye.

    >>> print(markdown(["a", "b"], [["1", "22"]]))
    | a | b  |
    | - | -- |
    | 1 | 22 |
    """
    widths = [max(len(row[i]) for row in [header, *body]) for i in range(len(header))]
    lines = [header, ["-" * width for width in widths], *body]
    return "\n".join(
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |" for line in lines
    )


def latex(header: Sequence[str], body: Sequence[Sequence[str]], caption: str) -> str:
    """Returns a table environment in LaTeX, without packages."""

    def line(cells: Sequence[str]) -> str:
        return " & ".join(cell.translate(_LATEX).replace("±", r"$\pm$") for cell in cells) + r" \\"

    return "\n".join(
        [
            r"\begin{table}",
            rf"\caption{{{caption.translate(_LATEX)}}}",
            rf"\begin{{tabular}}{{{'l' * len(header)}}}",
            r"\hline",
            line(header),
            r"\hline",
            *[line(row) for row in body],
            r"\hline",
            r"\end{tabular}",
            r"\end{table}",
        ]
    )


def cells(rows: Sequence[Row], only: Sequence[str] = ()) -> tuple[list[str], list[list[str]]]:
    """Returns header and body of the table of a report: what was varied, what it cost, what came out.

    Args:
        rows: of the table.
        only: those of the varied keys that are shown; none: all.
    """
    found = [summary(row) for row in rows]
    varied = [key for key in dict.fromkeys(key for row in rows for key in row.axes) if not only or key in only]
    named = list(dict.fromkeys(key for row in rows for key in row.labels if f"labels.{key}" not in row.axes))
    backends = len({row.backend for row in rows}) > 1
    header = [*[shown_key(key) for key in varied], *named, *(["backend"] if backends else [])]
    header += ["T", "s", "sigma", "epsilon", "delta", "runs", "accuracy %", "averaged %", "simulated s", "kB sent"]
    body = []
    for one in found:
        claim = one["claim"]
        averaged = one["accuracy_averaged_mean"]
        body.append(
            [
                *[value(one.get(key)) for key in [*varied, *named]],
                *([one["backend"]] if backends else []),
                value(one["rounds"]),
                value(one["sample_size"]),
                value(one["noise_multiplier"]),
                f"{claim['epsilon']:g}" if claim else "none",
                f"{claim['delta']:g}" if claim else "",
                str(one["runs"]),
                spread(one["accuracy_mean"], one["accuracy_std"], one["runs"]),
                "" if averaged is None else f"{100 * averaged:.1f}",
                "" if one["seconds_mean"] is None else f"{one['seconds_mean']:.0f}",
                f"{one['bytes_up_mean'] / 1000:.0f}",
            ]
        )
    return header, body


def spread(mean: float, std: float, runs: int) -> str:
    """Returns mean and standard deviation in per cent; of one run there is no deviation.

    >>> spread(0.9123, 0.0104, 5), spread(0.9123, 0.0, 1)
    ('91.2 ± 1.0', '91.2')
    """
    return f"{100 * mean:.1f} ± {100 * std:.1f}" if runs > 1 else f"{100 * mean:.1f}"


def shown_key(dotted: str) -> str:
    """Returns the last part of a dotted key.

    >>> shown_key("privacy.epsilon")
    'epsilon asked'
    >>> shown_key("training.step_size.eta0")
    'eta0'
    """
    last = dotted.rpartition(".")[2]
    return {"epsilon": "epsilon asked", "noise_multiplier": "sigma asked", "size": "s asked"}.get(last, last)


def value(found: Any) -> str:
    """Returns a value as a table shows it."""
    if found is None or found == "unset":
        return ""
    if isinstance(found, float):
        return f"{found:.6g}"
    if isinstance(found, list):
        return " to ".join(value(item) for item in found) if len(found) == 2 else ", ".join(map(value, found))
    if isinstance(found, Mapping):
        return ", ".join(f"{key} {value(inner)}" for key, inner in found.items())
    return str(found)
