"""Scores by pooled vectors alone, of models without sketches; how much of sketches is published; a
family's models with labels and scores, ready to be evaluated, clustered or drawn.

Fine-tunes of one base share their kind's mean μ, whatever the data. With x and y of unit length the
centred cosine is that of x − aμ(x) and y − aμ(y); a = n / (n + SHRINKAGE) keeps the mean of a few
models from deciding. (Mean removal against hubs: Suzuki et al. 2013; all-but-the-mean: Mu,
Viswanath 2018.) Normalising every model's scores amplifies the noise of pooled vectors,
so that here one centre and one spread hold for all strangers of two kinds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..arrays import Float32, Float64, Int64, Shaped
from ..errors import EmptyCatalog, RequestError, UnknownRecipe
from ..records import ModelRecord, Recipe
from ..store import Catalog, FamilyView, block_dims
from . import family_scores
from .evidence import COPY_COSINE, LabelledCohort, Square
from .layout import AT_ONCE, SAMPLE, Axes, axes_of, sample_places

SHRINKAGE = 2.0
"""Weight of "nothing in common" in a mean, in models."""

DECIMALS = 12
"""Of cosines: what is beyond depends on the order of additions."""


@dataclass(frozen=True, slots=True)
class PooledMeans:
    """aμ of every kind, for pooled vectors."""

    by_kind: Mapping[str, Float64[np.ndarray, " dim"]]

    @classmethod
    def of(cls, view: FamilyView) -> PooledMeans:
        """Of a family's kinds, over its cohort; computed once for as long as its models stay."""

        def make(view: FamilyView) -> PooledMeans:
            means = {}
            for kind, rows in family_scores.Cohort.of(view).by_kind.items():
                mean = view.vectors(view.keys[rows]).astype(np.float64).mean(axis=0)
                means[kind] = len(rows) / (len(rows) + SHRINKAGE) * mean
            return cls(means)

        return view.derived(cls, make) if block_dims(view.recipe) else cls({})

    def centred(
        self, kinds: Sequence[str], vectors: family_scores.Vectors
    ) -> Float64[np.ndarray, "models dim"]:
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

    plain: family_scores.Vectors
    centred: Float64[np.ndarray, "models dim"]
    kinds: family_scores.Codes

    def take(self, rows: family_scores.Rows) -> ScoredVectors:
        return ScoredVectors(self.plain[rows], self.centred[rows], self.kinds[rows])


@dataclass(frozen=True, slots=True, eq=False)
class VectorScores:
    """What scores by vectors are normalised with: a family's kinds, the mean of each, strangers'
    centred cosines by kinds, and what labels say of its cohort's scores."""

    kinds: tuple[str, ...]
    means: PooledMeans
    null: family_scores.Scale
    evidence: LabelledCohort

    @classmethod
    def of(cls, view: FamilyView) -> VectorScores:
        """Computed once for as long as the family's models stay the same."""

        def make(view: FamilyView) -> VectorScores:
            cohort, means = family_scores.Cohort.of(view), PooledMeans.of(view)
            vectors, codes = view.vectors(view.keys[cohort.rows]), cohort.of_models[cohort.rows]
            without = means.centred([cohort.kinds[code] for code in codes.tolist()], vectors)
            plain, centred = (_cosines(some, some) for some in (vectors, without))
            are_strangers = ~np.eye(len(vectors), dtype=np.bool_) & (plain < COPY_COSINE)
            null = family_scores.measure_scale(
                centred, are_strangers, codes, family_scores.lower_spread
            )
            z = null.of(centred, codes, codes)
            return cls(cohort.kinds, means, null, LabelledCohort(cohort.rows, z, are_strangers))

        return view.derived(cls, make)

    def prepare(self, vectors: family_scores.Vectors, kinds: Sequence[str]) -> ScoredVectors:
        return ScoredVectors(
            vectors, self.means.centred(kinds, vectors), family_scores.codes_of(kinds, self.kinds)
        )

    def stored(self, view: FamilyView, rows: family_scores.Rows) -> ScoredVectors:
        kinds = [view.kinds[row] for row in rows.tolist()]
        return self.prepare(view.vectors(view.keys[rows]), kinds)

    def compare(self, left: ScoredVectors, right: ScoredVectors) -> family_scores.PairScores:
        """The scores of every pair."""
        centred = _cosines(left.centred, right.centred)
        return family_scores.PairScores(
            cosines=_cosines(left.plain, right.plain),
            z=self.null.of(centred, left.kinds, right.kinds),
        )


