"""What pictures share: two widths, sizes of text, names in titles; files in PNG, SVG and HTML."""

from __future__ import annotations

import contextlib
import html
import io
import math
import re
import textwrap
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any, Literal, SupportsFloat

import matplotlib as mpl
from cycler import cycler
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure

from .errors import RequestError
from .results import names_of_bases, printable
from .store import check_folder, write_user_file

ENDINGS = (".png", ".svg", ".html")

RESOLUTION = 300
"""Dots per inch of a PNG."""

Width = Literal["column", "full"]
"""How wide a picture is: as a column of a two-column page, or as the page's text."""

WIDTHS_MM: Mapping[Width, float] = {"column": 85.0, "full": 180.0}

MM_PER_INCH, POINTS_PER_INCH = 25.4, 72.0

TEXT, SMALL = 8.0, 7.0
"""Points, at both widths: a picture is printed as large as it is."""

PAGE_SCALE = 1.5
"""A page shows a picture so much larger than it is printed."""

CAPTION_LINE_MM = 3.2

CAPTION_CHARACTERS_PER_MM = 0.72
"""Of text of the size `SMALL`."""

QUANTILE = 1.96
"""Standard errors of a 95 % interval."""

LEGEND_MARK, LEGEND_CHARACTER = 22.0, 3.7
"""Points that an entry takes: its mark with the space around, and each character at most."""

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7F7F7F")
"""Okabe and Ito's colours (2008) for colour-blind readers, with grey in place of yellow and black:
all of them are visible on white and on black."""

Style = dict[str, Any]

_SHARED: Any = {
    "axes.prop_cycle": cycler(color=PALETTE),
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.labelsize": TEXT,
    "axes.linewidth": 0.6,
    "axes.titlesize": TEXT,
    "errorbar.capsize": 2.0,
    "figure.titlesize": TEXT + 1,
    "font.size": TEXT,
    "grid.linewidth": 0.4,
    "legend.fontsize": SMALL,
    "legend.frameon": False,
    "lines.linewidth": 1.2,
    "lines.markersize": 3.5,
    "svg.fonttype": "path",
    "xtick.labelsize": SMALL,
    "ytick.labelsize": SMALL,
}

_FACES = ("figure.facecolor", "axes.facecolor", "savefig.facecolor")

_INKS = ("text.color", "axes.labelcolor", "axes.edgecolor", "axes.titlecolor")

LIGHT = dict.fromkeys(_FACES, "white")

DARK = (
    dict.fromkeys((*_FACES, "legend.facecolor"), "#16181c")
    | dict.fromkeys((*_INKS, "xtick.color", "ytick.color"), "#e6e6e6")
    | {"grid.color": "#44484f"}
)

_REFERENCE = re.compile(r'(\bid="|href="#|url\(#)')

LONGEST = 40


@dataclass(slots=True)
class Picture:
    """A figure for panels, title and legend, in a `sheet` with the caption below it."""

    figure: Figure | SubFigure
    sheet: Figure
    _points: list[tuple[Axes, SupportsFloat, SupportsFloat, str]] = field(default_factory=list)

    def hover(
        self,
        axes: Axes,
        xs: Iterable[SupportsFloat],
        ys: Iterable[SupportsFloat],
        labels: Iterable[str],
    ) -> None:
        """Let points of a panel, in its data coordinates, show these labels to the mouse."""
        self._points += [(axes, *point) for point in zip(xs, ys, labels, strict=True)]

    def places(self) -> Iterator[tuple[float, float, str]]:
        """(points from the left, points from the top, label), once the figure was laid out."""
        height = self.sheet.get_figheight() * POINTS_PER_INCH
        scale = POINTS_PER_INCH / self.sheet.dpi
        for axes, x, y, label in self._points:
            across, up = axes.transData.transform((float(x), float(y))) * scale
            if math.isfinite(across) and math.isfinite(up):
                yield across, height - up, label


def new_picture(width: Width | float, height_mm: float, *, caption: str = "") -> Picture:
    """An empty picture, of a page's width or of so many mm; its caption is wrapped below, and makes
    it higher than `height_mm`."""
    across = width if isinstance(width, float) else WIDTHS_MM[width]
    lines = textwrap.wrap(caption, int(across * CAPTION_CHARACTERS_PER_MM))
    below = CAPTION_LINE_MM * (len(lines) + 0.8) if lines else 0.0
    size = (across / MM_PER_INCH, (height_mm + below) / MM_PER_INCH)
    sheet = Figure(figsize=size, layout="constrained")
    if not lines:
        return Picture(sheet, sheet)
    grid = sheet.add_gridspec(2, 1, height_ratios=(height_mm, below))
    text = sheet.add_subfigure(grid[1])
    text.text(0.012, 0.9, "\n".join(map(plain, lines)), fontsize=SMALL, va="top", linespacing=1.15)
    return Picture(sheet.add_subfigure(grid[0]), sheet)


