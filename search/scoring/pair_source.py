"""Scores of any pairs of a family, by the way of scoring that is asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
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


COMPARED_AT_ONCE = 4_000
"""Models that are read, and compared with some others, at a time: 150 MB of sketches."""


@dataclass(frozen=True, slots=True, eq=False)
class PairSource:
    """Some models of a family, row by row, and how their pairs are scored.

    Attributes:
        read: Gives the models of some rows.
    """

    family: FamilyScores
    read: Callable[[Int64[np.ndarray, " rows"]], Scored]
    way: str
    blocks: tuple[str, ...]

    def take(self, rows: Int64[np.ndarray, " rows"]) -> PairSource:
        """Some of the models, in that order."""
        return replace(self, read=lambda some: self.read(rows[some]))

    def scores(
        self, rows: Int64[np.ndarray, " rows"], columns: Int64[np.ndarray, " columns"]
    ) -> Float64[np.ndarray, "rows columns"]:
        """Of some models with some others, −1…1; 1 for a model with itself."""
        if self.way in self.blocks:
            return one_with_themselves(self._block_cosines(rows, columns), rows, columns)
        pairs = self.pairs(rows, columns)
        scores = pairs.cosines if self.way == "raw" else bounded(pairs.z)
        return one_with_themselves(scores, rows, columns)

    def cosines(
        self, rows: Int64[np.ndarray, " rows"], columns: Int64[np.ndarray, " columns"]
    ) -> Float64[np.ndarray, "rows columns"]:
        """Plain cosines of the same pairs: 1 for copies."""
        return self.pairs(rows, columns).cosines

    def pairs(
        self, rows: Int64[np.ndarray, " rows"], columns: Int64[np.ndarray, " columns"]
    ) -> PairScores:
        """Cosines and z of the same pairs."""
        left, shape = self.read(rows), (len(rows), len(columns))
        pairs = PairScores(cosines=np.empty(shape), z=np.empty(shape))
        for part, right in self._parts(columns):
            found = self.family.compare(left, right)
            pairs.cosines[:, part], pairs.z[:, part] = found.cosines, found.z
        return pairs

    def _block_cosines(
        self, rows: Int64[np.ndarray, " rows"], columns: Int64[np.ndarray, " columns"]
    ) -> Float64[np.ndarray, "rows columns"]:
        left, block = self.read(rows), self.blocks.index(self.way)
        cosines = np.empty((len(rows), len(columns)))
        for part, right in self._parts(columns):
            cosines[:, part] = left.features.cosines(right.features)[block]
        return cosines

    def _parts(self, columns: Int64[np.ndarray, " columns"]) -> Iterator[tuple[slice, Scored]]:
        for start in range(0, len(columns), COMPARED_AT_ONCE):
            part = slice(start, start + COMPARED_AT_ONCE)
            yield part, self.read(columns[part])


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
        return one_with_themselves(bounded(self.pairs(rows, columns).z), rows, columns)

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


def one_with_themselves(
    scores: Float64[np.ndarray, "rows columns"],
    rows: Int64[np.ndarray, " rows"],
    columns: Int64[np.ndarray, " columns"],
) -> Float64[np.ndarray, "rows columns"]:
    """The same scores, 1 where a model meets itself."""
    scores[rows[:, None] == columns[None, :]] = 1.0
    return scores


def pair_source(
    view: FamilyView, rows: Int64[np.ndarray, " models"], way: str
) -> PairSource | VectorSource | None:
    """How pairs of some models are scored; None where it is by the cosines of vectors as they are.

    Up to `COMPARED_AT_ONCE` models are read now; of more, those that are asked for.
    Peak: the sketches of as many, and their cosines with the cohort.
    """
    blocks, family = tuple(block_dims(view.recipe)), FamilyScores.of(view)
    if family is not None and way in ("normalised", "raw", *blocks):
        if len(rows) <= COMPARED_AT_ONCE:
            return PairSource(family, family.stored(view, rows).take, way, blocks)
        return PairSource(family, lambda some: family.stored(view, rows[some]), way, blocks)
    if way == "normalised":
        vectors = VectorScores.of(view)
        return VectorSource(vectors, vectors.stored(view, rows))
    return None
