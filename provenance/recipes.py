"""Which recipe questions of origin read."""

from __future__ import annotations

from ..records import Recipe
from ..store import Catalog


def find_linear_recipe(catalog: Catalog, base: str) -> Recipe | None:
    """Of a family's recipes with linear sketches that of most models; None without any."""
    recipes = catalog.recipes_of(base)
    return next((recipe for recipe in recipes if recipe.has_linear_sketch), None)
