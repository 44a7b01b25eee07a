"""Fertility: the number of tokens per word of a group, which confounds comparisons of scripts."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..report_json import JsonRecord
from ..texts import Text

Tokenize = Callable[[str], Sequence[int]]
"""A text's token ids, without special tokens."""

UNSPACED = ("CJK ", "HIRAGANA ", "KATAKANA ", "THAI ", "LAO ", "KHMER ", "MYANMAR ", "TIBETAN ")
"""Beginnings of the Unicode names of letters in scripts that put no space between words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fertility(JsonRecord):
    """The fertility of one group's texts.

    Attributes:
        tokens: Of all texts, which are not cut.
        tokens_per_word: Words end at whitespace; None in scripts without spaces between words.
        tokens_per_character: Without whitespace.
        unknown_share: Share of unknown tokens, 0…1; None if the tokenizer has no unknown token.
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


def is_spaced(text: str) -> bool:
    """Whether half of its letters or more are of scripts that put spaces between words."""
    letters = [char for char in text if char.isalpha()]
    unspaced = sum(unicodedata.name(char, "").startswith(UNSPACED) for char in letters)
    return 2 * unspaced <= len(letters)


def _of_group(texts: Sequence[str], tokenize: Tokenize, unknown: int | None) -> Fertility:
    spelled = [word for text in texts for word in text.split()]
    n_characters = sum(map(len, spelled))
    n_tokens = n_unknown = 0
    for text in texts:
        ids = list(tokenize(text))
        n_tokens += len(ids)
        n_unknown += ids.count(unknown) if unknown is not None else 0
    spaced = bool(spelled) and is_spaced("".join(spelled))
    return Fertility(
        texts=len(texts),
        tokens=n_tokens,
        tokens_per_word=n_tokens / len(spelled) if spaced else None,
        tokens_per_character=n_tokens / n_characters if n_characters else None,
        unknown_share=n_unknown / n_tokens if unknown is not None and n_tokens else None,
    )
