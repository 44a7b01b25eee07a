"""Heavy documents, each a function of a catalog: what the background process computes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from ...search import evaluate
from ...store import Catalog
from ..draw import layout_document

Kind = Literal["map", "clusters", "evaluation"]


def compute_in(path: Path, kind: Kind, base: str, params: Mapping[str, Any]) -> dict[str, Any]:
    """A family's map, clusters or evaluation, from the catalog file at `path`.

    Raises:
        RequestError: the family holds nothing to compute it from.
        StoreError: the catalog cannot be read.
    """
    with Catalog.open(path, read_only=True, create=False) as catalog:
        return _computed(catalog, kind, base, params)


def _computed(catalog: Catalog, kind: Kind, base: str, params: Mapping[str, Any]) -> dict[str, Any]:
    recipe: str = params["recipe"]
    if kind == "map":
        return layout_document(catalog, base, recipe, params["layout"], 0)
    if kind == "evaluation":
        return evaluate(catalog, recipe=recipe, base=base, exclude=params["exclude"]).to_json()
    # scikit-learn is loaded where clusters are sought, and nowhere else
    from ...search.clusters import cluster_family

    return cluster_family(catalog, base=base, recipe=recipe).to_json()
