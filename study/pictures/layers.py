"""A layer study as one picture: axes, confusions, accuracies, norms."""

from __future__ import annotations

import numpy as np
from matplotlib import colormaps, rcParams, ticker
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import BoundaryNorm, ListedColormap
from matplotlib.figure import FigureBase
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from ...arrays import Float
from ..layers import LayersReport
from .figures import PALETTE, TEXT, Picture, Style, Width, add_legend, new_picture

POINTS_A_LAYER = 200
NUMBERED_CELLS = 8
"""With more layers the confusion matrix has no numbers."""

OWN, ANEW = PALETTE[0], PALETTE[4]


def draw_layers(report: LayersReport, width: Width = "full") -> Picture:
    """Four panels, in the colours that rcParams set."""
    picture = new_picture(width, max(165.0, 50 + 5 * len(report.controls)))
    figure = picture.figure
    grid = figure.add_gridspec(3, 2, width_ratios=(1.0, 1.05), height_ratios=(1.15, 1.1, 0.8))
    _draw_axes(figure, figure.add_subplot(grid[0, 0]), report)
    _draw_confusion(figure, figure.add_subplot(grid[1, 0]), report)
    _draw_norms(figure.add_subplot(grid[2, 0]), report)
    _draw_accuracies(figure, figure.add_subplot(grid[:, 1]), report)
    return picture


def _draw_axes(figure: FigureBase, axes: Axes, report: LayersReport) -> None:
    """All rows on the first two principal axes, and the layers' centroids joined by depth."""
    pca = report.pca
    # viridis without its darkest and lightest colours
    colours = ListedColormap(colormaps["viridis"](np.linspace(0.2, 0.95, len(report.layers))))
    edges = np.arange(report.layers[0] - 0.5, report.layers[-1] + 1)
    bounds = BoundaryNorm(edges, len(report.layers))
    rng = np.random.default_rng(report.seed)
    by_layer = (np.flatnonzero(pca.layer == layer) for layer in pca.layers)
    rows = np.concatenate([rng.permutation(own)[:POINTS_A_LAYER] for own in by_layer])
    rows = rng.permutation(rows)  # no layer lies on top of all others
    ink = rcParams["text.color"]
    by_depth: Style = {"cmap": colours, "norm": bounds}
    small: Style = {"s": 8, "alpha": 0.6, "linewidths": 0, "rasterized": True}
    x, y = _plane(pca.coordinates[rows])
    axes.scatter(x, y, c=pca.layer[rows], **by_depth, **small)
    x, y = _plane(pca.centroids)
    axes.plot(x, y, color=ink, linewidth=1.4, zorder=3)
    large: Style = {"s": 62, "edgecolors": ink, "linewidths": 1.3, "zorder": 4}
    axes.scatter(x, y, c=pca.layers, **by_depth, **large)
    axes.set_aspect("equal", adjustable="datalim")
    bar = figure.colorbar(ScalarMappable(norm=bounds, cmap=colours), ax=axes)
    bar.set_label("layer (○ mean of a layer)")
    ticks = _layer_ticks(report.layers)
    bar.set_ticks(ticks, labels=[str(tick) for tick in ticks])
    bar.minorticks_off()
    shares = [*pca.explained, 0.0]
    axes.set(
        xlabel=f"PC 1, {shares[0]:.0%} of variance (activation units)",
        ylabel=f"PC 2, {shares[1]:.0%} of variance",
        title="All layers on the same axes",
    )


def _draw_confusion(figure: FigureBase, axes: Axes, report: LayersReport) -> None:
    score = report.controls[0].score
    counts = np.asarray(score.confusion, dtype=np.float64)
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    colours = colormaps["viridis"]
    image = axes.imshow(shares, cmap=colours, vmin=0, vmax=1, origin="upper", aspect="equal")
    figure.colorbar(
        image, ax=axes, label="share of a true layer's rows", format=ticker.PercentFormatter(1.0)
    )
    if len(report.layers) <= NUMBERED_CELLS:
        for (i, j), share in np.ndenumerate(shares):
            ink = "black" if share > 0.6 else "white"  # on viridis, not the page
            number = f"{100 * share:.0f}"
            axes.text(j, i, number, ha="center", va="center", color=ink, fontsize=TEXT)
    ticks = _layer_ticks(report.layers)
    where, labels = [report.layers.index(tick) for tick in ticks], [str(tick) for tick in ticks]
    axes.set_xticks(where, labels=labels)
    axes.set_yticks(where, labels=labels)
    title = "What the classifier mixes up (% of rows)"
    axes.set(xlabel="predicted layer", ylabel="true layer", title=title)


