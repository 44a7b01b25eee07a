"""Scores of a family by pooled vectors alone, where its models keep no sketches.

Normalising every model's scores amplifies the noise of pooled vectors (docs/scores.md), so that
here one centre and one spread hold for all strangers of two kinds: the order is that of the cosine,
centred where the recipe's vectors share a mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...arrays import Bool, Float32, Float64, Int64, Shaped
from ...store import FamilyView
from ..pooled_means import PooledMeans
from .cohort import Cohort, KindCodes
from .evidence import COPY_COSINE, LabelledCohort
from .normalisation import PairScores, Scale, codes_of, lower_spread, measure_scale

ROWS_AT_ONCE = 32
"""Models that a query is compared with at a time: 512 KB in double precision."""

DECIMALS = 12
"""Of cosines: what is beyond depends on the order of additions."""


@dataclass(frozen=True, slots=True, eq=False)
class ScoredVectors:
    """Some models' vectors, of unit length: as they are, and without their kind's mean."""

    plain: Shaped[np.ndarray, "models dim"]
    centred: Float64[np.ndarray, "models dim"]
    kinds: Int64[np.ndarray, " models"]

    def take(self, rows: Int64[np.ndarray, " rows"]) -> ScoredVectors:
        """Some of the rows, in that order."""
        return ScoredVectors(self.plain[rows], self.centred[rows], self.kinds[rows])


@dataclass(frozen=True, slots=True, eq=False)
class VectorScale:
    """What scores by vectors are normalised with, wherever the vectors are.

    Attributes:
        kinds: Of the family's models, in order.
        means: Of each kind.
        null: Of strangers' centred cosines, by kinds.
    """

    kinds: tuple[str, ...]
    means: PooledMeans
    null: Scale

    def prepare(
        self, vectors: Shaped[np.ndarray, "models dim"], kinds: Sequence[str]
    ) -> ScoredVectors:
        """Some models' vectors."""
        return ScoredVectors(
            vectors, self.means.centred(kinds, vectors), codes_of(kinds, self.kinds)
        )

    def search(
        self,
        query: ScoredVectors,
        vectors: Float32[np.ndarray, "models dim"],
        kinds: Int64[np.ndarray, " models"],
    ) -> PairScores:
        """The scores of one query with some models.

        As `compare` has them, but for the last bits before rounding; a few models at a time, whose
        numbers the processor's cache holds.

        Args:
            kinds: Of the models, as places in `self.kinds`.
        """
        plain, centred = np.empty(len(vectors)), np.empty(len(vectors))
        means = [self.means.by_kind.get(kind) for kind in self.kinds]
        for start in range(0, len(vectors), ROWS_AT_ONCE):
            part = slice(start, start + ROWS_AT_ONCE)
            numbers = vectors[part].astype(np.float64)
            plain[part] = np.vecdot(numbers, query.plain[0].astype(np.float64))
            for kind, mean in enumerate(means):
                of_kind = kinds[part] == kind
                if mean is not None and of_kind.all():
                    numbers -= mean
                elif mean is not None:
                    numbers[of_kind] -= mean
            lengths = np.sqrt(np.vecdot(numbers, numbers))
            products = np.vecdot(numbers, query.centred[0])
            centred[part] = products / np.where(lengths > 0, lengths, 1.0)
        z = self.null.of(np.round(centred, DECIMALS)[None], query.kinds, kinds)
        return PairScores(cosines=np.round(plain, DECIMALS)[None], z=z)

    def compare(self, left: ScoredVectors, right: ScoredVectors) -> PairScores:
        """The scores of every pair."""
        centred = _cosines(left.centred, right.centred)
        return PairScores(
            cosines=_cosines(left.plain, right.plain),
            z=self.null.of(centred, left.kinds, right.kinds),
        )


def measure_vectors(
    kinds: tuple[str, ...],
    means: PooledMeans,
    vectors: Shaped[np.ndarray, "cohort dim"],
    of_cohort: Sequence[str],
) -> tuple[VectorScale, Float64[np.ndarray, "cohort cohort"], Bool[np.ndarray, "cohort cohort"]]:
    """The scale of a cohort's vectors, z of every pair, and which pairs are strangers.

    Args:
        kinds: Of the family, in order.
        of_cohort: The kind of each of the cohort's models.
    """
    unscaled = VectorScale(kinds, means, Scale({}, {}))
    cohort = unscaled.prepare(vectors, of_cohort)
    plain, centred = _cosines(cohort.plain, cohort.plain), _cosines(cohort.centred, cohort.centred)
    are_strangers = ~np.eye(len(vectors), dtype=np.bool_) & (plain < COPY_COSINE)
    null = measure_scale(centred, are_strangers, cohort.kinds, lower_spread)
    return (
        VectorScale(kinds, means, null),
        null.of(centred, cohort.kinds, cohort.kinds),
        are_strangers,
    )


class VectorScores:
    """What the scores of a family's pairs are normalised with."""

    def __init__(self, view: FamilyView) -> None:
        cohort = Cohort.of(view)
        of_cohort = [view.kinds[row] for row in cohort.rows.tolist()]
        vectors = view.vectors(view.keys[cohort.rows])
        self.scale, z, are_strangers = measure_vectors(
            cohort.kinds, PooledMeans.of(view), vectors, of_cohort
        )
        self.evidence = LabelledCohort(cohort.rows, z, are_strangers)

    @classmethod
    def of(cls, view: FamilyView) -> VectorScores:
        """Of a family at one moment; computed once for as long as its models stay the same."""
        return view.derived(cls, cls)

    def prepare(
        self, vectors: Shaped[np.ndarray, "models dim"], kinds: Sequence[str]
    ) -> ScoredVectors:
        """Some models' vectors."""
        return self.scale.prepare(vectors, kinds)

    def stored(self, view: FamilyView, rows: Int64[np.ndarray, " rows"]) -> ScoredVectors:
        """Some stored models."""
        return self.prepare(
            view.vectors(view.keys[rows]), [view.kinds[row] for row in rows.tolist()]
        )

    def search(
        self, view: FamilyView, query: ScoredVectors, rows: Int64[np.ndarray, " rows"]
    ) -> PairScores:
        """The scores of one query with some stored models."""
        return self.scale.search(query, view.vectors_at(rows), KindCodes.of(view).codes[rows])

    def compare(self, left: ScoredVectors, right: ScoredVectors) -> PairScores:
        """The scores of every pair."""
        return self.scale.compare(left, right)


def _cosines(
    left: Shaped[np.ndarray, "models dim"], right: Shaped[np.ndarray, "others dim"]
) -> Float64[np.ndarray, "models others"]:
    """Of unit vectors, rounded: equal vectors have equal cosines wherever they are."""
    products = left.astype(np.float64, copy=False) @ right.astype(np.float64, copy=False).T
    cosines: Float64[np.ndarray, "models others"] = np.round(products, DECIMALS)
    return cosines
