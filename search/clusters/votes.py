"""Votes of a model's labelled neighbours for their datasets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from ...arrays import Bool, Float64, Int64
from ..labelled import LabelledModels, id_digest
from ..precision import Exclude, label_codes

VOTERS = 3
"""Nearest models of a dataset that vote for it."""

COPY = 0.9
"""Score from which two models count as one: rounded, copied, or trained a few steps on."""

MOST_REFERENCES = 4_000
"""Labelled models that vote; their scores take 128 MB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class References:
    """The labelled models that vote for their datasets.

    Attributes:
        rows: Their rows in the family, by id.
        names: The datasets.
        codes: Each one's dataset, as its place in `names`.
        scores: Among themselves.
        groups: Equal for models that must not vote for each other, the cause being `held_out`:
            of the same run, copies and, where enough models remain, of the same author.
    """

    rows: Int64[np.ndarray, " labelled"] = field(compare=False)
    names: tuple[str, ...]
    codes: Int64[np.ndarray, " labelled"] = field(compare=False)
    scores: Float64[np.ndarray, "labelled labelled"] = field(compare=False)
    groups: Int64[np.ndarray, " labelled"] = field(compare=False)
    held_out: Exclude


def pick_references(family: LabelledModels) -> References:
    """All labelled models, or of each dataset in turn one after the other, by hash of their ids.

    Authors are held out where that leaves half of the models that have a sibling in another
    run a sibling by another author; else a family of one author would have no votes at all.
    """
    by_label: dict[str, list[int]] = {}
    for row, label in enumerate(family.labels):
        if label is not None:
            by_label.setdefault(label, []).append(row)
    turns = []
    for label, members in by_label.items():
        members.sort(key=lambda row: id_digest(family.ids[row]))
        turns += [(turn, label, row) for turn, row in enumerate(members)]
    picked = [row for _, _, row in sorted(turns)[:MOST_REFERENCES]]
    rows = np.array(sorted(picked, key=family.ids.__getitem__), dtype=np.int64)
    names = tuple(sorted({family.labels[row] or "" for row in picked}))
    codes = label_codes([family.labels[row] for row in rows.tolist()], names)
    scores = family.scores_between(rows, rows)
    runs = [family.runs[row] for row in rows.tolist()]
    authors = [family.authors[row] for row in rows.tolist()]
    by_run = _bound_together(scores, runs)
    by_author = _bound_together(scores, runs, authors)
    enough = 2 * _count_with_sibling(codes, by_author) >= max(1, _count_with_sibling(codes, by_run))
    return References(
        rows=rows,
        names=names,
        codes=codes,
        scores=scores,
        groups=by_author if enough else by_run,
        held_out="author" if enough else "run",
    )


def may_answer(
    family: LabelledModels,
    rows: Int64[np.ndarray, " queries"],
    scores: Float64[np.ndarray, "queries labelled"],
    references: References,
) -> Bool[np.ndarray, "queries labelled"]:
    """Which references may answer for unlabelled models: not the own author's, but for copies."""
    allowed = np.ones(scores.shape, dtype=np.bool_)
    if references.held_out == "author":
        theirs = np.array([family.authors[row] or "" for row in references.rows.tolist()])
        for place, row in enumerate(rows.tolist()):
            if family.authors[row] is not None:
                allowed[place] = theirs != family.authors[row]
    return allowed | (scores >= COPY)


def tally(
    scores: Float64[np.ndarray, "queries labelled"],
    allowed: Bool[np.ndarray, "queries labelled"],
    references: References,
) -> Float64[np.ndarray, "queries classes"]:
    """Each dataset's mean score over its `VOTERS` nearest that may answer; −∞ without any."""
    shown = np.where(allowed, scores, -np.inf)
    votes = np.full((len(scores), len(references.names)), -np.inf)
    for code in range(len(references.names)):
        mine = shown[:, references.codes == code]
        nearest = -np.sort(-mine, axis=1)[:, :VOTERS]
        counted = np.isfinite(nearest)
        n_voters = counted.sum(axis=1)
        has_vote = n_voters > 0
        sums = np.where(counted, nearest, 0.0).sum(axis=1)
        votes[has_vote, code] = sums[has_vote] / n_voters[has_vote]
    return votes


def elect(
    votes: Float64[np.ndarray, "queries classes"],
) -> tuple[Int64[np.ndarray, " queries"], Float64[np.ndarray, " queries"]]:
    """The first dataset of each row and its margin over the second; −∞ without a second."""
    places = np.arange(len(votes))
    if not votes.size:
        return np.zeros(len(votes), dtype=np.int64), np.full(len(votes), -np.inf)
    first = votes.argmax(axis=1)
    best = votes[places, first]
    others = votes.copy()
    others[places, first] = -np.inf
    second = others.max(axis=1, initial=-np.inf)
    two = np.isfinite(second)
    margins = np.full(len(votes), -np.inf)
    margins[two] = best[two] - second[two]
    return first.astype(np.int64), margins


def _bound_together(
    scores: Float64[np.ndarray, "labelled labelled"], *marks: Sequence[str | None]
) -> Int64[np.ndarray, " labelled"]:
    """A number a model, equal where copies and equal marks chain models together."""
    from scipy.sparse import coo_matrix
    from scipy.sparse.csgraph import connected_components

    near, far = np.nonzero(scores >= COPY)
    pairs = [*zip(near.tolist(), far.tolist(), strict=True)]
    for column in marks:
        first: dict[str, int] = {}
        known = [(row, mark) for row, mark in enumerate(column) if mark is not None]
        pairs += [(row, first.setdefault(mark, row)) for row, mark in known]
    left, right = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    graph = coo_matrix((np.ones(len(left)), (left, right)), shape=scores.shape)
    return np.asarray(connected_components(graph, directed=False)[1], dtype=np.int64)


def _count_with_sibling(
    codes: Int64[np.ndarray, " labelled"], groups: Int64[np.ndarray, " labelled"]
) -> int:
    """Models with one of their dataset in another group."""
    pairs = list(zip(codes.tolist(), groups.tolist(), strict=True))
    n_groups: dict[int, int] = {}
    for code, _ in set(pairs):
        n_groups[code] = n_groups.get(code, 0) + 1
    return sum(n_groups[code] > 1 for code, _ in pairs)
