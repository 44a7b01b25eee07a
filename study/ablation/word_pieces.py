"""Word vectors: the sum of a word's pieces, term by term."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from ...arrays import Bool, Float32, Float64, Int64
from ...errors import StudyError

NO_WORD = -1


@dataclass(frozen=True, slots=True)
class PieceTerms:
    """The terms of one batch of tokens; a text never spans two batches.

    Attributes:
        text: Which text each token is from.
        word: Which word of the text; `NO_WORD` for special tokens and spaces.
    """

    terms: Float32[np.ndarray, "terms tokens dim"] = field(compare=False)
    text: Int64[np.ndarray, " tokens"] = field(compare=False)
    word: Int64[np.ndarray, " tokens"] = field(compare=False)


@dataclass(frozen=True, slots=True)
class WordTerms:
    """The terms of the requested words, in their order.

    Attributes:
        pieces: The number of pieces that were summed; 0 where the text was cut before the word.
    """

    terms: Float32[np.ndarray, "terms words dim"] = field(compare=False)
    pieces: Int64[np.ndarray, " words"] = field(compare=False)

    @property
    def seen(self) -> Bool[np.ndarray, " words"]:
        """False where no piece of the word was seen; its terms are 0."""
        seen: Bool[np.ndarray, " words"] = self.pieces > 0
        return seen


def words_of_tokens(
    text: Int64[np.ndarray, " tokens"],
    position: Int64[np.ndarray, " tokens"],
    word_ids: Sequence[Sequence[int | None]],
) -> Int64[np.ndarray, " tokens"]:
    """The word of each token, from each text's `word_ids()` of a fast tokenizer."""
    pairs = zip(text.tolist(), position.tolist(), strict=True)
    numbers = (word_ids[t][p] for t, p in pairs)
    return np.array([NO_WORD if word is None else word for word in numbers], dtype=np.int64)


def word_terms(
    batches: Iterable[PieceTerms],
    text: Int64[np.ndarray, " words"],
    word: Int64[np.ndarray, " words"],
) -> WordTerms:
    """The summed pieces of the words (text, word), which must differ, from a stream of batches.

    With positions in place of words this collects single tokens, such as masked ones.
    Peak: one batch and the requested words in float32, and the words of one batch in float64.

    Raises:
        StudyError: no batch, or a text that comes in two batches.
    """
    wanted = {pair: row for row, pair in enumerate(zip(text.tolist(), word.tolist(), strict=True))}
    if len(wanted) != len(text):
        raise ValueError("a word is requested twice")
    sums: Float32[np.ndarray, "terms words dim"] | None = None
    pieces = np.zeros(len(text), dtype=np.int64)
    for batch in batches:
        if sums is None:
            n_terms, _, dim = batch.terms.shape
            sums = np.zeros((n_terms, len(text), dim), dtype=np.float32)
        pairs = zip(batch.text.tolist(), batch.word.tolist(), strict=True)
        rows = np.array([wanted.get(p, NO_WORD) if p[1] >= 0 else NO_WORD for p in pairs])
        tokens = np.flatnonzero(rows >= 0)
        if not len(tokens):
            continue
        here, place = np.unique(rows[tokens], return_inverse=True)
        if pieces[here].any():
            again = int(text[here[pieces[here] > 0][0]])
            raise StudyError(f"words: text {again} comes in two batches; keep its tokens together")
        pieces[here] = np.bincount(place)
        for term, values in zip(sums, batch.terms, strict=True):
            total: Float64[np.ndarray, "here dim"] = np.zeros((len(here), values.shape[1]))
            np.add.at(total, place, values[tokens])
            term[here] = total
    if sums is None:
        raise StudyError("words: no tokens; give at least one text")
    return WordTerms(sums, pieces)