def _draw_norms(axes: Axes, report: LayersReport) -> None:
    norms = report.norms
    layers = np.asarray(norms.layers)
    low, mean, high = (
        np.where(np.asarray(values) > 0, values, np.nan)
        for values in (norms.smallest, norms.mean, norms.largest)
    )
    axes.fill_between(layers, low, high, color=OWN, alpha=0.4, linewidth=0, label="min to max")
    axes.plot(layers, mean, color=rcParams["text.color"], marker="o", markersize=4, label="mean")
    title = "Norms by layer"
    growth = norms.growth
    if growth is not None:
        verdict = "exponential" if growth.exponential else "not exponential"
        title += f": ×{growth.rate:.3f} a layer\n(R² {growth.r2:.2f}, {verdict})"
        fitted = [growth.at(layer) for layer in norms.layers]
        axes.plot(layers, fitted, color=ANEW, linestyle="--", linewidth=2, label="fitted growth")
    axes.set_yscale("log")
    narrow = np.nanmax(high) < 10 * np.nanmin([low, mean])
    axes.yaxis.set_major_locator(
        ticker.AutoLocator() if narrow else ticker.LogLocator(subs=(1, 2, 5), numticks=8)
    )
    axes.yaxis.set_major_formatter(ticker.StrMethodFormatter("{x:g}"))
    axes.yaxis.set_minor_formatter(ticker.NullFormatter())
    axes.xaxis.set_major_locator(ticker.MaxNLocator(integer=True))
    below: Style = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.24)}
    axes.legend(fontsize=TEXT, frameon=False, ncols=3, columnspacing=1.2, **below)
    axes.set(xlabel="layer", ylabel="L2 norm (activation units)", title=title)


def _draw_accuracies(figure: FigureBase, axes: Axes, report: LayersReport) -> None:
    controls = report.controls
    ink = rcParams["text.color"]
    places = np.arange(len(controls))
    axes.barh(
        places,
        [control.score.accuracy for control in controls],
        xerr=[control.score.standard_error or 0.0 for control in controls],
        color=[ANEW if control.retrained else OWN for control in controls],
        ecolor=ink,
        error_kw={"elinewidth": 1.2, "capsize": 2.5},
        height=0.72,
    )
    early = " (stopped early)"
    labels = [control.title + early * (not control.score.converged) for control in controls]
    axes.set_yticks(places, labels=labels)
    axes.axvline(report.chance, color=ink, linestyle=":", linewidth=1.6)
    axes.set(
        xlim=(0, 1.02),
        ylim=(len(controls) - 0.4, -0.6),
        xlabel="accuracy on held-back texts\n(share of rows, ± 1 standard error)",
        title="Telling layers apart",
    )
    entries = {
        "the classifier, applied": Patch(color=OWN),
        "another one, trained for it": Patch(color=ANEW),
        f"chance, {report.chance:.3f}": Line2D([], [], color=ink, linestyle=":", linewidth=1.6),
    }
    add_legend(figure, entries, loc="outside lower right")


def _plane(
    points: Float[np.ndarray, "points k"],
) -> tuple[Float[np.ndarray, " points"], Float[np.ndarray, " points"]]:
    """The first two coordinates; the second is 0 where there is only a single axis."""
    return points[:, 0], points[:, 1] if points.shape[1] > 1 else np.zeros(len(points))


def _layer_ticks(layers: tuple[int, ...]) -> list[int]:
    return list(layers[:: max(1, -(-len(layers) // 10))])
