"""A family's map as a picture for a paper: PNG or SVG, the same bytes for the same map."""

from __future__ import annotations

import io
import itertools
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.legend import Legend
from matplotlib.lines import Line2D
from matplotlib.text import Text

from ..arrays import Bool, Float64, Int64
from ..results import printable
from ..store import write_user_file

DRAWN_AT, RESOLUTION = 100, 200
"""Dots per inch while texts are measured, and of a PNG."""

SIZE = (10.5, 7.0)
WIDTH, ROOM = 9.7, 2.2
"""Inches, for the title and for a name in the legend."""

LISTED = 20
"""Names in the legend."""

PALE = 0.55
"""Share of the sheet in the colours of names that the legend does not list."""

LENGTHS = range(160, 6, -2)
"""Of a name, tried in turn until it fits."""

MARKERS = ("o", "s", "^", "D", "v", "P", "*")
"""The page's shapes, in its order; circles only where colours suffice."""

BESIDE_STARS = (*MARKERS[:-1], "X")
"""The same where stars are kept data sets."""

VECTORS_UP_TO = 20_000
"""Marks that an SVG holds as paths; more are one image in it, and text stays text."""

AREAS = 8
"""Different areas of marks."""

STAR_AREA, STARS_NAMED = 150.0, 24
"""Of kept data sets: points², and how many have their names."""

NAME_LENGTH = 28
NAME_PLACES = (
    ((0, 9), "center", "bottom"), ((0, -9), "center", "top"), ((10, 0), "left", "center"),
    ((-10, 0), "right", "center"), ((8, 8), "left", "bottom"), ((-8, 8), "right", "bottom"),
)  # fmt: skip
"""Of a star's name beside it, in points, tried in turn."""

Box = tuple[float, float, float, float]
"""Left, bottom, right and top, in pixels."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Theme:
    """The page's colours (`page/style.css`), light or dark."""

    sheet: str
    text: str
    quiet: str
    line: str
    none: str
    palette: tuple[str, ...]


