"""What pictures share: sizes of text, names in titles, and files in PNG, SVG and HTML."""

from __future__ import annotations

import html
import io
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import matplotlib as mpl
from cycler import cycler
from matplotlib.figure import Figure

from ...errors import StudyError

ENDINGS = (".png", ".svg", ".html")
RESOLUTION = 150

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7F7F7F")
"""Okabe and Ito's colours (2008) for colour-blind readers, with grey in place of yellow and black:
all of them are visible on white and on black."""

Style = dict[str, Any]

_SHARED: Any = {
    "axes.prop_cycle": cycler(color=PALETTE),
    "axes.spines.top": False,
    "axes.spines.right": False,
    "font.size": 10.5,
    "svg.fonttype": "path",
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

_PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<style>
body {{ margin: 0; background: #fff; }}
figure {{ margin: 0 auto; max-width: 1100px; padding: 1rem; }}
svg {{ width: 100%; height: auto; }}
.dark {{ display: none; }}
@media (prefers-color-scheme: dark) {{
  body {{ background: #16181c; }}
  .light {{ display: none; }}
  .dark {{ display: block; }}
}}
</style>
<figure class="light" role="img" aria-label="{title}">{light}</figure>
<figure class="dark" role="img" aria-label="{title}">{dark}</figure>
</html>
"""

LONGEST = 40


def set_text_size(figure: Figure, labels: float, *, ticks: float, titles: float) -> None:
    """Set the sizes of text in all panels of a figure."""
    for axes in figure.axes:
        axes.tick_params(labelsize=ticks)
        axes.title.set_fontsize(titles)
        for axis in (axes.xaxis, axes.yaxis):
            axis.label.set_fontsize(labels)


def add_legend(
    figure: Figure,
    entries: Mapping[str, Any],
    *,
    size: float,
    loc: Literal["outside lower center", "outside lower right"],
    columns: int = 99,
) -> None:
    """A legend outside the panels; at most so many columns."""
    figure.legend(
        list(entries.values()),
        list(entries),
        loc=loc,
        ncols=min(columns, len(entries)),
        fontsize=size,
        frameon=False,
        columnspacing=1.2,
    )


def check_ending(target: Path) -> None:
    """Refuse a file name that is not a picture's, before any work is done.

    Raises:
        StudyError: not a picture's ending.
    """
    if target.suffix.lower() not in ENDINGS:
        raise StudyError(f"{target}: a picture's name ends in one of {', '.join(ENDINGS)}")


def save_picture(draw: Callable[[], Figure], target: Path, *, title: str) -> Path:
    """Save a figure as a file; the same figure gives the same bytes.

    Raises:
        StudyError: not a picture's ending, or the file cannot be written.
    """
    check_ending(target)
    kind = target.suffix.lower()
    if kind == ".html":
        pictures = {"light": _svg(draw, LIGHT, "light"), "dark": _svg(draw, DARK, "dark")}
        data = _PAGE.format(title=html.escape(title), **pictures).encode("utf-8", "replace")
    elif kind == ".svg":
        data = _svg(draw, LIGHT, "light").encode()
    else:
        buffer = io.BytesIO()
        with mpl.rc_context(_SHARED | LIGHT):
            draw().savefig(buffer, format="png", dpi=RESOLUTION, metadata={"Software": None})
        data = buffer.getvalue()
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
    except OSError as err:
        raise StudyError(f"{target}: {err.strerror}") from err
    return target


def _svg(draw: Callable[[], Figure], theme: dict[str, str], name: str) -> str:
    """An `<svg>` element; ids differ between themes, so that two can share a page."""
    buffer = io.StringIO()
    with mpl.rc_context(_SHARED | theme | {"svg.hashsalt": name}):
        draw().savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    text = buffer.getvalue()
    return _REFERENCE.sub(rf"\1{name}-", text[text.index("<svg") :])


def short(name: str) -> str:
    """A model's id, or the last part of its path; cut if long, and without formulas."""
    shown = name.rstrip("/").rsplit("/", 1)[-1] if name.startswith(("/", ".")) else name
    if len(shown) > LONGEST:
        shown = shown[: LONGEST // 2] + "…" + shown[-LONGEST // 2 :]
    return plain(shown)


def plain(name: str) -> str:
    """The name with `$` as a character, which would start a formula."""
    return name.replace("$", r"\$")
