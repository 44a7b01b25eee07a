"""A geometry study as a picture: each measure by depth, with a line for each group."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter, methodcaller

import numpy as np
from matplotlib import rcParams
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from ...arrays import Float64
from ...figures import PALETTE, Picture, Style, Width, add_legend, new_picture, plain, short
from .geometry_report import GeometryReport, GroupGeometry, LayerGeometry
from .intrinsic_dimension import ESTIMATORS

PANEL_MM = {"full": 50.0, "column": 40.0}
COLUMNS = {"full": 3, "column": 2}
LEGEND_MM = 4.0

COLOURS = PALETTE[:-1]
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "h", "*", "<", ">")

UNTRAINED = "untrained"

BAND = 0.25
"""Opacity of the intervals."""

ABOVE = 1.03
"""Room above the highest mark, which would be cut at a full number."""

MARGIN = 1.05

CAPTION = (
    "d: intrinsic dimension from the ratio of the distances to the two nearest tokens (facco: all "
    "ratios but the highest tenth; mle: maximum likelihood; low-fifth: the lowest fifth), from "
    "{rows} distinct tokens of each group; bands and bars: 95 % by blocks of texts that share no "
    "token; estimates that would need more tokens "
    "are left out. Anisotropy: σ₁²/Σσ² of the centred tokens, 0…1. Cosine: mean of two tokens, "
    "−1…1. Linearity: share of the variance of a layer's output (filled) and of its own "
    "contribution (hollow) that a linear map of its input gives, on held-out texts."
)
CAPTION_REFERENCE = (
    " Divergence from {reference}: Jeffreys (J) of Gaussians, with the floor between two halves of "
    "{reference}; Kullback–Leibler divergence (KL) of softmaxes of parallel texts' means."
)
CAPTION_UNTRAINED = " Dashed: a network of the same shape with fresh weights, without intervals."

Value = Callable[[LayerGeometry], float | None]
Bounds = Callable[[LayerGeometry], tuple[float, float] | None]


@dataclass(frozen=True, slots=True)
class NetworkCurve:
    """One group of one network; its number chooses colour and marker."""

    number: int
    geometry: GroupGeometry
    untrained: bool

    @property
    def name(self) -> str:
        return plain(self.geometry.group) or "all texts"

    @property
    def style(self) -> Style:
        number = self.number
        return {"color": COLOURS[number % len(COLOURS)], "marker": MARKERS[number % len(MARKERS)]}


@dataclass(frozen=True, slots=True)
class Panel:
    """One measure by depth.

    Attributes:
        bounds: 95 % around the value, where there is such an interval.
        second: A second value of the same unit, drawn with hollow marks.
        floor: Drawn once, without a group, of the studied network.
    """

    title: str
    label: str
    value: Value
    bounds: Bounds | None = None
    second: Value | None = None
    floor: Value | None = None


def draw_geometry(report: GeometryReport, width: Width = "full", *, model: str = "") -> Picture:
    """Dimension by every estimator, anisotropy, mean cosine, linearity, divergence, by layer.

    Colours of text and background are those of `rcParams` when it is called.
    """
    curves = [NetworkCurve(number, group, False) for number, group in enumerate(report.groups)]
    curves += [NetworkCurve(number, group, True) for number, group in enumerate(report.untrained)]
    panels = list(_panels(report))
    columns = COLUMNS[width]
    rows = -(-len(panels) // columns)
    names = max(len(curve.name) for curve in curves)
    legend_columns = max(1, min(5, (110 if width == "full" else 50) // (names + 8)))
    n_entries = len(report.groups) + 4
    legend_mm = LEGEND_MM * (-(-n_entries // legend_columns) + (2 if model else 1))
    picture = new_picture(width, PANEL_MM[width] * rows + legend_mm, caption=_caption(report))
    if model:
        picture.figure.suptitle(f"Geometry of {short(model)}")
    places = picture.figure.subplots(rows, columns, squeeze=False).ravel()
    for axes, panel in zip(places, panels, strict=False):
        _draw_panel(picture, axes, panel, curves)
    for axes in places[len(panels) :]:
        axes.remove()
    top = MARGIN * max(_highest(curve) for curve in curves)
    for axes in places[: len(ESTIMATORS)]:
        axes.set_ylim(0, top)
    for axes in places[: len(panels)]:
        axes.set_xlim(-0.3, report.n_layers - 0.7)
        axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True, min_n_ticks=1))
        axes.set_xlabel("hidden state (0: embedding)" if width == "full" else "hidden state")
    add_legend(picture.figure, _entries(report, curves, panels), columns=legend_columns)
    return picture


def _panels(report: GeometryReport) -> Iterator[Panel]:
    for place, estimator in enumerate(ESTIMATORS):
        yield Panel(f"TwoNN: {estimator}", "d", partial(_dimension, place), partial(_bounds, place))
    yield Panel("Anisotropy", "σ₁²/Σσ²", attrgetter("anisotropy.centred"))
    yield Panel("Mean cosine", "cosine", attrgetter("anisotropy.mean_cosine"))
    yield Panel(
        "Linearity",
        "share (R²)",
        methodcaller("linear", "held_out_stream"),
        second=methodcaller("linear", "held_out_contribution"),
    )
    if report.reference is None:
        return
    layers = [layer for group in report.groups for layer in group.layers]
    gauss = methodcaller("diverges", "gauss", "jeffreys")
    if any(gauss(layer) is not None for layer in layers):
        floor = methodcaller("diverges", "gauss", "floor")
        yield Panel("Divergence, Gauss", "J (nats)", gauss, floor=floor)
    softmax = methodcaller("diverges", "softmax-mean", "to_reference")
    if any(softmax(layer) is not None for layer in layers):
        yield Panel("Divergence, softmax", "KL (nats)", softmax)


def _highest(curve: NetworkCurve) -> float:
    """The highest dimension, with its interval for the studied network: fresh weights may have
    intervals many times as wide."""
    highest = 1.0
    for layer in curve.geometry.layers:
        for estimate in layer.intrinsic_dimension:
            bound = None if curve.untrained else estimate.high
            highest = max(highest, estimate.dimension or 0.0, bound or 0.0)
    return highest


def _dimension(place: int, layer: LayerGeometry) -> float | None:
    return layer.intrinsic_dimension[place].dimension


def _bounds(place: int, layer: LayerGeometry) -> tuple[float, float] | None:
    estimate = layer.intrinsic_dimension[place]
    if estimate.low is None or estimate.high is None:
        return None
    return max(0.0, estimate.low), estimate.high


def _draw_panel(picture: Picture, axes: Axes, panel: Panel, curves: Sequence[NetworkCurve]) -> None:
    """Every group's line; the axis begins at 0, or at the lowest value below it."""
    lowest = 0.0
    for curve in curves:
        layers, colour = curve.geometry.layers, curve.style["color"]
        for value, hollow in ((panel.value, False), (panel.second, True)):
            if value is None:
                continue
            values = np.array([value(layer) for layer in layers], dtype=np.float64)
            face = rcParams["axes.facecolor"] if hollow else colour
            line = "--" if curve.untrained else "-"
            axes.plot(values, **curve.style, markerfacecolor=face, linestyle=line)
            lowest = min(lowest, float(np.nanmin(values, initial=0.0)))
            of = f"{panel.title}, contribution" if hollow else panel.title
            _mark(picture, axes, curve, values, of)
        # intervals of fresh weights are many times as wide
        if panel.bounds is not None and not curve.untrained:
            low, high = np.array([panel.bounds(layer) or (np.nan, np.nan) for layer in layers]).T
            axes.fill_between(range(len(low)), low, high, color=colour, alpha=BAND, linewidth=0)
            # a layer between two without a number has no band
            axes.vlines(range(len(low)), low, high, color=colour, linewidth=0.7)
    if panel.floor is not None:
        trained = (curve.geometry.layers for curve in curves if not curve.untrained)
        by_group = [[panel.floor(layer) for layer in layers] for layers in trained]
        floor = np.fmax.reduce(np.array(by_group, dtype=np.float64))
        axes.plot(floor, color=rcParams["text.color"], linewidth=0.8)
    if not any(np.isfinite(np.asarray(line.get_ydata(), dtype=float)).any() for line in axes.lines):
        axes.text(0.5, 0.5, "too few tokens", ha="center", va="center", transform=axes.transAxes)
    axes.set(title=panel.title, ylabel=panel.label)
    axes.set_ylim(lowest * MARGIN, axes.get_ylim()[1] * ABOVE)
    axes.grid(alpha=0.25)


