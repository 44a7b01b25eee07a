"""A family with a place for each model: as columns ready for JSON, a page or a picture."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ..arrays import Float64
from ..errors import RequestError
from .family_map import Neighbour, write_page

ENDINGS = (".html", ".png", ".svg")

Colour = Literal["dataset", "author", "kind"]
"""Columns that models can be coloured by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedModels:
    """The models of a family, each with its place; columns in one order.

    Attributes:
        datasets, authors, downloads: None = unknown.
        method: How models were placed: `pca`, `tsne`, `umap`.
        explained: Share of the variance along each axis, 0…1, for PCA.
        landmarks: Models that were placed first, the others among them; None = all alike.
    """

    base: str
    recipe: str
    ids: tuple[str, ...]
    datasets: tuple[str | None, ...]
    authors: tuple[str | None, ...]
    kinds: tuple[str, ...]
    downloads: tuple[int | None, ...]
    coordinates: Float64[np.ndarray, "models 2"] = field(compare=False)
    method: Literal["pca", "tsne", "umap"]
    explained: tuple[float, float] | None
    landmarks: int | None
    seed: int


def check_ending(target: Path) -> None:
    """Refuse a file name before any work is done for it.

    Raises:
        RequestError: not a map's ending.
    """
    if target.suffix.lower() not in ENDINGS:
        raise RequestError(f"{target}: a map's name ends in one of {', '.join(ENDINGS)}")


def write_map(
    placed: PlacedModels,
    path: Path,
    *,
    neighbours: Sequence[Sequence[Neighbour]],
    colour: Colour,
    dark: bool,
) -> None:
    """Draw a placed family into a .html page, or a .png or .svg picture.

    Args:
        neighbours: Of every model, nearest first; for a page.
        colour: What marks of a picture are coloured by; a page is by dataset.
        dark: Light on dark, for a picture; a page follows its reader's setting.

    Raises:
        RequestError: there are no models, or `path` cannot be written.
    """
    document, title = map_document(placed), f"Fine-tunes of {placed.base}"
    subtitle = describe_layout(placed)
    if path.suffix.lower() == ".html":
        write_page(document, path, title=title, subtitle=subtitle, neighbours=neighbours)
    else:
        from .map_picture import write_picture

        write_picture(document, path, title=title, subtitle=subtitle, colour=colour, dark=dark)


def map_document(placed: PlacedModels) -> dict[str, Any]:
    """A placed family as columns, ready for JSON; names are numbers of places in a list."""
    coordinates = placed.coordinates.round(6)
    document: dict[str, Any] = {
        "base": placed.base,
        "recipe": placed.recipe,
        "layout": placed.method,
        "explained": placed.explained and list(placed.explained),
        "seed": placed.seed,
        "models": list(placed.ids),
        "x": coordinates[:, 0].tolist(),
        "y": coordinates[:, 1].tolist(),
    }
    for name, column in (
        ("dataset", placed.datasets),
        ("author", placed.authors),
        ("kind", placed.kinds),
    ):
        document[name], document[f"{name}s"] = encode_names(column)
    return document | {"downloads": list(placed.downloads)}


def encode_names(column: Sequence[str | None]) -> tuple[list[int | None], list[str]]:
    """Each entry as its place in the list of names, the most frequent first; None stays None."""
    counts = Counter(name for name in column if name is not None)
    names = sorted(counts, key=lambda name: (-counts[name], name))
    place = {name: i for i, name in enumerate(names)}
    return [None if name is None else place[name] for name in column], names


def describe_layout(placed: PlacedModels) -> str:
    """One line: which fingerprints, how many models, how they were placed, how to read it."""
    n_models = len(placed.ids)
    models = "1 model" if n_models == 1 else f"{n_models:,} models"
    if placed.explained is not None:
        reading = f"PCA: two axes with {sum(placed.explained):.0%} of the variance"
    else:
        name = {"pca": "PCA", "tsne": "t-SNE", "umap": "UMAP"}[placed.method]
        if placed.landmarks is not None:
            name += f" of {placed.landmarks:,}, the others placed among them"
        reading = f"{name}: near means alike, far apart means little"
    return f"{placed.recipe} fingerprints of {models} · {reading}"
