"""The components of hidden states by layer, and what a fine-tune edited."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import FigureBase
from matplotlib.ticker import MaxNLocator

from ...arrays import Float64
from ..components.components_report import Against, ComponentsReport, StackComponents
from .figures import Picture, Width, new_picture, short

HEIGHT_MM = 65.0
MARKERS = "osD^v"
LIGHT_CELL = 0.55
"""Share of the scale of a heat map above which its numbers are dark."""


def draw_components(report: ComponentsReport, width: Width = "full") -> Picture:
    """A picture with a row of panels for each residual stream."""
    columns = 2 if report.against is None else 3
    picture = new_picture(width, 15 + HEIGHT_MM * len(report.stacks))
    figure = picture.figure
    rows = figure.subplots(len(report.stacks), columns, squeeze=False)
    for panels, stack in zip(rows, report.stacks, strict=True):
        prefix = f"{stack.name}: " if len(report.stacks) > 1 else ""
        _lines(panels[0], stack, stack.importance, stack.importance_sd)
        title = f"{prefix}importance ± sd over tokens"
        panels[0].set(title=title, ylabel=r"$\langle e, x\rangle / |e|^2$")
        if stack.against is None:
            _lines(panels[1], stack, stack.norm_ratio, None)
            panels[1].set(title=f"{prefix}length", ylabel="$|x| / |e|$")
        else:
            _lines(panels[1], stack, stack.against.term_shift, None)
            panels[1].set(title=f"{prefix}how far each term moved", ylabel="$|x' - x| / |e|$")
            _heat_map(figure, panels[2], stack.against)
            panels[2].set(title=f"{prefix}where it was edited", ylabel="layer")
    beside = f" against {short(report.against)}" if report.against else ""
    figure.suptitle(f"Components of {short(report.model)}{beside}")
    return picture


def _lines(
    axes: Axes,
    stack: StackComponents,
    values: Float64[np.ndarray, "layers terms"],
    spread: Float64[np.ndarray, "layers terms"] | None,
) -> None:
    places = np.arange(len(stack.layers))
    for column, term in enumerate(stack.terms):
        if term in stack.absent:
            continue
        line = values[:, column]
        drawn = axes.plot(
            places, line, marker=MARKERS[column], markersize=4, label=term.replace("_", "-")
        )
        if spread is not None:
            around = spread[:, column]
            axes.fill_between(
                places, line - around, line + around, alpha=0.15, color=drawn[0].get_color(), lw=0
            )
    axes.set_xlabel("layer")
    axes.xaxis.set_major_locator(MaxNLocator(nbins=9, integer=True))
    if stack.layers[-1] == "final":
        axes.axvline(places[-1] - 0.5, lw=0.8, ls=":", color="0.5")
        axes.annotate(
            "after the\nfinal norm",
            (places[-1], 1),
            (0, 2),
            fontsize=8,
            ha="center",
            xycoords=("data", "axes fraction"),
            textcoords="offset points",
        )
    axes.legend()


def _heat_map(figure: FigureBase, axes: Axes, against: Against) -> None:
    values = against.local_shift
    top = float(values.max()) or 1.0
    shown = axes.imshow(values, aspect="auto", cmap="cividis", vmin=0, vmax=top, origin="lower")
    layers, terms = values.shape
    axes.set_xticks(range(terms), [t.replace("_", "-") for t in against.local_terms])
    axes.set_yticks(range(layers), [str(layer + 1) for layer in range(layers)])
    axes.spines[:].set_visible(False)
    if layers > 12:
        axes.yaxis.set_major_locator(MaxNLocator(nbins=12, integer=True))
    else:
        for (layer, term), value in np.ndenumerate(values):
            ink = "black" if value > LIGHT_CELL * top else "white"
            number = f"{value:.3f}" if value >= 0.0005 else "0"
            axes.text(term, layer, number, ha="center", va="center", color=ink)
    bar = figure.colorbar(shown, ax=axes, shrink=0.9)
    bar.set_label("own change / input")
