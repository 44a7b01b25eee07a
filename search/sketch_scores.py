"""Scores from the per-slot sketches: the same kernel as the pooled vector's, estimated from
ten times as many features, for a family or for the best candidates of a search."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ..arrays import Float, Float32, Float64, Int64, Shaped
from ..records import Recipe, Slot
from ..store import NO_LENGTH, FamilyView, SketchColumns, SketchMatrix
from .centring import PooledMeans, is_centred, references, shrinkage

CANDIDATES = 128
"""How many of a search's best are scored again."""

WHOLE_FAMILY = 4_000
"""Models up to which every pair is scored from sketches; their scores take 128 MB."""

ROUGHNESS = 1e-4
"""More than single precision moves a score by."""


def has_sketches(recipe: Recipe) -> bool:
    """Whether models keep per-slot sketches under this recipe."""
    return "slot_blocks" in dict(recipe.params)


def pair_scores(
    view: FamilyView, rows: Int64[np.ndarray, " models"]
) -> Float64[np.ndarray, "models models"]:
    """The cosine of every pair of some models over all slots, not centred; a slot that one of
    them lacks counts as zero.

    Peak: the scores, and one slot's sketches in float64: float32 would part exact twins.
    """
    scores = np.zeros((len(rows), len(rows)))
    for _, places, sketches in view.sketches_by_slot(rows):
        block = sketches.astype(np.float64)
        scores[np.ix_(places, places)] += block @ block.T
    lengths = np.sqrt(np.diag(scores))
    lengths[lengths == 0] = 1.0
    return scores / lengths[:, None] / lengths[None, :]


class MeanProducts:
    """Inner products of the rows of one file with some means, computed when they are first needed.

    Shared by threads: two that compute a product at once get the same.
    """

    def __init__(self) -> None:
        # the file, and what is known of its rows: one value, for both change together
        self._state: tuple[object, Float32[np.ndarray, "rows kinds"]] = (
            None,
            np.zeros((0, 0), dtype=np.float32),
        )

    def of(
        self, matrix: SketchMatrix, means: Float32[np.ndarray, "kinds columns"]
    ) -> Float32[np.ndarray, "models kinds"]:
        """Of every row of `matrix` with every mean."""
        whole, taken = self._state
        if whole is not matrix.whole:
            taken = np.full((matrix.whole.ntotal, len(means)), np.nan, dtype=np.float32)
            self._state = matrix.whole, taken
        new = np.flatnonzero(np.isnan(taken[matrix.places]).any(axis=1))
        if len(new):
            taken[matrix.places[new]] = matrix.take(new).dots(means)
        products: Float32[np.ndarray, "models kinds"] = taken[matrix.places]
        return products


@dataclass(frozen=True, slots=True, eq=False)
class SketchMeans:
    """aμ of every kind, for models scaled to unit length over all slots; row by row."""

    columns: SketchColumns = field(default_factory=SketchColumns)
    kinds: tuple[str, ...] = ()
    vectors: Float64[np.ndarray, "kinds columns"] = field(default_factory=lambda: np.zeros((0, 0)))
    products_cache: MeanProducts = field(default_factory=MeanProducts)

    @classmethod
    def of(cls, view: FamilyView) -> SketchMeans:
        """Over the family's models. Peak: the sketches of the reference."""
        means: dict[str, tuple[SketchColumns, Float64[np.ndarray, " columns"]]] = {}
        for kind, rows in references(view.ids, view.kinds).items():
            matrix = view.sketches(view.keys[rows])
            share = shrinkage(len(rows)) / len(rows)
            means[kind] = matrix.columns, matrix.weighted_sum(share / matrix.lengths)
        columns = SketchColumns()
        for own, _ in means.values():
            columns = columns.covering(own) if columns.width else own
        vectors = [columns.spread(mean[None, :], own) for own, mean in means.values()]
        return cls(columns, tuple(means), np.concatenate([np.zeros((0, columns.width)), *vectors]))

    def products(self, matrix: SketchMatrix) -> Float32[np.ndarray, "models kinds"]:
        """Inner products of stored rows, whose columns these begin with, with the means."""
        vectors = self.vectors[:, : matrix.columns.width]
        return self.products_cache.of(matrix, vectors.astype(np.float32))

    def spread(self, columns: SketchColumns) -> SketchMeans:
        """The same in columns that cover theirs."""
        if columns is self.columns:
            return self
        vectors = columns.spread(self.vectors, self.columns)
        return SketchMeans(columns, self.kinds, vectors, self.products_cache)

    def of_kind(self, kind: str) -> Float64[np.ndarray, " columns"]:
        """One kind's mean; zeros for a kind that has none."""
        if kind not in self.kinds:
            return np.zeros(self.columns.width)
        mean: Float64[np.ndarray, " columns"] = self.vectors[self.kinds.index(kind)]
        return mean

    def centred(
        self, kind: str, sketches: Mapping[Slot, Float[np.ndarray, " features"]]
    ) -> dict[Slot, Float64[np.ndarray, " features"]]:
        """One model's sketches without its kind's mean, of unit length over all slots."""
        columns = SketchColumns.of({slot: len(sketch) for slot, sketch in sketches.items()})
        columns = columns.covering(self.columns)
        vector = np.zeros(columns.width)
        for slot, sketch in sketches.items():
            vector[columns.of_slot[slot]] = sketch
        mean = self.spread(columns).of_kind(kind)
        values = _unit(_unit(vector) - mean)
        return {
            slot: values[part]
            for slot, part in columns.of_slot.items()
            if slot in sketches or mean[part].any()
        }


