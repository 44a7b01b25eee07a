"""An ablation drawn: a bar a subset of terms, and beside them which subsets agree."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from matplotlib import colormaps, rcParams
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure

from ..ablation import AblationReport

WIDTH_INCHES = 10.0
ROW_INCHES = 0.3
MARGIN_INCHES = 1.8
FONT = 11.0
CELL_FONT = 9.5
COLOURS = ListedColormap(colormaps["Blues"](np.linspace(0, 0.62, 256)))
"""Light to middle blue: one hue for colour-blind readers, and black digits readable on all."""

MOST_NUMBERED = 15
"""Subsets up to which a percentage fits into a cell of the matrix."""


def draw_ablation(report: AblationReport) -> Figure:
    """Bars of the subsets' scores with 95 % intervals, and the matrix of their agreement.

    The colours of page and text are rcParams', so a dark style gives a dark picture.
    """
    height = MARGIN_INCHES + ROW_INCHES * max(len(report.scores), 7)
    figure = Figure(figsize=(WIDTH_INCHES, height), layout="constrained")
    bars, matrix = figure.subplots(1, 2, sharey=True, width_ratios=(3, 4))
    _draw_scores(bars, report)
    _draw_agreement(figure, matrix, report)
    bars.set_ylim(len(report.scores) - 0.5, -0.5)
    for axes in (bars, matrix):
        axes.tick_params(labelsize=FONT, length=0)
    figure.suptitle(f"{report.measure}: {_size(report)}", fontsize=FONT + 2)
    figure.supxlabel(_key(report), fontsize=FONT)
    return figure


def _draw_scores(axes: Axes, report: AblationReport) -> None:
    """Bars from the top down, with a line between subsets of different size."""
    rows = np.arange(len(report.scores))
    values = np.array([100 * one.value for one in report.scores])
    ends = np.array([(100 * one.low, 100 * one.high) for one in report.scores])
    reach = np.clip(np.abs(ends - values[:, None]).T, 0, None)
    text = rcParams["text.color"]
    axes.barh(rows, values, height=0.72, color="C0", alpha=0.75)
    axes.errorbar(values, rows, xerr=reach, fmt="none", ecolor=text, elinewidth=1.3, capsize=2.5)
    for row, one in enumerate(report.scores):
        axes.annotate(
            f"{100 * one.value:.1f}",
            (100 * one.high, row),
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
            fontsize=FONT,
        )
    axes.axvline(100 * report.baseline, color=text, linestyle="--", linewidth=1.2)
    axes.annotate(
        f"guess {100 * report.baseline:.1f}",
        (100 * report.baseline, 1),
        xycoords=("data", "axes fraction"),
        xytext=(0, 3),
        textcoords="offset points",
        ha="center",
        fontsize=FONT,
    )
    for step in _steps(report):
        axes.axhline(step, color=text, linewidth=0.6, alpha=0.5)
    axes.set_xlim(0, max(100 * report.baseline, ends.max()) * 1.22 or 1)
    axes.set_xticks([tick for tick in axes.get_xticks() if tick <= 100])
    axes.set_yticks(rows, [one.label for one in report.scores])
    axes.set_xlabel(f"{report.score} (%)\nwhiskers: {report.interval}", fontsize=FONT)
    axes.set_ylabel("terms kept", fontsize=FONT)


def _draw_agreement(figure: Figure, axes: Axes, report: AblationReport) -> None:
    """Square cells coloured by agreement, with its percentage where there is room."""
    percent = 100 * report.agreement
    image = axes.imshow(percent, cmap=COLOURS, vmin=0, vmax=100, aspect="auto")
    labels = [one.label for one in report.scores]
    axes.set_xticks(np.arange(len(labels)), labels, rotation=90)
    axes.set_xlabel("terms kept", fontsize=FONT)
    axes.set_title("same prediction", fontsize=FONT)
    bar = figure.colorbar(image, ax=axes, fraction=0.04, pad=0.02)
    bar.set_label("items predicted alike (%)", fontsize=FONT)
    bar.ax.tick_params(labelsize=FONT)
    if len(labels) > MOST_NUMBERED:
        return
    for row, column in np.argwhere(np.isfinite(percent)).tolist():
        share = f"{percent[row, column]:.0f}"
        axes.text(column, row, share, ha="center", va="center", color="black", fontsize=CELL_FONT)


def _steps(report: AblationReport) -> list[float]:
    """Where subsets of one size end and larger ones begin."""
    sizes = [len(one.terms) for one in report.scores]
    return [row + 0.5 for row, (a, b) in enumerate(pairwise(sizes)) if a != b]


def _key(report: AblationReport) -> str:
    """What the letters stand for."""
    single = [one for one in report.scores if len(one.terms) == 1]
    return "   ".join(f"{one.label} = {one.terms[0].replace('_', '-')}" for one in single)


def _size(report: AblationReport) -> str:
    """How much was measured."""
    items = f"{report.n_items} items"
    if report.n_texts != report.n_items:
        items += f" of {report.n_texts} texts"
    return items if report.n_runs == 1 else f"{items}, mean of {report.n_runs} runs"
