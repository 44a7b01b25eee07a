"""The nearest models of a catalog and of the indexes that are attached to it, in one answer.

A model of the catalog is scored as ever. One of an attached index has no sketches: its z comes from
the pooled vector and the statistics that were published with it, and counts the same thing,
standard deviations above the family's strangers, with more noise (docs/publishing.md).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..arrays import Bool, Float64, Int64
from ..records import Fingerprint
from ..store import AttachedIndex, FamilyView, Filters
from .labelled import TIE_DECIMALS
from .neighbours import (
    FreshQuery,
    Neighbour,
    Neighbours,
    RankedModels,
    ResolvedQuery,
    Search,
    best_of,
    make_neighbour,
    nearest,
    rank_family,
    rank_rows,
)
from .scoring.evidence import Calibration, verdict
from .scoring.normalisation import codes_of
from .scoring.published_scores import published_calibration, published_scale
from .scoring.vector_scores import ScoredVectors, VectorScale

log = logging.getLogger(__name__)

FEWEST_OWN = 16
"""Models of the catalog from which it knows its strangers; fewer are scored by pooled vectors and
the statistics of the largest attached index."""

CLOSE = 1e-5
"""Cosines whose order single precision may change."""

RESCORED_AT_ONCE = 4_096


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Part:
    """What one place has near a query.

    Attributes:
        best: By z; no more than are wanted.
        z: Of all that were scored.
        cosines: Of these; of an attached index only where z is near the best, else 0.
        calibration: What the rates of false discoveries are known from.
    """

    best: Sequence[Neighbour]
    z: Float64[np.ndarray, " models"]
    cosines: Float64[np.ndarray, " models"]
    compared: int
    calibration: Calibration


def attached_query(index: AttachedIndex, id: str) -> FreshQuery:
    """A search from a model of an attached index.

    Raises:
        KeyError: it has none of that id.
    """
    row = index.row_of[id]
    vector = index.vectors_at(np.array([row], dtype=np.int64))[0]
    norm = float(index.models.column("norm")[row].as_py())
    return FreshQuery(
        model=id,
        base=index.base,
        fingerprint=Fingerprint(recipe=index.recipe, vector=vector, norm=norm),
        kind=index.kinds[row],
        dataset=index.label(row).dataset,
    )


def search_with(attached: Sequence[AttachedIndex]) -> Search:
    """A search of the query's family and of attached indexes; each neighbour has its `source`.

    It raises `BadIndex` where an attached index is damaged.

    Args:
        attached: Of the query's base; those of another recipe are not searched.
    """

    def search(view: FamilyView, query: ResolvedQuery, *, k: int, wanted: Filters) -> Neighbours:
        indexes = [index for index in attached if index.recipe.id == view.recipe.id]
        for index in attached:
            if index not in indexes:
                log.info("%s is not searched: its recipe is %s", index.name, index.recipe.id)
        if not indexes:
            return nearest(view, query, k=k, wanted=wanted)
        return _together(view, query, indexes, k, wanted)

    return search


def _together(
    view: FamilyView,
    query: ResolvedQuery,
    indexes: Sequence[AttachedIndex],
    k: int,
    wanted: Filters,
) -> Neighbours:
    """The best of all parts; a model that several have counts once, the catalog's first."""
    parts = []
    if len(view):
        parts.append(_own(view, query, indexes, k, wanted))
    seen = {query.model, *view.ids}
    for index in indexes:
        parts.append(_of_index(index, query, k, wanted, seen))
        seen.update(index.ids)
    compared = sum(part.compared for part in parts)
    z, cosines = (
        np.concatenate(values) for values in zip(*((p.z, p.cosines) for p in parts), strict=True)
    )
    falling = np.argsort(-z, kind="stable")
    z, cosines = z[falling], cosines[falling]
    rates = {id(part): part.calibration.fdr(z, compared, cosines) for part in parts}
    found = [(neighbour, rates[id(part)]) for part in parts for neighbour in part.best]
    found.sort(key=lambda pair: _order(pair[0]))
    neighbours = [
        replace(
            neighbour,
            rank=place + 1,
            fdr=float(of_part[place]),
            verdict=verdict(neighbour.cosine, float(of_part[place])),
        )
        for place, (neighbour, of_part) in enumerate(found[:k])
    ]
    return Neighbours(
        model=query.model,
        dataset=query.dataset,
        base=view.base,
        recipe=view.recipe,
        neighbours=tuple(neighbours),
        compared=compared,
        calibration=parts[0].calibration,
        attached=tuple(index.name for index in indexes),
    )


def _order(neighbour: Neighbour) -> tuple[float, str]:
    """What neighbours are sorted by: falling z, then id."""
    return -round(neighbour.z, TIE_DECIMALS), neighbour.model


