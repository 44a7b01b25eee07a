"""The models of a family with their labels, ready to be evaluated, clustered or drawn."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from ..arrays import Float64, Int64, Shaped
from ..errors import EmptyCatalog, RequestError, UnknownRecipe
from ..records import ModelRecord
from ..store import Catalog, FamilyView
from .centring import PooledMeans, centre_scores, is_centred
from .sketch_scores import WHOLE_FAMILY, has_sketches, pair_scores

BLOCK_BYTES = 16 * 2**20
"""Scores held at a time. Ranking them takes about three times as much again."""

WAYS = ("normalised", "raw", "pooled")
"""Ways of scoring: as searches score; cosines before means are taken out; fingerprints alone."""

TIE_DECIMALS = 9
"""Scores equal to this many decimals are ties, and the smaller model id comes first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelledModels:
    """The vectors of some models of one base and what is known of their training, row by row.

    Attributes:
        vectors: Unit length, so that inner products are cosines.
        labels: None = unlabelled.
        authors: None = unknown; two unknown authors are not the same author.
        runs: None = unknown, likewise.
        scores: Every pair's cosine where there is a better estimate than the vectors'.
    """

    base: str
    ids: tuple[str, ...]
    vectors: Shaped[np.ndarray, "models dim"] = field(compare=False)
    labels: tuple[str | None, ...]
    authors: tuple[str | None, ...]
    runs: tuple[str | None, ...]
    scores: Float64[np.ndarray, "models models"] | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        columns = (self.vectors, self.labels, self.authors, self.runs)
        if {len(column) for column in columns} != {len(self.ids)}:
            raise ValueError(
                f"{self.base}: {len(self.ids)} ids, but "
                f"{[len(column) for column in columns]} vectors, labels, authors, runs"
            )
        if len(set(self.ids)) != len(self.ids):
            raise ValueError(f"{self.base}: duplicate id")

    def sorted_by_id(self) -> LabelledModels:
        """The same models in the order that breaks ties."""
        order = sorted(range(len(self.ids)), key=self.ids.__getitem__)
        return replace(
            self,
            ids=tuple(self.ids[i] for i in order),
            vectors=self.vectors[order],
            labels=tuple(self.labels[i] for i in order),
            authors=tuple(self.authors[i] for i in order),
            runs=tuple(self.runs[i] for i in order),
            scores=None if self.scores is None else self.scores[np.ix_(order, order)],
        )

    def score_block(self, rows: Int64[np.ndarray, " block"]) -> Float64[np.ndarray, "block models"]:
        """Cosines of some models with all, rounded to `TIE_DECIMALS`.

        In float64, a range of columns at a time: float32 sums of equal vectors may differ in
        their last bit with their place in the matrix, and ties would depend on it.
        """
        if self.scores is not None:
            known: Float64[np.ndarray, "block models"] = np.round(self.scores[rows], TIE_DECIMALS)
            return known
        queries = self.vectors[rows].astype(np.float64)
        scores = np.empty((len(rows), len(self.vectors)))
        width = max(1, BLOCK_BYTES // (8 * max(1, self.vectors.shape[1])))
        for start in range(0, len(self.vectors), width):
            columns = self.vectors[start : start + width].astype(np.float64)
            np.matmul(queries, columns.T, out=scores[:, start : start + width])
        return np.round(scores, TIE_DECIMALS, out=scores)

    def scores_between(
        self, rows: Int64[np.ndarray, " queries"], columns: Int64[np.ndarray, " reference"]
    ) -> Float64[np.ndarray, "queries reference"]:
        """Cosines of some models with some others, rounded as in `score_block`."""
        return np.asarray(np.round(self.cosines_between(rows, columns), TIE_DECIMALS))

    def cosines_between(
        self, rows: Int64[np.ndarray, " queries"], columns: Int64[np.ndarray, " reference"]
    ) -> Float64[np.ndarray, "queries reference"]:
        """The same before rounding, which would separate cosines that are equal to their last
        bits."""
        if self.scores is not None:
            cosines: Float64[np.ndarray, "queries reference"] = self.scores[np.ix_(rows, columns)]
        else:
            left, right = (self.vectors[part].astype(np.float64) for part in (rows, columns))
            cosines = left @ right.T
        return cosines


def family_views(catalog: Catalog, recipe: str | None, base: str | None) -> list[FamilyView]:
    """Every family, or that of `base`, under one recipe by name or id.

    A recipe's name may stand for another id in each family: shapes can be part of it.

    Raises:
        EmptyCatalog: No model is fingerprinted.
        UnknownRecipe: None is under this recipe.
        UnknownBase: There is no family of this base.
    """
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

    Args:
        several: Why there must be one family; begins the refusal of more.

    Raises:
        RequestError: There are several families and no `base`; else as `family_views`.
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
    """The models of a family with their scores by one of `WAYS`, in order of id."""
    rows = view.rows(sorted(view.ids))
    ids, kinds = [view.ids[row] for row in rows], [view.kinds[row] for row in rows]
    vectors, labels = view.vectors(view.keys[rows]), view.labels
    scores = None
    if way != "pooled" and has_sketches(view.recipe) and len(ids) <= WHOLE_FAMILY:
        scores = pair_scores(view, rows)
    if way != "raw" and is_centred(view.recipe):
        vectors = PooledMeans.of(ids, kinds, vectors).centred(kinds, vectors)
        scores = centre_scores(scores, ids, kinds) if scores is not None else None
    return LabelledModels(
        base=view.base,
        ids=tuple(ids),
        vectors=vectors,
        labels=tuple(labels.datasets[row] for row in rows),
        authors=tuple(labels.authors[row] for row in rows),
        runs=tuple(labels.runs[row] for row in rows),
        scores=scores,
    )
