"""Ambiguous words made from any texts: two words that stand in for each other.

A pseudo-word joins two unrelated words, and which of them stood there is its sense (Gale, Church &
Yarowsky 1992; Schütze 1992). Both senses have the same form, `winter-doctor`, so that only its
context tells them apart.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np

from ...errors import StudyError
from .annotated_words import AnnotatedWords

WORD = re.compile(r"[^\W\d_]+")
SHORTEST = 3
"""Letters of a word."""

FEWEST_TEXTS = 12
"""Texts that a word stands in: of so many, about ten are trained on."""

MOST_TEXTS = 40
"""Texts of each sense that are used."""

WIDESPREAD = 0.1
"""Words in more than this share of texts are left out: they are function words."""

MOST_WORDS = 40
"""Pseudo-words; those of the commonest words are made first."""

ALIKE = 3
"""Words that start with the same letters, so many, may be forms of one word: they are no pair."""


def pseudo_words(texts: Sequence[str], *, most_items: int, seed: int) -> AnnotatedWords:
    """Pseudo-words of two words of about the same frequency, in as many texts each.

    A text is used for a pseudo-word if exactly one of its two words stands in it, and once. It is
    fed with the pseudo-word in place of that word.

    Raises:
        StudyError: no two words stand in enough texts.
    """
    places = [_words_of(text) for text in texts]
    holders: dict[str, list[int]] = {}
    for number, words in enumerate(places):
        for word, span in words.items():
            if span is not None:
                holders.setdefault(word, []).append(number)
    common = {
        word: numbers
        for word, numbers in holders.items()
        if len(word) >= SHORTEST
        and FEWEST_TEXTS <= len(numbers) <= max(WIDESPREAD * len(texts), 2 * FEWEST_TEXTS)
    }
    rng = np.random.default_rng(seed)
    lemmas: list[str] = []
    senses: list[str] = []
    fed: list[str] = []
    spans: list[tuple[int, int]] = []
    origin: list[int] = []
    for first, second in _pairs(common):
        both = [[n for n in common[w] if o not in places[n]] for w, o in _either(first, second)]
        size = min(MOST_TEXTS, *map(len, both))
        if size < FEWEST_TEXTS:
            continue
        if len(lemmas) + 2 * size > most_items:
            break
        form = f"{first}-{second}"
        for word, numbers in zip((first, second), both, strict=True):
            for number in np.sort(rng.choice(numbers, size=size, replace=False)).tolist():
                start, end = places[number][word] or (0, 0)
                fed.append(texts[number][:start] + form + texts[number][end:])
                spans.append((start, start + len(form)))
                lemmas.append(form)
                senses.append(word)
                origin.append(number)
    if not lemmas:
        raise StudyError(
            f"word senses: no two words stand in {FEWEST_TEXTS} texts each; give more texts, or "
            "--senses"
        )
    return AnnotatedWords(
        texts=tuple(fed),
        text=np.arange(len(fed)),
        spans=tuple(spans),
        labels=tuple(senses),
        lemmas=tuple(lemmas),
        origin=np.array(origin, dtype=np.int64),
    )


def _words_of(text: str) -> dict[str, tuple[int, int] | None]:
    """The words of a text in small letters, and where they stand; None where they stand twice."""
    places: dict[str, tuple[int, int] | None] = {}
    for match in WORD.finditer(text):
        word = match.group().lower()
        places[word] = None if word in places else match.span()
    return places


def _pairs(holders: Mapping[str, Sequence[int]]) -> list[tuple[str, str]]:
    """Neighbours in the order of frequency that do not start alike, each word once."""
    waiting = sorted(holders, key=lambda word: (-len(holders[word]), word))
    pairs: list[tuple[str, str]] = []
    while waiting and len(pairs) < MOST_WORDS:
        first = waiting.pop(0)
        second = next((w for w in waiting if w[:ALIKE] != first[:ALIKE]), None)
        if second is None:
            break
        waiting.remove(second)
        pairs.append((first, second))
    return pairs


def _either(first: str, second: str) -> tuple[tuple[str, str], tuple[str, str]]:
    """(a word, the other one), both ways."""
    return (first, second), (second, first)
