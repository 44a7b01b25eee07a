"""Models of several bases beside a panel's data sets: a heat map of z, and a map of all models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from ..arrays import Float64, Int64
from .data_scores import middle_cut, shown_models
from .figures import WIDTHS_MM, Picture, add_legend, new_picture, plain
from .map_picture import (
    BESIDE_STARS,
    DARK,
    LIGHT,
    STAR_AREA,
    VECTORS_UP_TO,
    Theme,
    mixed,
    name_star,
)

MOST_MODELS = 200
"""Columns of a heat map, as many of each base where there are so many."""

ROW_MM, COLUMN_MM, BESIDE_MM, ABOVE_MM = 3.2, 2.3, 62.0, 46.0
"""Of a heat map's cells, and what its names and its scale take."""

SET_NAME, MODEL_NAME = 30, 28
CHARACTER_MM = 1.5
"""Of a base's name above its models."""

LEAST_SCALE, MOST_SCALE, QUANTILE_SHOWN = 2.0, 6.0, 0.995
"""Standard deviations at the ends of the scale: within these, those of most cells."""

DARK_CELL = 0.6
"""Share of the scale from which a cell is dark."""

HEAT_CAPTION = (
    "z of each data set with each model, in standard deviations over the models of the same base. "
    "{marks}{shown}It says at most: trained on this data, or on data like it."
)

MAP_MM, LISTED, LABELLED_UP_TO = 135.0, 15, 5_000
MAP_CAPTION = (
    "{n:,} models of {bases} bases by {sets} data sets of panel {panel}: two models are near "
    "where z of these rises and falls alike (correlation), whatever their base. {reading}"
)


def draw_panel(document: Mapping[str, Any], z: Sequence[Float64[np.ndarray, "data _"]]) -> Picture:
    """A heat map: data sets in rows, alike ones beside each other; models in columns, by base and
    by their nearest data set.

    Args:
        document: Of a `PanelScoresTable`.
        z: Of each of its families, standardised.
    """
    rows = alike_order(np.hstack(z)).tolist()
    sizes = [some.shape[1] for some in z]
    shares = _shares(sizes, MOST_MODELS)
    shown = [shown_models(some[rows], n) for some, n in zip(z, shares, strict=True)]
    families, n_shown = document["families"], sum(map(len, shown))
    few = f"{n_shown} of {sum(sizes):,} models, the nearest to each data set. "
    standing = any(family["standing"] for family in families)
    caption = HEAT_CAPTION.format(
        marks="Dot: the model stands out. " if standing else "No model stands out. ",
        shown=few * (n_shown < sum(sizes)),
    )
    across = max(WIDTHS_MM["full"], BESIDE_MM + COLUMN_MM * n_shown)
    picture = new_picture(across, ABOVE_MM + ROW_MM * len(rows), caption=caption)
    axes = picture.figure.subplots()
    cells = np.hstack([some[np.ix_(rows, own)] for some, own in zip(z, shown, strict=True)])
    end = float(np.clip(np.quantile(np.abs(cells), QUANTILE_SHOWN), LEAST_SCALE, MOST_SCALE))
    image = axes.imshow(cells, cmap="RdBu_r", vmin=-end, vmax=end, aspect="auto")
    axes.spines[:].set_visible(False)
    names = [document["sets"][row] for row in rows]
    axes.set_yticks(range(len(rows)), [middle_cut(n, SET_NAME) for n in names], fontsize=6.5)
    labels, marked, first = list[str](), list[tuple[int, int]](), 0
    bases = base_names([family["base"] for family in families])
    for base, family, own in zip(bases, families, shown, strict=True):
        room = int((across - BESIDE_MM) * len(own) / n_shown / CHARACTER_MM)
        _name_base(axes, base, first, len(own), max(2, room))
        dots = set(map(tuple, family["standing"]))
        for x, model in enumerate(own.tolist(), start=first):
            labels.append(middle_cut(family["models"][model], MODEL_NAME))
            about = _about(family["models"][model], family["base"], family["datasets"][model])
            numbers = [f"{about}\n{name}: z {family['z'][row][model]:.1f}"
                       for row, name in zip(rows, names, strict=True)]  # fmt: skip
            picture.hover(axes, [x] * len(rows), range(len(rows)), numbers)
            marked += [(x, y) for y, row in enumerate(rows) if (row, model) in dots]
        first += len(own)
    if marked:
        inks = ["white" if abs(cells[y, x]) > DARK_CELL * end else "black" for x, y in marked]
        xs, ys = np.transpose(marked)
        axes.scatter(xs, ys, s=2.0, c=inks, linewidths=0)
    axes.set_xticks(range(n_shown), labels, rotation=90, fontsize=5.0)
    axes.tick_params(length=0)
    picture.figure.colorbar(
        image, ax=axes, label="standard deviations", shrink=min(1.0, 14 / len(rows) + 0.2),
        aspect=15, extend="both", pad=0.01,
    )  # fmt: skip
    title = f"Panel {document['panel']}: {len(rows)} data sets, bases: {len(families)}"
    picture.figure.suptitle(plain(title))
    return picture


