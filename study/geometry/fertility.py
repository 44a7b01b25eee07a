"""Into how many tokens a tokenizer cuts a group's words: what confounds scripts' comparison."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..texts import Text

Tokenize = Callable[[str], Sequence[int]]
"""A text's token ids, without special tokens."""

UNSPACED = ("CJK ", "HIRAGANA ", "KATAKANA ", "THAI ", "LAO ", "KHMER ", "MYANMAR ", "TIBETAN ")
"""Beginnings of the Unicode names of letters in scripts that put no space between words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fertility:
    """Of one group's texts.

    Attributes:
        tokens: Of all texts whole, however long.
        tokens_per_word: By whitespace; None in scripts that put no space between words.
        tokens_per_character: Whitespace not counted.
        unknown_share: Of the tokens, 0…1; None where the tokenizer has no unknown token.
    """

    texts: int
    tokens: int
    tokens_per_word: float | None
    tokens_per_character: float | None
    unknown_share: float | None


def fertility(
    texts: Sequence[Text], tokenize: Tokenize, *, unknown: int | None = None
) -> dict[str, Fertility]:
    """By group, in order of appearance; `unknown` is the id of the unknown token, if any."""
    by_group: dict[str, list[str]] = {}
    for text in texts:
        by_group.setdefault(text.group, []).append(text.text)
    return {group: _of_group(own, tokenize, unknown) for group, own in by_group.items()}


def _of_group(texts: Sequence[str], tokenize: Tokenize, unknown: int | None) -> Fertility:
    words = [word for text in texts for word in text.split()]
    n_characters = sum(map(len, words))
    n_tokens = n_unknown = 0
    for text in texts:
        ids = list(tokenize(text))
        n_tokens += len(ids)
        n_unknown += ids.count(unknown) if unknown is not None else 0
    spaced = bool(words) and not _is_unspaced("".join(words))
    return Fertility(
        texts=len(texts),
        tokens=n_tokens,
        tokens_per_word=n_tokens / len(words) if spaced else None,
        tokens_per_character=n_tokens / n_characters if n_characters else None,
        unknown_share=n_unknown / n_tokens if unknown is not None and n_tokens else None,
    )


def _is_unspaced(text: str) -> bool:
    """Whether most of the letters are of a script without spaces."""
    letters = [char for char in text if char.isalpha()]
    unspaced = sum(unicodedata.name(char, "").startswith(UNSPACED) for char in letters)
    return 2 * unspaced > len(letters)
