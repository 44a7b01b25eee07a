"""A family's means by kind, taken once for as long as its models stay the same."""

from __future__ import annotations

from dataclasses import dataclass

from ..records import Recipe
from ..store import Catalog, VectorIndex
from .centring import PooledMeans, is_centred, references
from .refine import SketchMeans, has_sketches


@dataclass(frozen=True, slots=True)
class FamilyMeans:
    """What is taken out of a family's pooled vectors, and of its sketches."""

    pooled: PooledMeans
    sketches: SketchMeans


def family_means(catalog: Catalog, base: str, recipe: Recipe, index: VectorIndex) -> FamilyMeans:
    """The means of the models in `index`; empty for recipes that are not centred."""
    if not is_centred(recipe):
        return FamilyMeans(PooledMeans({}), SketchMeans())
    means: FamilyMeans | None = index.models.derived.get(FamilyMeans)
    if means is None:
        rows = [row for rows in references(index.ids, index.kinds).values() for row in rows]
        ids, kinds = [index.ids[row] for row in rows], [index.kinds[row] for row in rows]
        kind_of = dict(zip(ids, kinds, strict=True))
        names, vectors = catalog.vectors(base, recipe, ids=ids)
        sketches = SketchMeans()
        if has_sketches(recipe):
            sketches = SketchMeans.of(catalog, base, recipe, ids, kinds)
        pooled = PooledMeans.of(names, [kind_of[name] for name in names], vectors)
        means = index.models.derived[FamilyMeans] = FamilyMeans(pooled, sketches)
    return means
