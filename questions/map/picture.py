"""A family's map as a picture for a paper, in the style and the formats of every other picture."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from ...arrays import Bool, Float64
from ...figures import PALETTE, SMALL, Picture, middle_cut, new_picture, plain, save_picture, short
from .. import terminal

HEIGHT_MM = 120.0

LISTED = 20
"""Names in the legend."""

COLOURS, NAMELESS = PALETTE[:-1], "#a3a9b2"

MARKERS = ("o", "s", "^", "D")
"""Another shape where a colour comes again; stars are kept data sets."""

PALE = 0.35
"""Opacity of models whose names the legend does not list."""

VECTORS_UP_TO = 20_000
"""Marks that an SVG holds as paths; more are one image in it."""

AREAS = 8
"""Different areas of marks."""

STAR_AREA, STARS_NAMED = 60.0, 24
"""Of kept data sets: points², and how many have their names."""

NAME_LENGTH = 28


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """The models of one name, or of all that have none or are not listed."""

    name: str
    members: Bool[np.ndarray, " models"]
    colour: str
    marker: str = "o"
    opacity: float = 1.0


def write_picture(
    document: Mapping[str, Any], path: Path, *, title: str, subtitle: str, colour: str = "dataset"
) -> None:
    """Draw a map into `path`, a .png or .svg; raises as `save_picture`."""
    save_picture(
        lambda: draw_map(document, title=title, subtitle=subtitle, colour=colour), path, title=title
    )


def draw_map(document: Mapping[str, Any], *, title: str, subtitle: str, colour: str) -> Picture:
    """The map in a frame, its legend beside it: names by their models.

    Adapters are hollow, models without a name grey; areas grow with the logarithm of downloads,
    where any are known.
    """
    picture = new_picture("full", HEIGHT_MM, caption=subtitle)
    axes = picture.figure.subplots()
    x, y, areas = np.array(document["x"]), np.array(document["y"]), _areas(document["downloads"])
    hollow = np.array([document["kinds"][kind] for kind in document["kind"]]) != "full"
    entries: list[tuple[Line2D, str]] = []
    for marks in _marks(document, colour):
        for is_hollow in (False, True):
            rows = np.flatnonzero(marks.members & (hollow == is_hollow))
            rows = rows[np.argsort(-areas[rows], kind="stable")]  # the larger below
            axes.scatter(
                x[rows],
                y[rows],
                s=areas[rows],
                marker=marks.marker,
                facecolors="none" if is_hollow else marks.colour,
                edgecolors=marks.colour,
                linewidths=0.8 if is_hollow else 0.0,
                alpha=marks.opacity,
                rasterized=len(x) > VECTORS_UP_TO,
            )
        n = int(marks.members.sum())
        sample = _sample(marks.marker, marks.colour, hollow=bool(hollow.all()))
        entries.append((sample, f"{middle_cut(marks.name, NAME_LENGTH)}  {n:,}"))
    entries = entries[::-1]
    if hollow.any() and not hollow.all():
        entries.append((_sample("o", NAMELESS, hollow=True), "hollow: adapter"))
    if any(document["downloads"]):
        entries.append((Line2D([], [], linestyle=""), "area: log of downloads"))
    entries += _draw_stars(axes, document.get("data", ()))
    _frame(axes, document["explained"])
    legend = picture.figure.legend(
        [mark for mark, _ in entries],
        ["·"] * len(entries),
        loc="outside right upper",
        title=f"{colour}, models",
        alignment="left",
    )
    for text, (_, name) in zip(legend.get_texts(), entries, strict=True):
        text.set_text(name)  # matplotlib leaves out a label that begins with _
    axes.set_title(short(title), loc="left")
    return picture


def _marks(document: Mapping[str, Any], colour: str) -> Iterator[Marks]:
    """Unnamed models lowest, then those that the legend does not list, the most frequent last."""
    names = document[f"{colour}s"]
    group = np.array([-1 if place is None else place for place in document[colour]])
    if (group < 0).any():
        nameless = "unlabelled" if colour == "dataset" else "unknown"
        yield Marks(name=nameless, members=group < 0, colour=NAMELESS)
    if len(names) > LISTED:
        more = f"and {len(names) - LISTED} more, pale"
        yield Marks(name=more, members=group >= LISTED, colour=NAMELESS, opacity=PALE)
    for place in reversed(range(min(len(names), LISTED))):
        yield Marks(
            name=names[place],
            members=group == place,
            colour=COLOURS[place % len(COLOURS)],
            marker=MARKERS[place // len(COLOURS)],
        )


def _areas(downloads: list[int | None]) -> Float64[np.ndarray, " models"]:
    """Points²: smaller marks for more models, and for fewer downloads."""
    diameter = float(np.clip(6.0 - 1.2 * np.log10(max(1, len(downloads)) / 20), 1.2, 6.0))
    areas = np.full(len(downloads), diameter**2)
    if any(downloads):
        logs = np.log1p(np.array([n or 0 for n in downloads], dtype=np.float64))
        areas *= 0.5 + 2.0 * np.round(logs / logs.max() * (AREAS - 1)) / (AREAS - 1)
    return areas


def _draw_stars(axes: Axes, stars: Any) -> Iterator[tuple[Line2D, str]]:
    """The kept data sets with their names, above all models, hollow where no model stands out;
    gives the entries of the legend."""
    ink: Any = axes.xaxis.label.get_color()
    seen: set[bool] = set()
    for number, star in enumerate(stars):
        stands_out = terminal.stands_out(star)
        seen.add(stands_out)
        face = ink if stands_out else "none"
        axes.scatter(
            star["x"], star["y"], s=STAR_AREA, marker="*", facecolors=face, edgecolors=ink, zorder=4
        )
        if number < STARS_NAMED:
            side = -1 if number % 2 else 1
            axes.annotate(
                middle_cut(star["name"], NAME_LENGTH),
                (star["x"], star["y"]),
                xytext=(0, 6 * side),
                textcoords="offset points",
                ha="center",
                va="bottom" if side > 0 else "top",
                fontsize=SMALL,
                weight="bold",
                zorder=5,
            )
    if True in seen:
        yield _sample("*", ink), "kept data set"
    if False in seen:
        yield _sample("*", ink, hollow=True), "kept data, none stands out"


def _sample(marker: str, colour: str, *, hollow: bool = False) -> Line2D:
    face = "none" if hollow else colour
    return Line2D([], [], linestyle="", marker=marker, color=colour, markerfacecolor=face)


def _frame(axes: Axes, explained: Sequence[float] | None) -> None:
    """No ticks, for no number is to be read off; equal units on both axes."""
    axes.set(xticks=[], yticks=[])
    axes.margins(0.06)
    axes.set_aspect("equal", adjustable="datalim")
    if explained is not None:
        axes.set_xlabel(plain(f"first axis: {explained[0]:.0%} of the variance"))
        axes.set_ylabel(plain(f"second axis: {explained[1]:.0%}"))
