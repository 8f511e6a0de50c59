"""Figures of runs: curves with mean and spread over seeds, one number against an axis, heat maps. Numbers in, .png out.

A band is one standard deviation over the seeds, a line their mean.
"""

import itertools
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from hushgrad.experiments.plots import STYLE  # chooses a backend without windows
from hushgrad.experiments.study.scores import Point
from matplotlib import pyplot as plt
from matplotlib.ticker import PercentFormatter

COLORS = ("#1f6fb2", "#d9730d", "#2b8a3e", "#b3261e", "#7048a8", "#0b7285", "#a6761d", "#c2378b", "#4d5b6a", "#1f2933")
_GREY = "#7b8794"
_DOTS_PER_INCH = 110
_LONG_LABEL = 48
_TITLE_WIDTH = 84

Across = Literal["version", "seconds", "updates"]
ACROSS_WORDS: dict[str, str] = {
    "version": "rounds of communication",
    "seconds": "seconds; simulated ones where a run was simulated",
    "updates": "updates in the model",
}


@dataclass(frozen=True, slots=True)
class Line:
    """The runs of one setting.

    Attributes:
        label: for the legend.
        runs: scored versions of each seed.
    """

    label: str
    runs: tuple[tuple[Point, ...], ...]


@dataclass(frozen=True, slots=True)
class Series:
    """One number against an axis: mean and standard deviation at each place; reference: from elsewhere, as crosses."""

    label: str
    places: tuple[float, ...]
    means: tuple[float, ...]
    stds: tuple[float, ...]
    reference: tuple[tuple[float, float], ...] = ()


def curves(
    path: Path, lines: Sequence[Line], *, title: str, subtitle: str = "", across: Across = "version", log: bool = False
) -> None:
    """Draws accuracy against rounds, simulated time or updates."""
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(figsize=(7.6, 5.2), layout="constrained")
        for line, color in zip(lines, itertools.cycle(COLORS), strict=False):
            places, means, stds = mean_curve(line.runs, across)
            axes.fill_between(places, means - stds, means + stds, color=color, alpha=0.15, linewidth=0)
            axes.plot(places, means, color=color, linewidth=1.6, label=f"{line.label}: {means[-1]:.1%}")
        if log:
            axes.set_xscale("log")
        axes.set_xlabel(ACROSS_WORDS[across])
        _accuracy_axis(axes)
        _title(axes, title, subtitle)
        figure.legend(loc="outside lower center", ncols=_columns(axes), frameon=False, fontsize=8)
        figure.savefig(path, dpi=_DOTS_PER_INCH)
        plt.close(figure)


def mean_curve(
    runs: Sequence[Sequence[Point]], across: Across
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Returns places, means and standard deviations over the runs.

    Runs score the same versions; their times differ, so against time each run is read at common times, between its own
    by interpolation.
    """
    usable = [run for run in runs if run]
    if not usable:
        return np.zeros(1), np.zeros(1), np.zeros(1)
    places = [np.array([getattr(point, across) for point in run], np.float64) for run in usable]
    values = [np.array([point.accuracy for point in run]) for run in usable]
    start, end = max(place[0] for place in places), max(place[-1] for place in places)
    common = places[0] if all(np.array_equal(place, places[0]) for place in places) else np.linspace(start, end, 60)
    read = np.array([np.interp(common, place, value) for place, value in zip(places, values, strict=True)])
    return common, read.mean(axis=0), read.std(axis=0, ddof=1 if len(read) > 1 else 0)


def against(
    path: Path, series: Sequence[Series], *, title: str, subtitle: str = "", xlabel: str, log: bool = False
) -> None:
    """Draws accuracy against the values of an axis, with what is published as crosses."""
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(figsize=(7.6, 5.2), layout="constrained")
        for one, color in zip(series, itertools.cycle(COLORS), strict=False):
            axes.errorbar(
                one.places, one.means, yerr=one.stds, color=color, marker="o", markersize=4, capsize=3, label=one.label
            )
            if one.reference:
                x, y = zip(*one.reference, strict=True)
                axes.plot(x, y, "x", color=color, markersize=9, markeredgewidth=2, label=f"{one.label}, as published")
        if log:
            axes.set_xscale("log")
        axes.set_xlabel(xlabel)
        _accuracy_axis(axes)
        _title(axes, title, subtitle)
        figure.legend(loc="outside lower center", ncols=_columns(axes), frameon=False, fontsize=8)
        figure.savefig(path, dpi=_DOTS_PER_INCH)
        plt.close(figure)


def utility(
    path: Path,
    sigmas: Sequence[float],
    clip_norms: Sequence[float],
    fractions: Sequence[Sequence[float]],
    *,
    title: str,
) -> None:
    """Draws a utility graph: the share of accuracy that is left, as a heat map and as curves.

    Args:
        path: of the .png file.
        sigmas: noise multipliers.
        clip_norms: clip norms.
        fractions: by clip norm and noise multiplier.
        title: above it.
    """
    values = np.array(fractions)
    with plt.rc_context({**STYLE, "axes.grid": False}):
        figure, (heat, lines) = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
        image = heat.imshow(values, aspect="auto", origin="lower", cmap="viridis", vmin=min(0.5, values.min()), vmax=1)
        heat.set_xticks(range(len(sigmas)), [f"{sigma:g}" for sigma in sigmas])
        heat.set_yticks(range(len(clip_norms)), [f"{clip:g}" for clip in clip_norms])
        for (i, j), number in np.ndenumerate(values):
            ink = "white" if number < 0.8 else "black"
            heat.text(j, i, f"{number:.2f}", ha="center", va="center", color=ink, fontsize=7)
        heat.set_xlabel("sigma")
        heat.set_ylabel("clip norm C")
        figure.colorbar(image, ax=heat, label="accuracy of w* + n / accuracy of w*")
        for clip, row, color in zip(clip_norms, values, itertools.cycle(COLORS), strict=False):
            lines.plot(sigmas, row, marker="o", markersize=3, color=color, label=f"C = {clip:g}")
        lines.axhline(0.9, color=_GREY, linestyle="--", linewidth=1)
        lines.grid(True, color="#e4e7eb")
        lines.set_xlabel("sigma")
        lines.set_ylabel("accuracy of w* + n / accuracy of w*")
        lines.legend(frameon=False, fontsize=8)
        figure.suptitle(title, x=0.01, ha="left", fontweight="bold", fontsize=11)
        figure.savefig(path, dpi=_DOTS_PER_INCH)
        plt.close(figure)


def _accuracy_axis(axes: Any) -> None:
    axes.set_ylabel("accuracy on the public test set")
    axes.yaxis.set_major_formatter(PercentFormatter(xmax=1, decimals=0))


def _columns(axes: Any) -> int:
    """Returns in how many columns a legend fits."""
    longest = max((len(label) for label in axes.get_legend_handles_labels()[1]), default=0)
    return 1 if longest > _LONG_LABEL else 2


def _title(axes: Any, title: str, subtitle: str) -> None:
    axes.set_title(textwrap.fill(title, _TITLE_WIDTH), pad=24 if subtitle else 8, fontsize=10)
    if subtitle:
        axes.text(0, 1.03, subtitle, transform=axes.transAxes, color=_GREY, fontsize=8)
