"""Same-dataset retrieval precision ("purity") of labelled vectors, and its companions.

For a labelled model with k−1 siblings, take its k−1 nearest among its candidates; its purity
is the share of them that carry its label.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..arrays import Int64
from .retrieval import Exclude as Exclude
from .retrieval import Retrieval
from .retrieval import label_codes as label_codes


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


def score_queries(retrieval: Retrieval) -> list[QueryResult]:
    """One result for each query, in order of id."""
    results: list[QueryResult] = []
    for rows, ranking, _ in retrieval.ranked_blocks(retrieval.queries):
        ranked_codes = np.where(ranking >= 0, retrieval.codes[ranking], -2)  # (block, models)
        for row, ranked in zip(rows.tolist(), ranked_codes, strict=True):
            own = int(retrieval.codes[row])
            results.append(
                _score(
                    retrieval.family.base,
                    retrieval.family.ids[row],
                    ranked[ranked >= -1],
                    own,
                    retrieval.names,
                )
            )
    return results


def _score(
    base: str, model: str, ranked: Int64[np.ndarray, " candidates"], own: int, names: Sequence[str]
) -> QueryResult:
    """Purity, hit at one and average precision of one ranking of label codes."""
    hits = np.flatnonzero(ranked == own)  # ranks of the siblings, from 0
    k = len(hits)
    precision_at_hits = np.arange(1, k + 1) / (hits + 1)
    return QueryResult(
        base=base,
        model=model,
        dataset=names[own],
        siblings=k,
        candidates=len(ranked),
        purity=float(np.count_nonzero(hits < k) / k),
        nn1=bool(hits[0] == 0),
        average_precision=float(precision_at_hits.mean()),
        retrieved=tuple(None if code < 0 else names[code] for code in ranked[:k].tolist()),
    )
