"""Models of other bases near a query in words, where one of the two has no footprint.

Over the words that both know, a model is the ranks of its touched tokens, or else how much more
than usual its update answers to each word and those near it; of unit length, without the mean of
its family. Two models are compared by the cosine, and ordered by it: no probability is known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from ..arrays import Float32, Float64
from ..errors import RequestError
from ..store import Catalog, FamilyView
from .family_scores import Cohort, Rows
from .responses import FamilyResponses, Smoothed
from .vocabulary import Vocabulary
from .word_rows import SHRINKAGE
from .word_space import FEWEST_RANKED, WordSpace, shared_words, usual_vocabulary, whole

MODELS_AT_ONCE = 500

Matrix = Float32[np.ndarray, "models words"]
Asked = Callable[[Sequence[str]], Matrix]


@dataclass(slots=True, eq=False)
class Touched:
    """Models by the words that training touched; `rows`: of the view."""

    view: FamilyView
    rows: Rows
    catalog: Catalog
    vocabulary: Vocabulary

    @property
    def words(self) -> Iterable[str]:
        return self.vocabulary.words

    def matrix(self, rows: Rows, words: Sequence[str]) -> Matrix:
        space = WordSpace(self.catalog, {word: place for place, word in enumerate(words)})
        footprints = whole(self.view.footprints(self.view.keys[rows]))
        return space.rows(self.view, footprints).dense().astype(np.float32)


@dataclass(slots=True, eq=False)
class Answering:
    """Models by the words that their updates answer to more than usual."""

    view: FamilyView
    rows: Rows
    responses: FamilyResponses

    @property
    def answered(self) -> Rows:
        """Of all models whose answers are known."""
        return np.searchsorted(self.view.keys, self.responses.keys)

    @property
    def words(self) -> Iterable[str]:
        return self.responses.lexicon.words

    def matrix(self, rows: Rows, words: Sequence[str]) -> Matrix:
        places = np.searchsorted(self.responses.keys, self.view.keys[rows])
        return self.more_than_usual(self.responses.smoothed(places), words)

    def more_than_usual(self, smoothed: Smoothed, words: Sequence[str]) -> Matrix:
        place_of = {word: place for place, word in enumerate(self.words)}
        answers = smoothed[:, [place_of[word] for word in words]]
        more = np.maximum(answers - answers.mean(axis=1, keepdims=True), 0)
        return np.asarray(more, dtype=np.float32)


Worded = Touched | Answering


def worded(catalog: Catalog, view: FamilyView) -> list[Worded]:
    """A family's models by their footprints, and those that have none by what they answer to."""
    found: list[Worded] = []
    rows = np.flatnonzero(np.isin(view.keys, catalog.footprints.keys(view.base)))
    cohort = np.intersect1d(Cohort.of(view).rows, rows)
    vocabulary = usual_vocabulary(catalog, view, whole(view.footprints(view.keys[cohort])))
    if vocabulary is not None:
        found.append(Touched(view, rows, catalog, vocabulary))
    responses = FamilyResponses.of(catalog, view)
    if responses is not None:
        every = Answering(view, rows, responses)
        found.append(replace(every, rows=np.setdiff1d(every.answered, rows)))
    return found


class Compared(NamedTuple):
    """Models of one other family, and their cosines with the query over so many words."""

    rows: Rows
    cosines: Float64[np.ndarray, " models"]
    n_words: int


def compare_worded(mine: Worded, asked: Asked, theirs: Worded) -> Compared:
    """How near another family's models are to one of mine, whose row over words `asked` gives;
    `RequestError` where either family has too few, or they share too few words."""
    words = shared_words(mine.words, theirs.words)
    query = _unit(_unit(asked(words)) - _mean(mine, words))[0]
    mean = _mean(theirs, words)
    cosines, are_known = [], []
    for rows in _unit_rows(theirs, theirs.rows, words):
        are_known.append(rows.any(axis=1))
        cosines.append((_unit(rows - mean) @ query).astype(np.float64))
    known = np.concatenate(are_known)
    return Compared(theirs.rows[known], np.concatenate(cosines)[known], len(words))


def _mean(side: Worded, words: Sequence[str]) -> Float32[np.ndarray, " words"]:
    """Of a family's cohort, drawn to nothing where it is small; `RequestError` where too few of its
    models are known by these words."""
    usual = np.intersect1d(Cohort.of(side.view).rows, side.rows)
    total, n_known = np.zeros(len(words), np.float32), 0
    for rows in _unit_rows(side, usual, words):
        total += rows.sum(axis=0)
        n_known += int(np.count_nonzero(rows.any(axis=1)))
    if n_known < FEWEST_RANKED:
        raise RequestError(
            f"has {n_known} models of known words of one sort; {FEWEST_RANKED} are needed"
        )
    return np.asarray(total / (n_known + SHRINKAGE), dtype=np.float32)


def _unit_rows(side: Worded, rows: Rows, words: Sequence[str]) -> Iterator[Matrix]:
    for some in np.array_split(rows, 1 + len(rows) // MODELS_AT_ONCE):
        yield _unit(side.matrix(some, words))


def _unit(rows: Matrix) -> Matrix:
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / np.maximum(lengths, 1e-9), dtype=np.float32)
