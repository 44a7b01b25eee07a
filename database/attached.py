"""Attached indexes beside the families of a catalog: which of them a question also searches."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ..errors import EmptyCatalog, UnknownBase, UnknownRecipe
from ..records import Recipe

if TYPE_CHECKING:
    from ..search import FreshQuery
    from ..store import AttachedIndex, Catalog

log = logging.getLogger(__name__)


def open_attached(catalog: Catalog) -> list[AttachedIndex]:
    """The attached indexes of a catalog, by name.

    Raises:
        BadIndex: one is missing or damaged.
    """
    from ..store import AttachedIndexes

    return catalog.access.derived(AttachedIndexes).of(catalog.path, catalog.attachments)


def find_base_with(
    catalog: Catalog, spelling: str | None, attached: Sequence[AttachedIndex]
) -> str | None:
    """The base as the catalog has it, or as an attached index has it; None for None.

    Raises:
        EmptyCatalog: there is no family at all.
        UnknownBase: lists what there is.
    """
    try:
        return catalog.find_base(spelling)
    except (EmptyCatalog, UnknownBase):
        from ..indexer import base_key

        key = base_key(spelling or "")
        names = sorted({index.base for index in attached if base_key(index.base) == key})
        if not names:
            raise
        return spelling if spelling in names else names[0]


def other_bases(catalog: Catalog, attached: Sequence[AttachedIndex]) -> list[str]:
    """The bases of attached indexes that are no family of the catalog, each once."""
    if not attached:
        return []
    from ..indexer import base_key

    keys = {base_key(base) for base in catalog.bases()}
    others: dict[str, str] = {}
    for index in attached:
        if base_key(index.base) not in keys:
            others.setdefault(base_key(index.base), index.base)
    return list(others.values())


def indexes_of(
    catalog: Catalog, base: str, attached: Sequence[AttachedIndex]
) -> list[AttachedIndex]:
    """Those of a base, whatever its spelling, whose matrices have the shapes that the catalog
    knows."""
    if not attached:
        return []
    from ..indexer import base_key

    shapes = catalog.base(base).shapes
    chosen = []
    for index in attached:
        if base_key(index.base) != base_key(base):
            continue
        theirs = index.manifest.shapes
        if any(shapes[slot] != theirs[slot] for slot in shapes.keys() & theirs.keys()):
            log.info("%s is not searched: its base %s has other shapes", index.name, index.base)
        else:
            chosen.append(index)
    return chosen


def recipe_of(
    catalog: Catalog, base: str, recipe: str | None, attached: Sequence[AttachedIndex]
) -> tuple[Recipe, tuple[tuple[str, str, int], ...] | None]:
    """The recipe that a model of a base is fingerprinted under, and the family's layout where the
    catalog does not know it: the catalog's recipe, else that of the largest attached index.

    Raises:
        EmptyCatalog, UnknownRecipe: there is none of that name.
    """
    is_own = base in catalog.bases()
    try:
        if is_own or not attached:
            return catalog.find_recipe(recipe, base), None
    except (EmptyCatalog, UnknownRecipe):
        if not attached:
            raise
    found = indexes_of(catalog, base, attached)
    known = [index for index in found if recipe in (None, index.recipe.name, index.recipe.id)]
    if not known:
        return catalog.find_recipe(recipe, base), None
    largest = max(known, key=lambda index: index.manifest.models)
    return largest.recipe, largest.manifest.layout


def attached_query(
    catalog: Catalog,
    attached: Sequence[AttachedIndex],
    model: str,
    base: str | None,
    recipe: str | None,
) -> FreshQuery | None:
    """A search from a model of an attached index; None where none has it."""
    if not attached:
        return None
    from ..indexer import base_key
    from ..search import attached_query as query_of

    for index in attached if base is None else indexes_of(catalog, base, attached):
        row = index.row_of.get(model)
        is_wanted = recipe in (None, index.recipe.name, index.recipe.id)
        if row is not None and is_wanted and index.is_shown[row]:
            key = base_key(index.base)
            own = [name for name in catalog.bases() if base_key(name) == key]
            return replace(query_of(index, model), base=own[0] if own else index.base)
    return None
