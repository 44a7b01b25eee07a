"""A layer study as one picture: accuracies, axes, confusions, norms, contributions, sweeps."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib import colormaps, rcParams, ticker
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import BoundaryNorm, ListedColormap
from matplotlib.figure import FigureBase
from matplotlib.gridspec import SubplotSpec

from ..arrays import Float
from ..study.layers import LayersReport
from .figures import PALETTE, SMALL, Picture, Style, Width, new_picture, short
from .layer_accuracies import draw_accuracies, draw_models, draw_sweep

POINTS_A_LAYER = 200
NUMBERED_CELLS = 8
"""With more layers the confusion matrix has no numbers."""

OWN, FITTED = PALETTE[0], PALETTE[1]

CAPTION = (
    "Layer n: hidden state n (0: the embedding; n: behind n layers). "
    "Accuracies: share of held-back rows whose layer is named, ± 1 standard error by text. "
    "PC: principal component of all layers' states. Contribution: share of |weight| that the k "
    "largest dimensions of a layer's weights hold; n50, n90: dimensions that hold half and nine "
    "tenths. Colour: layer, as in the bar."
)


def draw_layers(report: LayersReport, width: Width = "full", *, model: str = "") -> Picture:
    """Five panels, and one for each sweep, in the colours that rcParams set."""
    sweeps = [sweep for sweep in (report.context_sweep, report.texts_sweep) if sweep is not None]
    n_sweeps = len(sweeps) + (report.models is not None)
    spots: Sequence[SubplotSpec]
    if width == "full":
        heights = [56.0, 56.0, *([46.0] if n_sweeps else [])]
        picture = new_picture(width, sum(heights) + 6, caption=CAPTION)
        rows = picture.figure.add_gridspec(len(heights), 1, height_ratios=heights)
        above = rows[:2].subgridspec(2, 3, width_ratios=(1.25, 1.0, 1.0))
        spots = [above[:, 0], above[0, 1], above[0, 2], above[1, 1], above[1, 2]]
        below = rows[2].subgridspec(1, n_sweeps) if n_sweeps else None
        spots += [below[0, place] for place in range(n_sweeps)] if below is not None else []
    else:
        heights = [102.0, 54.0, 56.0, 42.0, 42.0, *([42.0] * n_sweeps)]
        picture = new_picture(width, sum(heights), caption=CAPTION)
        grid = picture.figure.add_gridspec(len(heights), 1, height_ratios=heights)
        spots = [grid[place] for place in range(len(heights))]
    if model:
        picture.figure.suptitle(f"Layers of {short(model)}")
    panels = [picture.figure.add_subplot(spot) for spot in spots]
    draw_accuracies(picture, panels[0], report, width)
    _draw_axes(picture, panels[1], report)
    _draw_confusion(picture, panels[2], report)
    _draw_norms(picture, panels[3], report)
    _draw_contributions(picture, panels[4], report)
    for axes, sweep in zip(panels[5:], sweeps, strict=False):
        draw_sweep(picture, axes, sweep)
    if report.models is not None:
        draw_models(picture, panels[-1], report.models)
    return picture


def _depth_colours(report: LayersReport) -> tuple[ListedColormap, BoundaryNorm]:
    """A colour for each layer: viridis without its darkest and lightest colours."""
    colours = ListedColormap(colormaps["viridis"](np.linspace(0.2, 0.95, len(report.layers))))
    edges = np.arange(report.layers[0] - 0.5, report.layers[-1] + 1)
    return colours, BoundaryNorm(edges, len(report.layers))


def _draw_axes(picture: Picture, axes: Axes, report: LayersReport) -> None:
    """All rows on the first two principal axes, and the layers' centroids joined by depth."""
    pca = report.pca
    colours, bounds = _depth_colours(report)
    rng = np.random.default_rng(report.seed)
    by_layer = (np.flatnonzero(pca.layer == layer) for layer in pca.layers)
    rows = np.concatenate([rng.permutation(own)[:POINTS_A_LAYER] for own in by_layer])
    rows = rng.permutation(rows)  # no layer lies on top of all others
    ink = rcParams["text.color"]
    by_depth: Style = {"cmap": colours, "norm": bounds}
    small: Style = {"s": 3, "alpha": 0.6, "linewidths": 0, "rasterized": True}
    x, y = _plane(pca.coordinates[rows])
    axes.scatter(x, y, c=pca.layer[rows], **by_depth, **small)
    x, y = _plane(pca.centroids)
    axes.plot(x, y, color=ink, linewidth=1.0, zorder=3)
    large: Style = {"s": 26, "edgecolors": ink, "linewidths": 0.9, "zorder": 4}
    axes.scatter(x, y, c=pca.layers, **by_depth, **large)
    picture.hover(axes, x, y, (f"mean of layer {layer}" for layer in pca.layers))
    axes.set_aspect("equal", adjustable="datalim")
    bar = picture.figure.colorbar(ScalarMappable(norm=bounds, cmap=colours), ax=axes)
    bar.set_label("layer (○ its mean)")
    ticks = _layer_ticks(report.layers)
    bar.set_ticks(ticks, labels=[str(tick) for tick in ticks])
    bar.minorticks_off()
    shares = [*pca.explained, 0.0]
    axes.set(
        xlabel=f"PC 1 ({shares[0]:.0%} of variance)",
        ylabel=f"PC 2 ({shares[1]:.0%})",
        title="All layers on the same axes",
    )


