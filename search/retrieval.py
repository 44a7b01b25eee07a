"""Which models of a family are queries, what each may retrieve, and in which order it does.

Candidates are the labelled models; unlabelled ones, whose truth is unknown, only where they are
asked for. A query is a labelled model that has a sibling among its candidates. In a family of more
than `EVERY_QUERY` models a sample of them stands for all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ..arrays import Bool, Float64, Int64
from ..records import Exclude as Exclude
from .labelled import BLOCK_BYTES, LabelledModels
from .scoring.cohort import id_digest

EVERY_QUERY = 4_000
"""Models of a family up to which every labelled model with a sibling is a query."""

LARGE_BYTES = 256 * 2**20
"""Scores of a larger family held at a time: each block may read all of its sketches."""

SAMPLE = 1_000
"""Queries of a larger family. The standard error of micro is then at most 0.016."""

FEWEST_SAMPLED, MOST_PAIRS = 100, 40_000_000
"""Above 40,000 models fewer are sampled, so that a million take minutes."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Retrieval:
    """A family, its models by row in order of id, and who of them asks.

    Attributes:
        names: Of the datasets, sorted.
        codes: Each model's dataset as its place in `names`; −1 = unlabelled.
        groups: A number a model; a query's candidates have another.
        is_candidate: Whether a model may be retrieved at all.
        eligible: How many labelled models have a sibling among their candidates.
        queries: Those of them that are used; fewer where they are a sample.
    """

    family: LabelledModels
    names: tuple[str, ...]
    codes: Int64[np.ndarray, " models"]
    groups: Int64[np.ndarray, " models"]
    is_candidate: Bool[np.ndarray, " models"]
    eligible: int
    queries: Int64[np.ndarray, " queries"]

    @classmethod
    def of(
        cls,
        family: LabelledModels,
        exclude: Exclude | None = None,
        *,
        with_unlabelled: bool = False,
    ) -> Retrieval:
        """The retrieval that an evaluation of the family measures.

        Args:
            exclude: Removes the query's own author or run from its candidates and siblings.
            with_unlabelled: Whether unlabelled models are candidates.
        """
        family = family.sorted_by_id()
        names = sorted({label for label in family.labels if label is not None})
        codes, groups = label_codes(family.labels, names), exclusion_groups(family, exclude)
        eligible = np.flatnonzero(count_siblings(codes, groups, len(names)) > 0)
        return cls(
            family=family,
            names=tuple(names),
            codes=codes,
            groups=groups,
            is_candidate=(codes >= 0) | with_unlabelled,
            eligible=len(eligible),
            queries=_sample(family.ids, eligible) if len(codes) > EVERY_QUERY else eligible,
        )

    @property
    def is_large(self) -> bool:
        """Whether only queries are ranked, of which there may be a sample."""
        return len(self.codes) > EVERY_QUERY

    @property
    def is_sample(self) -> bool:
        """Whether the queries are a sample of the models that could ask."""
        return len(self.queries) < self.eligible

    def ranked_blocks(
        self, rows: Int64[np.ndarray, " rows"]
    ) -> Iterator[
        tuple[
            Int64[np.ndarray, " block"],
            Int64[np.ndarray, "block models"],
            Float64[np.ndarray, "block models"],
        ]
    ]:
        """Blocks of some rows with the rows of their candidates, nearest first, then −1; and
        with the scores of all models in order of row.

        Peak: about 64 MB beside what the family holds; 320 MB above `EVERY_QUERY` models.
        """
        n_models = len(self.codes)
        row_bytes = 8 * max(1, n_models)
        height = max(1, BLOCK_BYTES // row_bytes)
        scored = max(height, LARGE_BYTES // row_bytes) if self.is_large else height
        for start in range(0, len(rows), scored):
            scores = self.family.score_block(rows[start : start + scored])
            for part in range(0, len(scores), height):
                block = rows[start + part : min(start + part + height, start + scored)]
                block_scores = scores[part : part + height]
                yield block, self._ranked(block, block_scores), block_scores

    def _ranked(
        self, block: Int64[np.ndarray, " block"], scores: Float64[np.ndarray, "block models"]
    ) -> Int64[np.ndarray, "block models"]:
        allowed = (self.groups[block][:, None] != self.groups[None, :]) & self.is_candidate
        ranking = np.argsort(np.where(allowed, -scores, np.inf), axis=1, kind="stable")
        ranking[np.arange(len(self.codes))[None, :] >= allowed.sum(axis=1)[:, None]] = -1
        return ranking


def _sample(
    ids: Sequence[str], eligible: Int64[np.ndarray, " eligible"]
) -> Int64[np.ndarray, " queries"]:
    """`SAMPLE` rows, the same in every process and whatever else is in the family."""
    by_digest = sorted(eligible.tolist(), key=lambda row: id_digest(ids[row]))
    size = min(SAMPLE, max(FEWEST_SAMPLED, MOST_PAIRS // max(1, len(ids))))
    return np.array(sorted(by_digest[:size]), dtype=np.int64)


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
