"""Word senses by nearest neighbours, from every subset of terms."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from ...arrays import Float32, Float64, Int64
from ...errors import StudyError
from .term_subsets import NONE, SubsetPredictions, check_terms, commonest, subset_sums, term_subsets
from .text_split import TRAIN_TEST, Split, check_split

TIE_DECIMALS = 9
"""Cosines equal to this many decimals are ties; the earlier training item comes first."""

WHAT = "word senses"


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
) -> SubsetPredictions:
    """The sense of each test word by vote of its `k` nearest training words of the lemma.

    Neighbours are nearest by cosine. The sense with most votes wins; of equal senses the one with
    the nearest word. Lemmas with one sense in the data are dropped. A word whose lemma does not
    occur in the training part gets no prediction. There is no leave-one-out, as on balanced
    senses it brings vectors without information below chance.

    Args:
        terms: A word's vector: the sum of its pieces (`word_terms`).
        sense: Compared within a lemma only.
        split: Training and test words (validation is not used); drawn by text, 80/20, if not
            given.

    Raises:
        StudyError: no lemma with two senses, NaN terms, or an empty part of the split.
    """
    check_terms(terms, names, WHAT)
    if k < 1:
        raise ValueError(f"k must be at least 1, got {k}")
    lemmas, senses = _codes(lemma), _codes(list(zip(lemma, sense, strict=True)))
    first_of_sense = np.unique(senses, return_index=True)[1]
    polysemous = np.bincount(lemmas[first_of_sense])[lemmas] > 1
    if not polysemous.any():
        raise StudyError(
            f"{WHAT}: none of {lemmas.max() + 1} lemmas has two senses; give occurrences of "
            "words in different senses"
        )
    split, text = check_split(
        split, len(lemmas), WHAT, text=text, seed=split_seed, shares=TRAIN_TEST, validation=False
    )
    split = split.only(polysemous)
    split.check(len(lemmas), WHAT, validation=False)
    pairs = list(_by_lemma(lemmas, split))
    subsets = term_subsets(names)
    predicted = np.full((1, len(subsets), len(lemmas)), NONE, dtype=np.int64)
    for row, total in enumerate(subset_sums(terms, subsets)):
        for queries, known in pairs:
            predicted[0, row, queries] = _vote(total[queries], total[known], senses[known], k)
    baseline = np.full(len(lemmas), NONE, dtype=np.int64)
    for queries, known in pairs:
        baseline[queries] = commonest(senses[known])
    return SubsetPredictions(
        measure=f"word senses, {k} nearest",
        names=tuple(names),
        predicted=predicted[:, :, split.test],
        targets=senses[split.test],
        baseline=baseline[split.test],
        text=text[split.test],
        settings={
            "baseline": "commonest training sense of the lemma",
            "split": split.sizes(),
            "k": k,
            "distance": "cosine",
            "lemmas": len(np.unique(lemmas[polysemous])),
            "monosemous_words_dropped": int(np.count_nonzero(~polysemous)),
        },
    )


def _codes(values: Sequence[object]) -> Int64[np.ndarray, " words"]:
    """A number for each value, in order of appearance."""
    first: dict[object, int] = {}
    return np.array([first.setdefault(value, len(first)) for value in values], dtype=np.int64)


def _by_lemma(
    lemmas: Int64[np.ndarray, " words"], split: Split
) -> Iterator[tuple[Int64[np.ndarray, " queries"], Int64[np.ndarray, " known"]]]:
    """(test words, training words) of each lemma that has both."""
    train = split.train[np.argsort(lemmas[split.train], kind="stable")]
    test = split.test[np.argsort(lemmas[split.test], kind="stable")]
    for code in np.intersect1d(lemmas[train], lemmas[test]):
        queries = _run_of(code, lemmas[test])
        known = _run_of(code, lemmas[train])
        yield test[queries], train[known]


def _run_of(code: np.int64, ordered: Int64[np.ndarray, " words"]) -> slice:
    return slice(*np.searchsorted(ordered, [code, code + 1]))


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
