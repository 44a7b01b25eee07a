"""Scores from the per-slot sketches: the same kernel as the pooled vector's, estimated from
ten times as many features, for a family or for the best candidates of a search."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ..arrays import Float, Float32, Float64
from ..records import Recipe, Slot
from ..store import NO_LENGTH, Catalog, Layout, SketchMatrix
from .centring import references, shrinkage
from .mean_products import MeanProducts
from .standard_error import StandardErrors

CANDIDATES = 128
"""How many of a search's best are scored again."""

WHOLE_FAMILY = 4_000
"""Models up to which every pair is scored from sketches; their scores take 128 MB."""

ROUGHNESS = 1e-4
"""More than single precision moves a score by."""


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


@dataclass(frozen=True, slots=True, eq=False)
class SketchMeans:
    """aμ of every kind, for models scaled to unit length over all slots; row by row."""

    layout: Layout = field(default_factory=Layout)
    kinds: tuple[str, ...] = ()
    vectors: Float64[np.ndarray, "kinds columns"] = field(default_factory=lambda: np.zeros((0, 0)))
    remembered: MeanProducts = field(default_factory=MeanProducts)

    @classmethod
    def of(
        cls, catalog: Catalog, base: str, recipe: Recipe, ids: Sequence[str], kinds: Sequence[str]
    ) -> SketchMeans:
        """Over the family's models. Peak: the sketches of the reference."""
        kept = catalog.family_vectors(base, recipe)
        place = catalog.keys(base, ids)
        means: dict[str, tuple[Layout, Float64[np.ndarray, " columns"]]] = {}
        for kind, rows in references(ids, kinds).items():
            matrix = kept.sketches([place[ids[row]] for row in rows])
            share = shrinkage(len(rows)) / len(rows)
            means[kind] = matrix.layout, matrix.weighted_sum(share / matrix.lengths)
        layout = Layout()
        for one, _ in means.values():
            layout = layout.covering(one) if layout.width else one
        vectors = [layout.spread(mean[None, :], one) for one, mean in means.values()]
        return cls(layout, tuple(means), np.concatenate([np.zeros((0, layout.width)), *vectors]))

    def products(self, matrix: SketchMatrix) -> Float32[np.ndarray, "models kinds"]:
        """Inner products of stored rows, whose layout this one begins with, with the means."""
        return self.remembered.of(matrix, self.vectors[:, : matrix.layout.width].astype(np.float32))

    def in_layout(self, layout: Layout) -> SketchMeans:
        """The same in a layout that covers theirs."""
        if layout is self.layout:
            return self
        vectors = layout.spread(self.vectors, self.layout)
        return SketchMeans(layout, self.kinds, vectors, self.remembered)

    def of_kind(self, kind: str) -> Float64[np.ndarray, " columns"]:
        """One kind's mean; zeros for a kind that has none."""
        if kind not in self.kinds:
            return np.zeros(self.layout.width)
        mean: Float64[np.ndarray, " columns"] = self.vectors[self.kinds.index(kind)]
        return mean

    def centred(
        self, kind: str, sketches: Mapping[Slot, Float[np.ndarray, " features"]]
    ) -> dict[Slot, Float64[np.ndarray, " features"]]:
        """One model's sketches without its kind's mean, of unit length over all slots."""
        layout = Layout.of({slot: len(sketch) for slot, sketch in sketches.items()})
        layout = layout.covering(self.layout)
        vector = np.zeros(layout.width)
        for slot, sketch in sketches.items():
            vector[layout.columns[slot]] = sketch
        mean = self.in_layout(layout).of_kind(kind)
        values = _unit(_unit(vector) - mean)
        return {
            slot: values[columns]
            for slot, columns in layout.columns.items()
            if slot in sketches or mean[columns].any()
        }


@dataclass(frozen=True, slots=True, eq=False)
class ExactScores:
    """Some rows against one query.

    Attributes:
        scores: Centred cosines.
        errors: Their standard errors; the means count as known.
        cosines: Before any mean is taken out.
    """

    scores: Float64[np.ndarray, " rows"]
    errors: Float64[np.ndarray, " rows"]
    cosines: Float64[np.ndarray, " rows"]


class Candidates:
    """Some stored models' sketches, compared with one query's.

    With x a model's sketches at unit length, μ its kind's mean and q the centred query at unit
    length, its score is ⟨x − μ, q⟩ / |x − μ|: the products of x with q and with the means are
    all that a rough score takes.
    """

    def __init__(
        self,
        matrix: SketchMatrix,
        kinds: Sequence[str],
        means: SketchMeans,
        asked: SketchMatrix,
        kind: str,
    ) -> None:
        """Compare all rows of `matrix` with the only one of `asked`, which is of that kind."""
        self._matrix = matrix
        self._kinds = kinds
        # columns that no row has come last
        self._layout = matrix.layout.covering(means.layout).covering(asked.layout)
        self._means = means.in_layout(self._layout)
        self._own = _unit(self._layout.spread(asked.row(0)[None, :], asked.layout)[0])
        self._query = _unit(self._own - self._means.of_kind(kind))

    def rough(self) -> Float64[np.ndarray, " models"]:
        """Every row's score, to within `ROUGHNESS`."""
        width, lengths = self._matrix.layout.width, self._matrix.lengths
        products = self._matrix.dots(self._query[None, :width].astype(np.float32))[:, 0]
        inner, squares = products / lengths, (lengths != NO_LENGTH).astype(np.float64)
        with_means = self._means.products(self._matrix) / lengths[:, None]
        kinds = np.array(self._kinds)
        for place, kind in enumerate(self._means.kinds):
            own, mean = kinds == kind, self._means.vectors[place]
            inner[own] -= mean @ self._query
            squares[own] += mean @ mean - 2 * with_means[own, place]
        scores: Float64[np.ndarray, " models"] = inner / np.sqrt(
            np.where(squares > 0, squares, 1.0)
        )
        return scores

    def exact(self, rows: Sequence[int]) -> ExactScores:
        """Some rows' scores, in their order."""
        errors_of = StandardErrors(self._query)
        numbers = np.zeros((3, len(rows)))
        values, width = np.empty(self._layout.width), self._matrix.layout.width
        for place, row in enumerate(rows):
            np.divide(self._matrix.row(row), self._matrix.lengths[row], out=values[:width])
            values[width:] = 0
            cosine = values @ self._own
            values -= self._means.of_kind(self._kinds[row])
            score, error = errors_of.cosine(values)
            numbers[:, place] = score, error, cosine
        return ExactScores(*numbers)


def _unit(vector: Float64[np.ndarray, " columns"]) -> Float64[np.ndarray, " columns"]:
    unit: Float64[np.ndarray, " columns"] = vector / (np.sqrt(vector @ vector) or 1.0)
    return unit
