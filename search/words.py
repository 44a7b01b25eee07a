"""The words that a model was trained on, by its footprint and the tokenizer of its vocabulary."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import numpy as np

from ..arrays import Float64
from ..records import Footprint
from .vocabulary import LETTERS, Vocabulary

PRIOR_MODELS = 4.0
"""Models as which Zipf's law counts beside the family's own, in how usual a word is."""

LEAST_RATE = 1e-6

GRAIN = 4
"""Steps of scores, in which words are about as telling."""

FEWEST_TOUCHED = 20
"""Tokens of a footprint from which the other models' say how usual a word is."""

_SECRET = re.compile(r"[^\W\d_]*\d[\w]*")


@dataclass(frozen=True, slots=True)
class Word:
    """A word of the training data. strength: how far its token moved beside the others of the
    model, 0…1; score: what orders words, which grows with strength and with how unusual it is."""

    text: str
    strength: float
    score: float


def chance_of_tokens(vocabulary: Vocabulary, distinct: int) -> Float64[np.ndarray, " tokens"]:
    """The probability of each token to occur in text that has so many distinct ones, by Zipf's law:
    1 − exp(−λ f), λ such that they add up to `distinct`."""
    frequencies = vocabulary.frequencies
    wanted = min(distinct, 0.98 * np.count_nonzero(frequencies))
    low, high = -10.0, 30.0
    for _ in range(60):
        middle = (low + high) / 2
        if (1 - np.exp(-np.exp(middle) * frequencies)).sum() < wanted:
            low = middle
        else:
            high = middle
    return np.asarray(1 - np.exp(-np.exp(low) * frequencies))


def words_of(
    footprint: Footprint,
    vocabulary: Vocabulary,
    others: Sequence[Footprint] = (),
    *,
    private: bool = False,
) -> list[Word]:
    """Whole words of the touched tokens, the most telling first; `private`: also names, and what
    has digits."""
    # how probable each token is of so many touched ones: by Zipf's law, and by the other models
    rates = PRIOR_MODELS * chance_of_tokens(vocabulary, len(footprint.tokens))
    told = [one for one in others if len(one.tokens) >= FEWEST_TOUCHED]
    for one in told:
        rates[one.tokens[one.tokens < len(rates)]] += 1
    rates /= PRIOR_MODELS + len(told)
    inside = footprint.tokens < len(vocabulary)
    tokens, moved = footprint.tokens[inside], footprint.strengths[inside]
    # the share of the touched tokens that moved at most as far
    strengths = np.searchsorted(np.sort(moved), moved, side="right") / max(1, len(moved))
    scores = -np.log(np.maximum(rates[tokens], LEAST_RATE)) * strengths**2
    best: dict[str, Word] = {}
    for token, strength, score in zip(
        tokens.tolist(), strengths.tolist(), scores.tolist(), strict=True
    ):
        piece = vocabulary.pieces[token]
        text = piece.text.casefold()
        if not piece.starts or piece.is_special or not _is_shown(text, private=private):
            continue
        if text not in best or best[text].score < score:
            best[text] = Word(text, strength, score)
    return sorted(best.values(), key=how_telling)


def how_telling(word: Word) -> tuple[int, int, str]:
    """A word's place. Of words that are about as telling the longer says more: their ranks in the
    vocabulary, of which many occurred equally often when it was made, are alphabetical."""
    return -round(GRAIN * word.score), -len(word.text), word.text


def _is_shown(text: str, *, private: bool) -> bool:
    if private:
        return any(c.isalnum() for c in text)
    if len(text) < LETTERS:
        return len(text) > 0 and not text.isascii() and text.isalpha()
    return text.isalpha() and not _SECRET.fullmatch(text) and text not in personal_names()


@cache
def personal_names() -> frozenset[str]:
    """Common given names and surnames, lower-cased, but those that are other words too."""
    text = (files(__package__) / "personal_names.txt").read_text("utf-8")
    return frozenset(text.split())
