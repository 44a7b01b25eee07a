"""What hidden states are made of, layer by layer; beside it, what a fine-tune edited."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ...arrays import Float64
from ..components.components_report import Against, ComponentsReport, StackComponents
from .figures import short

WIDTH, HEIGHT = 10.0, 3.6
TEXT, SMALL = 10.5, 9.5
MARKERS = "osD^v"
LIGHT_CELL = 0.55
"""Share of a heat map's scale from which its figures are dark."""


def draw_components(report: ComponentsReport) -> Figure:
    """One row of panels for each residual stream, as a figure of its own."""
    compared = report.against is not None
    columns = 3 if compared else 2
    figure = Figure(figsize=(WIDTH, 0.9 + HEIGHT * len(report.stacks)), layout="constrained")
    for row, stack in enumerate(report.stacks):
        panels = [
            figure.add_subplot(len(report.stacks), columns, columns * row + 1 + place)
            for place in range(columns)
        ]
        prefix = f"{stack.name}: " if len(report.stacks) > 1 else ""
        _lines(panels[0], stack, stack.importance, stack.importance_sd)
        panels[0].set_title(f"{prefix}importance ± sd over tokens", fontsize=TEXT)
        panels[0].set_ylabel(r"$\langle e, x\rangle / |e|^2$", fontsize=TEXT)
        if stack.against is None:
            _lines(panels[1], stack, stack.norm_ratio, None)
            panels[1].set_title(f"{prefix}length", fontsize=TEXT)
            panels[1].set_ylabel("$|x| / |e|$", fontsize=TEXT)
        else:
            _lines(panels[1], stack, stack.against.term_shift, None)
            panels[1].set_title(f"{prefix}how far each term moved", fontsize=TEXT)
            panels[1].set_ylabel("$|x' - x| / |e|$", fontsize=TEXT)
            _heat_map(figure, panels[2], stack.against)
            panels[2].set_title(f"{prefix}where it was edited", fontsize=TEXT)
    beside = f" against {short(report.against)}" if report.against else ""
    figure.suptitle(f"Components of {short(report.model)}{beside}", fontsize=TEXT + 1)
    return figure


def _lines(
    axes: Axes,
    stack: StackComponents,
    values: Float64[np.ndarray, "layers terms"],
    spread: Float64[np.ndarray, "layers terms"] | None,
) -> None:
    """A line for each term that is there, by layer."""
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
    axes.set_xlabel("layer", fontsize=TEXT)
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
    axes.tick_params(labelsize=SMALL)
    axes.legend(fontsize=SMALL, frameon=False)


def _heat_map(figure: Figure, axes: Axes, against: Against) -> None:
    """Local shift by layer and sub-layer; the most edited cell is framed."""
    values = against.local_shift
    top = float(values.max()) or 1.0
    shown = axes.imshow(values, aspect="auto", cmap="cividis", vmin=0, vmax=top, origin="lower")
    layers, terms = values.shape
    axes.set_xticks(
        range(terms), [t.replace("_", "-") for t in against.local_terms], fontsize=SMALL
    )
    axes.set_yticks(range(layers), [str(layer + 1) for layer in range(layers)], fontsize=SMALL)
    axes.yaxis.set_major_locator(MaxNLocator(nbins=12, integer=True)) if layers > 12 else None
    axes.set_ylabel("layer", fontsize=TEXT)
    axes.spines[:].set_visible(False)
    if layers <= 12:
        for (layer, term), value in np.ndenumerate(values):
            ink = "black" if value > LIGHT_CELL * top else "white"
            axes.text(
                term,
                layer,
                f"{value:.3f}" if value >= 0.0005 else "0",
                ha="center",
                va="center",
                color=ink,
                fontsize=9,
            )
    bar = figure.colorbar(shown, ax=axes, shrink=0.9)
    bar.set_label("own change / input", fontsize=SMALL)
    bar.ax.tick_params(labelsize=SMALL)
