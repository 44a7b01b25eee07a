"""A family of the catalog, placed on a map and written as a page."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np

from ..errors import RequestError
from ..search import LabelledFamily, Layout, load_families, place_models
from ..store import Catalog
from .family_map import MapPoint, write_map

NEIGHBOURS_SHOWN = 6


def map_family(
    catalog: Catalog,
    path: Path,
    *,
    layout: Literal["pca", "tsne"] = "tsne",
    recipe: str | None = None,
    base: str | None = None,
) -> int:
    """Draw a family's fingerprints into the file `path`; how many models are on it.

    Raises:
        RequestError: There are several families and no `base`, or `path` cannot be written;
            an unknown recipe and an empty catalog raise its subclasses.
    """
    families = load_families(catalog, recipe, base)
    if len(families) > 1:
        names = ", ".join(family.base for _, family in families)
        raise RequestError(f"one map shows one family; add --base, one of: {names}")
    (chosen, family), *_ = families
    placed = place_models(family.vectors, layout)
    kinds = {row.id: row.record.kind for row in catalog.models(base=family.base)}
    points = [
        MapPoint(
            model=model,
            x=float(x),
            y=float(y),
            dataset=dataset,
            author=author,
            kind=kinds[model],
            neighbours=_nearest(family, row),
        )
        for row, (model, (x, y), dataset, author) in enumerate(
            zip(family.ids, placed.coordinates, family.labels, family.authors, strict=True)
        )
    ]
    title = f"Fine-tunes of {family.base}"
    write_map(points, path, title=title, subtitle=_subtitle(placed, chosen.name))
    return len(points)


def _nearest(family: LabelledFamily, row: int) -> tuple[tuple[str, float], ...]:
    """The nearest of a model, and their scores; equal scores in order of id."""
    (scores,) = family.score_block(np.array([row]))
    others = [(family.ids[i], float(s)) for i, s in enumerate(scores) if i != row]
    return tuple(sorted(others, key=lambda pair: (-pair[1], pair[0]))[:NEIGHBOURS_SHOWN])


def _subtitle(placed: Layout, recipe: str) -> str:
    """How the map was made, and how to read it."""
    if placed.explained is None:
        return f"t-SNE of {recipe} fingerprints: near means alike, far apart means little"
    share = sum(placed.explained)
    return f"PCA of {recipe} fingerprints: two axes with {share:.0%} of their variance"
