"""Same-dataset retrieval precision ("purity") of labelled vectors, and its companions.

For a labelled model with k−1 siblings, take its k−1 nearest among its candidates; its purity
is the share of them that carry its label.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..arrays import Int64
from .retrieval import Exclude as Exclude
from .retrieval import Retrieval
from .retrieval import label_codes as label_codes

MAX_CELLS = 20_000_000
"""Nearest candidates that are held for a permutation test; a larger family is not tested."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryResult:
    """What one labelled model retrieved.

    Attributes:
        siblings: k − 1: candidates with the model's own label.
        candidates: Everything that could have been retrieved.
        purity: Share of the `siblings` nearest that are siblings, 0…1.
        nn1: Whether the very nearest is a sibling.
        average_precision: Over the whole ranking, 0…1.
        retrieved: Labels of the `siblings` nearest, nearest first.
    """

    base: str
    model: str
    dataset: str
    siblings: int
    candidates: int
    purity: float
    nn1: bool
    average_precision: float
    retrieved: tuple[str | None, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Ranked:
    """What the queries of a family retrieved, and what others would have.

    Attributes:
        results: One for each query, in order of id.
        rows: The models that other labels could make a query: all that are labelled, but of a
            large family the queries.
        nearest: Their nearest candidates, as many as the largest dataset has models, −1 beyond;
            none where that is more than `MAX_CELLS`.
    """

    results: list[QueryResult]
    rows: Int64[np.ndarray, " labelled"]
    nearest: Int64[np.ndarray, "labelled depth"]


def rank(retrieval: Retrieval) -> Ranked:
    """Every query's result, from one reading of the family's scores."""
    labelled = np.flatnonzero(retrieval.codes >= 0)
    rows = retrieval.queries if retrieval.is_large else labelled
    depth = int(np.bincount(retrieval.codes[labelled]).max(initial=0))
    if len(rows) * depth > MAX_CELLS:
        depth = 0
    nearest = np.full((len(rows), depth), -1, dtype=np.int64)
    is_query = np.isin(rows, retrieval.queries)
    results: list[QueryResult] = []
    start = 0
    for block, ranking, _ in retrieval.ranked_blocks(rows):
        nearest[start : start + len(block)] = ranking[:, :depth]
        chosen = is_query[start : start + len(block)]
        start += len(block)
        codes = np.where(ranking >= 0, retrieval.codes[ranking], -2)  # (block, models)
        for row, ranked in zip(block[chosen].tolist(), codes[chosen], strict=True):
            results.append(_score(retrieval, row, ranked[ranked >= -1]))
    return Ranked(results, rows, nearest)


def _score(retrieval: Retrieval, row: int, ranked: Int64[np.ndarray, " candidates"]) -> QueryResult:
    """Purity, hit at one and average precision of one ranking of label codes."""
    own, names = int(retrieval.codes[row]), retrieval.names
    hits = np.flatnonzero(ranked == own)  # ranks of the siblings, from 0
    k = len(hits)
    precision_at_hits = np.arange(1, k + 1) / (hits + 1)
    return QueryResult(
        base=retrieval.family.base,
        model=retrieval.family.ids[row],
        dataset=names[own],
        siblings=k,
        candidates=len(ranked),
        purity=float(np.count_nonzero(hits < k) / k),
        nn1=bool(hits[0] == 0),
        average_precision=float(precision_at_hits.mean()),
        retrieved=tuple(None if code < 0 else names[code] for code in ranked[:k].tolist()),
    )
