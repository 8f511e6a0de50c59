"""The audit as a picture: for each row the claim, and what must be spent at least."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")

import numpy as np
from matplotlib import pyplot as plt

_INK, _GREY, _BLUE, _ORANGE, _RED = "#1f2933", "#7b8794", "#1f6fb2", "#d9730d", "#b3261e"


_WIDEST = 7.0
"""A bound beyond it is written at the edge, so that claims and bounds near them can be told apart."""


def draw(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Draws the rows of an audit into a .png file."""
    sound = [row for row in rows if row["bug"] is None]
    bugs = [row for row in rows if row["bug"] is not None]
    style: Any = {"font.size": 10, "text.color": _INK, "axes.spines.top": False, "axes.spines.right": False}
    with plt.rc_context(style):
        figure, panels = plt.subplots(
            2,
            1,
            figsize=(9, 0.42 * len(rows) + 2.2),
            height_ratios=[len(sound), len(bugs)],
            layout="constrained",
            sharex=True,
        )
        top = min(_WIDEST, 1.12 * max(max(row["claimed"], *_finite(row)) for row in rows))
        titles = (
            "The client as it is: every bound must stay left of the claim",
            "One bug planted: a bound must pass it",
        )
        for axes, part, title in zip(panels, (sound, bugs), titles, strict=True):
            _panel(axes, part, top)
            axes.set_title(title, loc="left", fontsize=11, fontweight="bold")
        panels[1].set_xlabel(f"epsilon at delta = {rows[0]['delta']:g}")
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False)
        figure.savefig(path, dpi=140)
        plt.close(figure)


def _panel(axes: Any, rows: Sequence[dict[str, Any]], top: float) -> None:
    places = np.arange(len(rows))[::-1]
    for place, row in zip(places, rows, strict=True):
        axes.plot([0, min(top, max(row["claimed"], *_finite(row)))], [place, place], color="#e4e7eb", zorder=0)
    axes.scatter(
        [row["any"] for row in rows], places, color=_BLUE, marker="o", s=42, label="bound that assumes nothing"
    )
    inside = [row["family"] if row["family"] < top else np.nan for row in rows]
    axes.scatter(inside, places, color=_ORANGE, marker="D", s=34, label="bound within the mechanism's family")
    for place, row in zip(places, rows, strict=True):
        if row["family"] >= top:
            text = (
                "family: no noise at all"
                if row["family"] == np.inf
                else f"family: {row['family']:.1f} \N{RIGHTWARDS ARROW}"
            )
            axes.annotate(text, (top, place), ha="right", va="center", color=_ORANGE, fontsize=9)
    axes.scatter([row["claimed"] for row in rows], places, color=_RED, marker="|", s=320, linewidths=2.5, label="claim")
    names = [row["bug"] or row["attack"] for row in rows]
    axes.set_yticks(places, names)
    axes.set_xlim(0, top)
    axes.set_ylim(-0.6, len(rows) - 0.4)
    axes.grid(axis="x", color="#eef1f4")
    axes.tick_params(length=0, colors=_INK)


def _finite(row: dict[str, Any]) -> list[float]:
    return [value for value in (row["any"], row["family"]) if np.isfinite(value)]
