"""A family as one page or picture: `map`."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY
from importlib import resources
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import RequestError
from ...options import Place, option, record
from ...records import Colour, Layout
from ...results import Shown, Table, count, names_of_bases
from ...store import write_user_file
from ..face.opened import Family, Opened, Track, untracked
from ..terminal.command_line import asking
from .nearest import data_places, neighbourhoods

if TYPE_CHECKING:
    from ...search import LabelledModels
    from ...store import Catalog, FamilyView


PAGE = f"{(__package__ or '').rpartition('.')[0].rpartition('.')[0]}.service.page"
"""Where the service has its page; its text alone is read here."""

_SCRIPT = re.compile(r'<script src="static/([\w.]+)"(?: defer)?></script>\n')

_STYLE = re.compile(r'<link rel="stylesheet" href="static/([\w.]+)">\n')

_ICON = re.compile(r'<link rel="icon" href="[^"]*">\n')

MAP_ENDINGS = (".html", ".png", ".svg")


@record
class Map(Family):
    """Draw a family as one HTML file or a picture: similar models lie near each other.

    Raises:
        RequestError: another ending, several families without `base`, or the file cannot be
            written.

    >>> db.map("family.html")[0]["models"]
    4
    """

    path: Place = option(
        "-o",
        "--output",
        default="deltadex-map.html",
        doors="local",
        file="file",
        help="A page (.html) or a picture (.png, .svg).",
    )
    _: KW_ONLY
    layout: Layout = option(
        default="auto",
        help="Method that places models: auto is t-SNE, of landmarks where models are many; umap "
        "needs deltadex[umap].",
    )
    seed: int = option(
        default=0, doors="local", least=0, most=2**32 - 1, help="Random seed of the layout."
    )
    colour: Colour | None = option(
        default=None,
        doors="local",
        shown_default="dataset",
        help="Colour a picture by this column.",
    )

    def answer(self, db: Opened) -> Table:
        self.check()
        return Table(map_family(db._catalog, self, db._track))

    def check(self) -> None:
        """Raises `RequestError` for a name that is not a map's, or a colour that a page has not."""
        path = Path(self.path)
        if path.suffix.lower() == ".html" and self.colour:
            raise RequestError("--colour is for a .png or .svg picture")
        if path.suffix.lower() not in MAP_ENDINGS:
            raise RequestError(f"{path}: a map's name ends in one of {', '.join(MAP_ENDINGS)}")


def map_family(catalog: Catalog, asked: Map, track: Track = untracked) -> dict[str, Any]:
    """Draw a family's fingerprints into a file; returns what was drawn, ready for JSON."""
    is_page = Path(asked.path).suffix.lower() == ".html"
    return draw_columns(asked, *placed_columns(catalog, asked, track, with_neighbours=is_page))


def draw_columns(
    asked: Map,
    document: Mapping[str, Any],
    landmarks: int | None = None,
    neighbours: Mapping[str, Any] = {},
) -> dict[str, Any]:
    """Draw a map that is computed; returns what was drawn, ready for JSON.

    Args:
        document: As GET map answers.
        landmarks: Models that were placed first, the others among them; None = all alike.
        neighbours: For a page.
    """
    path, base = Path(asked.path), document["base"]
    title, subtitle = f"Fine-tunes of {names_of_bases([base])[base]}", describe(document, landmarks)
    if path.suffix.lower() == ".html":
        write_page(document, path, title=title, subtitle=subtitle, neighbours=neighbours)
    else:
        from .picture import write_picture

        colour = asked.colour or "dataset"
        write_picture(document, path, title=title, subtitle=subtitle, colour=colour)
    shown = ("base", "recipe", "layout", "explained", "seed")
    return {
        "written": str(path),
        "models": len(document["models"]),
        **{key: document[key] for key in shown},
        "landmarks": landmarks,
        **({"data": document["data"]} if "data" in document else {}),
    }


MONTH = len("2024-05")
"""Of a date."""


