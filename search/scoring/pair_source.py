"""Scores of any pairs of a family, by the way of scoring that is asked for."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ...arrays import Float64, Int64
from ...store import FamilyView
from .family_scores import FamilyScores, Scored, blocks_of, bounded

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

    @classmethod
    def of(
        cls, view: FamilyView, rows: Int64[np.ndarray, " models"], way: str
    ) -> PairSource | None:
        """Of some models; None where pooled vectors are all there is to this way.

        Peak: the models' sketches, and their cosines with the cohort.
        """
        blocks = blocks_of(view.recipe)
        if way not in ("normalised", "raw", *blocks):
            return None
        family = FamilyScores.of(view)
        return cls(family, family.stored(view, rows), way, blocks)

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
            pairs = self.family.compare(left, right)
            scores = pairs.cosines if self.way == "raw" else bounded(pairs.z)
        scores[rows[:, None] == columns[None, :]] = 1.0
        return scores

    def cosines(
        self, rows: Int64[np.ndarray, " rows"], columns: Int64[np.ndarray, " columns"]
    ) -> Float64[np.ndarray, "rows columns"]:
        """Plain cosines of the same pairs: 1 for copies."""
        return self.family.compare(self.models.take(rows), self.models.take(columns)).cosines