def _cosines(
    left: family_scores.Vectors, right: Shaped[np.ndarray, "others dim"]
) -> family_scores.Pairs:
    """Of unit vectors, rounded: equal vectors have equal cosines wherever they are."""
    products = left.astype(np.float64, copy=False) @ right.astype(np.float64, copy=False).T
    return np.asarray(np.round(products, DECIMALS))


PUBLISHED_SKETCH_BYTES = 13 << 10
"""Of a model; with its vector and texts, 16 KiB."""


def published_lengths(recipe: Recipe, kinds: Sequence[str], n_slots: int) -> dict[str, int]:
    """Numbers of each block of a slot that are published of models of these kinds, multiples of 8.

    The error of a cosine falls with the root of its numbers, wherever they are: more of a block's
    numbers or more slots. So every slot is cut alike, and of the numbers that there is space for
    each block gets what it counts in scores, as far as the catalog has so many.
    """
    dims, names = block_dims(recipe), sorted(set(kinds))
    weights = family_scores.weights_by_kinds(list(dims), names).mean(axis=(0, 1))
    space = 4 * max(0, PUBLISHED_SKETCH_BYTES // n_slots - len(dims))
    lengths: dict[str, int] = {}
    # the blocks of which there are too few numbers for their part leave theirs to the others
    for place in np.argsort(np.array(list(dims.values())) / weights, kind="stable").tolist():
        block = list(dims)[place]
        others = [other for name, other in zip(dims, weights, strict=True) if name not in lengths]
        part = (space - sum(lengths.values())) * weights[place] / sum(others)
        lengths[block] = max(8, min(dims[block], int(part) // 8 * 8))
    return {block: lengths[block] for block in dims}


Queries = Int64[np.ndarray, " queries"]
Columns = Int64[np.ndarray, " reference"]
Scores = Float64[np.ndarray, "queries reference"]

WAYS = ("normalised", "raw", "update", "output", "input", "pooled")
"""Of scoring a pair: as searches do, the plain cosine, that of one block, and of pooled vectors."""

COMPARED_AT_ONCE = 2_000
"""Models that are read, and compared with some others, at a time: 75 MB of sketches."""

THREADS = 2
"""That compare; each needs some 150 MB."""

BLOCK_BYTES = 16 * 2**20
"""Scores held at a time. Ranking them takes about three times as much again."""

WHOLE_FAMILY = 4_000
"""Models up to which the scores of every pair are held: 128 MB."""


@dataclass(frozen=True, slots=True, eq=False)
class PairSource:
    """Some models of a family, `read` by rows, and how their pairs are scored: each block is a way
    too."""

    family: family_scores.FamilyScores | VectorScores
    read: Callable[[family_scores.Rows], Any]
    way: str = "normalised"
    blocks: tuple[str, ...] = ()

    @classmethod
    def of(cls, view: FamilyView, rows: family_scores.Codes, way: str) -> PairSource | None:
        """Of some models, up to `COMPARED_AT_ONCE` of them read now; None where their pairs are
        scored by the cosines of vectors as they are. Peak: the sketches of as many, and their
        cosines."""
        blocks, family = tuple(block_dims(view.recipe)), family_scores.FamilyScores.of(view)
        if family is not None and way in ("normalised", "raw", *blocks):
            if len(rows) <= COMPARED_AT_ONCE:
                return cls(family, family.stored(view, rows).take, way, blocks)
            return cls(family, lambda some: family.stored(view, rows[some]), way, blocks)
        if way == "normalised":
            vectors = VectorScores.of(view)
            return cls(vectors, vectors.stored(view, rows).take)
        return None

    def scores(self, rows: Queries, columns: Columns) -> Scores:
        """Of some models with some others, −1…1; 1 for a model with itself."""
        if self.way in self.blocks:
            block, left = self.blocks.index(self.way), self.read(rows)
            scores = np.empty((len(rows), len(columns)))

            def compare(part: slice, right: Any) -> None:
                scores[:, part] = left.features.cosines(right.features)[block]

            self._each_part(left, columns, compare)
        else:
            pairs = self.pairs(rows, columns)
            scores = pairs.cosines if self.way == "raw" else family_scores.bounded(pairs.z)
        scores[rows[:, None] == columns[None, :]] = 1.0
        return scores

    def pairs(self, rows: family_scores.Rows, columns: Columns) -> family_scores.PairScores:
        """Plain cosines, 1 for copies, and z of the same pairs."""
        left, shape = self.read(rows), (len(rows), len(columns))
        if np.array_equal(rows, columns) and len(rows) <= COMPARED_AT_ONCE:
            return self.family.compare(left, left)
        pairs = family_scores.PairScores(cosines=np.empty(shape), z=np.empty(shape))

        def compare(part: slice, right: Any) -> None:
            found = self.family.compare(left, right)
            pairs.cosines[:, part], pairs.z[:, part] = found.cosines, found.z

        self._each_part(left, columns, compare)
        return pairs

    def _each_part(
        self, left: Any, columns: Columns, compare: Callable[[slice, Any], None]
    ) -> None:
        """Have threads compare parts of the columns with the left, each as soon as it is read; read
        here, as locks of the catalog are this thread's."""
        from threadpoolctl import threadpool_limits

        if isinstance(left, family_scores.Scored):
            left.features.expect(len(columns))
        at_work: deque[Future[None]] = deque()
        with threadpool_limits(limits=1), ThreadPoolExecutor(THREADS) as pool:
            for start in range(0, len(columns), COMPARED_AT_ONCE):
                part = slice(start, start + COMPARED_AT_ONCE)
                right = self.read(columns[part])
                if len(at_work) == THREADS:
                    at_work.popleft().result()
                at_work.append(pool.submit(compare, part, right))
            for future in at_work:
                future.result()


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelledModels:
    """The vectors of some models of one base and what is known of their training, row by row, in
    the order of ids, which breaks ties.

    Vectors are of unit length. An unknown label, author or run is None, and equals no other.
    `scores` are of every pair, −1…1, where there are better ones than the vectors' cosines;
    `source` gives those of a family that is too large for all of them. Models that have their main
    `axes`, for a map or clusters, have vectors without numbers.
    """

    base: str
    ids: tuple[str, ...]
    vectors: family_scores.Vectors = field(compare=False)
    labels: tuple[str | None, ...]
    authors: tuple[str | None, ...]
    runs: tuple[str | None, ...]
    scores: Square | None = field(default=None, compare=False)
    source: PairSource | None = field(default=None, compare=False)
    axes: Axes | None = field(default=None, compare=False)

    @property
    def unlabelled_rows(self) -> Int64[np.ndarray, " unlabelled"]:
        return np.array([row for row, label in enumerate(self.labels) if label is None], np.int64)

    def scores_between(self, rows: Queries, columns: Columns) -> Scores:
        """Scores of some models with some others, rounded to `TIE_DECIMALS`."""
        return np.asarray(
            np.round(self.unrounded_between(rows, columns), family_scores.TIE_DECIMALS)
        )

    def unrounded_between(self, rows: Queries, columns: Columns) -> Scores:
        """The same before rounding, which would separate scores that are equal to their last
        bits."""
        if self.scores is not None:
            scores: Scores = self.scores[np.ix_(rows, columns)]
            return scores
        if self.source is not None:
            return self.source.scores(rows, columns)
        # in double precision, a range of columns at a time: float32 sums of equal vectors may
        # differ in their last bit with their place in the matrix, and ties would depend on it
        queries = self.vectors[rows].astype(np.float64)
        cosines = np.empty((len(rows), len(columns)))
        width = max(1, BLOCK_BYTES // (8 * max(1, self.vectors.shape[1])))
        for start in range(0, len(columns), width):
            others = self.vectors[columns[start : start + width]].astype(np.float64)
            np.matmul(queries, others.T, out=cosines[:, start : start + width])
        return cosines

    def pairs_between(self, rows: Queries, columns: Columns) -> family_scores.PairScores:
        """Plain cosines, 1 for copies, and z of some models with some others, as they have a
        `source`."""
        assert self.source is not None
        return self.source.pairs(rows, columns)


def family_views(catalog: Catalog, recipe: str | None, base: str | None) -> list[FamilyView]:
    """Every family, or that of `base`, under one recipe by name or id; a recipe's name may stand
    for another id in each. Raises EmptyCatalog, UnknownRecipe and UnknownBase."""
    base = catalog.find_base(base)
    wanted = recipe or catalog.find_recipe(None, base).name
    catalog.find_recipe(wanted, base)
    views = []
    for name in catalog.bases() if base is None else [base]:
        try:
            chosen = catalog.find_recipe(wanted, name)
            views.append(catalog.family(name, chosen, is_current=True))
        except (EmptyCatalog, UnknownRecipe):
            continue
    return views


def read_family(
    catalog: Catalog,
    recipe: str | None,
    base: str | None,
    *,
    several: str,
    pairs_up_to: int | None = None,
) -> tuple[FamilyView, LabelledModels, dict[str, ModelRecord]]:
    """The catalog's family, or that of `base`, at one moment: its view, its models, and what the
    catalog knows of them, by id. They have their main axes above `WHOLE_FAMILY` models, and above
    `pairs_up_to` these alone.

    Raises RequestError, which begins with `several`, for several families and no `base`; else as
    `family_views`.
    """

    def read() -> tuple[FamilyView, LabelledModels, dict[str, ModelRecord]]:
        view, *others = family_views(catalog, recipe, base)
        if others:
            names = ", ".join(family.base for family in (view, *others))
            raise RequestError(f"{several}; add --base, one of: {names}")
        rows = catalog.models(base=view.base, status="indexed")
        with_pairs = pairs_up_to is None or len(view) <= pairs_up_to
        models = labelled_models(view, with_axes=True, with_pairs=with_pairs)
        return view, models, {row.id: row for row in rows}

    return catalog.look(read)


def labelled_models(
    view: FamilyView, way: str = "normalised", *, with_axes: bool = False, with_pairs: bool = True
) -> LabelledModels:
    """The models of a family by id, with their scores by one of `WAYS`: above `WHOLE_FAMILY` models
    when they are asked for, and without vectors where these are no way. Main axes are those of
    families above it, or without pairs."""
    rows, labels = view.rows(sorted(view.ids)), view.labels
    is_large, places = len(rows) > WHOLE_FAMILY, np.arange(len(rows))
    axes = family_axes(view) if with_axes and (is_large or not with_pairs) else None
    source = PairSource.of(view, rows, way) if with_pairs else None
    if axes is not None or (is_large and source is not None):
        vectors: family_scores.Vectors = np.zeros((len(rows), 0), dtype=np.float32)
    else:
        vectors = view.vectors(view.keys[rows])
        if way == "normalised":
            kinds = [view.kinds[row] for row in rows.tolist()]
            vectors = PooledMeans.of(view).centred(kinds, vectors)
    return LabelledModels(
        base=view.base,
        ids=tuple(view.ids[row] for row in rows),
        vectors=vectors,
        labels=tuple(labels.datasets[row] for row in rows),
        authors=tuple(labels.authors[row] for row in rows),
        runs=tuple(labels.runs[row] for row in rows),
        scores=source.scores(places, places) if source and not is_large else None,
        source=source,
        axes=axes,
    )


def prepare_axes(view: FamilyView) -> None:
    """Compute now what a map or clusters of a large family begin with."""
    if len(view) > WHOLE_FAMILY:
        family_axes(view)


def family_axes(view: FamilyView) -> Axes:
    """The main axes of a family's vectors without their kind's mean, in order of id; computed once
    for as long as its models stay. Peak: a sample of vectors, and 200 bytes a model, which are
    held."""

    def make(view: FamilyView) -> Axes:
        rows, means = view.rows(sorted(view.ids)), PooledMeans.of(view)
        place = np.empty(len(rows), dtype=np.int64)
        place[rows] = np.arange(len(rows))
        kinds = [view.kinds[row] for row in range(len(rows))]
        parts = np.split(np.arange(len(rows)), range(AT_ONCE, len(rows), AT_ONCE))

        def of(some: family_scores.Rows) -> tuple[list[str], Float32[np.ndarray, "models dim"]]:
            return [kinds[row] for row in some.tolist()], view.vectors(view.keys[some])

        sample = means.centred(*of(rows[sample_places([view.ids[row] for row in rows], SAMPLE)]))
        from threadpoolctl import threadpool_limits

        # in order of key, as they are stored
        with threadpool_limits(limits=1):
            return axes_of(
                sample,
                len(rows),
                lambda axes: ((place[part], means.centred(*of(part)) @ axes) for part in parts),
            )

    return view.derived(Axes, make)