def _draw_confusion(picture: Picture, axes: Axes, report: LayersReport) -> None:
    score = report.controls[0].score
    counts = np.asarray(score.confusion, dtype=np.float64)
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    image = axes.imshow(shares, cmap="viridis", vmin=0, vmax=1, origin="upper", aspect="equal")
    _bar_of(picture.figure, image, axes)
    if len(report.layers) <= NUMBERED_CELLS:
        for (i, j), share in np.ndenumerate(shares):
            ink = "black" if share > 0.6 else "white"  # on viridis, not the page
            number = f"{100 * share:.0f}"
            axes.text(j, i, number, ha="center", va="center", color=ink, fontsize=SMALL)
    ticks = _layer_ticks(report.layers)
    where, labels = [report.layers.index(tick) for tick in ticks], [str(tick) for tick in ticks]
    axes.set_xticks(where, labels=labels)
    axes.set_yticks(where, labels=labels)
    axes.set(xlabel="predicted layer", ylabel="true layer", title="What is mixed up")
    places = [(i, j) for (i, j), share in np.ndenumerate(shares) if share > 0]
    picture.hover(
        axes,
        (j for _, j in places),
        (i for i, _ in places),
        (
            f"layer {report.layers[i]} taken for {report.layers[j]}: {shares[i, j]:.1%}"
            for i, j in places
        ),
    )


def _bar_of(figure: FigureBase, image: ScalarMappable, axes: Axes) -> None:
    bar = figure.colorbar(image, ax=axes, format=ticker.PercentFormatter(1.0))
    bar.set_label("rows of a true layer")


def _draw_norms(picture: Picture, axes: Axes, report: LayersReport) -> None:
    norms = report.norms
    layers = np.asarray(norms.layers)
    low, mean, high = (
        np.where(np.asarray(values) > 0, values, np.nan)
        for values in (norms.smallest, norms.mean, norms.largest)
    )
    axes.fill_between(layers, low, high, color=OWN, alpha=0.35, linewidth=0, label="min to max")
    ink = rcParams["text.color"]
    axes.plot(layers, mean, color=ink, marker="o", label="mean")
    picture.hover(
        axes,
        layers,
        mean,
        (f"layer {n}: mean norm {m:.4g}" for n, m in zip(layers, mean, strict=True)),
    )
    title = "Norms"
    growth = norms.growth
    if growth is not None:
        change = {"grow": "growing", "shrink": "shrinking", "flat": "no steady trend"}
        title = f"Norms: {change[growth.verdict]}"
        title += " exponentially" * growth.exponential
        low_rate, high_rate = growth.rate_interval
        title += f"\n×{growth.rate:.3f} a layer ({low_rate:.3f} to {high_rate:.3f})"
        fitted = [growth.at(layer) for layer in norms.layers]
        axes.plot(layers, fitted, color=FITTED, linestyle="--", label=f"fit, R² {growth.r2:.2f}")
    axes.set_yscale("log")
    narrow = np.nanmax(high) < 10 * np.nanmin([low, mean])
    axes.yaxis.set_major_locator(
        ticker.MaxNLocator(5) if narrow else ticker.LogLocator(subs=(1, 2, 5), numticks=8)
    )
    axes.yaxis.set_major_formatter(ticker.StrMethodFormatter("{x:g}"))
    axes.yaxis.set_minor_formatter(ticker.NullFormatter())
    axes.xaxis.set_major_locator(ticker.MaxNLocator(6, integer=True))
    axes.legend(loc="best", handlelength=1.4)
    axes.set(xlabel="layer", ylabel="L2 norm (log scale)", title=title)


def _draw_contributions(picture: Picture, axes: Axes, report: LayersReport) -> None:
    """The share of |weight| that the k largest dimensions hold, for every layer."""
    held = report.contributions
    colours, bounds = _depth_colours(report)
    dims = np.arange(1, held.shares.shape[1] + 1)
    for layer, curve in zip(held.layers, held.curve(), strict=True):
        axes.plot(dims, curve, color=colours(bounds(layer)), linewidth=1.0)
    spans = []
    for share, counts, name in ((0.5, held.n50, "n50"), (0.9, held.n90, "n90")):
        axes.axhline(share, color=rcParams["text.color"], linestyle=":", linewidth=0.8)
        colour = [colours(bounds(layer)) for layer in held.layers]
        axes.scatter(counts, [share] * len(counts), c=colour, s=12, zorder=3)
        spans.append(f"{name} = {min(counts)} to {max(counts)}")
        labels = (
            f"layer {layer}: {name} = {count}"
            for layer, count in zip(held.layers, counts, strict=True)
        )
        picture.hover(axes, counts, [share] * len(counts), labels)
    if len(dims) > 1:
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(ticker.StrMethodFormatter("{x:g}"))
    axes.set(
        ylim=(0, 1.02),
        xlabel=f"k largest of {len(dims)} dimensions",
        ylabel="share of |weight|",
        title="Contribution of dimensions\n" + ", ".join(spans),
    )
    axes.yaxis.set_major_formatter(ticker.PercentFormatter(1.0))


def _plane(
    points: Float[np.ndarray, "points k"],
) -> tuple[Float[np.ndarray, " points"], Float[np.ndarray, " points"]]:
    """The first two coordinates; the second is 0 where there is only a single axis."""
    return points[:, 0], points[:, 1] if points.shape[1] > 1 else np.zeros(len(points))


def _layer_ticks(layers: tuple[int, ...]) -> list[int]:
    return list(layers[:: max(1, -(-len(layers) // 8))])
