"""Which recipe is meant: by name or id, under which most models are fingerprinted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from ..errors import EmptyCatalog, UnknownRecipe
from ..records import Recipe

DEFAULT_RECIPE = "sketch"


def choose_recipe(
    recipes: Mapping[str, Recipe],
    counts: Sequence[tuple[str, str, int]],
    path: Path,
    *,
    name: str | None,
    base: str | None,
) -> Recipe:
    """The recipe of that name or id that most models of the base have.

    Args:
        counts: (recipe id, base, models).
        path: Of the catalog, for the message.

    Raises:
        EmptyCatalog: nothing is fingerprinted.
        UnknownRecipe: lists what there is.
    """
    totals: dict[str, int] = {}
    for id, one, n in counts:
        if base in (None, one):
            totals[id] = totals.get(id, 0) + n
    if not totals:
        raise EmptyCatalog(f"{path}: nothing fingerprinted yet; `deltadex index` does that")
    ranked = sorted(totals, key=lambda id: (-totals[id], id))
    wanted = name or DEFAULT_RECIPE
    chosen = [id for id in ranked if wanted in (id, recipes[id].name)]
    if chosen:
        return recipes[chosen[0]]
    if name is None:
        return recipes[ranked[0]]
    there = ", ".join(sorted({recipes[id].name for id in ranked}))
    raise UnknownRecipe(f"no model is fingerprinted under {name!r}; recipes here: {there}")
