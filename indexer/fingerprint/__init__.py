"""Updates to fingerprints: factors of each ΔW, gauge-free features of them, one pooled vector."""

from .factors import Factors, factorise
from .mean_factors import Layout, family_layout
from .recipes import DEFAULT_RECIPE, POWER_STEPS, RECIPE_NAMES, Pool, make_pool, make_recipe

__all__ = [
    "DEFAULT_RECIPE",
    "POWER_STEPS",
    "RECIPE_NAMES",
    "Factors",
    "Layout",
    "Pool",
    "factorise",
    "family_layout",
    "make_pool",
    "make_recipe",
]
