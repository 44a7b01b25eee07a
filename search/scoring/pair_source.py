"""Scores of any pairs of a family, by the way of scoring that is asked for."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ...arrays import Float64, Int64
from ...store import FamilyView, block_dims
from .family_scores import FamilyScores, Scored
from .normalisation import PairScores, bounded
from .vector_scores import ScoredVectors, VectorScores

WAYS = ("normalised", "raw", "update", "output", "input", "pooled")
"""Ways of scoring a pair: as searches do; the plain cosine, and that of one block of features; the
cosine of the pooled vectors."""


@dataclass(frozen=True, slots=True, eq=False)
class PairSource:
    """Some models of a family, row by row, and how their pairs are scored."""

    family: FamilyScores
    models: Scored
    way: str
    blocks: tuple[str, ...]

    def take(self, rows: Int64[np.ndarray, " rows"]) -> PairSource:
        """Some of the models, in that order."""
        return replace(self, models=self.models.take(rows))

    def scores(
        self, rows: Int64[np.ndarray, " rows"], columns: Int64[np.ndarray, " columns"]
    ) -> Float64[np.ndarray, "rows columns"]:
        """Of some models with some others, −1…1; 1 for a model with itself."""
        left, right = self.models.take(rows), self.models.take(columns)
        scores: Float64[np.ndarray, "rows columns"]
        if self.way in self.blocks:
            scores = left.features.cosines(right.features)[self.blocks.index(self.way)]
        else:
            pairs = self.pairs(rows, columns)
            scores = pairs.cosines if self.way == "raw" else bounded(pairs.z)
        scores[rows[:, None] == columns[None, :]] = 1.0
        return scores

    def cosines(
        self, rows: Int64[np.ndarray, " rows"], columns: Int64[np.ndarray, " columns"]
    ) -> Float64[np.ndarray, "rows columns"]:
        """Plain cosines of the same pairs: 1 for copies."""
        return self.pairs(rows, columns).cosines

    def pairs(
        self, rows: Int64[np.ndarray, " rows"], columns: Int64[np.ndarray, " columns"]
    ) -> PairScores:
        """Cosines and z of the same pairs."""
        return self.family.compare(self.models.take(rows), self.models.take(columns))


@dataclass(frozen=True, slots=True, eq=False)
class VectorSource:
    """The same for models that keep no sketches."""

    family: VectorScores
    models: ScoredVectors

    def take(self, rows: Int64[np.ndarray, " rows"]) -> VectorSource:
        """Some of the models, in that order."""
        return replace(self, models=self.models.take(rows))

    def scores(
        self, rows: Int64[np.ndarray, " rows"], columns: Int64[np.ndarray, " columns"]
    ) -> Float64[np.ndarray, "rows columns"]:
        """Of some models with some others, −1…1; 1 for a model with itself."""
        scores = bounded(self.pairs(rows, columns).z)
        scores[rows[:, None] == columns[None, :]] = 1.0
        return scores

    def cosines(
        self, rows: Int64[np.ndarray, " rows"], columns: Int64[np.ndarray, " columns"]
    ) -> Float64[np.ndarray, "rows columns"]:
        """Plain cosines of the same pairs: 1 for copies."""
        return self.pairs(rows, columns).cosines

    def pairs(
        self, rows: Int64[np.ndarray, " rows"], columns: Int64[np.ndarray, " columns"]
    ) -> PairScores:
        """Cosines and z of the same pairs."""
        return self.family.compare(self.models.take(rows), self.models.take(columns))


def pair_source(
    view: FamilyView, rows: Int64[np.ndarray, " models"], way: str
) -> PairSource | VectorSource | None:
    """How pairs of some models are scored; None where it is by the cosines of vectors as they are.

    Peak: the models' sketches, and their cosines with the cohort.
    """
    blocks, family = tuple(block_dims(view.recipe)), FamilyScores.of(view)
    if family is not None and way in ("normalised", "raw", *blocks):
        return PairSource(family, family.stored(view, rows), way, blocks)
    if way == "normalised":
        vectors = VectorScores.of(view)
        return VectorSource(vectors, vectors.stored(view, rows))
    return None
