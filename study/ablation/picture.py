"""An ablation as a picture: the score of each subset of terms by task, and subsets that agree."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from matplotlib import colormaps, rcParams
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.ticker import MaxNLocator

from ...figures import SMALL, Picture, Width, new_picture, short
from ...results import count
from .subsets import AblationReport, AblationStudyReport

ROW_MM = {"column": 2.8, "full": 4.2}
LEGEND_MM = 11.5
"""From a panel down to its legend: the ticks and the label of the axis are between."""

LOWEST_MM, MARGIN_MM = 20.0, 24.0
MATRIX_MM = {"column": 70.0, "full": 68.0}
COLOURS = ListedColormap(colormaps["Blues"](np.linspace(0, 0.85, 256)))
MARKERS = "osD"
TITLES = {"masked": "{predicts} tokens", "senses": "Word senses", "tagging": "Tags of words"}
NAMES = {
    "masked-own": "own head",
    "masked-trained": "trained head",
    "senses-knn": "nearest neighbours",
    "senses-mlp": "two layers",
    "tagging": "one hidden layer",
}
SHOWN_AGREEMENT = ("senses-mlp", "masked-trained", "tagging")
"""Measures whose agreement is drawn, at most one for a task; in a column the first one alone."""


def draw_ablation(report: AblationStudyReport, width: Width = "full") -> Picture:
    """Dots of the subsets' scores with 95 % intervals, a panel for each task; then agreement."""
    tasks = _tasks(report.measures)
    matrices = _matrices(report.measures, width)
    n_subsets = len(report.measures[0].scores)
    panel_mm, matrix_mm = max(LOWEST_MM, ROW_MM[width] * n_subsets), MATRIX_MM[width]
    dots_mm = MARGIN_MM + panel_mm
    stacked = width == "column"
    n_rows = len(tasks) if stacked else 1
    picture = new_picture(width, 6 + n_rows * dots_mm + matrix_mm, caption=_caption(report))
    parts = picture.figure.subfigures(
        2, 1, squeeze=False, height_ratios=(n_rows * dots_mm, matrix_mm)
    )
    dots, agreement = parts.ravel().tolist()
    grid = dots.subplots(n_rows, len(tasks) // n_rows, squeeze=False, sharey=True)
    for axes, measures in zip(grid.ravel(), tasks.values(), strict=True):
        _draw_scores(picture, axes, measures)
        axes.legend(
            loc="upper center",
            bbox_to_anchor=(0.5, -LEGEND_MM / panel_mm),
            handletextpad=0.2,
            borderaxespad=0.0,
            labelspacing=0.25,
        )
    for row in grid:
        row[0].set_ylabel("terms kept")
    dots.suptitle(f"Ablation of {short(report.model)}")
    panels = agreement.subplots(1, len(matrices), squeeze=False).ravel().tolist()
    for axes, measure in zip(panels, matrices, strict=True):
        _draw_agreement(picture, axes, measure)
    bar = agreement.colorbar(panels[0].images[0], ax=panels, fraction=0.03, pad=0.02)
    bar.set_label("share of items, 0…1", fontsize=SMALL)
    bar.outline.set_visible(False)
    return picture


def _tasks(measures: Sequence[AblationReport]) -> dict[str, list[AblationReport]]:
    tasks: dict[str, list[AblationReport]] = {}
    for measure in measures:
        tasks.setdefault(measure.key.split("-")[0], []).append(measure)
    return tasks


def _matrices(measures: Sequence[AblationReport], width: Width) -> list[AblationReport]:
    shown = [measure for key in SHOWN_AGREEMENT for measure in measures if measure.key == key]
    shown = shown or list(measures)
    return shown[:1] if width == "column" else shown[:3]


def _draw_scores(picture: Picture, axes: Axes, measures: Sequence[AblationReport]) -> None:
    ink = rcParams["text.color"]
    labels = [score.label for score in measures[0].scores]
    rows = np.arange(len(labels))
    shifts = 0.24 * (np.arange(len(measures)) - (len(measures) - 1) / 2)
    for measure, shift, marker in zip(measures, shifts, MARKERS, strict=False):
        values, low, high = np.array([(s.value, s.low, s.high) for s in measure.scores]).T
        axes.errorbar(
            values,
            rows + shift,
            xerr=np.abs(np.array([low, high]) - values),
            fmt=marker,
            markersize=3,
            elinewidth=0.8,
            capsize=0,
            label=f"{NAMES[measure.key]} (n = {measure.n_items})",
        )
        picture.hover(
            axes, values, rows + shift, (_spoken(measure, row) for row in range(len(rows)))
        )
    sizes = [len(score.terms) for score in measures[0].scores]
    for row, (smaller, larger) in enumerate(pairwise(sizes)):
        if smaller != larger:
            axes.axhline(row + 0.5, color=ink, linewidth=0.4, alpha=0.4)
    axes.set_yticks(rows, labels)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_xlim(0, 1.02)  # the whole scale of the score
    axes.xaxis.set_major_locator(MaxNLocator(nbins=5))
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x", alpha=0.25)
    axes.set(title=_task_title(measures[0]), xlabel=f"{measures[0].score}, 0…1")


def _spoken(measure: AblationReport, row: int) -> str:
    score = measure.scores[row]
    sd = "" if score.sd is None else f", sd over {measure.n_runs} runs {score.sd:.3f}"
    return (
        f"{_task_title(measure)}, {NAMES[measure.key]}, terms {score.label}: {score.value:.3f} "
        f"({score.low:.3f} to {score.high:.3f}{sd})"
    )


def _draw_agreement(picture: Picture, axes: Axes, measure: AblationReport) -> None:
    shares = np.array(measure.agreement, dtype=np.float64)
    labels = [score.label for score in measure.scores]
    axes.imshow(shares, cmap=COLOURS, vmin=0, vmax=1)
    axes.set_xticks(range(len(labels)), labels, rotation=90)
    axes.set_yticks(range(len(labels)), labels)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.set_title(f"{_title(measure)}:\nsame prediction")
    rows, columns = np.nonzero(np.isfinite(shares))
    spoken = (
        f"{labels[row]} and {labels[column]}: {shares[row, column]:.3f} predicted alike"
        for row, column in zip(rows, columns, strict=True)
    )
    picture.hover(axes, columns, rows, spoken)


def _task_title(measure: AblationReport) -> str:
    predicts = str(measure.settings.get("predicts", "")).capitalize()
    return TITLES[measure.key.split("-")[0]].format(predicts=predicts)


def _title(measure: AblationReport) -> str:
    title = _task_title(measure)
    return title if measure.key == "tagging" else f"{title}, {NAMES[measure.key]}"


def _caption(report: AblationStudyReport) -> str:
    letters = zip(
        (score.label for score in report.measures[0].scores if len(score.terms) == 1),
        (term.replace("_", "-") for term in report.terms),
        strict=True,
    )
    meaning = ", ".join(f"{letter} {term}" for letter, term in letters)
    runs = max(measure.n_runs for measure in report.measures)
    return (
        f"Terms: {meaning}; none: the baseline without a term. Dots: trained measures are means of "
        f"{count(runs, 'run')}. Whiskers: 95 % intervals over test texts, the training held fixed; "
        "n: test items. Squares: share of items for which two subsets predict the same."
    )
