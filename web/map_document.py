"""A family of the catalog with a place for each model, as columns ready for JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ..errors import RequestError
from ..records import ModelRecord, Recipe
from ..search import (
    LabelledModels,
    Method,
    Placement,
    family_views,
    labelled_models,
    place_models,
)
from ..store import Catalog

Colour = Literal["dataset", "author", "kind"]
"""Columns that models can be coloured by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedModels:
    """A family with a place for each of its models.

    Attributes:
        kinds: Of every model, in the family's order; `downloads` likewise, None = unknown.
    """

    recipe: Recipe
    family: LabelledModels
    layout: Placement
    kinds: tuple[str, ...]
    downloads: tuple[int | None, ...]
    seed: int


def place_family(
    catalog: Catalog,
    *,
    base: str | None = None,
    recipe: str | None = None,
    layout: Method = "auto",
    seed: int = 0,
) -> PlacedModels:
    """One family's fingerprints, placed.

    Raises:
        RequestError: There are several families and no `base`; an unknown recipe and an empty
            catalog raise its subclasses.
    """

    def read() -> tuple[Recipe, LabelledModels, dict[str, ModelRecord]]:
        view, *others = family_views(catalog, recipe, base)
        if others:
            names = ", ".join(each.base for each in (view, *others))
            raise RequestError(f"one map shows one family; add --base, one of: {names}")
        records = {row.id: row.record for row in catalog.models(base=view.base)}
        return view.recipe, labelled_models(view), records

    chosen, models, records = catalog.look(read)
    return PlacedModels(
        recipe=chosen,
        family=models,
        layout=place_models(models.ids, models.vectors, layout, scores=models.scores, seed=seed),
        kinds=tuple(records[model].kind for model in models.ids),
        downloads=tuple(records[model].downloads for model in models.ids),
        seed=seed,
    )


def layout_document(
    catalog: Catalog,
    base: str | None = None,
    recipe: str | None = None,
    layout: Method = "auto",
    seed: int = 0,
) -> dict[str, Any]:
    """A family's map, placed anew: `map_document` of `place_family`.

    Raises:
        RequestError: as `place_family`.
    """
    return map_document(place_family(catalog, base=base, recipe=recipe, layout=layout, seed=seed))


def map_document(placed: PlacedModels) -> dict[str, Any]:
    """A placed family as columns, ready for JSON; names are told by their place in a list."""
    family, coordinates = placed.family, placed.layout.coordinates.round(6)
    document: dict[str, Any] = {
        "base": family.base,
        "recipe": placed.recipe.name,
        "layout": placed.layout.method,
        "explained": placed.layout.explained and list(placed.layout.explained),
        "seed": placed.seed,
        "models": list(family.ids),
        "x": coordinates[:, 0].tolist(),
        "y": coordinates[:, 1].tolist(),
    }
    for name, column in (
        ("dataset", family.labels),
        ("author", family.authors),
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
    n_models = len(placed.family.ids)
    models = "1 model" if n_models == 1 else f"{n_models:,} models"
    return f"{placed.recipe.name} fingerprints of {models} · {_reading(placed.layout)}"


def _reading(layout: Placement) -> str:
    if layout.explained is not None:
        return f"PCA: two axes with {sum(layout.explained):.0%} of the variance"
    name = {"tsne": "t-SNE", "umap": "UMAP"}[layout.method]
    if layout.landmarks is not None:
        name += f" of {layout.landmarks:,}, the others placed among them"
    return f"{name}: near means alike, far apart means little"
