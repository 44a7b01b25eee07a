"""Scores by pooled vectors alone: of models that keep no sketches, and of published indexes.

Fine-tunes of one base share their kind's mean μ, whatever the data. With x and y of unit length the
centred cosine is that of x − aμ(x) and y − aμ(y); a = n / (n + SHRINKAGE) keeps the mean of a few
models from deciding. (Mean removal against hubs: Suzuki et al. 2013; all-but-the-mean: Mu,
Viswanath 2018.) Normalising every model's scores amplifies the noise of pooled vectors
(docs/scores.md), so that here one centre and one spread hold for all strangers of two kinds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ..arrays import Float32, Float64, Shaped
from ..records import Recipe
from ..store import FamilyView, NullScale, Statistics, block_dims
from .family_scores import (
    COPY_COSINE,
    Calibration,
    Cohort,
    LabelledCohort,
    PairScores,
    Scale,
    calibrate,
    codes_of,
    lower_spread,
    measure_scale,
)
from .shapes import Codes, Pairs, Rows, Vectors

SHRINKAGE = 2.0
"""Weight of "nothing in common" in a mean, in models."""

ROWS_AT_ONCE = 32
"""Models that a query is compared with at a time: 512 KB in double precision."""

DECIMALS = 12
"""Of cosines: what is beyond depends on the order of additions."""

LEAST_PUBLISHED_SPREAD, LARGEST_PUBLISHED_Z = 1e-6, 1e6
"""Of strangers' cosines in an index: in a family of copies alone their spread is 0."""


@dataclass(frozen=True, slots=True)
class PooledMeans:
    """aμ of every kind, for pooled vectors."""

    by_kind: Mapping[str, Float64[np.ndarray, " dim"]]

    @classmethod
    def of(cls, view: FamilyView) -> PooledMeans:
        """Of a family's kinds, over its cohort; computed once for as long as its models stay."""

        def make(view: FamilyView) -> PooledMeans:
            by_kind = Cohort.of(view).by_kind
            return cls.over({kind: view.vectors(view.keys[rows]) for kind, rows in by_kind.items()})

        return view.derived(cls, make) if block_dims(view.recipe) else cls({})

    @classmethod
    def over(cls, vectors: Mapping[str, Vectors]) -> PooledMeans:
        """Over the unit vectors of each kind."""
        return cls(
            {
                kind: len(rows) / (len(rows) + SHRINKAGE) * rows.astype(np.float64).mean(axis=0)
                for kind, rows in vectors.items()
            }
        )

    def centred(self, kinds: Sequence[str], vectors: Vectors) -> Float64[np.ndarray, "models dim"]:
        """The vectors without their kind's mean, of unit length again."""
        centred: Float64[np.ndarray, "models dim"] = vectors.astype(np.float64)
        for kind in set(kinds) & set(self.by_kind):
            of_kind = [other == kind for other in kinds]
            if all(of_kind):
                centred -= self.by_kind[kind]
            else:
                centred[of_kind] -= self.by_kind[kind]
        lengths = np.sqrt(np.vecdot(centred, centred))[:, None]
        centred /= np.where(lengths > 0, lengths, 1.0)
        return centred


@dataclass(frozen=True, slots=True, eq=False)
class ScoredVectors:
    """Some models' vectors, of unit length: as they are, and without their kind's mean."""

    plain: Vectors
    centred: Float64[np.ndarray, "models dim"]
    kinds: Codes

    def take(self, rows: Rows) -> ScoredVectors:
        return ScoredVectors(self.plain[rows], self.centred[rows], self.kinds[rows])


@dataclass(frozen=True, slots=True, eq=False)
class VectorScale:
    """What scores by vectors are normalised with, wherever the vectors are: the family's kinds, the
    mean of each, and strangers' centred cosines by kinds."""

    kinds: tuple[str, ...]
    means: PooledMeans
    null: Scale

    @classmethod
    def published(cls, statistics: Statistics) -> VectorScale:
        null = statistics.scale
        centres = {(one, other): centre for one, other, centre, _ in null.centres}
        spreads = {(one, other): spread for one, other, _, spread in null.centres}
        return cls(null.kinds, PooledMeans(statistics.means), Scale(centres, spreads))

    def prepare(self, vectors: Vectors, kinds: Sequence[str]) -> ScoredVectors:
        return ScoredVectors(
            vectors, self.means.centred(kinds, vectors), codes_of(kinds, self.kinds)
        )

    def search(
        self, query: ScoredVectors, vectors: Float32[np.ndarray, "models dim"], kinds: Codes
    ) -> PairScores:
        """The scores of one query with some models, whose kinds are places in `self.kinds`: as
        `compare` has them, but for the last bits before rounding; a few models at a time, for the
        processor's cache."""
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


