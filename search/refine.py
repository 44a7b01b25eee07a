"""Scores from the per-slot sketches: the same kernel as the pooled vector's, estimated from
ten times as many features, for a family or for the best candidates of a search."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Sized
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float, Float64

from ..records import Recipe, Slot
from ..store import NO_LENGTH, Catalog, SketchMatrix
from .centring import references, shrinkage
from .standard_error import cosine_standard_errors

CANDIDATES = 128
"""How many of a search's best are scored again."""

WHOLE_FAMILY = 4_000
"""Models up to which every pair is scored from sketches; their scores take 128 MB."""

ROUGHNESS = 1e-4
"""More than single precision moves a score by."""

Sketches = Mapping[Slot, Float[np.ndarray, " features"]]


def has_sketches(recipe: Recipe) -> bool:
    """Whether models keep per-slot sketches under this recipe."""
    return "slot_blocks" in dict(recipe.params)


def family_scores(
    catalog: Catalog, base: str, recipe: Recipe, ids: Sequence[str]
) -> Float64[np.ndarray, "models models"]:
    """Every pair's cosine over all slots, not centred; a slot that one lacks counts as zero.

    Peak: the scores, and one slot's sketches in float64: float32 would part exact twins.
    """
    scores = np.zeros((len(ids), len(ids)))
    for _, places, sketches in catalog.sketches(base, recipe, ids):
        block = sketches.astype(np.float64)
        scores[np.ix_(places, places)] += block @ block.T
    lengths = np.sqrt(np.diag(scores))
    lengths[lengths == 0] = 1.0
    return scores / lengths[:, None] / lengths[None, :]


@dataclass(frozen=True, slots=True)
class SketchMeans:
    """aμ of every kind, slot by slot, for models scaled to unit length over all slots."""

    by_kind: Mapping[str, Mapping[Slot, Float64[np.ndarray, " features"]]] = field(
        default_factory=dict
    )

    @classmethod
    def of(
        cls, catalog: Catalog, base: str, recipe: Recipe, ids: Sequence[str], kinds: Sequence[str]
    ) -> SketchMeans:
        """Over the family's models. Peak: the sketches of the reference."""
        kept = catalog.family_vectors(base, recipe)
        place = catalog.keys(base, ids)
        means: dict[str, Mapping[Slot, Float64[np.ndarray, " features"]]] = {}
        for kind, rows in references(ids, kinds).items():
            matrix = kept.sketches([place[ids[row]] for row in rows])
            share = shrinkage(len(rows)) / len(rows)
            means[kind] = matrix.weighted_sum(share / matrix.lengths)
        return cls(means)

    def centred(
        self, kind: str, sketches: Sketches
    ) -> dict[Slot, Float64[np.ndarray, " features"]]:
        """One model's sketches without its kind's mean, of unit length over all slots."""
        mean = self.by_kind.get(kind, {})
        centred = _unit({slot: sketch.astype(np.float64) for slot, sketch in sketches.items()})
        for slot, values in mean.items():
            centred[slot] = centred.get(slot, 0.0) - values
        return _unit(centred)


