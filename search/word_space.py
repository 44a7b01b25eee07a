"""Words that vocabularies share, as the columns in which models of several bases are compared."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ..arrays import Int64
from ..errors import RequestError
from ..records import Footprint
from ..store import Catalog, FamilyView
from .footprints import Vocabularies
from .vocabulary import Vocabulary
from .word_rows import SparseRows, TokenRows, tells, usual_reading

FEWEST_WORDS = 100
"""Words that two families share, from which models are compared."""

FEWEST_RANKED = 4
"""Models of either family, of known words, from which an order says something."""

Tokens = Int64[np.ndarray, " tokens"]


@dataclass(frozen=True, slots=True, eq=False)
class WordSpace:
    """The columns of shared words, and how each tokenizer's tokens are placed in them."""

    catalog: Catalog
    columns: Mapping[str, int]

    def rows(self, view: FamilyView, footprints: Sequence[Footprint | None]) -> SparseRows:
        first = {one.tokenizer: one for one in footprints if one is not None}
        known = {tokenizer: self._places(view, one) for tokenizer, one in first.items()}
        places = [_NOWHERE if one is None else known[one.tokenizer] for one in footprints]
        return TokenRows.of(footprints, None).over(len(self.columns), places)

    def _places(self, view: FamilyView, footprint: Footprint) -> Tokens:
        try:
            vocabulary = vocabulary_of(self.catalog, view, footprint)
        except RequestError:
            return _NOWHERE
        return places_of(vocabulary, self.columns)


_NOWHERE = np.full(1, -1)


def places_of(vocabulary: Vocabulary, columns: Mapping[str, int]) -> Tokens:
    """The column of each token, −1 of one that is none of the words."""
    places = np.full(len(vocabulary), -1, dtype=np.int64)
    for word, token in vocabulary.words.items():
        places[token] = columns.get(word, -1)
    return places


def shared_words(mine: Iterable[str], theirs: Iterable[str]) -> list[str]:
    """Words of both, sorted; `RequestError` where they are too few."""
    words = sorted(set(mine) & set(theirs))
    if len(words) < FEWEST_WORDS:
        raise RequestError(f"shares {len(words)} words; {FEWEST_WORDS} are needed")
    return words


def usual_vocabulary(
    catalog: Catalog, view: FamilyView, footprints: Sequence[Footprint | None]
) -> Vocabulary | None:
    """That of most of some footprints, which are `whole`; None where there is none."""
    usual = usual_reading(footprints)
    if usual is None:
        return None
    one = next(one for one in footprints if one is not None and one.tokenizer == usual[0])
    return vocabulary_of(catalog, view, one)


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
