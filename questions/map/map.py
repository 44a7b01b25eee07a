"""A family as one page or picture: `map`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import RequestError
from ...options import Place, option, record
from ...records import Colour, Layout
from ...results import Shown, Table, names_of_bases
from ..face.opened import Family, Opened, Track, untracked
from ..terminal.command_line import asking
from .nearest import data_places, neighbourhoods

if TYPE_CHECKING:
    from ...search import LabelledModels
    from ...store import Catalog, FamilyView


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
        """Raises `RequestError` where options do not belong together."""
        if Path(self.path).suffix.lower() == ".html" and self.colour:
            raise RequestError("--colour is for a .png or .svg picture")


def map_family(catalog: Catalog, asked: Map, track: Track = untracked) -> dict[str, Any]:
    """Draw a family's fingerprints into a file; returns what was drawn, ready for JSON."""
    from .page import check_map_ending

    check_map_ending(Path(asked.path))
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
    from .page import describe, write_page

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
    from .page import encode_names

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
    """Words of each unlabelled model."""
    from ...search.word_names import WordNames

    unlabelled = [models.ids[row] for row in models.unlabelled_rows.tolist()]
    words = WordNames.of(catalog, view).of_models(unlabelled)
    return [", ".join(words.get(id, ())) or None for id in models.ids]


def _show_map(document: Mapping[str, Any]) -> Shown:
    for key in ("written", "models", "layout"):
        yield f"{key}: {document[key]}"


command = asking(
    Map, _show_map, "map -o family.html", "map -o figure.svg --layout umap --colour author"
)
