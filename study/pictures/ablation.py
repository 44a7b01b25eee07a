"""An ablation as a picture: a bar for each subset of terms, and the agreement of subsets."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from matplotlib import colormaps, rcParams
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import FigureBase

from ..ablation import AblationReport
from .figures import SMALL, TEXT, Picture, Style, Width, new_picture

ROW_MM = 6.0
MARGIN_MM = 35.0
COLOURS = ListedColormap(colormaps["Blues"](np.linspace(0, 0.62, 256)))
"""Light to middle blue: score hue for colour-blind readers, and black digits readable on all."""

MOST_NUMBERED = 15
"""With more subsets a percentage does not fit into a cell of the matrix."""


def draw_ablation(report: AblationReport, width: Width = "full") -> Picture:
    """Bars of the subsets' scores with 95 % intervals, and the matrix of their agreement.

    The colours of page and text are rcParams', so a dark style gives a dark picture.
    """
    picture = new_picture(width, MARGIN_MM + ROW_MM * max(len(report.scores), 7))
    figure = picture.figure
    bars, matrix = figure.subplots(1, 2, sharey=True, width_ratios=(3, 4))
    _draw_scores(bars, report)
    _draw_agreement(figure, matrix, report)
    bars.set_ylim(len(report.scores) - 0.5, -0.5)
    for axes in (bars, matrix):
        axes.tick_params(length=0)
    figure.suptitle(f"{report.measure}: {_size(report)}")
    figure.supxlabel(_key(report))
    return picture


def _draw_scores(axes: Axes, report: AblationReport) -> None:
    rows = np.arange(len(report.scores))
    values, *ends = 100 * np.array([(s.value, s.low, s.high) for s in report.scores]).T
    reach = np.abs(np.array(ends) - values)
    text = rcParams["text.color"]
    axes.barh(rows, values, height=0.72, color="C0", alpha=0.75)
    axes.errorbar(values, rows, xerr=reach, fmt="none", ecolor=text, elinewidth=1.3, capsize=2.5)
    beside: Style = {"textcoords": "offset points", "fontsize": TEXT}
    for row, (value, high) in enumerate(zip(values, ends[1], strict=True)):
        axes.annotate(f"{value:.1f}", (high, row), xytext=(4, 0), va="center", **beside)
    guess, above = 100 * report.baseline, ("data", "axes fraction")
    axes.axvline(guess, color=text, linestyle="--", linewidth=1.2)
    axes.annotate(f"guess {guess:.1f}", (guess, 1), (0, 3), above, ha="center", **beside)
    sizes = [len(score.terms) for score in report.scores]
    for row, (smaller, larger) in enumerate(pairwise(sizes)):
        if smaller != larger:
            axes.axhline(row + 0.5, color=text, linewidth=0.6, alpha=0.5)
    axes.set_xlim(0, max(guess, np.max(ends)) * 1.22 or 1)
    axes.set_xticks([tick for tick in axes.get_xticks() if tick <= 100])
    axes.set_yticks(rows, [score.label for score in report.scores])
    axes.set(xlabel=f"{report.score} (%)\nwhiskers: {report.interval}", ylabel="terms kept")


def _draw_agreement(figure: FigureBase, axes: Axes, report: AblationReport) -> None:
    percent = 100 * report.agreement
    image = axes.imshow(percent, cmap=COLOURS, vmin=0, vmax=100, aspect="auto")
    labels = [score.label for score in report.scores]
    axes.set_xticks(np.arange(len(labels)), labels, rotation=90)
    axes.set(xlabel="terms kept", title="same prediction")
    bar = figure.colorbar(image, ax=axes, fraction=0.04, pad=0.02)
    bar.set_label("items predicted alike (%)")
    if len(labels) > MOST_NUMBERED:
        return
    for row, column in np.argwhere(np.isfinite(percent)).tolist():
        share = f"{percent[row, column]:.0f}"
        axes.text(column, row, share, ha="center", va="center", color="black", fontsize=SMALL)


def _key(report: AblationReport) -> str:
    single = [score for score in report.scores if len(score.terms) == 1]
    return "   ".join(f"{score.label} = {score.terms[0].replace('_', '-')}" for score in single)


def _size(report: AblationReport) -> str:
    items = f"{report.n_items} items"
    if report.n_texts != report.n_items:
        items += f" of {report.n_texts} texts"
    return items if report.n_runs == 1 else f"{items}, mean of {report.n_runs} runs"
