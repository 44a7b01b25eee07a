"""A family of the catalog drawn into a file: a page or a picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..arrays import Float64
from ..errors import RequestError
from ..search import LabelledModels, Method
from ..store import Catalog
from .family_map import write_page
from .map_document import (
    Colour,
    describe_layout,
    layout_document,
    map_document,
    place_family,
)

__all__ = ["layout_document", "map_family"]

ENDINGS = (".html", ".png", ".svg")

NEIGHBOURS_SHOWN = 6

NEIGHBOURS_UP_TO = 20_000
"""Models up to which a page tells the nearest of each: every pair is compared, in minutes."""

BLOCK_SCORES = 1 << 22
"""Scores held at a time."""


def map_family(
    catalog: Catalog,
    path: Path,
    *,
    base: str | None = None,
    recipe: str | None = None,
    layout: Method = "auto",
    seed: int = 0,
    colour: Colour = "dataset",
    dark: bool = False,
) -> dict[str, Any]:
    """Draw a family's fingerprints into the file `path`: what was drawn, ready for JSON.

    Args:
        colour: What marks of a picture are coloured by; a page is by dataset.
        dark: Light on dark, for a picture; a page follows its reader's setting.

    Raises:
        RequestError: as `place_family`, or `path` has another ending or cannot be written.
    """
    check_ending(path)
    placed = place_family(catalog, base=base, recipe=recipe, layout=layout, seed=seed)
    document = map_document(placed)
    title, subtitle = f"Fine-tunes of {placed.family.base}", describe_layout(placed)
    if path.suffix.lower() == ".html":
        neighbours = _neighbours(placed.family)
        write_page(document, path, title=title, subtitle=subtitle, neighbours=neighbours)
    else:
        from .map_picture import write_picture

        write_picture(document, path, title=title, subtitle=subtitle, colour=colour, dark=dark)
    told = ("base", "recipe", "layout", "explained", "seed")
    return {
        "written": str(path),
        "models": len(placed.family.ids),
        **{key: document[key] for key in told},
        "landmarks": placed.layout.landmarks,
    }


def check_ending(target: Path) -> None:
    """Refuse a file name before any work is done for it.

    Raises:
        RequestError: not a map's ending.
    """
    if target.suffix.lower() not in ENDINGS:
        raise RequestError(f"{target}: a map's name ends in one of {', '.join(ENDINGS)}")


def _neighbours(family: LabelledModels) -> list[tuple[tuple[str, float], ...]]:
    """The nearest of every model, and their scores; equal scores in order of id.

    Nothing for families of more than `NEIGHBOURS_UP_TO` models.
    """
    n_models = len(family.ids)
    if n_models > NEIGHBOURS_UP_TO:
        return [()] * n_models
    height = max(1, BLOCK_SCORES // max(1, n_models))
    found = []
    for begin in range(0, n_models, height):
        rows = np.arange(begin, min(begin + height, n_models))
        for row, scores in zip(rows.tolist(), family.score_block(rows), strict=True):
            found.append(_best(family.ids, scores, row))
    return found


def _best(
    ids: Sequence[str], scores: Float64[np.ndarray, " models"], row: int
) -> tuple[tuple[str, float], ...]:
    scores[row] = -np.inf
    n_best = min(NEIGHBOURS_SHOWN, len(ids) - 1)
    if n_best == 0:
        return ()
    least = np.partition(scores, -n_best)[-n_best]
    others = [(ids[i], float(scores[i])) for i in np.flatnonzero(scores >= least).tolist()]
    return tuple(sorted(others, key=lambda pair: (-pair[1], pair[0]))[:n_best])