class Candidates:
    """Some stored models' sketches, centred when they are compared.

    With x a model's sketches at unit length, μ its kind's mean and q a centred query at unit
    length, its score is ⟨x − μ, q⟩ / |x − μ|: the products of x with q and with the means are
    all that it takes, and only those of the best need be exact.
    """

    def __init__(self, matrix: SketchMatrix, kinds: Sequence[str], means: SketchMeans) -> None:
        self._matrix = matrix
        self._kinds = np.array(kinds)
        self._means = means

    def rough(
        self, query: Mapping[Slot, Float64[np.ndarray, " features"]]
    ) -> Float64[np.ndarray, " models"]:
        """Every row's score, to within `ROUGHNESS`."""
        products = self._matrix.dots(self._vectors(query).astype(np.float32))
        return self._cosines(query, products.astype(np.float64))

    def exact(
        self, query: Mapping[Slot, Float64[np.ndarray, " features"]]
    ) -> Float64[np.ndarray, " models"]:
        """Every row's score."""
        rows = self._matrix.rows()
        products = [np.einsum("mf,f->m", rows, vector) for vector in self._vectors(query)]
        return self._cosines(query, np.stack(products, axis=1))

    def _vectors(
        self, query: Mapping[Slot, Float64[np.ndarray, " features"]]
    ) -> Float64[np.ndarray, "vectors columns"]:
        """The query and the means, in the layout of the rows."""
        return np.stack([self._matrix.flat(v) for v in (query, *self._means.by_kind.values())])

    def plain_cosines(self, query: Sketches) -> Float64[np.ndarray, " models"]:
        """Cosines of stored sketches as they are, before any mean is taken out."""
        own = self._matrix.flat(_unit({s: q.astype(np.float64) for s, q in query.items()}))
        products = np.einsum("mf,f->m", self._matrix.rows(), own)
        cosines: Float64[np.ndarray, " models"] = products / self._matrix.lengths
        return cosines

    def standard_errors(
        self, query: Mapping[Slot, Float64[np.ndarray, " features"]]
    ) -> Float64[np.ndarray, " models"]:
        """Standard error of every row's cosine; the means count as known."""
        outside = _outside(self._matrix, [query, *self._means.by_kind.values()])
        own, *means = (
            np.concatenate([self._matrix.flat(v), _joined(v, outside)]).astype(np.float32)
            for v in (query, *self._means.by_kind.values())
        )
        mean_of = dict(zip(self._means.by_kind, means, strict=True))
        centred = np.zeros((len(self._kinds), len(own)), dtype=np.float32)
        centred[:, : self._matrix.width] = self._matrix.rows()
        centred /= self._matrix.lengths[:, None].astype(np.float32)
        for row, kind in enumerate(self._kinds):
            centred[row] -= mean_of.get(str(kind), 0)
        lengths = np.linalg.norm(centred, axis=1, keepdims=True)
        centred /= np.where(lengths > 0, lengths, 1.0)
        return cosine_standard_errors(own, centred)

    def _cosines(
        self,
        query: Mapping[Slot, Float64[np.ndarray, " features"]],
        products: Float64[np.ndarray, "models vectors"],
    ) -> Float64[np.ndarray, " models"]:
        """Centred cosines, from the rows' products with the query and with every mean."""
        lengths = self._matrix.lengths
        unit = products / lengths[:, None]
        inner, squares = unit[:, 0].copy(), (lengths != NO_LENGTH).astype(np.float64)
        for place, (kind, mean) in enumerate(self._means.by_kind.items(), start=1):
            own = self._kinds == kind
            inner[own] -= _inner(mean, query)
            squares[own] += _inner(mean, mean) - 2 * unit[own, place]
        cosines: Float64[np.ndarray, " models"] = inner / np.sqrt(
            np.where(squares > 0, squares, 1.0)
        )
        return cosines


def _inner(
    one: Mapping[Slot, Float64[np.ndarray, " features"]],
    other: Mapping[Slot, Float64[np.ndarray, " features"]],
) -> float:
    return sum(float(values @ other[slot]) for slot, values in one.items() if slot in other)


def _outside(matrix: SketchMatrix, models: Sequence[Mapping[Slot, Sized]]) -> dict[Slot, int]:
    """Widths of the slots that no row has."""
    return {
        slot: len(values)
        for sketches in models
        for slot, values in sorted(sketches.items())
        if slot not in matrix.layout
    }


def _joined(
    sketches: Mapping[Slot, Float64[np.ndarray, " features"]], slots: Mapping[Slot, int]
) -> Float64[np.ndarray, " joined"]:
    """One model's sketches of some slots, side by side."""
    parts = [sketches.get(slot, np.zeros(width)) for slot, width in slots.items()]
    return np.concatenate([np.zeros(0), *parts])


def _unit(
    sketches: Mapping[Slot, Float64[np.ndarray, " features"]],
) -> dict[Slot, Float64[np.ndarray, " features"]]:
    length = np.sqrt(sum(float(sketch @ sketch) for sketch in sketches.values())) or 1.0
    return {slot: sketch / length for slot, sketch in sketches.items()}