def placed_columns(
    catalog: Catalog,
    asked: Map,
    track: Track = untracked,
    *,
    with_neighbours: bool = False,
    axes_alone: bool = False,
) -> tuple[dict[str, Any], int | None, dict[str, Any]]:
    """A family's map as columns, placed anew; the number of landmarks; the nearest of every model.

    Names are numbers of places in a list. `data` has the places of kept data sets; a family that
    keeps none has no such key, nor has a first look on the main `axes_alone`, for which no pair is
    compared.
    """
    from ...search import kept_data_sets, place_models, read_family
    from ...search.layout import EVERY_PAIR, place_axes

    view, models, records = read_family(
        catalog,
        asked.recipe,
        asked.base,
        several="one map shows one family",
        pairs_up_to=0 if axes_alone else EVERY_PAIR,
    )
    steps, done = iter(track(range(100), "percent of the layout", total=100)), 0

    def reach(percent: int) -> None:
        nonlocal done
        done += sum(1 for _ in islice(steps, percent - done))

    if axes_alone and models.axes is not None:
        placement = place_axes(models.axes)
    else:
        placement = place_models(
            models.ids,
            models.vectors,
            asked.layout,
            scores=models.scores,
            axes=models.axes,
            seed=asked.seed,
            report=reach,
        )
    reach(100)
    x, y = placement.coordinates.round(6).T.tolist()
    document: dict[str, Any] = {
        "base": models.base,
        "recipe": view.recipe.name,
        "layout": placement.method,
        "explained": placement.explained and list(placement.explained),
        "seed": asked.seed,
        "models": list(models.ids),
        "x": x,
        "y": y,
    }
    rows = [records[model] for model in models.ids]
    kinds = [row.kind for row in rows]
    months = [row.created_at and row.created_at[:MONTH] for row in rows]
    columns = {"dataset": models.labels, "author": models.authors, "kind": kinds, "month": months}
    if not axes_alone:
        columns["word"] = _topics(catalog, view, models)
    for name, column in columns.items():
        document[name], document[f"{name}s"] = encode_names(column)
    document["downloads"] = [row.downloads for row in rows]
    if axes_alone:
        return document, None, {}
    kept = tuple(kept_data_sets(catalog, view))
    places = dict(zip(models.ids, zip(x, y, strict=True), strict=True))
    if stars := data_places(view, kept, places):
        document["data"] = stars
    neighbours = neighbourhoods(view, models, kept) if with_neighbours else {}
    return document, placement.landmarks, neighbours


def _topics(catalog: Catalog, view: FamilyView, models: LabelledModels) -> list[str | None]:
    from ...search.responses import WordNames

    unlabelled = [models.ids[row] for row in models.unlabelled_rows.tolist()]
    words = WordNames.of(catalog, view).of_models(unlabelled)
    return [", ".join(words.get(id, ())) or None for id in models.ids]


def encode_names(column: Sequence[str | None]) -> tuple[list[int | None], list[str]]:
    """Each entry as its place in the list of names, the most frequent first; None stays None."""
    counts = Counter(name for name in column if name is not None)
    names = sorted(counts, key=lambda name: (-counts[name], name))
    place = {name: i for i, name in enumerate(names)}
    return [None if name is None else place[name] for name in column], names


def describe(document: Mapping[str, Any], landmarks: int | None) -> str:
    """One line: which fingerprints, how many models, how they were placed, how to read it."""
    models = count(len(document["models"]), "model", form=",")
    if document["explained"] is not None:
        reading = f"PCA: two axes with {sum(document['explained']):.0%} of the variance"
    else:
        name = {"pca": "PCA", "tsne": "t-SNE", "umap": "UMAP"}[document["layout"]]
        if landmarks is not None:
            name += f" of {landmarks:,}, the others placed among them"
        reading = f"{name}: near means alike, far apart means little"
    return f"{document['recipe']} fingerprints of {models} · {reading}"


def write_page(
    document: Mapping[str, Any],
    path: Path,
    *,
    title: str,
    subtitle: str = "",
    neighbours: Mapping[str, Any] = {},
) -> None:
    """Write a map document to `path`, as a page for any browser.

    The same data give the same bytes. Names are data in the page, never markup, and the
    page's own policy lets it run its one script and load nothing.

    Args:
        document: As GET map answers.
        neighbours: As `neighbourhoods` gives them.

    Raises:
        RequestError: There are no models, or there is no such folder.
        StoreFull: `path` cannot be written.
    """
    if not document["models"]:
        raise RequestError("nothing to draw: the family holds no indexed model")
    data = {"title": title, "subtitle": subtitle or None, "map": document, "clusters": None}
    write_user_file(path, _render(title, data | dict(neighbours)).encode("utf-8", "replace"))


def _render(title: str, data: Mapping[str, Any]) -> str:
    """The service's page with its style, its scripts and the data inside."""

    def part(name: str) -> str:
        return resources.files(PAGE).joinpath(name).read_text("utf-8")

    page = part("index.html")
    script = "\n".join(map(part, _SCRIPT.findall(page)))
    style = "".join(map(part, _STYLE.findall(page)))
    # JSON that cannot end the script element it stands in: ASCII, without < > or &
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    for sign in "<>&":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    policy = (
        f"default-src 'none'; script-src '{_source_hash(script)}'; "
        f"style-src '{_source_hash(style)}'; base-uri 'none'; form-action 'none'"
    )
    head = (
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        f"<title>{html.escape(title)}</title>\n<style>{style}</style>\n"
    )
    tail = (
        f'<script type="application/json" id="data">{text}</script>\n'
        f"<script>{script}</script>\n</body>"
    )
    for pattern in (_SCRIPT, _STYLE, _ICON):
        page = pattern.sub("", page)
    page = page.replace("<title>deltadex</title>\n", head, 1)
    return page.replace("</body>", tail, 1)


def _source_hash(text: str) -> str:
    """The content-security-policy source that admits this script or style and no other."""
    digest = hashlib.sha256(text.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"


def _show_map(document: Mapping[str, Any]) -> Shown:
    for key in ("written", "models", "layout"):
        yield f"{key}: {document[key]}"


command = asking(
    Map, _show_map, "map -o family.html", "map -o figure.svg --layout umap --colour author"
)