def add_legend(
    figure: Figure | SubFigure, entries: Mapping[str, Any], *, columns: int = 99
) -> None:
    """A legend outside the panels, in as many columns as fit, and at most `columns`."""
    longest = max((len(label.replace("$", "").replace("\\", "")) for label in entries), default=1)
    room = float(figure.bbox.width / figure.get_figure(root=True).dpi) * POINTS_PER_INCH
    fitting = int(room / (LEGEND_MARK + LEGEND_CHARACTER * longest))
    figure.legend(
        list(entries.values()),
        list(entries),
        loc="outside lower center",
        ncols=max(1, min(columns, fitting, len(entries))),
        columnspacing=1.2,
        handlelength=1.6,
    )


def check_ending(target: Path) -> None:
    """Refuse, with a `RequestError`, a file name that is not a picture's, or in no folder."""
    check_folder(target)
    if target.suffix.lower() not in ENDINGS:
        raise RequestError(f"{target}: a picture's name ends in one of {', '.join(ENDINGS)}")


def save_picture(draw: Callable[[], Picture], target: Path, *, title: str, table: str = "") -> Path:
    """Save a picture as a file; the same picture gives the same bytes.

    Args:
        table: A `<table>` that a page has below its picture.

    Raises:
        RequestError: not a picture's ending, or there is no such folder.
        StoreFull: the file cannot be written.
    """
    check_ending(target)
    kind = target.suffix.lower()
    if kind == ".html":
        data = _page(draw, title, table).encode()
    elif kind == ".svg":
        data = _svg(draw, LIGHT, "light")[0].encode()
    else:
        buffer = io.BytesIO()
        with _style(LIGHT):
            sheet = draw().sheet
            sheet.savefig(buffer, format="png", dpi=RESOLUTION, metadata={"Software": None})
        data = buffer.getvalue()
    write_user_file(target, data)
    return target


def _page(draw: Callable[[], Picture], title: str, table: str) -> str:
    """A page with the picture in a light and a dark style, its points, and the table."""
    sides = {}
    for name, theme in (("light", LIGHT), ("dark", DARK)):
        text, picture = _svg(draw, theme, name)
        marks = "".join(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4"><title>{html.escape(label)}</title></circle>'
            for x, y, label in picture.places()
        )
        sides[name] = text.replace("</svg>", f'<g class="points">{marks}</g></svg>')
    page = Template(files(__package__).joinpath("figures.html").read_text("utf-8"))
    width = f"{PAGE_SCALE * picture.sheet.get_figwidth():.1f}in"
    return _shown(page.substitute(sides, title=html.escape(title), table=table, width=width))


@contextlib.contextmanager
def _style(settings: Mapping[str, Any]) -> Iterator[None]:
    """The style of all pictures; letters of a script that the font lacks draw no warning."""
    with mpl.rc_context(_SHARED | dict(settings)), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")
        yield


def _svg(draw: Callable[[], Picture], theme: Mapping[str, str], name: str) -> tuple[str, Picture]:
    """An `<svg>` element and its picture; ids differ by name, so that two can share a page."""
    buffer = io.StringIO()
    with _style({**theme, "svg.hashsalt": name}):
        picture = draw()
        picture.sheet.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    text = buffer.getvalue()
    return _REFERENCE.sub(rf"\1{name}-", _shown(text[text.index("<svg") :])), picture


def _shown(text: str) -> str:
    """Lines of text, as `printable`: names stand in comments, titles and tables."""
    return "\n".join(map(printable, text.split("\n")))


def short(name: str) -> str:
    """A model's id, or the name of its folder; cut if long, and without formulas."""
    shown = names_of_bases([name])[name] if name.startswith(("/", ".")) else name
    if len(shown) > LONGEST:
        shown = shown[: LONGEST // 2] + "…" + shown[-LONGEST // 2 :]
    return plain(shown)


def middle_cut(name: str, length: int) -> str:
    """Both ends of a name, which tell models apart."""
    if len(name) <= length:
        return short(name)
    return short(f"{name[: length // 2]}…{name[-(length // 2 - 1) :]}")


def plain(name: str) -> str:
    """The name as `printable`, with `$` as a character, which would start a formula."""
    return printable(name).replace("$", r"\$")
