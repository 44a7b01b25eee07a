"""Panels of accuracies: the layer classifier beside its controls, and its sweeps."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from matplotlib import rcParams, ticker
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.transforms import offset_copy

from ..study.layers import LayersReport, ModelPoint
from ..study.layers.layer_controls import Control
from ..study.layers.layer_scores import Score
from ..study.layers.layer_sweeps import Sweep
from .figures import PALETTE, Picture, Style, Width, add_legend, short

APPLIED, ANEW, RANDOM = PALETTE[0], PALETTE[1], PALETTE[6]

MASK = re.compile(r"mask-(top|random)-(\d+)-(mean|zero)")
WITHOUT = re.compile(r"without-top-(\d+)")

ROWS: Mapping[str, str] = {
    "random-applied": "random directions",
    "random-retrained": "random directions",
    "punctuation-untested": "no punctuation",
    "no-punctuation": "no punctuation",
    "mean-removed": "layers' means removed",
    "decision-tree": "decision tree",
}
"""The row of a control that has not one of its own, or needs a shorter title."""

LEGEND_BELOW = 30.0
"""Points between a panel and its legend: its numbers and the name of its axis."""

FARTHEST, ROW_SHARE = 0.36, 0.7
"""Rows between two marks of a row, at most, and from its first to its last mark."""

X_LABELS = {"context": "tokens of a text", "texts": "texts to learn from"}


@dataclass(frozen=True, slots=True)
class Mark:
    """How a kind of control is drawn: shape and filling tell it apart without colours, too."""

    label: str
    marker: str
    colour: str
    filled: bool

    def style(self) -> Style:
        """Arguments of `Axes.errorbar`."""
        return {
            "marker": self.marker,
            "color": self.colour,
            "markerfacecolor": self.colour if self.filled else rcParams["axes.facecolor"],
            "linestyle": "none",
            "markersize": 4.5,
            "elinewidth": 0.8,
        }


IN_USE = Mark("the classifier, applied", "o", APPLIED, filled=True)
TRAINED = Mark("another one, trained for it", "s", ANEW, filled=False)
ZERO = Mark("applied, dimensions set to 0", "v", APPLIED, filled=True)
RANDOM_MEAN = Mark("random dims, set to their mean", "o", RANDOM, filled=False)
RANDOM_ZERO = Mark("random dims, set to 0", "v", RANDOM, filled=False)


def place_of(control: Control) -> tuple[str, Mark]:
    """(row, mark) of a control: controls of one question share a row."""
    if found := MASK.fullmatch(control.name):
        which, k, fill = found.groups()
        marks = {"top": (IN_USE, ZERO), "random": (RANDOM_MEAN, RANDOM_ZERO)}[which]
        return f"top {k} dims masked", marks[fill == "zero"]
    if found := WITHOUT.fullmatch(control.name):
        return f"top {found[1]} dims masked", TRAINED
    row = ROWS.get(control.name, control.title)
    return row, TRAINED if control.retrained else IN_USE


def draw_accuracies(picture: Picture, axes: Axes, report: LayersReport, width: Width) -> None:
    """Dots with their standard errors, a row for each question, and a line at chance."""
    placed = [(*place_of(control), control) for control in report.controls]
    rows = list(dict.fromkeys(row for row, _, _ in placed))
    marks = list(dict.fromkeys(mark for _, mark, _ in placed))
    pairs = {(row, mark) for row, mark, _ in placed}
    in_row = {row: [mark for mark in marks if (row, mark) in pairs] for row in rows}
    for mark in marks:
        own = [(row, control) for row, other, control in placed if other == mark]
        # marks of a row lie one below the other, so that none hides another
        places = [rows.index(row) + _shift(in_row[row], mark) for row, _ in own]
        scores = [control.score for _, control in own]
        accuracies = [score.accuracy for score in scores]
        errors = [score.standard_error or 0.0 for score in scores]
        axes.errorbar(accuracies, places, xerr=errors, label=mark.label, **mark.style())
        labels = (_label(control) for _, control in own)
        picture.hover(axes, accuracies, places, labels)
    ink = rcParams["text.color"]
    chance: Style = {"color": ink, "linestyle": ":", "linewidth": 1.0}
    axes.axvline(report.chance, zorder=0, **chance)
    for place in range(len(rows)):
        axes.axhline(place, color=rcParams["grid.color"], linewidth=0.4, zorder=0)
    unfinished = {row for row, _, control in placed if not control.score.converged}
    axes.set_yticks(range(len(rows)), labels=[row + " *" * (row in unfinished) for row in rows])
    axes.tick_params(axis="y", length=0)
    axes.set(
        xlim=(0, 1.02),
        ylim=(len(rows) - 0.4, -0.6),
        xlabel="accuracy" + " (* an optimiser stopped early)" * bool(unfinished),
        title="Telling layers apart",
    )
    handles, names = axes.get_legend_handles_labels()
    entries = dict(zip(names, handles, strict=True))
    entries[f"chance, {report.chance:.3f}"] = Line2D([], [], **chance)
    if width == "full":
        add_legend(picture.figure, entries, columns=3)
    else:
        below = offset_copy(axes.transAxes, fig=picture.sheet, y=-LEGEND_BELOW, units="points")
        axes.legend(
            list(entries.values()),
            list(entries),
            loc="upper right",
            bbox_to_anchor=(1.0, 0.0),
            bbox_transform=below,
            borderaxespad=0.0,
            labelspacing=0.25,
        )


def _shift(marks: Sequence[Mark], mark: Mark) -> float:
    """Where a mark lies in its row; a row is 1 high."""
    apart = min(FARTHEST, ROW_SHARE / max(1, len(marks) - 1))
    return apart * (marks.index(mark) - (len(marks) - 1) / 2)


def _label(control: Control) -> str:
    score = control.score
    error = "" if score.standard_error is None else f" ± {score.standard_error:.3f}"
    return f"{control.title}: {score.accuracy:.3f}{error}"


def draw_sweep(picture: Picture, axes: Axes, sweep: Sweep) -> None:
    """Accuracies by context length or number of texts."""
    values = [float(point.value) for point in sweep.points]
    labels = [f"{value:.0f} {X_LABELS[sweep.variable]}" for value in values]
    _draw_line(picture, axes, values, [point.score for point in sweep.points], labels)
    if sweep.variable == "texts" and values and min(values) < max(values):
        axes.set_xscale("log")
        axes.xaxis.set_minor_formatter(ticker.NullFormatter())
    axes.set_xticks(values, labels=[f"{value:.0f}" for value in values])
    title = {"context": "By context length", "texts": "By number of texts"}[sweep.variable]
    axes.set(xlabel=X_LABELS[sweep.variable], title=title)


def draw_models(picture: Picture, axes: Axes, models: Sequence[ModelPoint]) -> None:
    """Accuracies by number of parameters, with the chance of each depth."""
    ordered = sorted(models, key=lambda point: point.n_parameters)
    millions = [point.n_parameters / 1e6 for point in ordered]
    labels = [f"{point.model}: {point.n_layers} layers of {point.dim}" for point in ordered]
    _draw_line(picture, axes, millions, [point.score for point in ordered], labels)
    for x, point in zip(millions, ordered, strict=True):
        axes.annotate(
            short(point.model),
            (x, point.score.accuracy),
            xytext=(0, -9),
            textcoords="offset points",
            ha="center",
        )
    if min(millions) < max(millions):
        axes.set_xscale("log")
        if max(millions) < 10 * min(millions):  # ticks of a log axis are a decade apart
            axes.xaxis.set_major_locator(ticker.MaxNLocator(3))
        axes.xaxis.set_major_formatter(ticker.StrMethodFormatter("{x:g}"))
        axes.xaxis.set_minor_formatter(ticker.NullFormatter())
    axes.set(xlabel="parameters (millions)", title="By model size")
    axes.margins(x=0.2)


def _draw_line(
    picture: Picture,
    axes: Axes,
    values: Sequence[float],
    scores: Sequence[Score],
    labels: list[str],
) -> None:
    accuracies = [score.accuracy for score in scores]
    errors = [score.standard_error or 0.0 for score in scores]
    axes.errorbar(values, accuracies, yerr=errors, **(TRAINED.style() | {"linestyle": "-"}))
    shown = (f"{label}: {value:.3f}" for label, value in zip(labels, accuracies, strict=True))
    picture.hover(axes, values, accuracies, shown)
    chances = [score.chance for score in scores]
    ink = rcParams["text.color"]
    axes.plot(values, chances, color=ink, linestyle=":", linewidth=1.0)
    axes.set(ylim=(0, 1.04), ylabel="accuracy")
