"""Same-dataset retrieval precision ("purity") of labelled vectors, and its companions.

For a labelled model with k−1 siblings, take its k−1 nearest among all others; its purity
is the share of them that carry its label. Unlabelled models are distractors, never queries,
and a label with one member is no query.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from ..arrays import Bool, Int64
from .labelled import BLOCK_BYTES, LabelledModels

Exclude = Literal["author", "run"]


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


def score_queries(family: LabelledModels, exclude: Exclude | None = None) -> list[QueryResult]:
    """One result for each labelled model that has a sibling left, in order of id.

    `exclude` removes the query's own author or run from its candidates and siblings alike.
    Peak: about 64 MB beside the vectors, however many models there are.
    """
    family, names, codes, groups = coded(family, exclude)
    queries = np.flatnonzero(count_siblings(codes, groups, len(names)) > 0)
    results: list[QueryResult] = []
    for rows, ranking in ranked_blocks(family, groups, queries):
        ranked_codes = np.where(ranking >= 0, codes[ranking], -2)  # (block, models)
        for row, ranked in zip(rows.tolist(), ranked_codes, strict=True):
            results.append(_score(family, row, ranked[ranked >= -1], int(codes[row]), names))
    return results


def coded(
    family: LabelledModels, exclude: Exclude | None
) -> tuple[LabelledModels, list[str], Int64[np.ndarray, " models"], Int64[np.ndarray, " models"]]:
    """The models by id, the names of their datasets, their label codes, their exclusion groups."""
    family = family.sorted_by_id()
    names = sorted({label for label in family.labels if label is not None})
    return family, names, label_codes(family.labels, names), exclusion_groups(family, exclude)


def label_codes(labels: Sequence[str | None], names: Sequence[str]) -> Int64[np.ndarray, " models"]:
    """Each label's position in `names`; −1 where there is none."""
    position = {name: code for code, name in enumerate(names)}
    return np.array([-1 if label is None else position[label] for label in labels], dtype=np.int64)


def exclusion_groups(
    family: LabelledModels, exclude: Exclude | None
) -> Int64[np.ndarray, " models"]:
    """A number a model; a query's candidates are the models of every other number.

    Without `exclude`, and for an unknown author or run, the group is the model alone.
    """
    if exclude is None:
        return np.arange(len(family.ids), dtype=np.int64)
    if exclude not in ("author", "run"):
        raise ValueError(f"exclude must be 'author' or 'run', got {exclude!r}")
    marks = family.authors if exclude == "author" else family.runs
    first: dict[str, int] = {}
    return np.array(
        [i if mark is None else first.setdefault(mark, i) for i, mark in enumerate(marks)],
        dtype=np.int64,
    )


def count_siblings(
    codes: Int64[np.ndarray, " models"], groups: Int64[np.ndarray, " models"], n_labels: int
) -> Int64[np.ndarray, " models"]:
    """Models of the same label outside the own group; 0 for unlabelled models."""
    siblings = np.zeros(len(codes), dtype=np.int64)
    labelled = codes >= 0
    own = codes[labelled]
    pairs = groups[labelled] * n_labels + own
    _, inverse, same_group = np.unique(pairs, return_inverse=True, return_counts=True)
    siblings[labelled] = np.bincount(own, minlength=n_labels)[own] - same_group[inverse]
    return siblings


def ranked_blocks(
    family: LabelledModels,
    groups: Int64[np.ndarray, " models"],
    queries: Int64[np.ndarray, " queries"],
) -> Iterator[tuple[Int64[np.ndarray, " block"], Int64[np.ndarray, "block models"]]]:
    """Blocks of queries with their candidates, nearest first, then −1."""
    n_models = len(family.ids)
    height = max(1, BLOCK_BYTES // (8 * max(1, n_models)))
    for start in range(0, len(queries), height):
        rows = queries[start : start + height]
        scores = family.score_block(rows)  # (block, models)
        outside: Bool[np.ndarray, "block models"] = groups[rows][:, None] != groups[None, :]
        scores[~outside] = -np.inf
        np.negative(scores, out=scores)
        ranking = np.argsort(scores, axis=1, kind="stable")
        beyond = np.arange(n_models)[None, :] >= outside.sum(axis=1)[:, None]
        ranking[beyond] = -1
        yield rows, ranking


def _score(
    family: LabelledModels,
    row: int,
    ranked: Int64[np.ndarray, " candidates"],
    own: int,
    names: Sequence[str],
) -> QueryResult:
    """Purity, hit at one and average precision of one ranking of label codes."""
    hits = np.flatnonzero(ranked == own)  # ranks of the siblings, from 0
    k = len(hits)
    precision_at_hits = np.arange(1, k + 1) / (hits + 1)
    return QueryResult(
        base=family.base,
        model=family.ids[row],
        dataset=names[own],
        siblings=k,
        candidates=len(ranked),
        purity=float(np.count_nonzero(hits < k) / k),
        nn1=bool(hits[0] == 0),
        average_precision=float(precision_at_hits.mean()),
        retrieved=tuple(None if code < 0 else names[code] for code in ranked[:k].tolist()),
    )
