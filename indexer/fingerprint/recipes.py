"""The recipes by name, and how a model's slots are pooled under each."""

from __future__ import annotations

from ...errors import RequestError, UnknownRecipe, offered
from ...records import Recipe
from .mean_factors import Layout, MeanFactorsPool, mean_factors_recipe
from .sketch import VECTOR_DIMS, VERSION, SketchPool, sketch_recipe

DEFAULT_RECIPE = "sketch"
RECIPE_NAMES = ("sketch", "mean-factors")
VERSIONS = {"sketch": tuple(VECTOR_DIMS), "mean-factors": (1,)}
"""Those that can be made; the last one is the newest."""

DEFAULT_RANK = {"sketch": 16, "mean-factors": 8}
POWER_STEPS = {"sketch": 0, "mean-factors": 2}
"""Of the randomised SVD; two as `torch.svd_lowrank`, which the original recipe called."""

Pool = SketchPool | MeanFactorsPool
"""Takes the features of a model's matrices one at a time, then gives a vector."""


def make_recipe(
    name: str, rank: int | None, layout: Layout, share: float = 1.0, version: int = VERSION
) -> Recipe:
    """The recipe that users call `name`, for a family with this layout.

    Args:
        version: Of `sketch`; 2 for a family that was indexed by deltadex 0.1.

    Raises:
        UnknownRecipe: lists the names there are.
        RequestError: a recipe that needs whole matrices, and a share.
    """
    if name == "sketch":
        return sketch_recipe(rank or DEFAULT_RANK[name], share, version)
    if name in RECIPE_NAMES and share < 1:
        raise RequestError(f"recipe {name} needs whole matrices: leave --budget out")
    if name == "mean-factors":
        return mean_factors_recipe(rank or DEFAULT_RANK[name], layout)
    raise UnknownRecipe(f"unknown recipe {name!r}{offered(name, RECIPE_NAMES)}")


def make_pool(recipe: Recipe, layout: Layout) -> Pool:
    """An empty pool for one model.

    Raises:
        UnknownRecipe: it is of a version that this deltadex cannot make.
    """
    if recipe.version not in VERSIONS.get(recipe.name, ()):
        raise UnknownRecipe(
            f"recipe {recipe.id} is version {recipe.version} of {recipe.name!r}, which this "
            "deltadex cannot make: choose another --recipe"
        )
    return SketchPool(recipe) if recipe.name == "sketch" else MeanFactorsPool(recipe, layout)
