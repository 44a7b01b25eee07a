"""Word senses by nearest neighbours, from every subset of terms."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...arrays import Float32, Float64, Int64
from .sense_data import SenseData
from .subset_results import Keep, SubsetResult, keep_nothing
from .term_subsets import NONE, SubsetPredictions
from .text_split import TRAIN_TEST, Split

TIE_DECIMALS = 9
"""Cosines equal to this many decimals are ties; the earlier training item comes first."""


def word_sense_knn(
    terms: Float32[np.ndarray, "terms words dim"],
    lemma: Sequence[str],
    sense: Sequence[str],
    names: Sequence[str],
    *,
    text: Int64[np.ndarray, " words"] | None = None,
    split: Split | None = None,
    split_seed: int = 0,
    k: int = 5,
    keep: Keep = keep_nothing,
) -> SubsetPredictions:
    """The sense of each test word by vote of its `k` nearest training words of the lemma.

    Neighbours are nearest by cosine. The sense with most votes wins; of equal senses the one with
    the nearest word. Lemmas with one sense in the data are dropped. A word whose lemma does not
    occur in the training part gets no prediction. There is no leave-one-out, as on balanced
    senses it brings vectors without information below chance. Without terms all words are
    equally near, and the lemma's commonest training sense is predicted.

    Args:
        terms: A word's vector: the sum of its pieces (`word_terms`).
        sense: Compared within a lemma only.
        split: Training and test words (validation is not used); drawn by text, 80/20, if not
            given.

    Raises:
        StudyError: no lemma with two senses, NaN terms, or an empty part of the split.
    """
    if k < 1:
        raise ValueError(f"k must be at least 1, got {k}")
    data = SenseData.of(
        lemma,
        sense,
        text=text,
        split=split,
        split_seed=split_seed,
        shares=TRAIN_TEST,
        validation=False,
    )
    pairs = list(data.by_lemma())

    def vote(total: Float32[np.ndarray, "words dim"]) -> SubsetResult:
        voted = np.full((1, len(total)), NONE, dtype=np.int64)
        for queries, known in pairs:
            voted[0, queries] = _vote(total[queries], total[known], data.sense[known], k)
        return SubsetResult(voted[:, data.split.test])

    return data.predict_subsets(
        terms,
        names,
        vote,
        n_runs=1,
        key="senses-knn",
        measure=f"word senses, {k} nearest",
        settings={"k": k, "distance": "cosine"},
        keep=keep,
    )


def _vote(
    queries: Float32[np.ndarray, "queries dim"],
    known: Float32[np.ndarray, "known dim"],
    senses: Int64[np.ndarray, " known"],
    k: int,
) -> Int64[np.ndarray, " queries"]:
    """The sense with most votes among the k nearest known words, or all if there are fewer."""
    cosines = np.round(_unit(queries) @ _unit(known).T, TIE_DECIMALS)
    nearest = np.argsort(-cosines, axis=1, kind="stable")[:, :k]
    near = senses[nearest]  # (queries, k), nearest first
    votes = np.count_nonzero(near[:, :, None] == near[:, None, :], axis=2)
    winner: Int64[np.ndarray, " queries"] = near[np.arange(len(near)), votes.argmax(axis=1)]
    return winner


def _unit(rows: Float32[np.ndarray, "words dim"]) -> Float64[np.ndarray, "words dim"]:
    """Rows of length 1; a zero row stays, with cosine 0 to all."""
    wide = rows.astype(np.float64)
    lengths = np.linalg.norm(wide, axis=1, keepdims=True)
    return wide / np.where(lengths > 0, lengths, 1.0)