@dataclass(frozen=True, slots=True)
class KindMeans:
    """What is taken out of a family's pooled vectors, and of its sketches."""

    pooled: PooledMeans
    sketches: SketchMeans

    @classmethod
    def of(cls, view: FamilyView) -> KindMeans:
        """The means of a family's kinds; empty for recipes that are not centred."""
        if not is_centred(view.recipe):
            return cls(PooledMeans({}), SketchMeans())
        rows = np.concatenate([np.zeros(0, np.int64), *references(view.ids, view.kinds).values()])
        ids, kinds = [view.ids[row] for row in rows], [view.kinds[row] for row in rows]
        pooled = PooledMeans.of(ids, kinds, view.vectors(view.keys[rows]))
        return cls(pooled, SketchMeans.of(view) if has_sketches(view.recipe) else SketchMeans())


def kind_means(view: FamilyView) -> KindMeans:
    """The same, computed once for as long as the family's models stay the same."""
    return view.derived(KindMeans, KindMeans.of)


class StandardErrors:
    """Standard errors of one query's cosines, as estimates from `dim` random features.

    The sum over independent features j of a_j b_j estimates a kernel, and so do the two squared
    lengths it is divided by. By the delta method the error of the quotient c is that of Σ z_j with
    z_j = a_j b_j − c (a_j² + b_j²)/2 for unit a and b; Σ z_j = 0, so its variance is estimated by
    Σ z_j². For Gaussian features this is (1 − c²)²/dim, Fisher's variance of a correlation: twins
    have no error, strangers 1/√dim. Read from the features themselves, it also holds where they are
    heavy-tailed or unevenly weighted, as TensorSketches of low-rank matrices are: then `dim`
    overstates how many there are.
    """

    def __init__(self, query: Shaped[np.ndarray, " dim"]) -> None:
        """`query` is of unit length."""
        self._query: Float64[np.ndarray, " dim"] = query.astype(np.float64)
        self._single: Float32[np.ndarray, " dim"] = query.astype(np.float32)
        self._squares = self._single * self._single
        self._scratch = np.empty((2, len(query)), dtype=np.float32)

    def cosine(self, other: Float64[np.ndarray, " dim"]) -> tuple[float, float]:
        """Cosine of the query with a vector of any length, and its standard error.

        The error in single precision, in memory that is used again: about 1e-7 of it.
        """
        length = math.sqrt(float(other @ other)) or 1.0
        cosine = float(other @ self._query) / length
        unit, residuals = self._scratch
        np.multiply(other, 1 / length, out=unit, casting="same_kind")
        np.multiply(unit, unit, out=residuals)
        residuals += self._squares
        residuals *= -cosine / 2
        unit *= self._single
        residuals += unit
        return cosine, math.sqrt(float(residuals @ residuals))


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
        query: SketchMatrix,
        kind: str,
    ) -> None:
        """Compare all rows of `matrix` with the only one of `query`, which is of that kind."""
        self._matrix = matrix
        self._kinds = kinds
        # columns that no row has come last
        self._columns = matrix.columns.covering(means.columns).covering(query.columns)
        self._means = means.spread(self._columns)
        self._own = _unit(self._columns.spread(query.row(0)[None, :], query.columns)[0])
        self._query = _unit(self._own - self._means.of_kind(kind))

    def rough(self) -> Float64[np.ndarray, " models"]:
        """Every row's score, to within `ROUGHNESS`."""
        width, lengths = self._matrix.columns.width, self._matrix.lengths
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
        values, width = np.empty(self._columns.width), self._matrix.columns.width
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
