"""A CKA study as a picture: the line by layer, and every layer beside every layer."""

from __future__ import annotations

import numpy as np
from matplotlib import rcParams
from matplotlib.axes import Axes
from matplotlib.figure import FigureBase
from matplotlib.ticker import MaxNLocator

from ...figures import PALETTE, QUANTILE, Picture, Style, Width, new_picture, short
from .cka_report import CkaReport

PANEL_MM = 66.0
NUMBERED_CELLS = 8
"""With more layers the cells of the heat map have no numbers."""

LIGHT_CELL = 0.6
"""Share of the scale above which a cell's number is dark."""

CAPTION = (
    "Linear CKA (0: unrelated, 1: equal up to rotation and scale) of {tokens} tokens of {texts} "
    "texts. Debiased: unbiased HSIC; biased: of the same tokens. Band: 95 % interval, jackknife "
    "over {blocks} blocks of texts. Layer 0: embeddings."
)


def draw_cka(report: CkaReport, width: Width = "full") -> Picture:
    """The layers of the same depth beside each other, and the matrix of all layers."""
    rows, columns = (2, 1) if width == "column" else (1, 2)
    band = "" if report.n_blocks else "Band: 95 % interval, jackknife over 0 blocks of texts. "
    caption = CAPTION.format(
        tokens=report.n_tokens, texts=report.n_texts, blocks=report.n_blocks
    ).replace(band, "")
    picture = new_picture(width, PANEL_MM * rows + 6, caption=caption)
    line, matrix = picture.figure.subplots(rows, columns)
    _draw_line(picture, line, report)
    _draw_matrix(picture, matrix, report)
    picture.figure.suptitle(f"CKA of {short(report.model)} and {short(report.against)}")
    return picture


def _draw_line(picture: Picture, axes: Axes, report: CkaReport) -> None:
    layers = [layer["layer"] for layer in report.layers]
    debiased, biased, error = (
        np.array([layer[name] for layer in report.layers])
        for name in ("debiased", "cka", "standard_error")
    )
    if np.isfinite(error).any():
        low, high = debiased - QUANTILE * error, debiased + QUANTILE * error
        axes.fill_between(layers, low, high, color=PALETTE[0], alpha=0.25, linewidth=0)
    ink: Style = {"color": rcParams["text.color"], "linestyle": "--", "linewidth": 0.9}
    axes.plot(layers, biased, marker="s", markersize=5, markerfacecolor="none", label="biased",
              clip_on=False, **ink)  # fmt: skip
    whole: Style = {"clip_on": False, "zorder": 3}  # also the markers at 1
    axes.plot(layers, debiased, color=PALETTE[0], marker="o", markersize=2.5, label="debiased",
              **whole)  # fmt: skip
    picture.hover(
        axes,
        layers,
        debiased,
        [
            f"hidden state {layer['layer']} beside {layer['against_layer']}\n"
            f"CKA {_shown(layer['debiased'])} ± {_shown(layer['standard_error'])}, "
            f"biased {_shown(layer['cka'])}"
            for layer in report.layers
        ],
    )
    axes.xaxis.set_major_locator(MaxNLocator(nbins=9, integer=True, min_n_ticks=1))
    axes.grid(alpha=0.25)
    lowest = np.nanmin([0.9, *debiased, *biased, *(debiased - QUANTILE * np.nan_to_num(error))])
    axes.set(
        xlabel=f"layer of {short(report.model)}",
        ylabel="CKA",
        ylim=(lowest - 0.02, 1.0),
        title="Layers of the same relative depth",
    )
    axes.legend(loc="best")


def _draw_matrix(picture: Picture, axes: Axes, report: CkaReport) -> None:
    values = report.matrix
    figure: FigureBase = picture.figure
    shown = axes.imshow(
        values, cmap="viridis", vmin=min(0.0, float(np.nanmin([0.0, *values.ravel()]))), vmax=1
    )
    axes.invert_yaxis()
    axes.spines[:].set_visible(False)
    if max(values.shape) <= NUMBERED_CELLS:
        for (layer, other), value in np.ndenumerate(values):
            if np.isfinite(value):
                ink = "black" if value > LIGHT_CELL else "white"
                number = f"{value:.2f}".replace("0.", ".", 1)
                axes.text(other, layer, number, ha="center", va="center", color=ink, fontsize=6.5)
    places = list(np.ndindex(*values.shape))
    picture.hover(
        axes,
        [other for _, other in places],
        [layer for layer, _ in places],
        [f"hidden state {i} beside {j}\nCKA {_shown(float(values[i, j]))}" for i, j in places],
    )
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(nbins=9, integer=True, min_n_ticks=1))
    figure.colorbar(shown, ax=axes, label="CKA, debiased", shrink=0.9)
    axes.set(
        xlabel=f"hidden state of {short(report.against)}",
        ylabel=f"hidden state of {short(report.model)}",
        title="Every hidden state beside every other",
    )


def _shown(value: float) -> str:
    return "–" if np.isnan(value) else f"{value:.3f}"
