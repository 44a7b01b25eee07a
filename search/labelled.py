"""The models of a family with labels and scores, ready to be evaluated, clustered or drawn."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ..arrays import Float64, Int64
from ..errors import EmptyCatalog, RequestError, UnknownRecipe
from ..records import ModelRecord
from ..store import Catalog, FamilyView, block_dims
from .family_scores import TIE_DECIMALS, FamilyScores, PairScores, bounded, unbounded
from .shapes import Codes, Rows, Square, Vectors
from .vector_scores import PooledMeans, VectorScores

Queries = Int64[np.ndarray, " queries"]
Columns = Int64[np.ndarray, " reference"]
Scores = Float64[np.ndarray, "queries reference"]

WAYS = ("normalised", "raw", "update", "output", "input", "pooled")
"""Of scoring a pair: as searches do, the plain cosine, that of one block, and of pooled vectors."""

COMPARED_AT_ONCE = 4_000
"""Models that are read, and compared with some others, at a time: 150 MB of sketches."""

BLOCK_BYTES = 16 * 2**20
"""Scores held at a time. Ranking them takes about three times as much again."""

WHOLE_FAMILY = 4_000
"""Models up to which the scores of every pair are held: 128 MB."""


@dataclass(frozen=True, slots=True, eq=False)
class PairSource:
    """Some models of a family, `read` by rows, and how their pairs are scored: each block is a way
    too."""

    family: FamilyScores | VectorScores
    read: Callable[[Rows], Any]
    way: str = "normalised"
    blocks: tuple[str, ...] = ()

    @classmethod
    def of(cls, view: FamilyView, rows: Codes, way: str) -> PairSource | None:
        """Of some models, up to `COMPARED_AT_ONCE` of them read now; None where their pairs are
        scored by the cosines of vectors as they are. Peak: the sketches of as many, and their
        cosines."""
        blocks, family = tuple(block_dims(view.recipe)), FamilyScores.of(view)
        if family is not None and way in ("normalised", "raw", *blocks):
            if len(rows) <= COMPARED_AT_ONCE:
                return cls(family, family.stored(view, rows).take, way, blocks)
            return cls(family, lambda some: family.stored(view, rows[some]), way, blocks)
        if way == "normalised":
            vectors = VectorScores.of(view)
            return cls(vectors, vectors.stored(view, rows).take)
        return None

    def take(self, rows: Rows) -> PairSource:
        return replace(self, read=lambda some: self.read(rows[some]))

    def scores(self, rows: Queries, columns: Columns) -> Scores:
        """Of some models with some others, −1…1; 1 for a model with itself."""
        if self.way in self.blocks:
            block, left = self.blocks.index(self.way), self.read(rows)
            scores = np.empty((len(rows), len(columns)))
            for part, right in self._parts(columns):
                scores[:, part] = left.features.cosines(right.features)[block]
        else:
            pairs = self.pairs(rows, columns)
            scores = pairs.cosines if self.way == "raw" else bounded(pairs.z)
        scores[rows[:, None] == columns[None, :]] = 1.0
        return scores

    def pairs(self, rows: Rows, columns: Columns) -> PairScores:
        """Plain cosines, 1 for copies, and z of the same pairs."""
        left, shape = self.read(rows), (len(rows), len(columns))
        pairs = PairScores(cosines=np.empty(shape), z=np.empty(shape))
        for part, right in self._parts(columns):
            found = self.family.compare(left, right)
            pairs.cosines[:, part], pairs.z[:, part] = found.cosines, found.z
        return pairs

    def _parts(self, columns: Columns) -> Iterator[tuple[slice, Any]]:
        for start in range(0, len(columns), COMPARED_AT_ONCE):
            part = slice(start, start + COMPARED_AT_ONCE)
            yield part, self.read(columns[part])


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelledModels:
    """The vectors of some models of one base and what is known of their training, row by row.

    Vectors are of unit length. An unknown label, author or run is None, and equals no other.
    `scores` are of every pair, −1…1, where there are better ones than the vectors' cosines;
    `source` gives those of a family that is too large for all of them.
    """

    base: str
    ids: tuple[str, ...]
    vectors: Vectors = field(compare=False)
    labels: tuple[str | None, ...]
    authors: tuple[str | None, ...]
    runs: tuple[str | None, ...]
    scores: Square | None = field(default=None, compare=False)
    source: PairSource | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        columns = (self.vectors, self.labels, self.authors, self.runs)
        if {len(column) for column in columns} != {len(self.ids)}:
            raise ValueError(
                f"{self.base}: {len(self.ids)} ids, but "
                f"{[len(column) for column in columns]} vectors, labels, authors, runs"
            )
        if len(set(self.ids)) != len(self.ids):
            raise ValueError(f"{self.base}: duplicate id")

    @property
    def unlabelled_rows(self) -> Int64[np.ndarray, " unlabelled"]:
        return np.array([row for row, label in enumerate(self.labels) if label is None], np.int64)

    def sorted_by_id(self) -> LabelledModels:
        """The same models in the order that breaks ties."""
        order = np.array(sorted(range(len(self.ids)), key=self.ids.__getitem__), dtype=np.int64)
        if (np.diff(order) == 1).all():
            return self
        return replace(
            self,
            ids=tuple(self.ids[i] for i in order),
            vectors=self.vectors[order],
            labels=tuple(self.labels[i] for i in order),
            authors=tuple(self.authors[i] for i in order),
            runs=tuple(self.runs[i] for i in order),
            scores=None if self.scores is None else self.scores[np.ix_(order, order)],
            source=None if self.source is None else self.source.take(order),
        )

    def score_block(self, rows: Int64[np.ndarray, " block"]) -> Float64[np.ndarray, "block models"]:
        """Scores of some models with all, rounded to `TIE_DECIMALS`."""
        return self.scores_between(rows, np.arange(len(self.ids)))

    def scores_between(self, rows: Queries, columns: Columns) -> Scores:
        """Scores of some models with some others, rounded as in `score_block`."""
        return np.asarray(np.round(self.unrounded_between(rows, columns), TIE_DECIMALS))

    def unrounded_between(self, rows: Queries, columns: Columns) -> Scores:
        """The same before rounding, which would separate scores that are equal to their last
        bits."""
        if self.scores is not None:
            scores: Scores = self.scores[np.ix_(rows, columns)]
            return scores
        if self.source is not None:
            return self.source.scores(rows, columns)
        return self._vector_cosines(rows, columns)

    def pairs_between(self, rows: Queries, columns: Columns) -> PairScores:
        """Plain cosines, 1 for copies, and z of some models with some others."""
        if self.source is not None:
            return self.source.pairs(rows, columns)
        z = unbounded(self.scores_between(rows, columns))
        return PairScores(cosines=self._vector_cosines(rows, columns), z=z)

    def _vector_cosines(self, rows: Queries, columns: Columns) -> Scores:
        """In float64, a range of columns at a time: float32 sums of equal vectors may differ in
        their last bit with their place in the matrix, and ties would depend on it."""
        queries = self.vectors[rows].astype(np.float64)
        cosines = np.empty((len(rows), len(columns)))
        width = max(1, BLOCK_BYTES // (8 * max(1, self.vectors.shape[1])))
        for start in range(0, len(columns), width):
            others = self.vectors[columns[start : start + width]].astype(np.float64)
            np.matmul(queries, others.T, out=cosines[:, start : start + width])
        return cosines


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
    catalog: Catalog, recipe: str | None, base: str | None, *, several: str
) -> tuple[FamilyView, LabelledModels, dict[str, ModelRecord]]:
    """The catalog's family, or that of `base`, at one moment: its view, its models, and what the
    catalog knows of them, by id.

    Raises RequestError, which begins with `several`, for several families and no `base`; else as
    `family_views`.
    """

    def read() -> tuple[FamilyView, LabelledModels, dict[str, ModelRecord]]:
        view, *others = family_views(catalog, recipe, base)
        if others:
            names = ", ".join(family.base for family in (view, *others))
            raise RequestError(f"{several}; add --base, one of: {names}")
        rows = catalog.models(base=view.base, status="indexed")
        return view, labelled_models(view), {row.id: row.record for row in rows}

    return catalog.look(read)


def labelled_models(view: FamilyView, way: str = "normalised") -> LabelledModels:
    """The models of a family by id, with their scores by one of `WAYS`: above `WHOLE_FAMILY` models
    when they are asked for."""
    rows = view.rows(sorted(view.ids))
    labels, source = view.labels, PairSource.of(view, rows, way)
    kinds = [view.kinds[row] for row in rows.tolist()]
    vectors, places = view.vectors(view.keys[rows]), np.arange(len(rows))
    if way == "normalised":
        vectors = PooledMeans.of(view).centred(kinds, vectors)
    return LabelledModels(
        base=view.base,
        ids=tuple(view.ids[row] for row in rows),
        vectors=vectors,
        labels=tuple(labels.datasets[row] for row in rows),
        authors=tuple(labels.authors[row] for row in rows),
        runs=tuple(labels.runs[row] for row in rows),
        scores=source.scores(places, places) if source and len(rows) <= WHOLE_FAMILY else None,
        source=source,
    )