def _mark(
    picture: Picture,
    axes: Axes,
    curve: NetworkCurve,
    values: Float64[np.ndarray, " layers"],
    measure: str,
) -> None:
    network = f", {UNTRAINED}" if curve.untrained else ""
    known = np.flatnonzero(np.isfinite(values))
    name = f"{curve.geometry.group or 'all texts'}{network}"
    labels = [f"{name}, hidden state {layer}\n{measure} {values[layer]:.3g}" for layer in known]
    picture.hover(axes, known.tolist(), values[known].tolist(), labels)


def _entries(
    report: GeometryReport, curves: Sequence[NetworkCurve], panels: Sequence[Panel]
) -> dict[str, Artist]:
    ink = rcParams["text.color"]
    entries: dict[str, Artist] = {curve.name: Line2D([], [], **curve.style) for curve in curves}
    if report.untrained:
        entries[UNTRAINED] = Line2D([], [], color=ink, linestyle="--")
    hollow = Line2D([], [], color=ink, marker="o", markerfacecolor=rcParams["axes.facecolor"])
    entries["own contribution"] = hollow
    if any(panel.floor is not None for panel in panels):
        entries["floor"] = Line2D([], [], color=ink, linewidth=0.8)
    return entries


def _caption(report: GeometryReport) -> str:
    caption = CAPTION.format(rows=report.sample or "all")
    if report.reference is not None:
        caption += CAPTION_REFERENCE.format(reference=report.reference)
    return caption + CAPTION_UNTRAINED * bool(report.untrained)
