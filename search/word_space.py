"""Words that vocabularies share, as the columns in which models of several bases are compared.

A model is the ranks of its touched tokens, or else how much more than usual its update answers to
each word and those near it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..arrays import Float64, Int64
from ..errors import RequestError
from ..records import Footprint
from ..store import Catalog, FamilyView
from .family_scores import Cohort, Rows
from .footprints import Vocabularies
from .responses import FamilyResponses, Smoothed
from .vocabulary import Vocabulary
from .word_rows import SHRINKAGE, TokenRows, tells, usual_reading

FEWEST_WORDS = 100
"""Words that two families share, from which models are compared."""

FEWEST_RANKED = 4
"""Models of either family, of known words, from which an order says something."""

MODELS_AT_ONCE = 500

Tokens = Int64[np.ndarray, " tokens"]
Matrix = Float64[np.ndarray, "models words"]


def touched_matrix(
    catalog: Catalog, view: FamilyView, footprints: Sequence[Footprint | None], words: Sequence[str]
) -> Matrix:
    """Ranks of the tokens that are some words; zeros of what is not known."""
    columns = {word: place for place, word in enumerate(words)}
    first = {one.tokenizer: one for one in footprints if one is not None}
    known = {name: _places(catalog, view, one, columns) for name, one in first.items()}
    places = [_NOWHERE if one is None else known[one.tokenizer] for one in footprints]
    return TokenRows.of(footprints, None).over(len(words), places).dense()


_NOWHERE = np.full(1, -1)


def _places(
    catalog: Catalog, view: FamilyView, footprint: Footprint, columns: Mapping[str, int]
) -> Tokens:
    """The column of each token, −1 of one that is none of the words."""
    try:
        vocabulary = vocabulary_of(catalog, view, footprint)
    except RequestError:
        return _NOWHERE
    places = np.full(len(vocabulary), -1, dtype=np.int64)
    for word, token in vocabulary.words.items():
        places[token] = columns.get(word, -1)
    return places


def shared_words(mine: Iterable[str], theirs: Iterable[str]) -> list[str]:
    """Words of both, sorted; `RequestError` where they are too few."""
    words = sorted(set(mine) & set(theirs))
    if len(words) < FEWEST_WORDS:
        raise RequestError(f"shares too few words: {len(words)} of {FEWEST_WORDS}")
    return words


def vocabulary_of(catalog: Catalog, view: FamilyView, footprint: Footprint) -> Vocabulary:
    """That of a footprint's tokens; `RequestError` where none is kept."""
    sha256 = footprint.tokenizer or catalog.footprints.family_tokenizer(view.base)
    if sha256 is None:
        raise RequestError("has no tokenizer")
    return Vocabularies.of(catalog).get(catalog, sha256, footprint.own_tokenizer)


def whole(footprints: Sequence[Footprint | None]) -> list[Footprint | None]:
    """Those that name tokens and of which all rows were read: a token that was not read is not one
    that is untouched."""
    return [
        one if one is not None and tells(one) and one.share == 1 else None for one in footprints
    ]


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
        footprints = whole(self.view.footprints(self.view.keys[rows]))
        return touched_matrix(self.catalog, self.view, footprints, words)


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
        return np.asarray(np.maximum(answers - answers.mean(axis=1, keepdims=True), 0))


Worded = Touched | Answering


def worded(catalog: Catalog, view: FamilyView) -> list[Worded]:
    """A family's models by their footprints, and those that have none by what they answer to."""
    found: list[Worded] = []
    rows = np.flatnonzero(np.isin(view.keys, catalog.footprints.keys(view.base)))
    cohort = np.intersect1d(Cohort.of(view).rows, rows)
    footprints = whole(view.footprints(view.keys[cohort]))
    if (usual := usual_reading(footprints)) is not None:
        one = next(one for one in footprints if one is not None and one.tokenizer == usual[0])
        found.append(Touched(view, rows, catalog, vocabulary_of(catalog, view, one)))
    responses = FamilyResponses.of(catalog, view)
    if responses is not None:
        every = Answering(view, rows, responses)
        found.append(replace(every, rows=np.setdiff1d(every.answered, rows)))
    return found


def unit_rows(side: Worded, rows: Rows, words: Sequence[str]) -> Iterator[Matrix]:
    """Rows of unit length, `MODELS_AT_ONCE` models at a time."""
    for some in np.array_split(rows, 1 + len(rows) // MODELS_AT_ONCE):
        yield unit(side.matrix(some, words))


def unit(rows: Matrix) -> Matrix:
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / np.maximum(lengths, 1e-9))


def mean_of(parts: Iterable[Matrix]) -> Float64[np.ndarray, " words"]:
    """Of a family's models, drawn to nothing where they are few; `RequestError` where too few of
    them are known by these words."""
    total, n_known = np.zeros(1), 0
    for rows in parts:
        total = total + rows.sum(axis=0)
        n_known += int(np.count_nonzero(rows.any(axis=1)))
    if n_known < FEWEST_RANKED:
        raise RequestError(
            f"has too few models whose words are known: {n_known} of {FEWEST_RANKED}"
        )
    return np.asarray(total / (n_known + SHRINKAGE))
