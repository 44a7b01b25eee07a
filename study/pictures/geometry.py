"""A geometry study as one picture: each measure by depth, one line a group."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from matplotlib import rcParams
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import MaxNLocator

from ..geometry.divergence import DIVERGENCES, Divergence, Divergent
from ..geometry.geometry_report import GeometryReport, GroupGeometry, LayerGeometry

FONT = 11.0
WIDTH, PANEL_HEIGHT = 10.0, 3.4
"""Inches."""

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
"""Okabe & Ito 2008, without those that vanish on white or on black."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "h", "*", "<", ">")
LEGEND_COLUMNS = 5

SATURATION = 20.0
"""Dimension from which all estimators fall short."""

MISSING = Divergence(estimator="gauss")

Value = Callable[[LayerGeometry], float | None]


def draw_geometry(report: GeometryReport) -> Figure:
    """Intrinsic dimension, anisotropy, mean cosine and divergence by layer.

    Colours of text and background are those of `rcParams` when it is called.
    """
    shown = _shown_divergence(report)
    n_panels = 3 if shown is None else 4
    columns = 3 if n_panels == 3 else 2
    legend_rows = -(-(len(report.groups) + 2) // LEGEND_COLUMNS)
    height = PANEL_HEIGHT * (n_panels // columns) + 0.3 * legend_rows + 0.4
    figure = Figure(figsize=(WIDTH, height), layout=ConstrainedLayoutEngine(h_pad=0.1, w_pad=0.1))
    panels = figure.subplots(n_panels // columns, columns, squeeze=False).ravel()
    _draw_dimension(panels[0], report)
    for axes, name, title, label in (
        (panels[1], "centred", "Anisotropy, centred", r"$\sigma_1^2/\Sigma\sigma_i^2$  (0…1)"),
        (panels[2], "mean_cosine", "Mean cosine of two tokens", "cosine (−1…1)"),
    ):
        _draw_lines(axes, report, _anisotropy(name))
        axes.set_title(title)
        axes.set_ylabel(label)
    panels[1].set_ylim(bottom=0)
    if shown is not None:
        _draw_divergence(panels[3], report, shown)
    for axes in panels:
        _finish(axes, report.n_layers)
    handles, labels = _legend(panels)
    figure.legend(
        handles,
        labels,
        loc="outside lower center",
        ncols=min(LEGEND_COLUMNS, len(labels)),
        fontsize=FONT,
        frameon=False,
    )
    return figure


def _draw_dimension(axes: Axes, report: GeometryReport) -> None:
    """By the study's first estimator, with the spread of its draws."""
    estimator = report.options.estimators[0]
    for number, group in enumerate(report.groups):
        found = [layer.dimension_by(estimator) for layer in group.layers]
        values = _floats([None if d is None else d.dimension for d in found])
        spread = _floats([0.0 if d is None or d.sd is None else d.sd for d in found])
        layers = np.arange(len(values))
        axes.fill_between(
            layers, values - spread, values + spread, color=_colour(number), alpha=0.35, linewidth=0
        )
        _draw_line(axes, number, group, values)
    if axes.get_ylim()[1] > SATURATION:
        axes.axhline(
            SATURATION,
            linestyle=":",
            color=rcParams["text.color"],
            linewidth=1.6,
            label="above: lower bounds",
        )
    axes.set_ylim(bottom=0)
    rows = "" if report.sample is None else f", N = {report.sample}"
    axes.set_title(f"Intrinsic dimension ({estimator}{rows})")
    axes.set_ylabel("dimensions" + (", mean ± sd" if _has_spread(report) else ""))


def _draw_divergence(axes: Axes, report: GeometryReport, estimator: Divergent) -> None:
    """Towards the reference; the Gaussian's noise floor as a dashed line."""
    floor = np.full(report.n_layers, np.nan)
    for number, group in enumerate(report.groups):
        if group.group == report.reference:
            continue
        found = [layer.divergence_by(estimator) or MISSING for layer in group.layers]
        values = [d.jeffreys if estimator == "gauss" else d.to_reference for d in found]
        _draw_line(axes, number, group, _floats(values))
        floor = np.fmax(floor, _floats([d.floor for d in found]))
    if np.isfinite(floor).any():
        axes.plot(
            floor,
            linestyle="--",
            color=rcParams["text.color"],
            linewidth=1.6,
            label="floor: reference halves",
        )
    axes.set_ylim(bottom=0)
    axes.set_title(f"Divergence from {_plain(report.reference or '')} ({estimator})")
    axes.set_ylabel("Jeffreys (nats)" if estimator == "gauss" else "KL(group ‖ reference) (nats)")


def _draw_lines(axes: Axes, report: GeometryReport, value: Value) -> None:
    for number, group in enumerate(report.groups):
        _draw_line(axes, number, group, _floats([value(layer) for layer in group.layers]))


def _draw_line(axes: Axes, number: int, group: GroupGeometry, values: np.ndarray) -> None:
    axes.plot(
        values,
        color=_colour(number),
        marker=MARKERS[number % len(MARKERS)],
        markersize=6,
        linewidth=1.8,
        label=_plain(group.group) or "all texts",
    )


def _finish(axes: Axes, n_layers: int) -> None:
    axes.set_xlabel("layer (0 = embeddings)", fontsize=FONT)
    axes.set_xlim(-0.3, n_layers - 0.7)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=9, integer=True, min_n_ticks=1))
    axes.yaxis.label.set_fontsize(FONT)
    axes.title.set_fontsize(FONT + 1)
    axes.tick_params(labelsize=FONT - 1)
    axes.grid(alpha=0.25)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def _legend(panels: np.ndarray) -> tuple[list[Artist], list[str]]:
    """Each label once, in the order of drawing."""
    found: dict[str, Artist] = {}
    for axes in panels:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    return list(found.values()), list(found)


def _shown_divergence(report: GeometryReport) -> Divergent | None:
    """The estimator with numbers for most groups and layers; of equals, the Gaussian."""
    layers = [layer for group in report.groups for layer in group.layers]

    def numbers(estimator: Divergent) -> int:
        found = (layer.divergence_by(estimator) for layer in layers)
        return sum(d is not None and d.to_reference is not None for d in found)

    best = max(("gauss", *DIVERGENCES), key=numbers)
    return best if numbers(best) else None


def _anisotropy(name: str) -> Value:
    def value(layer: LayerGeometry) -> float | None:
        found: float | None = getattr(layer.anisotropy, name)
        return found

    return value


def _has_spread(report: GeometryReport) -> bool:
    dimensions = (layer.intrinsic_dimension[0] for group in report.groups for layer in group.layers)
    return any(d.sd is not None for d in dimensions)


def _floats(values: list[float | None]) -> np.ndarray:
    """With gaps where there is no number."""
    return np.array([np.nan if v is None else v for v in values], dtype=np.float64)


def _colour(number: int) -> str:
    return COLOURS[number % len(COLOURS)]


def _plain(name: str) -> str:
    """Without what matplotlib would read as mathematics."""
    return name.replace("$", r"\$")
