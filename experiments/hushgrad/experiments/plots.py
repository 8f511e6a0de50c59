"""Pictures: the demo's two, and the accountant's plans. Numbers in, .png files out."""

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib as mpl

mpl.use("Agg")  # no window, whatever the machine offers

from matplotlib import pyplot as plt
from matplotlib.ticker import MultipleLocator, PercentFormatter

if TYPE_CHECKING:
    from hushgrad.experiments.frontier import Frontier

_INK = "#1f2933"
_GREY = "#7b8794"
_BLUE = "#1f6fb2"
_ORANGE = "#d9730d"
_RED = "#b3261e"

STYLE: Any = {
    "font.size": 10,
    "axes.edgecolor": _GREY,
    "axes.labelcolor": _INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.titlelocation": "left",
    "axes.titleweight": "bold",
    "grid.color": "#e4e7eb",
    "text.color": _INK,
    "xtick.color": _INK,
    "ytick.color": _INK,
    "savefig.dpi": 150,
}


def accuracy(
    path: Path,
    *,
    versions: Sequence[int],
    last: Sequence[float],
    averaged: Sequence[float | None],
    reference: float,
    claim: str,
) -> None:
    """Draws test accuracy by version.

    Args:
        path: of the .png file.
        versions: that were scored.
        last: accuracy of each, 0 to 1.
        averaged: accuracy of the running average at each; None where there is none.
        reference: accuracy without privacy.
        claim: one line below the title.
    """
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(figsize=(8, 4.5), layout="constrained")
        axes.plot(versions, last, color=_BLUE, linewidth=1.5, label=f"global model: {last[-1]:.1%}")
        later = [(version, value) for version, value in zip(versions, averaged, strict=True) if value is not None]
        if later:
            text = f"average of the second half's models: {later[-1][1]:.1%}"
            axes.plot(*zip(*later, strict=True), color=_ORANGE, linewidth=2, label=text)
        text = f"without privacy, all records in one place: {reference:.1%}"
        axes.axhline(reference, color=_GREY, linestyle="--", linewidth=1.3, label=text)
        shown = sorted(last)
        low = min(shown[len(shown) // 10], reference) if shown else 0.5  # the first versions may fall below the picture
        low = max(0.0, min(low - 0.02, reference - 0.1))
        axes.set_ylim(low, min(1.0, reference + 0.02))
        axes.set_xlim(0, max(versions))
        axes.set_xlabel("version of the global model")
        axes.set_ylabel("accuracy on the public test set")
        axes.yaxis.set_major_formatter(PercentFormatter(xmax=1, decimals=0))
        _title(axes, "One model from five private data sets", claim)
        axes.legend(loc="lower right", frameon=False)
        figure.savefig(path)
        plt.close(figure)


def curves(
    path: Path,
    *,
    curves: Mapping[str, tuple[Sequence[int], Sequence[float]]],
    goal: float,
    title: str,
    subtitle: str,
) -> None:
    """Draws test accuracy by version, one line for each run.

    Args:
        path: of the .png file.
        curves: by label, versions and the accuracy of each, 0 to 1.
        goal: drawn as a line.
        title, subtitle: above the picture.
    """
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(figsize=(8, 4.5), layout="constrained")
        for (label, (versions, accuracies)), color in zip(
            curves.items(), itertools.cycle((_BLUE, _ORANGE, _RED, _INK)), strict=False
        ):
            axes.plot(versions, accuracies, color=color, linewidth=1.4, label=label)
        axes.axhline(goal, color=_GREY, linestyle="--", linewidth=1.3, label=f"goal: {goal:.1%}")
        axes.set_ylim(min(0.8, goal - 0.1), 1.0)
        axes.set_xlim(0, max(versions[-1] for versions, _ in curves.values()))
        axes.set_xlabel("version of the global model")
        axes.set_ylabel("accuracy on the public test set")
        axes.yaxis.set_major_locator(MultipleLocator(0.02))
        axes.yaxis.set_major_formatter(PercentFormatter(xmax=1, decimals=0))
        _title(axes, title, subtitle)
        axes.legend(loc="lower right", frameon=False)
        figure.savefig(path)
        plt.close(figure)


def privacy(
    path: Path,
    *,
    curves: Mapping[str, Sequence[float]],
    claims: Mapping[str, float],
    delta: float,
) -> None:
    """Draws each client's odometer, one panel per client, and the claim that caps it.

    Args:
        path: of the .png file.
        curves: by client, epsilon before round 0 and after each sealed round.
        claims: by client, the epsilon that it committed to before round 0.
        delta: of all of them.
    """
    with plt.rc_context(STYLE):
        figure, panels = plt.subplots(
            1, len(curves), figsize=(2.3 * len(curves) + 0.7, 3.6), sharey=True, layout="constrained", squeeze=False
        )
        top = 1.18 * max(claims.values())
        for axes, (name, curve) in zip(panels[0], curves.items(), strict=True):
            rounds = range(len(curve))
            axes.fill_between(rounds, curve, color=_BLUE, alpha=0.15, linewidth=0)
            axes.plot(rounds, curve, color=_BLUE, linewidth=1.8)
            axes.axhline(claims[name], color=_RED, linewidth=1.5)
            axes.annotate(
                f"cap {claims[name]:g}",
                (0.04, claims[name]),
                xycoords=("axes fraction", "data"),
                xytext=(0, 4),
                textcoords="offset points",
                color=_RED,
            )
            axes.set_title(name, fontsize=10)
            axes.set_xlim(0, max(1, len(curve) - 1))
            axes.set_ylim(0, top)
            axes.set_xlabel("rounds sealed")
        panels[0][0].set_ylabel(f"epsilon at delta = {delta:g}")
        figure.suptitle(
            "Privacy used by each client, read from its ledger: an odometer; the claim is the cap",
            x=0.01,
            ha="left",
            fontweight="bold",
            fontsize=11,
        )
        figure.savefig(path)
        plt.close(figure)


def _title(axes: Any, title: str, subtitle: str) -> None:
    axes.set_title(title, pad=24, fontsize=12)
    axes.text(0, 1.03, subtitle, transform=axes.transAxes, color=_GREY, fontsize=9)


def frontier(path: Path, frontiers: Sequence["Frontier"]) -> None:
    """Draws plans of the accountant, one line each.

    Left, noise multiplier by sample size, with the paper's epsilon at a point where it may be shown. Right, the noise
    that all rounds together leave in the mean gradient, by megabytes sent, or by rounds where these are not known.
    """
    with plt.rc_context(STYLE):
        figure, (noise, result) = plt.subplots(1, 2, figsize=(11, 4.6), layout="constrained")
        in_bytes = all(line.megabytes is not None for line in frontiers)
        for line, color in zip(frontiers, itertools.cycle((_BLUE, _ORANGE, _RED, _GREY, _INK)), strict=False):
            style: Any = {"color": color, "marker": "o", "markersize": 4, "linewidth": 1.6}
            noise.plot(line.sample_sizes, line.noise_multipliers, label=line.label, **style)
            for size, sigma, epsilon in zip(
                line.sample_sizes, line.noise_multipliers, line.paper_epsilons, strict=True
            ):
                if epsilon is not None:
                    noise.annotate(
                        f"paper: {epsilon:.2g}",
                        (size, sigma),
                        xytext=(6, -4),
                        textcoords="offset points",
                        va="top",
                        fontsize=8,
                        color=color,
                    )
            across = line.megabytes if in_bytes and line.megabytes is not None else line.rounds
            result.plot(across, line.total_noise, **style)
            for place, (x, y, size) in enumerate(zip(across, line.total_noise, line.sample_sizes, strict=True)):
                if place in (0, len(across) - 1):
                    result.annotate(
                        f"s = {size}", (x, y), xytext=(0, 7), textcoords="offset points", ha="center", fontsize=8
                    )
        for axes in (noise, result):
            axes.set_xscale("log")
            axes.set_yscale("log")
            axes.margins(x=0.1, y=0.15)
        noise.set_xlabel("sample size s (each plan computes the same number of gradients)")
        noise.set_ylabel("noise multiplier, for each round")
        noise.set_title("What every round asks for", fontsize=11)
        result.set_xlabel("megabytes sent by one client" if in_bytes else "rounds")
        result.set_ylabel("noise in the mean of all gradients / clip norm")
        result.set_title("What is left of it in the result", fontsize=11)
        noise.legend(loc="upper left", frameon=False, fontsize=8)
        if any(epsilon is not None for line in frontiers for epsilon in line.paper_epsilons):
            note = "paper: Theorem 2's epsilon at this noise, where it is true"
            noise.text(0.98, 0.02, note, transform=noise.transAxes, ha="right", fontsize=8, color=_GREY)
        figure.savefig(path)
        plt.close(figure)
