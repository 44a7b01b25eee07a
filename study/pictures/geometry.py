"""A geometry study as a picture: each measure by depth, with a line for each group."""

from __future__ import annotations

import numpy as np
from matplotlib import rcParams
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from ..geometry.divergence import DIVERGENCES, Divergence, Divergent
from ..geometry.geometry_report import GeometryReport
from ..geometry.group_geometry import GroupGeometry
from .figures import PALETTE, Picture, Width, add_legend, new_picture, plain

PANEL_MM = 60.0

COLOURS = PALETTE[:-1]
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "h", "*", "<", ">")
LEGEND_COLUMNS = 5

SATURATION = 20.0
"""Estimates above this dimension are lower bounds."""

MISSING = Divergence(estimator="gauss")

LOWER_BOUNDS = "above: lower bounds"


def draw_geometry(report: GeometryReport, width: Width = "full") -> Picture:
    """Intrinsic dimension, anisotropy, mean cosine and divergence by layer.

    Colours of text and background are those of `rcParams` when it is called.
    """
    shown = _shown_divergence(report)
    n_panels = 3 if shown is None else 4
    columns = 1 if width == "column" else 3 if n_panels == 3 else 2
    legend_rows = -(-(len(report.groups) + 2) // LEGEND_COLUMNS)
    picture = new_picture(width, PANEL_MM * (n_panels // columns) + 6 * legend_rows)
    figure = picture.figure
    panels = figure.subplots(n_panels // columns, columns, squeeze=False).ravel()
    _draw_dimension(panels[0], report)
    for axes, name, title, label in (
        (panels[1], "centred", "Anisotropy, centred", r"$\sigma_1^2/\Sigma\sigma_i^2$  (0…1)"),
        (panels[2], "mean_cosine", "Mean cosine of two tokens", "cosine (−1…1)"),
    ):
        for number, group in enumerate(report.groups):
            values = [getattr(layer.anisotropy, name) for layer in group.layers]
            _draw_line(axes, number, group, _floats(values))
        axes.set(title=title, ylabel=label)
    panels[1].set_ylim(bottom=0)
    if shown is not None:
        _draw_divergence(panels[3], report, shown)
    entries: dict[str, Artist] = {}
    for axes in panels:
        axes.set(xlabel="layer (0 = embeddings)", xlim=(-0.3, report.n_layers - 0.7))
        axes.xaxis.set_major_locator(MaxNLocator(nbins=9, integer=True, min_n_ticks=1))
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            entries.setdefault(label, handle)
    add_legend(figure, entries, columns=LEGEND_COLUMNS)
    return picture


def _draw_dimension(axes: Axes, report: GeometryReport) -> None:
    """By the study's first estimator, with the spread of its draws."""
    estimator, with_spread = report.options.estimators[0], False
    for number, group in enumerate(report.groups):
        dimensions = [layer.intrinsic_dimension[0] for layer in group.layers]
        values = _floats([answer.dimension for answer in dimensions])
        spread = _floats([answer.sd or 0.0 for answer in dimensions])
        low, high = values - spread, values + spread
        colour = COLOURS[number % len(COLOURS)]
        axes.fill_between(range(len(low)), low, high, color=colour, alpha=0.35, linewidth=0)
        with_spread |= bool(spread.any())
        _draw_line(axes, number, group, values)
    if axes.get_ylim()[1] > SATURATION:
        ink = rcParams["text.color"]
        axes.axhline(SATURATION, linestyle=":", color=ink, linewidth=1.6, label=LOWER_BOUNDS)
    axes.set_ylim(bottom=0)
    rows = "" if report.sample is None else f", N = {report.sample}"
    axes.set_title(f"Intrinsic dimension ({estimator}{rows})")
    axes.set_ylabel("dimensions" + ", mean ± sd" * with_spread)


def _draw_divergence(axes: Axes, report: GeometryReport, estimator: Divergent) -> None:
    """The divergence from the reference; the noise floor of `gauss` is a dashed line."""
    floor = np.full(report.n_layers, np.nan)
    for number, group in enumerate(report.groups):
        if group.group == report.reference:
            continue
        answers = [layer.divergence_by(estimator) or MISSING for layer in group.layers]
        values = [d.jeffreys if estimator == "gauss" else d.to_reference for d in answers]
        _draw_line(axes, number, group, _floats(values))
        floor = np.fmax(floor, _floats([answer.floor for answer in answers]))
    if np.isfinite(floor).any():
        ink = rcParams["text.color"]
        axes.plot(floor, linestyle="--", color=ink, linewidth=1.6, label="floor: reference halves")
    axes.set_ylim(bottom=0)
    axes.set_title(f"Divergence from {plain(report.reference or '')} ({estimator})")
    axes.set_ylabel("Jeffreys (nats)" if estimator == "gauss" else "KL(group ‖ reference) (nats)")


def _draw_line(axes: Axes, number: int, group: GroupGeometry, values: np.ndarray) -> None:
    axes.plot(
        values,
        color=COLOURS[number % len(COLOURS)],
        marker=MARKERS[number % len(MARKERS)],
        markersize=6,
        linewidth=1.8,
        label=plain(group.group) or "all texts",
    )


def _shown_divergence(report: GeometryReport) -> Divergent | None:
    """The estimator with numbers for most groups and layers; of equals, the Gaussian."""
    layers = [layer for group in report.groups for layer in group.layers]

    def numbers(estimator: Divergent) -> int:
        answers = (layer.divergence_by(estimator) or MISSING for layer in layers)
        return sum(answer.to_reference is not None for answer in answers)

    best = max(("gauss", *DIVERGENCES), key=numbers)
    return best if numbers(best) else None


def _floats(values: list[float | None]) -> np.ndarray:
    return np.array([np.nan if v is None else v for v in values], dtype=np.float64)