def _about(model: str, base: str, dataset: str | None) -> str:
    """What the mouse shows of a model."""
    return f"{model}\n{base}" + (f"\nlabelled {dataset}" if dataset else "")


def _shares(sizes: Sequence[int], most: int) -> list[int]:
    """How many of each are shown: all of the small ones, of the others equally many."""
    shares, left = dict[int, int](), most
    for done, place in enumerate(sorted(range(len(sizes)), key=lambda place: sizes[place])):
        shares[place] = min(sizes[place], max(1, left // (len(sizes) - done)))
        left -= shares[place]
    return [shares[place] for place in range(len(sizes))]


def alike_order(z: Float64[np.ndarray, "data models"]) -> Int64[np.ndarray, " data"]:
    """Rows so that alike ones are neighbours: average linkage of correlation distances, its leaves
    in the order of Bar-Joseph et al. (2001)."""
    from scipy.cluster.hierarchy import leaves_list, linkage

    if len(z) < 3:
        return np.arange(len(z))
    centred = z - z.mean(axis=1, keepdims=True)
    lengths = np.linalg.norm(centred, axis=1, keepdims=True)
    # |a − b|² = 2 (1 − correlation) of rows of length 1
    rows = centred / np.where(lengths > 0, lengths, 1.0)
    order: Int64[np.ndarray, " data"] = leaves_list(linkage(rows, "average", optimal_ordering=True))
    return order.astype(np.int64)


def _name_base(axes: Axes, base: str, first: int, n: int, room: int) -> None:
    """A base's name over a line above its models, cut to their width, and a gap beside them."""
    across = axes.get_xaxis_transform()
    ink = mpl.rcParams["text.color"]
    line = [first - 0.35, first + n - 0.65]
    axes.plot(line, [1.012, 1.012], transform=across, color=ink, linewidth=1.0, clip_on=False)
    name = middle_cut(base, room) if room > 6 else plain(base[:room])
    style: Any = {"ha": "center", "va": "bottom", "fontsize": 7}
    axes.text(first + n / 2 - 0.5, 1.02, name, transform=across, **style)
    if first:
        axes.axvline(first - 0.5, color=mpl.rcParams["axes.facecolor"], linewidth=2.5)


def draw_panel_map(document: Mapping[str, Any]) -> Picture:
    """A map: shapes are bases, colours data sets, stars those of the panel that models stand out
    for.

    Args:
        document: As `database.panel_table.map_document` makes it.
    """
    theme = LIGHT if mpl.rcParams["axes.facecolor"] == "white" else DARK
    x, y = np.array(document["x"]), np.array(document["y"])
    base, n_bases = np.array(document["base"]), len(document["bases"])
    group = np.array([-1 if i is None else i for i in document["dataset"]])
    stars = document["data"]
    if document["explained"]:
        reading = f"PCA: two axes with {sum(document['explained']):.0%} of the variance."
    else:
        reading = "Distances between groups mean little."
    caption = MAP_CAPTION.format(
        n=len(x), bases=n_bases, sets=len(document["sets"]), panel=document["panel"],
        reading=reading,
    )  # fmt: skip
    picture = new_picture("full", MAP_MM, caption=caption)
    axes = picture.figure.subplots()
    diameter = float(np.clip(7.5 - 1.9 * np.log10(max(1, len(x)) / 20), 1.2, 7.5))
    colours = np.array([_colour(i, theme) for i in group.tolist()])
    for place in range(n_bases):
        for is_listed in (False, True):
            rows = np.flatnonzero((base == place) & ((group >= 0) & (group < LISTED) == is_listed))
            axes.scatter(
                x[rows], y[rows], s=diameter**2, c=colours[rows], marker=_marker(place),
                edgecolors=theme.sheet, linewidths=0.4, rasterized=len(x) > VECTORS_UP_TO,
            )  # fmt: skip
    if stars:
        axes.scatter(
            [star["x"] for star in stars], [star["y"] for star in stars], s=0.5 * STAR_AREA,
            marker="*", c=theme.text, edgecolors=theme.sheet, linewidths=0.7, zorder=4,
        )  # fmt: skip
    axes.set(xticks=[], yticks=[])
    axes.margins(0.06)
    axes.spines[:].set(visible=True, color=theme.line)
    if len(x) <= LABELLED_UP_TO:
        names = [None if i is None else document["datasets"][i] for i in document["dataset"]]
        of = [document["bases"][place] for place in document["base"]]
        picture.hover(axes, x, y, map(_about, document["models"], of, names))
    picture.figure.suptitle(f"Models of {n_bases} bases by what they learned")
    add_legend(picture.figure, _entries(document, group, theme))
    picture.sheet.draw_without_rendering()
    taken: list[tuple[float, float, float, float]] = []
    for star in sorted(stars, key=lambda star: -star["models"]):
        name_star(axes, star, theme, taken, size=6.5)
    for text in axes.texts:
        text.set_in_layout(False)
    return picture


def base_names(bases: Sequence[str]) -> list[str]:
    """Bases as they are shown: by the last part of a path where that tells them apart."""
    names = [base.rstrip("/").rsplit("/", 1)[-1] if base[0] in "/." else base for base in bases]
    return names if len(set(names)) == len(names) else list(bases)


def _marker(base: int) -> str:
    return BESIDE_STARS[base % len(BESIDE_STARS)]


def _colour(group: int, theme: Theme) -> str:
    """Of a data set: the palette, then its pale shades; grey for no name, and beyond these."""
    if not 0 <= group < LISTED:
        return theme.none
    turn, place = divmod(group, len(theme.palette))
    return mixed(theme.palette[place], theme.sheet) if turn else theme.palette[place]


def _entries(
    document: Mapping[str, Any], group: Int64[np.ndarray, " models"], theme: Theme
) -> dict[str, Line2D]:
    """The legend: bases by shape, data sets by colour with how many models, and the star."""

    def mark(marker: str, colour: str) -> Line2D:
        return Line2D(
            [], [], linestyle="", marker=marker, markersize=5.5, markerfacecolor=colour,
            markeredgecolor=colour, markeredgewidth=0,
        )  # fmt: skip

    entries = {
        plain(base): mark(_marker(place), theme.quiet)
        for place, base in enumerate(base_names(document["bases"]))
    }
    counts = np.bincount(group[group >= 0], minlength=len(document["datasets"])).tolist()
    for place, name in enumerate(document["datasets"][:LISTED]):
        shown = f"{middle_cut(name, 22)}  {counts[place]:,}"
        entries[shown] = mark("o", _colour(place, theme))
    others = int((group < 0).sum()) + sum(counts[LISTED:])
    if others:
        entries[f"other or none  {others:,}"] = mark("o", theme.none)
    if document["data"]:
        entries["data set of the panel"] = mark("*", theme.text)
    return entries
