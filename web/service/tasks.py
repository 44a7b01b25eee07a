"""The documents that the background process computes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from ...database import open

Kind = Literal["map", "clusters", "evaluation"]


def compute_in(path: Path, kind: Kind, base: str, params: Mapping[str, Any]) -> dict[str, Any]:
    """A family's map, clusters or evaluation, from the catalog file at `path`.

    Raises:
        RequestError: the family holds nothing to compute it from.
        StoreError: the catalog cannot be read.
    """
    recipe: str = params["recipe"]
    with open(path, read_only=True) as catalog:
        if kind == "map":
            return catalog.map_columns(base=base, recipe=recipe, layout=params["layout"])
        if kind == "evaluation":
            return catalog.evaluate(recipe, base=base, exclude=params["exclude"]).to_json()
        return catalog.cluster(base=base, recipe=recipe).to_json()