LIGHT = Theme(
    sheet="#ffffff",
    text="#1a1d22",
    quiet="#586070",
    line="#dde1e7",
    none="#a3a9b2",
    palette=(
        "#0072b2", "#d55e00", "#009e73", "#b8509a", "#c48a00", "#3da5e0", "#7d7000", "#23262b",
    ),
)  # fmt: skip
DARK = Theme(
    sheet="#15181c",
    text="#e9ebef",
    quiet="#a4acb8",
    line="#2e343c",
    none="#686f7a",
    palette=(
        "#4f9fe0", "#f0783c", "#2bc49a", "#e08cc0", "#e8a92e", "#9bdcff", "#f0e442", "#f5f6f8",
    ),
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """How each model is drawn, in the document's order; a group of −1 has no name."""

    names: tuple[str, ...]
    group: Int64[np.ndarray, " models"]
    hollow: Bool[np.ndarray, " models"]
    areas: Float64[np.ndarray, " models"]
    shapes: tuple[str, ...] = MARKERS

    def colour(self, group: int, theme: Theme) -> str:
        if group < 0:
            return theme.none
        colour = theme.palette[group % len(theme.palette)]
        return colour if group < LISTED else mixed(colour, theme.sheet)

    def marker(self, group: int, theme: Theme) -> str:
        if len(self.names) <= len(theme.palette) or group < 0:
            return self.shapes[0]
        return self.shapes[group % len(self.shapes)]


Entry = tuple[Line2D, str, str]
"""A line of the legend: its mark, a name, and what is written in full whatever the room."""


def write_picture(
    document: Mapping[str, Any],
    path: Path,
    *,
    title: str,
    subtitle: str,
    colour: str = "dataset",
    dark: bool = False,
) -> None:
    """Draw a map into `path`, a .png or .svg; raises as `write_map`.

    Adapters are hollow, models without a name grey; areas grow with the logarithm of
    downloads, where any are known.
    """
    theme = DARK if dark else LIGHT
    settings: Any = {"font.size": 9.5, "svg.fonttype": "none", "svg.hashsalt": "deltadex"}
    settings |= {"text.parse_math": "False", "font.sans-serif": "DejaVu Sans"}
    with mpl.rc_context(settings), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # another script's letters
        figure = draw_map(document, theme, title=title, subtitle=subtitle, colour=colour)
        buffer = io.BytesIO()
        if path.suffix.lower() == ".svg":
            metadata = {"Date": None, "Creator": None, "Title": _shown(title, LENGTHS[0])}
            figure.savefig(buffer, format="svg", metadata=metadata)
        else:
            figure.savefig(buffer, format="png", dpi=RESOLUTION, metadata={"Software": None})
    write_user_file(path, buffer.getvalue())


def draw_map(
    document: Mapping[str, Any], theme: Theme, *, title: str, subtitle: str, colour: str
) -> Figure:
    """The figure: the map in a frame, its legend beside it."""
    figure = Figure(figsize=SIZE, dpi=DRAWN_AT, facecolor=theme.sheet)
    FigureCanvasAgg(figure)
    axes = figure.add_axes((0.04, 0.055, 0.7, 0.835), facecolor=theme.sheet)
    marks = Marks(
        names=tuple(document[f"{colour}s"]),
        group=np.array([-1 if i is None else i for i in document[colour]], dtype=np.int64),
        hollow=np.array([document["kinds"][kind] for kind in document["kind"]]) != "full",
        areas=_areas(document["downloads"]),
        shapes=BESIDE_STARS if document.get("data") else MARKERS,
    )
    _draw_marks(axes, document, marks, theme)
    _frame(axes, document, theme)
    _draw_stars(axes, document, theme)
    heading = figure.text(0.04, 0.945, "", fontsize=14, weight="bold", color=theme.text)
    _fit(heading, title, WIDTH)
    _fit(figure.text(0.04, 0.912, "", fontsize=9.5, color=theme.quiet), subtitle, WIDTH)
    _add_legend(axes, document, marks, colour, theme)
    return figure


def _areas(downloads: list[int | None]) -> Float64[np.ndarray, " models"]:
    """Points²: smaller marks for more models, and for fewer downloads."""
    diameter = float(np.clip(10.5 - 2.1 * np.log10(max(1, len(downloads)) / 20), 1.6, 10.5))
    areas = np.full(len(downloads), diameter**2)
    if any(downloads):
        logs = np.log1p(np.array([n or 0 for n in downloads], dtype=np.float64))
        areas *= 0.5 + 2.0 * np.round(logs / logs.max() * (AREAS - 1)) / (AREAS - 1)
    return areas


def _draw_marks(axes: Axes, document: Mapping[str, Any], marks: Marks, theme: Theme) -> None:
    """Unnamed models lowest, then pale ones; larger before smaller."""
    x, y = np.array(document["x"]), np.array(document["y"])
    few = len(x) <= 2_000
    layer = np.select([marks.group < 0, marks.group >= LISTED], [0, 1], 2)
    order = np.lexsort((-marks.areas, layer))
    markers = np.array([marks.marker(group, theme) for group in marks.group.tolist()])
    for depth, marker, hollow in itertools.product(range(3), marks.shapes, (False, True)):
        is_drawn = (layer == depth) & (markers == marker) & (marks.hollow == hollow)
        rows = order[is_drawn[order]]
        if not len(rows):
            continue
        colours = [marks.colour(group, theme) for group in marks.group[rows].tolist()]
        width = 0.16 * float(np.sqrt(marks.areas.min()))
        axes.scatter(
            x[rows],
            y[rows],
            s=marks.areas[rows],
            marker=marker,
            facecolors=(theme.sheet if few else "none") if hollow else colours,
            edgecolors=colours if hollow else theme.sheet,
            linewidths=width if hollow else (0.5 if few else 0.0),
            alpha=1.0 if few else 0.75,
            rasterized=len(x) > VECTORS_UP_TO,
        )


def _draw_stars(axes: Axes, document: Mapping[str, Any], theme: Theme) -> None:
    """The kept data sets with their names, above all models; hollow where no model stands out."""
    stars = document.get("data", ())
    for star in stars:
        faces, edges = theme.text, theme.sheet
        if not _stands_out(star):
            faces, edges = edges, faces
        style: Any = {"marker": "*", "facecolors": faces, "edgecolors": edges, "linewidths": 1.0}
        axes.scatter(star["x"], star["y"], s=STAR_AREA, zorder=4, **style)
    axes.autoscale_view()
    taken: list[Box] = []
    for star in stars[:STARS_NAMED]:
        name_star(axes, star, theme, taken)


def name_star(
    axes: Axes, star: Mapping[str, Any], theme: Theme, taken: list[Box], size: float = 8.5
) -> None:
    """Write a star's name at the first place where no other is; left out where there is none."""
    frame = axes.get_window_extent()
    for offset, across, up in NAME_PLACES:
        text = axes.annotate(
            _shown(star["name"], NAME_LENGTH),
            (star["x"], star["y"]),
            xytext=offset,
            textcoords="offset points",
            ha=across,
            va=up,
            color=theme.text,
            weight="bold",
            fontsize=size,
            zorder=5,
            bbox={"facecolor": theme.sheet, "edgecolor": "none", "alpha": 0.75, "pad": 0.8},
        )
        left, bottom, right, top = text.get_window_extent().extents
        inside = left > frame.x0 and right < frame.x1 and bottom > frame.y0 and top < frame.y1
        overlaps = any(left < r and right > x and bottom < t and top > y for x, y, r, t in taken)
        if inside and not overlaps:
            taken.append((left, bottom, right, top))
            return
        text.remove()


def _stands_out(star: Mapping[str, Any]) -> bool:
    return bool(star["verdict"] != "no model stands out")


def _frame(axes: Axes, document: Mapping[str, Any], theme: Theme) -> None:
    """No ticks, for no number is to be read off; equal units on both axes."""
    axes.set(xticks=[], yticks=[])
    axes.margins(0.06)
    axes.set_aspect("equal", adjustable="datalim")
    axes.spines[:].set_color(theme.line)
    explained = document["explained"]
    if explained is not None:
        axes.set_xlabel(f"first axis: {explained[0]:.0%} of the variance", color=theme.quiet)
        axes.set_ylabel(f"second axis: {explained[1]:.0%}", color=theme.quiet)


def _add_legend(
    axes: Axes, document: Mapping[str, Any], marks: Marks, colour: str, theme: Theme
) -> None:
    """Names by their models; below, what filled, hollow and large stand for."""
    hollow = bool(marks.hollow.all())
    names = [
        (_sample(shade, theme, marker, hollow=hollow), name, f"  {n:,}")
        for name, n, shade, marker in _names(marks, colour, theme)
    ]
    axes.add_artist(_legend(axes, names, f"{colour}, models", theme, top=True))
    notes: list[Entry] = []
    if not hollow:
        notes.append((_sample(theme.quiet, theme), "full fine-tune", ""))
    if marks.hollow.any():
        notes.append((_sample(theme.quiet, theme, hollow=True), "adapter", ""))
    if any(document["downloads"]):
        notes.append((Line2D([], [], linestyle=""), "area: log of downloads", ""))
    found = {_stands_out(star) for star in document.get("data", ())}
    if True in found:
        notes.append((_sample(theme.text, theme, "*"), "kept data set", ""))
    if False in found:
        star = _sample(theme.text, theme, "*", hollow=True)
        notes.append((star, "kept data, none stands out", ""))
    _legend(axes, notes, None, theme, top=False)


def _names(marks: Marks, colour: str, theme: Theme) -> Iterator[tuple[str, int, str, str]]:
    """Rows of the legend: what is written, of how many models, in which colour and shape."""
    counts = np.bincount(marks.group[marks.group >= 0], minlength=len(marks.names)).tolist()
    for group, name in enumerate(marks.names[:LISTED]):
        yield name, counts[group], marks.colour(group, theme), marks.marker(group, theme)
    if len(marks.names) > LISTED:
        more = f"and {len(marks.names) - LISTED} more, pale"
        yield more, sum(counts[LISTED:]), mixed(theme.palette[0], theme.sheet), MARKERS[0]
    n_without = int((marks.group < 0).sum())
    if n_without:
        without = "unlabelled" if colour == "dataset" else "unknown"
        yield without, n_without, theme.none, MARKERS[0]


def _sample(shade: str, theme: Theme, marker: str = "o", *, hollow: bool = False) -> Line2D:
    return Line2D(
        [], [], linestyle="", marker=marker, markersize=7, markeredgewidth=1.3 if hollow else 0,
        markerfacecolor=theme.sheet if hollow else shade, markeredgecolor=shade,
    )  # fmt: skip


def _legend(
    axes: Axes, entries: list[Entry], heading: str | None, theme: Theme, *, top: bool
) -> Legend:
    """Beside the axes, names cut to the room there.

    Texts are set at the end: matplotlib would leave out a label that begins with _.
    """
    legend = axes.legend(
        [mark for mark, _, _ in entries], ["·"] * len(entries),
        loc="upper left" if top else "lower left", bbox_to_anchor=(1.02, float(top)),
        borderaxespad=0, frameon=False, title=heading, alignment="left", labelspacing=0.55,
        handletextpad=0.5, borderpad=0, handlelength=1.2, labelcolor=theme.text,
    )  # fmt: skip
    legend.get_title().set_color(theme.quiet)
    for text, (_, name, count) in zip(legend.get_texts(), entries, strict=True):
        _fit(text, name, ROOM, count)
    return legend


def _fit(text: Text, name: str, room: float, count: str = "") -> None:
    """Write a name as long as it fits into so many inches."""
    for length in LENGTHS:
        text.set_text(_shown(name, length) + count)
        if text.get_window_extent().width <= room * DRAWN_AT:
            break


def mixed(colour: str, sheet: str) -> str:
    """A colour made pale by what it stands on."""
    shares = (1 - PALE) * np.array(to_rgb(colour)) + PALE * np.array(to_rgb(sheet))
    return to_hex(shares.tolist())


def _shown(text: str, length: int) -> str:
    """Text that any font and XML can hold, cut in the middle: both ends of a name tell."""
    clean = printable(text)
    if len(clean) <= length:
        return clean
    tail = length // 2 - 1
    return f"{clean[: length - tail - 1]}…{clean[-tail:]}"
