"""The disk that a family's fingerprints take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from ...records import LINEAR_DIM, LINEAR_LAYER_DIM, Recipe
from ...store import block_dims, sketch_bytes
from ..fingerprint import has_linear_sketch

EMPTY_BYTES = 6_000_000
"""A catalog's file without models."""

ROW_BYTES = 1_000
"""A model's row, with its keys."""

SLOT_ROW_BYTES = 200
"""A slot's row beside its sketch: statistics, singular values."""

MEASURED = "benchmarks/catalog_bytes.py: made models of 12, 72 and 224 slots, within 8 % of it"


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogBytes:
    """What the catalog and its derived files grow by.

    Attributes:
        per_model: Bytes of the catalog file.
        derived_per_model: Bytes of the index and of mapped files, made by the first search.
    """

    models: int
    slots: int
    per_model: int
    derived_per_model: int

    @property
    def total(self) -> int:
        return self.models * (self.per_model + self.derived_per_model)

    def to_json(self) -> dict[str, object]:
        return {**asdict(self), "total": self.total, "measured": MEASURED}


def catalog_bytes(recipes: Sequence[Recipe], models: int, slots: int, layers: int) -> CatalogBytes:
    """By the recipes, for models with so many slots in so many layers."""
    per_model, derived = ROW_BYTES + SLOT_ROW_BYTES * slots, 0
    for recipe in recipes:
        dims = block_dims(recipe)
        sketches = slots * sketch_bytes(dims) if dims else 0
        linear = LINEAR_DIM + LINEAR_LAYER_DIM * layers if has_linear_sketch(recipe) else 0
        per_model += 4 * (recipe.dim + linear) + sketches
        derived += 4 * recipe.dim + sketches
    return CatalogBytes(models=models, slots=slots, per_model=per_model, derived_per_model=derived)