def _own(
    view: FamilyView,
    query: ResolvedQuery,
    indexes: Sequence[AttachedIndex],
    k: int,
    wanted: Filters,
) -> _Part:
    """The catalog's best; of a family of few models normalised as those of the largest index."""
    if len(view) >= FEWEST_OWN:
        ranked = rank_family(view, query, k, wanted)
    else:
        largest = max(indexes, key=lambda index: index.manifest.models)
        scale = published_scale(largest.statistics)
        rows = np.arange(len(view)) if wanted.passes_all else view.rows_where(wanted)
        there = view.labels_at(rows.tolist())
        is_other = [row in there and view.ids[row] != query.itself for row in rows.tolist()]
        rows = rows[np.array(is_other, dtype=np.bool_)]
        asked = scale.prepare(query.vector[None, :], [query.kind])
        kinds = codes_of([view.kinds[row] for row in rows.tolist()], scale.kinds)
        scores = scale.search(asked, view.vectors_at(rows), kinds)
        order = rank_rows(view.ids, rows, scores.z[0])
        ranked = RankedModels(
            rows=rows[order],
            cosines=scores.cosines[0, order],
            z=scores.z[0, order],
            compared=len(rows),
            calibration=published_calibration(largest.statistics),
        )
    return _Part(
        best=best_of(view, ranked, k),
        z=ranked.z,
        cosines=ranked.cosines,
        compared=ranked.compared,
        calibration=ranked.calibration,
    )


def _of_index(
    index: AttachedIndex, query: ResolvedQuery, k: int, wanted: Filters, seen: set[str]
) -> _Part:
    """The best of an index, without models that were seen before."""
    allowed = index.allowed(wanted).copy()
    allowed[[row for id in seen if (row := index.row_of.get(id)) is not None]] = False
    scale = published_scale(index.statistics)
    asked = scale.prepare(query.vector[None, :], [query.kind])
    z, rows = _likely(index, scale, asked, allowed, k)
    kinds = codes_of([index.kinds[row] for row in rows.tolist()], scale.kinds)
    cosines = np.zeros(len(z))
    for start in range(0, len(rows), RESCORED_AT_ONCE):
        part = slice(start, start + RESCORED_AT_ONCE)
        pairs = scale.search(asked, index.vectors_at(rows[part]), kinds[part])
        z[rows[part]], cosines[rows[part]] = pairs.z[0], pairs.cosines[0]
    order = rank_rows(index.ids, rows, z[rows])[:k]
    return _Part(
        best=[
            make_neighbour(
                index.ids[row],
                index.base,
                index.label(row),
                cosine=cosine,
                z=float(z[row]),
                source=index.name,
            )
            for row, cosine in ((row, float(cosines[row])) for row in rows[order].tolist())
        ],
        z=z[allowed],
        cosines=cosines[allowed],
        compared=int(allowed.sum()),
        calibration=published_calibration(index.statistics),
    )


def _likely(
    index: AttachedIndex,
    scale: VectorScale,
    asked: ScoredVectors,
    allowed: Bool[np.ndarray, " models"],
    k: int,
) -> tuple[Float64[np.ndarray, " models"], Int64[np.ndarray, " rows"]]:
    """z of every model in single precision, and the rows among which the `k` best are: all that
    it cannot tell from them.

    With m the mean of a vector's kind and q the query without its own, the centred cosine is
    (⟨v, q⟩ − ⟨m, q⟩) / √(1 − 2⟨v, m⟩ + |m|²), so that one product of matrices gives all.
    """
    kinds = codes_of(index.kinds, scale.kinds)
    if not allowed.any():
        return np.zeros(len(kinds)), np.zeros(0, dtype=np.int64)
    dim = index.recipe.dim
    means = np.stack([scale.means.by_kind.get(kind, np.zeros(dim)) for kind in scale.kinds])
    asked_mean, lengths = means @ asked.centred[0], np.vecdot(means, means)
    directions = np.concatenate([asked.centred[0][None], means]).astype(np.float32).T
    centred: Float64[np.ndarray, " models"] = np.empty(len(kinds))
    start, shortest = 0, 1.0
    for vectors in index.vectors():
        part = slice(start, start + len(vectors))
        products = (vectors @ directions).astype(np.float64)  # (rows, 1 + kinds)
        of_kind = kinds[part]
        with_mean = products[np.arange(len(vectors)), 1 + of_kind]
        squares = np.maximum(1.0 - 2.0 * with_mean + lengths[of_kind], 1e-12)
        shortest = min(shortest, float(np.sqrt(squares.min())))
        centred[part] = (products[:, 0] - asked_mean[of_kind]) / np.sqrt(squares)
        start += len(vectors)
    z = scale.null.of(centred[None], asked.kinds, kinds)[0]
    n = min(k, int(allowed.sum()))
    least = np.partition(z[allowed], -n)[-n]
    slack = CLOSE / (min(scale.null.spread.values()) * shortest)
    return z, np.flatnonzero((z >= least - slack) & allowed)