@dataclass(frozen=True, slots=True, eq=False)
class VectorScores(VectorScale):
    """The scale of a family at one moment, and what its labels say of its cohort's scores."""

    evidence: LabelledCohort

    @classmethod
    def of(cls, view: FamilyView) -> VectorScores:
        """Computed once for as long as the family's models stay the same."""

        def make(view: FamilyView) -> VectorScores:
            cohort = Cohort.of(view)
            vectors = view.vectors(view.keys[cohort.rows])
            return cls.measure(cohort, PooledMeans.of(view), vectors)

        return view.derived(cls, make)

    @classmethod
    def measure(
        cls, cohort: Cohort, means: PooledMeans, vectors: Shaped[np.ndarray, "cohort dim"]
    ) -> VectorScores:
        """Of the vectors of a family's cohort."""
        unscaled = VectorScale(cohort.kinds, means, Scale({}, {}))
        kinds = [cohort.kinds[code] for code in cohort.of_models[cohort.rows].tolist()]
        scored = unscaled.prepare(vectors, kinds)
        plain, centred = (_cosines(some, some) for some in (scored.plain, scored.centred))
        are_strangers = ~np.eye(len(vectors), dtype=np.bool_) & (plain < COPY_COSINE)
        null = measure_scale(centred, are_strangers, scored.kinds, lower_spread)
        z = null.of(centred, scored.kinds, scored.kinds)
        return cls(cohort.kinds, means, null, LabelledCohort(cohort.rows, z, are_strangers))

    def stored(self, view: FamilyView, rows: Rows) -> ScoredVectors:
        kinds = [view.kinds[row] for row in rows.tolist()]
        return self.prepare(view.vectors(view.keys[rows]), kinds)


def _cosines(left: Vectors, right: Shaped[np.ndarray, "others dim"]) -> Pairs:
    """Of unit vectors, rounded: equal vectors have equal cosines wherever they are."""
    products = left.astype(np.float64, copy=False) @ right.astype(np.float64, copy=False).T
    return np.asarray(np.round(products, DECIMALS))


def measure_published(
    recipe: Recipe,
    ids: Sequence[str],
    kinds: Sequence[str],
    datasets: Sequence[str | None],
    vectors_at: Callable[[Rows], Float32[np.ndarray, "rows dim"]],
) -> Statistics:
    """What scores of these models, by rising id, are normalised with, as `VectorScores` has it of a
    family; `vectors_at` gives the vectors of some rows as they are published."""
    cohort = Cohort.sample(ids, kinds)
    vectors = {kind: vectors_at(rows) for kind, rows in cohort.by_kind.items()}
    # the means are published in single precision
    means = PooledMeans.over(vectors).by_kind if block_dims(recipe) else {}
    rounded = {kind: mean.astype(np.float32).astype(np.float64) for kind, mean in means.items()}
    every = np.concatenate(list(vectors.values()))
    scores = VectorScores.measure(cohort, PooledMeans(rounded), every)
    labels = [datasets[row] for row in cohort.rows.tolist()]
    pairs, null = scores.evidence, scores.null
    found = calibrate(pairs.z, labels, pairs.are_strangers, len(ids))
    centres = tuple(
        (*pair, null.centre[pair], max(LEAST_PUBLISHED_SPREAD, null.spread[pair]))
        for pair in sorted(null.centre)
    )
    z_levels = np.clip(found.levels, -LARGEST_PUBLISHED_Z, LARGEST_PUBLISHED_Z)
    return Statistics(
        scale=NullScale(
            kinds=cohort.kinds,
            centres=centres,
            rate=found.rate,
            source=found.source,
            datasets=found.datasets,
            queries=found.queries,
            levels=tuple(z_levels.tolist()),
            shares=tuple(np.clip(found.shares, 0.0, 1.0).tolist()),
        ),
        means=rounded,
    )


def published_calibration(statistics: Statistics) -> Calibration:
    """What false discovery rates of an index are computed from."""
    null = statistics.scale
    return Calibration(
        rate=null.rate,
        source="labelled pairs" if null.source == "labelled pairs" else "the null alone",
        datasets=null.datasets,
        queries=null.queries,
        levels=np.array(null.levels, dtype=np.float64),
        shares=np.array(null.shares, dtype=np.float64),
    )
